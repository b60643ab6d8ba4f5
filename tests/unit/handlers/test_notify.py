"""Notify: one message for the run, with the counts and the cost before its first and after its last round; its form."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from handlers import notify, slack_message
from handlers.notify import message_of
from node_fleet.adapters.secrets import SecretError
from node_fleet.adapters.slack import Sent
from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before, hourly_cost_after
from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.model.errors import NotificationError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.slack_blocks import alarm_payload, text_payload
from node_fleet.payload import known, take, to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import RUN, FakeServices, scale_down, target, worker

SETTINGS = Settings()
BESIDE = 20 * 0.096 / 730 + 0.005
"""The volume of 20 GiB and the public address of one worker."""
ON_DEMAND, SPOT = 0.0264 + BESIDE, 0.0087 + BESIDE


def snapshot(*others: dict[str, Any], workers: int = 1) -> Snapshot:
    """On-demand workers, and others with these changes."""
    every = [*[{}] * workers, *others]
    crew = (worker(f"i-{n}", **{"market": "on-demand", **changes}) for n, changes in enumerate(every, start=1))
    return Snapshot(at=100, source="live", cpu_percent=10.0, workers=tuple(crew))


def scale_up(*outcomes: Any, workers_before: int = 2) -> Operation:
    slots = tuple(
        LaunchSlot(
            number=number,
            zone="b",
            subnet_id="subnet-1",
            instance_type="t3.small",
            market="spot",
            outcome=outcome,
            instance_id=f"i-new{number}",
        )
        for number, outcome in enumerate(outcomes, start=1)
    )
    return scale_down(kind="scale_up", phase="verify", slots=slots, workers_before=workers_before)


def payload(**parts: Any) -> dict[str, Any]:
    return {"run": to_payload(RUN), **{name: to_payload(part) for name, part in parts.items()}}


def cost_before(event: dict[str, Any]) -> FleetBefore | None:
    return fleet_before(known(event, "snapshot", Snapshot), known(event, "operation", Operation), SETTINGS.tariff())


def cost_after(event: dict[str, Any]) -> Cost | None:
    return hourly_cost_after(
        known(event, "snapshot", Snapshot), known(event, "operation", Operation), SETTINGS.tariff()
    )


@pytest.mark.parametrize(
    ("workers", "before", "known_before"),
    [(2, 2, {}), (4, 2, {"fleet_before": {"workers": 2, "hourly_cost": {"usd": 2 * ON_DEMAND, "missing": []}}})],
    ids=["the first round", "a further round keeps the counts and cost from before the first"],
)
def test_a_scale_up_costs_its_joined_workers_more(workers: int, before: int, known_before: dict[str, Any]) -> None:
    event = payload(
        snapshot=snapshot(workers=workers),
        operation=scale_up("joined", "unjoined", workers_before=workers),
        outcome={"kind": "scaled_up", "text": "scaled up", "workers_after": workers + 1},
        **known_before,
    )
    message = message_of(event, SETTINGS)
    assert (message.workers_before, message.workers_after) == (before, workers + 1)
    assert message.hourly_cost_before == Cost(usd=pytest.approx(before * ON_DEMAND, abs=1e-4))
    assert message.hourly_cost_after == Cost(usd=pytest.approx(workers * ON_DEMAND + SPOT))
    assert message.level == "success"


def test_a_scale_down_costs_less_by_removed_workers_and_not_by_reinstated_ones() -> None:
    operation = scale_down(targets=(target("i-2", "forgotten"), target("i-1", "undone")))
    assert cost_after(payload(snapshot=snapshot(workers=2), operation=operation)) == Cost(usd=pytest.approx(ON_DEMAND))


def test_workers_under_notice_are_in_the_cost_until_they_end_and_not_in_the_size() -> None:
    event, both = payload(snapshot=snapshot({"under_notice": True})), Cost(usd=pytest.approx(2 * ON_DEMAND))
    assert cost_before(event) == FleetBefore(workers=1, hourly_cost=both)
    assert cost_after(event) == both


@pytest.mark.parametrize("kind", ["x9.huge", ""])
def test_a_fleet_with_an_unknown_price_costs_at_least_the_known_part(kind: str) -> None:
    event = payload(snapshot=snapshot({"instance_type": kind}))
    least = Cost(
        usd=pytest.approx(ON_DEMAND + BESIDE),
        missing=(f"the price of {kind or 'an unknown type'} on-demand in ap-southeast-1",),
    )
    assert cost_after(event) == least
    assert cost_before(event) == FleetBefore(workers=2, hourly_cost=least)


def test_without_measured_cpu_the_credits_are_missing_and_the_cost_is_at_least_the_rest() -> None:
    found = cost_after(payload(snapshot=dataclasses.replace(snapshot(), cpu_percent=None)))
    missing = ("the CPU credits of t3.small, whose CPU is not measured",)
    assert found == Cost(usd=pytest.approx(ON_DEMAND), missing=missing)


def test_the_measured_cpu_is_spread_over_the_workers_after_the_run() -> None:
    event = payload(snapshot=dataclasses.replace(snapshot(workers=2), cpu_percent=60.0), operation=scale_up("joined"))
    before, after = cost_before(event), cost_after(event)
    assert before is not None and before.hourly_cost.usd == pytest.approx(2 * (ON_DEMAND + 0.40 * 2 * 0.05))
    assert after is not None and after.usd == pytest.approx(2 * ON_DEMAND + SPOT + 3 * 0.20 * 2 * 0.05)


@pytest.mark.parametrize("broken", [{}, {"snapshot": {"at": "soon"}}, {"snapshot": None}])
def test_a_payload_without_a_usable_snapshot_has_no_cost(broken: dict[str, Any]) -> None:
    assert cost_after({**payload(), **broken}) is None
    assert cost_before({**payload(), **broken}) is None


def test_every_alert_of_the_run_is_in_the_one_message() -> None:
    alerts = tuple(Alert(kind=f"k{n}", text=f"t{n}") for n in range(12))
    message = message_of(payload(alerts=alerts), SETTINGS)
    assert message.alerts == alerts
    assert (message.level, message.what) == ("warning", "t0")


def test_a_failure_leads_the_message_in_plain_words() -> None:
    cause = '{"errorMessage": "vCPU quota L-1216C47A is used up", "errorType": "QuotaExceededError"}'
    event = {**payload(), "failure": {"Error": "QuotaExceededError", "Cause": cause}}
    message = message_of(event, SETTINGS)
    assert (message.level, message.what) == ("error", "vCPU quota L-1216C47A is used up [QuotaExceededError]")


@pytest.mark.parametrize("failed", [False, True])
def test_the_message_is_published_and_a_failure_stays_in_the_payload_as_plain_text(
    services: FakeServices, failed: bool
) -> None:
    failure = {"failure": {"Error": "PausedError", "Cause": '{"errorMessage": "paused by ana: a sale"}'}}
    event = {**payload(), **(failure if failed else {})}
    answer = notify.handler(event, None)
    ((subject, sent),) = services.publisher.messages
    assert subject == ("PausedError" if failed else sent["what"]) and (sent["level"] == "error") is failed
    plain = {"Error": "PausedError", "Cause": "paused by ana: a sale"}
    assert answer == ({**event, "failure": plain} if failed else event)


def test_the_server_writes_the_run_into_the_cluster_after_the_message(services: FakeServices) -> None:
    notify.handler(payload(snapshot=snapshot(), operation=scale_up("joined")), None)
    assert services.server.documents() == ["RecordEvents"]
    assert [row[2:4] for row in services.reported()["events"]] == [["i-new1", "ScaleUp"]]


def test_a_dry_run_writes_nothing_into_the_cluster(services: FakeServices) -> None:
    notify.handler({"run": {**to_payload(RUN), "dry_run": True}}, None)
    assert (services.server.commands, len(services.publisher.messages)) == ([], 1)


def test_a_server_that_cannot_be_reached_changes_nothing_of_the_run(services: FakeServices) -> None:
    services.server.unreachable = True
    event = payload(snapshot=snapshot())
    assert notify.handler(event, None) == event
    assert len(services.publisher.messages) == 1


def failing(services: FakeServices, memory: Memory, **more: Any) -> Memory:
    """The memory after the message of a run that EC2 has failed."""
    event = {**payload(memory=memory), "failure": {"Error": "Ec2Error", "Cause": "x"}, **more}
    return take(notify.handler(event, None), "memory", Memory)


def test_a_failure_that_lasts_is_one_message_until_it_was_absent_for_the_quiet_time(services: FakeServices) -> None:
    memory = failing(services, Memory())
    for _ in range(3):
        services.clock.time += 3600
        memory = failing(services, memory)
    assert [subject for subject, _ in services.publisher.messages] == ["Ec2Error"]
    services.clock.time += 3601
    failing(services, memory)
    assert len(services.publisher.messages) == 2


def test_a_run_that_changed_the_fleet_is_reported_although_its_incident_is_known(services: FakeServices) -> None:
    memory = failing(services, Memory())
    failing(services, memory, outcome={"kind": "scaled_up", "text": "scaled up", "workers_after": 3})
    assert len(services.publisher.messages) == 2


def test_a_reboot_is_reported_although_its_incident_is_known(services: FakeServices) -> None:
    memory = failing(services, Memory())
    failing(services, memory, outcome={"kind": "rebooted", "text": "rebooted 1 worker", "workers_after": 3})
    assert len(services.publisher.messages) == 2


def test_a_failure_with_another_cause_is_reported_although_its_class_is_known(services: FakeServices) -> None:
    memory = failing(services, Memory())
    other = {"failure": {"Error": "Ec2Error", "Cause": '{"errorMessage": "EC2: cannot list volumes"}'}}
    memory = failing(services, memory, **other)
    failing(services, memory, **other)
    assert len(services.publisher.messages) == 2


@pytest.mark.parametrize("failed", [False, True])
def test_an_alert_that_no_topic_accepted_is_forgotten_so_that_the_next_run_sends_it(
    services: FakeServices, failed: bool
) -> None:
    services.publisher.error = NotificationError("cannot publish to t: AuthorizationError")
    alert = {"kind": "at_maximum", "text": "at the maximum"}
    memory = Memory(alerted={"at_maximum": RUN.started_at, "not_ready:i-1": 5})
    event = payload(memory=memory, snapshot=snapshot(), decision={"sentence": "s", "alerts": [alert]})
    event |= {"failure": {"Error": "Ec2Error", "Cause": "x"}} if failed else {}
    answer = notify.handler({**event, "ended": [{"key": "join_failed", "last_seen": 60}]}, None)
    assert take(answer, "memory", Memory).alerted == {"not_ready:i-1": 5, "join_failed": 60}
    assert answer["notify_failure"]["Error"] == "NotificationError"
    assert "AuthorizationError" in answer["notify_failure"]["Cause"]
    assert services.server.documents() == ["RecordEvents"], "the cluster still gets its report"


LOST = Alert(kind="volumes_lost:i-1", text="the volume of shop/db is lost", is_critical=True)


def test_critical_alerts_that_are_over_with_their_report_are_kept_until_a_topic_accepts_them(
    services: FakeServices,
) -> None:
    stopped = Alert(kind="roll_out_stopped", text="x" * 500)
    over = (LOST, Alert(kind="worker_stopped", text="no critical one"), Alert(kind="at_maximum", text="found again"))
    event = payload(memory=Memory(), snapshot=snapshot(), alerts=over, decision={"sentence": "s", "alerts": [stopped]})
    services.publisher.error = NotificationError("cannot publish to t: AuthorizationError")
    kept = take(notify.handler(event, None), "memory", Memory)
    assert kept.unsent == (LOST, stopped)
    services.publisher.error = None
    after = take(notify.handler(payload(memory=kept, alerts=kept.unsent), None), "memory", Memory)
    ((_, sent),) = services.publisher.messages
    assert (after.unsent, sent["incidents"]) == ((), ["volumes_lost:i-1", "roll_out_stopped"])


def test_an_alert_that_is_too_long_to_be_kept_is_cut_before_a_word_and_says_so(services: FakeServices) -> None:
    """Cut within its last word the command would delete another claim: data-1 is not data-12."""
    command = "kubectl -n shop delete pvc data-12"
    services.publisher.error = NotificationError("cannot publish to t")
    mark = " ... (cut, because the state item keeps only this much of an alert)"
    for room in (-1, 0):  # the text is cut one character before the end of the command, and at it
        text = f"{'x' * (499 - len(mark) - len(command) - room)} {command} {'y' * 100}"
        alert = dataclasses.replace(LOST, text=text)
        answer = notify.handler(payload(memory=Memory(), alerts=(alert,)), None)
        (kept,) = take(answer, "memory", Memory).unsent
        assert kept.text.endswith(f"delete pvc{mark}")
        assert len(kept.text) <= 500
        again = notify.handler(payload(memory=Memory(), alerts=(kept,)), None)
        assert take(again, "memory", Memory).unsent == (kept,)


@pytest.mark.parametrize("number", [3, 4])
def test_the_last_three_are_kept(services: FakeServices, number: int) -> None:
    services.publisher.error = NotificationError("cannot publish to t")
    alerts = tuple(dataclasses.replace(LOST, kind=f"volumes_lost:i-{n}") for n in range(number))
    answer = notify.handler(payload(memory=Memory(), alerts=alerts), None)
    assert take(answer, "memory", Memory).unsent == alerts[-3:]


def test_an_alert_that_is_known_is_not_repeated_and_a_new_one_is(services: FakeServices) -> None:
    known_alert, new = Alert(kind="drain_failed:i-1", text="t"), Alert(kind="drain_failed:i-2", text="t")
    memory = Memory(alerted={known_alert.kind: RUN.started_at - 100})
    notify.handler(payload(memory=memory, alerts=(known_alert,)), None)
    assert services.publisher.messages == []
    notify.handler(payload(memory=memory, alerts=(known_alert, new)), None)
    ((_, sent),) = services.publisher.messages
    assert sent["incidents"] == [known_alert.kind, new.kind]


def test_the_end_of_an_incident_is_a_message_of_its_own(services: FakeServices) -> None:
    ended = ({"key": "at_maximum", "last_seen": 60}, {"key": "Ec2Error", "last_seen": 60})
    notify.handler({**payload(memory=Memory()), "ended": list(ended)}, None)
    assert [(subject, sent["is_end"]) for subject, sent in services.publisher.messages] == [
        ("at_maximum", True),
        ("Ec2Error", True),
    ]


def test_a_dry_run_reports_no_end_because_it_stores_none(services: FakeServices) -> None:
    event = {**payload(memory=Memory()), "ended": [{"key": "at_maximum", "last_seen": 60}]}
    event["run"] = {**event["run"], "dry_run": True}
    notify.handler(event, None)
    assert [sent["is_end"] for _, sent in services.publisher.messages] == [False]


def test_an_incident_that_begins_again_in_the_same_run_has_not_ended(services: FakeServices) -> None:
    failing(services, Memory(), ended=[{"key": "Ec2Error", "last_seen": 60}])
    assert [(subject, sent["is_end"]) for subject, sent in services.publisher.messages] == [("Ec2Error", False)]


def test_the_end_of_an_incident_comes_after_the_message_of_a_run_that_has_news(services: FakeServices) -> None:
    outcome = {"kind": "scaled_up", "text": "scaled up", "workers_after": 3}
    notify.handler({**payload(outcome=outcome), "ended": [{"key": "at_maximum", "last_seen": 60}]}, None)
    assert [subject for subject, _ in services.publisher.messages] == ["scaled up", "at_maximum"]


def test_a_memory_that_cannot_be_read_costs_no_message_and_stays_as_it_is(services: FakeServices) -> None:
    event = {**payload(), "memory": {"alerted": "x"}, "failure": {"Error": "Ec2Error", "Cause": "x"}}
    assert notify.handler(event, None)["memory"] == {"alerted": "x"}
    assert len(services.publisher.messages) == 1


def shown(message: dict[str, Any], subject: str = "") -> dict[str, Any]:
    return slack_message.payload_of(json.dumps(message), subject, SETTINGS)[0]


def test_an_alarm_is_shown_as_an_alarm() -> None:
    alarm = {"AlarmName": "node-fleet-NoRuns", "NewStateValue": "ALARM", "NewStateReason": "no run for 10 minutes"}
    assert shown(alarm, "ALARM") == alarm_payload(alarm)


def test_an_event_that_lambda_gave_up_is_shown_with_its_reason_and_one_that_grew_too_old_without_an_answer() -> None:
    context = {
        "functionArn": "arn:aws:lambda:eu-central-1:123456789012:function:node-fleet-CleanUp:7",
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    }
    response = {
        "errorType": "CleanUpUnfinishedError",
        "errorMessage": "node i-1 of i-1 is not deleted: ready",
    }
    given_up = shown({"requestContext": context, "responsePayload": response})
    assert given_up["text"] == "⚠️ node-fleet-CleanUp gave up after 3 tries: node i-1 of i-1 is not deleted: ready"
    assert "docs/operations.md, row CleanUpUnfinishedError" in json.dumps(given_up)
    assert "EventAgeExceeded" in shown({"requestContext": {**context, "condition": "EventAgeExceeded"}})["text"]


class Hook:
    """Stands in for SlackHook: keeps what it sends, and how much time it had."""

    def __init__(self, session: Any, url: str, *, sleep: Any, time_left: Any) -> None:
        self.url, self.time_left = url, time_left
        HOOKS.append(self)

    def send(self, payload: dict[str, Any], **_: Any) -> Sent:
        self.payload, self.seconds = payload, self.time_left()
        return Sent(outcome="sent" if "first" in payload["text"] else "failed", tries=2, detail="d")


HOOKS: list[Hook] = []


class Context:
    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 5000


class Secrets:
    def __init__(self, url: str) -> None:
        self.url = url

    def text(self, name: str) -> str:
        if not self.url:
            raise SecretError(f"{name} is empty")
        return self.url


@pytest.fixture
def lines(services: Any, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fields of each line of the log."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(slack_message, "SlackHook", Hook)
    monkeypatch.setattr(slack_message.logger, "info", lambda text, **fields: found.append(fields))
    services.clock.sleep, services.secrets = None, Secrets("https://hooks.example/1")
    HOOKS.clear()
    return found


def posted(*texts: str, **more: str | None) -> dict[str, Any]:
    records = [{"Sns": {"Message": text, "MessageId": f"m-{text}", **more}} for text in texts]
    return slack_message.handler({"Records": records}, Context())


def test_each_message_is_posted_within_the_time_of_the_call_and_counted_in_the_log(
    lines: list[dict[str, Any]],
) -> None:
    assert posted("first", "second") == {"outcomes": ["sent", "failed"]}
    assert [(hook.url, hook.seconds) for hook in HOOKS] == [("https://hooks.example/1", 3.0)] * 2
    assert [(one["outcome"], one["tries"], one["failures"], one["message_id"]) for one in lines] == [
        ("sent", 2, 0, "m-first"),
        ("failed", 2, 1, "m-second"),
    ]


@pytest.mark.parametrize(
    ("more", "subject"), [({"Subject": "a budget"}, "a budget"), ({"Subject": None}, ""), ({}, "")]
)
def test_a_text_is_posted_with_its_subject(
    lines: list[dict[str, Any]], more: dict[str, str | None], subject: str
) -> None:
    posted("first", **more)
    assert HOOKS[0].payload == text_payload("first", subject)


def test_a_message_without_a_usable_secret_is_counted_as_failed_without_a_try(
    lines: list[dict[str, Any]], services: Any
) -> None:
    services.secrets = Secrets("")
    assert posted("first") == {"outcomes": ["failed"]}
    assert (HOOKS, lines[0]["tries"], lines[0]["failures"]) == ([], 0, 1)
    assert "the Slack secret cannot be used" in lines[0]["detail"]


@pytest.mark.parametrize(
    "text", ["not JSON", "[1]", '"text"', '{"what": 1}', "{}"], ids=["text", "list", "string", "message", "object"]
)
def test_any_other_text_is_shown_as_it_is(text: str) -> None:
    assert slack_message.payload_of(text, "subject", SETTINGS) == (text_payload(text, "subject"), None)
