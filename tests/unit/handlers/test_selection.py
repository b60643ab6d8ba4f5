"""InspectNodes and SelectNodes: record the plan before anything happens, and say why every other worker stays."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.inspect_nodes import handler as inspect_nodes
from handlers.select_nodes import handler as select_nodes
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.incident_state import EndedIncident
from node_fleet.payload import take, to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import (
    ALL_FREE,
    LOST_VOLUME,
    NOW,
    OPERATION_ID,
    RUNNING,
    A,
    B,
    C,
    FakeServices,
    answer,
    inspected,
    inspection_text,
    worker,
    worker_line,
)

UNKNOWN = {"known": False, "detail": "server_not_managed: x", "lines": []}


def test_the_lines_of_the_server_are_passed_on(services: FakeServices) -> None:
    services.server.says("InspectNodes", ALL_FREE)
    assert services.run(inspect_nodes)["inspection"] == inspected(ALL_FREE)


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (answer(ALL_FREE[:-9]), ""),
        (answer("", 1), ""),
        (RUNNING, ""),
        (answer(ALL_FREE, status="TimedOut"), ""),
        (answer(code=69, stderr="kubectl: connection refused\n"), "connection refused"),
    ],
)
def test_an_answer_that_is_cut_late_or_failed_is_unknown(services: FakeServices, said: Any, detail: str) -> None:
    services.server.answers["InspectNodes"] = said
    found = services.run(inspect_nodes)["inspection"]
    assert (found["known"], found["lines"]) == (False, [])
    assert found["detail"] and detail in found["detail"]


def test_an_unreachable_server_is_an_answer_with_one_alert_until_it_was_reachable_for_the_quiet_time(
    services: FakeServices,
) -> None:
    answers, memory = [], Memory()
    for seconds, error in (
        (0, ServerUnreachableError("server_not_managed: the K3s server i-1 runs")),
        (3599, ServerNotFoundError("no running instance carries the tag Role=k3s-master")),
        (1, ServerUnreachableError("server_not_managed: x")),
        (3600, ServerUnreachableError("server_not_managed: y")),
    ):
        services.server.answers["InspectNodes"] = error
        services.clock.time += seconds
        answered = inspect_nodes({**services.payload(), "memory": to_payload(memory)}, None)
        memory = answered["memory"]
        assert str(error) in answered["inspection"]["detail"]
        answers.append(answered["alerts"])
    assert [bool(alerts) for alerts in answers] == [True, False, False, True]
    assert answers[0]["rows"][0][0] == "server_unreachable"


@pytest.mark.parametrize(
    ("shown", "words"),
    [(NOW + 90, "90 s ahead"), (NOW - 90, "90 s behind"), (NOW + 31, "31 s ahead"), (NOW - 31, "31 s behind")],
)
def test_a_server_whose_clock_is_off_is_an_answer_with_one_alert_that_names_the_difference(
    services: FakeServices, shown: int, words: str
) -> None:
    services.server.says("InspectNodes", inspection_text(worker_line(A), worker_line(B), worker_line(C), at=shown))
    first = services.run(inspect_nodes)
    ((kind, text, *_),) = first["alerts"]["rows"]
    assert (kind, first["inspection"]["known"]) == ("clock_difference", False)
    assert f"the clock of the K3s server is {words}" in text and "the next run tries again" in text
    services.clock.time += 120
    services.server.says(
        "InspectNodes", inspection_text(worker_line(A), worker_line(B), worker_line(C), at=shown + 120)
    )
    assert inspect_nodes({**services.payload(), "memory": first["memory"]}, None)["alerts"] == []
    answered = select_nodes(first, None)
    assert (answered["selection"]["status"], services.state.item.operation) == ("none", None)


@pytest.mark.parametrize("shown", [NOW + 30, NOW - 30, NOW])
def test_a_clock_within_the_tolerance_is_no_reason_to_keep_a_worker(services: FakeServices, shown: int) -> None:
    services.server.says("InspectNodes", inspection_text(worker_line(A), worker_line(B), worker_line(C), at=shown))
    assert services.run(inspect_nodes)["inspection"]["known"] is True


def select(services: FakeServices, text: str = ALL_FREE, **more: Any) -> dict[str, Any]:
    return services.run(select_nodes, inspection=inspected(text), **more)


def test_the_plan_is_in_the_state_item_before_anything_happens(services: FakeServices) -> None:
    answered = select(services)
    assert answered["selection"]["status"] == "selected"
    assert services.state.calls == ["renew", "save selected"]
    operation = services.state.item.operation
    assert operation is not None and to_payload(operation) == answered["operation"]
    assert (operation.operation_id, operation.workers_before, operation.started_at) == (OPERATION_ID, 3, NOW)
    assert services.server.commands == []
    assert "inspection" not in answered


def test_of_many_kept_workers_the_first_twenty_are_named(services: FakeServices) -> None:
    services.settings = Settings(min_workers=0)
    others = [worker_line(f"i-{n:017x}") for n in range(16, 41)]
    found = select(services, inspection_text(worker_line(A), *others))["selection"]
    assert (found["status"], len(found["kept"])) == ("selected", 20)


@pytest.mark.parametrize(("replaced", "notify"), [("", False), (A, True)])
def test_a_run_that_removes_no_worker_is_reported_when_it_was_to_replace_one(
    services: FakeServices, replaced: str, notify: bool
) -> None:
    payload = services.payload(inspection=inspected(inspection_text(worker_line(A, "RCW", "?"))))
    payload["decision"]["replace"] = replaced
    selection = select_nodes(payload, None)["selection"]
    assert (selection["notify"], selection["kept"][:1]) == (notify, [f"worker {A}: kept, another user cordoned it"])


LARGE_POD = Alert(kind="pod_too_large:64000m/100Mi", text="pod shop/huge-1 requests 64000m CPU")


@pytest.mark.parametrize("rule", ["idle", "drifted"])
@pytest.mark.parametrize("kept", [inspected(inspection_text(worker_line(A, "RCW", "?"))), UNKNOWN])
@pytest.mark.parametrize(
    "news",
    [
        {"decision": (LARGE_POD,)},
        {"alerts": (LARGE_POD,)},
        {"notes": ("scaled up from 2 to 4 workers",)},
        {"ended": (EndedIncident(key="at_maximum", last_seen=NOW - 700),)},
    ],
)
def test_what_a_run_has_to_report_is_sent_although_it_removes_no_worker(
    services: FakeServices, rule: str, kept: dict[str, Any], news: dict[str, Any]
) -> None:
    payload = services.payload(inspection=kept, **{name: found for name, found in news.items() if name != "decision"})
    payload["decision"] |= {"rule": rule, "alerts": to_payload(news.get("decision", ()))}
    assert select_nodes(payload, None)["selection"]["notify"] is True


@pytest.mark.parametrize(("drift", "dead", "first"), [("image", "", True), ("", "", False), ("image", A, False)])
def test_when_no_idle_worker_can_be_removed_outdated_workers_do_not_wait_for_that(
    services: FakeServices, drift: str, dead: str, first: bool
) -> None:
    seen = tuple(worker(i, drift=drift) for i in (A, B, C))
    kept = inspection_text(*(worker_line(i, "RCW", "?") for i in (A, B, C)))
    snapshot = Snapshot(at=NOW, source="live", pending=(), workers=seen)
    payload = services.payload(inspection=inspected(kept), snapshot=snapshot)
    payload["decision"] |= {"replace": dead, "rule": "not_ready"} if dead else {}
    answered = select_nodes(payload, None)
    assert answered["selection"]["status"] == "none"
    assert (take(answered, "memory", Memory).roll_out.first_until > NOW) is first


def test_a_decision_without_a_count_selects_one_worker(services: FakeServices) -> None:
    services.settings = Settings(min_workers=0, max_targets=3)
    payload = services.payload(inspection=inspected(ALL_FREE))
    payload["decision"]["count"] = 0
    select_nodes(payload, None)
    assert len(services.state.phases) == 1


def test_every_worker_that_stays_has_its_sentence(services: FakeServices) -> None:
    text = inspection_text(worker_line(A, blockers="shop/orders-db-0:s"), worker_line(B, "RCW", "?"), worker_line(C))
    services.settings = Settings(min_workers=1)
    assert select(services, text)["selection"]["kept"] == [
        f"worker {A}: kept, shop/orders-db-0 is a StatefulSet pod",
        f"worker {B}: kept, another user cordoned it",
    ]


@pytest.mark.parametrize("minimum", [3, 4, 9])
def test_at_the_minimum_no_worker_is_disturbed(services: FakeServices, minimum: int) -> None:
    services.settings = Settings(min_workers=minimum)
    assert select(services)["selection"]["detail"].startswith("at_min")
    assert (services.server.commands, services.state.item.operation) == ([], None)


def test_kept_workers_are_shown_in_the_cluster_once_in_the_quiet_time_of_alerts(services: FakeServices) -> None:
    kept = inspection_text(*(worker_line(one, blockers="shop/orders-db-0:s") for one in (A, B, C)))
    answered = select(services, kept)
    assert services.server.documents() == ["RecordEvents"]
    events = services.reported()["events"]
    reason = "kept: shop/orders-db-0 is a StatefulSet pod"
    assert events == [["Node", "", one, "NotEligible", reason, False] for one in (A, B, C)]
    assert "no worker was removed" in services.reported()["status"]
    again = {"memory": take(answered, "memory", Memory)}
    services.clock.time += 3599
    select(services, kept, **again)
    assert services.server.documents() == ["RecordEvents"]
    services.clock.time += 1
    select(services, kept, **again)
    assert services.server.documents() == ["RecordEvents"] * 2


def test_a_server_that_cannot_be_reached_keeps_no_run_from_its_selection(services: FakeServices) -> None:
    services.server.unreachable = True
    kept = inspection_text(*(worker_line(one, blockers="shop/orders-db-0:s") for one in (A, B, C)))
    assert select(services, kept)["selection"]["status"] == "none"


@pytest.mark.parametrize("reclaimed", [A, B, C])
def test_a_worker_under_notice_does_not_hold_the_minimum(services: FakeServices, reclaimed: str) -> None:
    services.notice(reclaimed)
    assert select(services)["selection"]["status"] == "none"


def test_an_unknown_inspection_removes_no_worker_and_is_reported_once(services: FakeServices) -> None:
    answered = services.run(select_nodes, inspection=UNKNOWN)
    assert answered["selection"]["status"] == "none"
    assert (answered["selection"]["notify"], answered["selection"]["kept"]) == (False, [])
    alerts = (Alert(kind="server_unreachable", text="x"),)
    assert services.run(select_nodes, inspection=UNKNOWN, alerts=alerts)["selection"]["notify"] is True
    assert services.state.calls == []


@pytest.mark.parametrize(
    ("blockers", "words"),
    [("-", f"dry run: would remove {A}: "), ("shop/orders-db-0:s", "dry run: would remove no worker, ")],
)
def test_a_dry_run_names_the_worker_it_would_remove_and_changes_nothing(
    services: FakeServices, blockers: str, words: str
) -> None:
    text = inspection_text(*(worker_line(one, blockers=blockers) for one in (A, B, C)))
    payload = services.payload(inspection=inspected(text))
    payload["run"]["dry_run"] = True
    answered = select_nodes(payload, None)
    assert answered["selection"]["status"] == "dry_run"
    assert words in answered["outcome"]["text"]
    assert (services.server.commands, services.state.calls) == ([], ["renew"])


@pytest.mark.parametrize(("most", "words"), [(4, f"would replace {A}: drifted"), (3, f"would remove {A}: drifted")])
def test_a_dry_run_replaces_an_outdated_worker_before_its_removal_where_the_maximum_allows(
    services: FakeServices, most: int, words: str
) -> None:
    services.settings = Settings(max_workers=most)
    seen = tuple(worker(i, drift="image" if i == A else "") for i in (A, B, C))
    snapshot = Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen)
    payload = services.payload(inspection=inspected(ALL_FREE), snapshot=snapshot)
    payload["run"]["dry_run"] = True
    payload["decision"] |= {"action": "replace", "replace": A, "rule": "drifted"}
    assert words in select_nodes(payload, None)["outcome"]["text"]


@pytest.mark.parametrize(("most", "status"), [(4, "replace"), (3, "none")])
def test_pods_that_fit_on_no_other_worker_keep_an_outdated_one_only_at_the_maximum(
    services: FakeServices, most: int, status: str
) -> None:
    services.settings = Settings(max_workers=most)
    seen = tuple(worker(i, drift="image" if i == A else "") for i in (A, B, C))
    text = inspection_text(worker_line(A, blockers="shop/web-1:f=500/100//cpu"), worker_line(B), worker_line(C))
    snapshot = Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen)
    payload = services.payload(inspection=inspected(text), snapshot=snapshot)
    payload["decision"] |= {"action": "replace", "replace": A, "rule": "drifted"}
    assert select_nodes(payload, None)["selection"]["status"] == status


@pytest.mark.parametrize(
    ("changes", "rule", "status"),
    [
        ({"conditions": ("InstanceStatusImpaired",)}, "unhealthy", "selected"),
        ({"drift": "image"}, "drifted", "none"),
        ({"drift": "image"}, "not_ready", "selected"),
    ],
)
def test_a_worker_that_accepts_no_pods_is_replaced_when_it_is_unhealthy_or_dead(
    services: FakeServices, changes: dict[str, Any], rule: str, status: str
) -> None:
    services.settings = Settings(max_workers=3, min_workers=1)
    seen = (worker(A, **changes), worker(B), worker(C))
    text = inspection_text(worker_line(A, "TW" if rule == "not_ready" else "RTW"), worker_line(B), worker_line(C))
    snapshot = Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen)
    payload = services.payload(inspection=inspected(text), snapshot=snapshot)
    payload["decision"] |= {"action": "replace", "replace": A, "rule": rule}
    assert select_nodes(payload, None)["selection"]["status"] == status


@pytest.mark.parametrize(("count", "most", "chosen"), [(1, 1, 1), (3, 2, 2), (2, 10, 2), (9, 9, 3)])
def test_several_targets_are_planned_up_to_the_setting(
    services: FakeServices, count: int, most: int, chosen: int
) -> None:
    services.settings = Settings(min_workers=0, max_targets=most)
    payload = services.payload(inspection=inspected(ALL_FREE))
    payload["decision"]["count"] = count
    select_nodes(payload, None)
    assert len(services.state.phases) == chosen


def test_the_dead_worker_is_the_one_that_is_removed(services: FakeServices) -> None:
    text = inspection_text(worker_line(A), worker_line(B, "TW", blockers="shop/db-0:s"), worker_line(C))
    payload = services.payload(inspection=inspected(text))
    payload["decision"] |= {"replace": B, "rule": "not_ready"}
    select_nodes(payload, None)
    assert services.state.item.operation is not None
    assert [(t.instance_id, t.not_ready) for t in services.state.item.operation.targets] == [(B, True)]


@pytest.mark.parametrize(("headroom", "words"), [(0, ""), (1, "headroom would be 0.8 workers, under 1")])
def test_at_the_maximum_no_worker_is_replaced_first_without_which_the_headroom_is_missing(
    services: FakeServices, headroom: int, words: str
) -> None:
    services.settings = Settings.from_mapping({"max_workers": 3, "headroom_workers": headroom})
    figures = {"cpu_allocatable_milli": 2000, "memory_allocatable_mib": 1900, "cpu_requested_milli": 850}
    busy = tuple(worker(i, **figures, memory_requested_mib=100, pods=5) for i in (A, B, C))
    payload = services.payload(
        inspection=inspected(ALL_FREE),
        snapshot=Snapshot(
            at=NOW, read_at=NOW, source="live", pending=(), workers=busy, cpu_percent=10.0, memory_percent=10.0
        ),
    )
    payload["decision"] |= {"action": "replace", "replace": A, "rule": "drifted"}
    detail = select_nodes(payload, None)["selection"]["detail"]
    assert words in detail and ("the fleet is at its maximum" in detail) is bool(words)


def test_a_worker_in_back_off_is_not_selected(services: FakeServices) -> None:
    memory = Memory(back_offs=(BackOff(key=f"node:{A}", failures=1, until=NOW + 1),))
    assert select(services, memory=memory)["operation"]["targets"]["rows"][0][0] == B


@pytest.mark.parametrize("operation_id", ["down-3-1", "down-1-9", "x"])
def test_a_cordon_left_by_a_dead_run_is_removed(services: FakeServices, operation_id: str) -> None:
    select(services, inspection_text(worker_line(A, "RCW", operation_id), worker_line(B), worker_line(C)))
    assert services.server.commands[0] == ("UncordonNode", {"NodeName": A, "OperationId": operation_id})
    assert services.server.documents() == ["UncordonNode", "RecordEvents"]


@pytest.mark.parametrize(("left_alone", "uncordoned"), [("", A), ("notice", B), ("set aside", B)])
def test_one_cordon_a_run_is_removed_and_none_of_a_worker_under_notice_or_set_aside(
    services: FakeServices, left_alone: str, uncordoned: str
) -> None:
    if left_alone == "notice":
        services.notice(A)
    if left_alone == "set aside":
        services.set_aside(A)
    select(services, inspection_text(*(worker_line(i, "RCW", "down-3-1") for i in (A, B)), worker_line(C)))
    assert services.server.commands[0] == ("UncordonNode", {"NodeName": uncordoned, "OperationId": "down-3-1"})
    assert services.server.documents() == ["UncordonNode", "RecordEvents"]


@pytest.mark.parametrize(
    ("state", "forgotten"), [("terminated", True), ("gone", True), ("shutting-down", False), ("stopped", False)]
)
def test_the_node_of_a_dead_worker_is_forgotten_when_ec2_has_ended_its_instance(
    services: FakeServices, state: str, forgotten: bool
) -> None:
    dead = "i-0dead00000000000"
    services.ec2.state[dead] = state
    select(services, inspection_text(*(worker_line(i) for i in (A, B, C)), worker_line(dead, "TW")))
    expected = [("ForgetNode", {"NodeName": dead, "InstanceId": dead})] if forgotten else []
    assert services.server.commands == expected


def test_volumes_that_ended_with_a_dead_worker_are_reported_although_no_worker_is_removed(
    services: FakeServices,
) -> None:
    dead = "i-0dead00000000000"
    services.ec2.state[dead] = "terminated"
    services.server.says("ForgetNode", f"{LOST_VOLUME}result: forgotten {dead}")
    text = inspection_text(worker_line(A), worker_line(dead, "TW"))
    answered = select(services, text)
    assert answered["selection"]["notify"]
    assert [alert.kind for alert in take(answered, "alerts", tuple[Alert, ...])] == [f"volumes_lost:{dead}"]
