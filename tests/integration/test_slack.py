"""The Slack function against a fake Slack over real HTTP: 429, 500, 400, 404, one that hangs, none at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from handlers import slack_message
from node_fleet.adapters import slack as slack_adapter
from node_fleet.adapters.secrets import SecretError
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.incident_state import EndedIncident
from node_fleet.domain.notify.message import Message, end_message
from node_fleet.domain.notify.slack_blocks import FALLBACK_LIMIT
from node_fleet.domain.notify.threads import Thread
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

pytestmark = pytest.mark.usefixtures("handler_coverage")

HANG = 0


@dataclass(slots=True)
class Slack:
    """Gives each request the next of its answers, and 200 after the last; keeps the bodies."""

    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def answer(self, body: bytes) -> tuple[int, dict[str, str], str]:
        self.bodies.append(json.loads(body))
        return self.answers.pop(0) if self.answers else (200, {}, "ok")


@dataclass(slots=True)
class Clock:
    """Counts the waiting instead of doing it."""

    slept: list[float] = field(default_factory=list)
    at: int = 1_000_000

    def now(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass(slots=True)
class Context:
    """An invocation with so many seconds, less what was slept."""

    clock: Clock
    seconds: float = 30.0

    def get_remaining_time_in_millis(self) -> int:
        return int((self.seconds - sum(self.clock.slept)) * 1000)


@dataclass(slots=True)
class Secrets:
    value: str | Exception

    def text(self, name: str) -> str:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@dataclass(slots=True)
class Records:
    """The table of events: the threads of incidents."""

    threads: dict[str, Thread] = field(default_factory=dict)
    is_down: bool = False

    def thread(self, incident: str) -> Thread | None:
        self._check()
        return self.threads.get(incident)

    def put_thread(self, incident: str, thread: Thread) -> None:
        self._check()
        self.threads[incident] = thread

    def _check(self) -> None:
        if self.is_down:
            raise StateStoreError("DynamoDB table events does not answer")


@pytest.fixture
def slack() -> Iterator[Slack]:
    fake = Slack()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, headers, text = fake.answer(self.rfile.read(int(self.headers["Content-Length"])))
            if status == HANG:
                fake.released.wait(20)
                return
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/services/T0/B0/very-secret"
    yield fake
    fake.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(slots=True, kw_only=True)
class Bench:
    slack: Slack
    clock: Clock
    context: Context
    secrets: Secrets
    capture: pytest.CaptureFixture[str]
    records: Records

    def send(self, text: str, subject: str = "subject") -> str:
        event = {"Records": [{"Sns": {"Message": text, "Subject": subject, "MessageId": "m1"}}]}
        (outcome,) = slack_message.handler(event, self.context)["outcomes"]
        return str(outcome)

    def logged(self) -> dict[str, Any]:
        return dict(json.loads(self.capture.readouterr().out.splitlines()[-1]))


@pytest.fixture
def bench(slack: Slack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    clock = Clock()
    found = Bench(
        slack=slack,
        clock=clock,
        context=Context(clock),
        secrets=Secrets(f" {slack.url}\n"),
        capture=capsys,
        records=Records(),
    )
    tools = SimpleNamespace(settings=Settings(), secrets=found.secrets, clock=clock, records=found.records)
    monkeypatch.setattr(slack_message, "load_services", lambda: tools)
    return found


def run_message(alerts: int = 12, what: str = "2 workers joined") -> str:
    return json.dumps(
        to_payload(
            Message(
                cluster_id="prod",
                level="warning",
                what=what,
                why="pending 6",
                execution_id="arn:aws:states:ap-southeast-1:123456789012:execution:m:run-1",
                trigger="schedule",
                workers_before=2,
                workers_after=4,
                alerts=tuple(Alert(kind=f"kind{n}", text=f"text {n}") for n in range(alerts)),
            )
        )
    )


def test_a_run_with_12_alerts_is_one_message_with_all_of_them(bench: Bench) -> None:
    assert bench.send(run_message()) == "sent"
    (body,) = bench.slack.bodies
    assert all(f"kind{n}: text {n}" in json.dumps(body) for n in range(12))


def test_a_429_waits_as_long_as_slack_says_and_the_message_arrives(bench: Bench) -> None:
    bench.slack.answers = [(429, {"Retry-After": "7"}, "ratelimited")]
    assert bench.send(run_message()) == "sent"
    assert bench.clock.slept == [7.0]
    assert bench.slack.bodies[0] == bench.slack.bodies[1]


def test_a_429_that_asks_for_more_than_the_time_left_is_logged_and_fails_nothing(bench: Bench) -> None:
    bench.slack.answers = [(429, {"Retry-After": "30"}, "ratelimited")]
    assert bench.send(run_message()) == "failed"
    logged = bench.logged()
    assert logged["failures"] == 1
    assert "429" in logged["detail"] and "30 s" in logged["detail"]
    assert bench.clock.slept == [] and len(bench.slack.bodies) == 1


def test_slack_is_asked_four_times_at_most(bench: Bench) -> None:
    bench.slack.answers = [(429, {"Retry-After": "1"}, "ratelimited")] * 10
    assert bench.send(run_message()) == "failed"
    assert len(bench.slack.bodies) == slack_adapter.TRIES


@pytest.mark.parametrize("header", [{}, {"Retry-After": "soon"}])
def test_a_429_without_a_readable_time_waits_five_seconds(bench: Bench, header: dict[str, str]) -> None:
    bench.slack.answers = [(429, header, "ratelimited")]
    assert bench.send(run_message()) == "sent"
    assert bench.clock.slept == [slack_adapter.DEFAULT_RETRY_SECONDS]


@pytest.mark.parametrize("status", [500, 502, 503, 403, 404, 410])
def test_a_server_fault_or_a_webhook_that_is_gone_is_logged_and_not_sent_again(bench: Bench, status: int) -> None:
    """After a server fault the message may have arrived."""
    bench.slack.answers = [(status, {}, "no_service")]
    assert bench.send(run_message()) == "failed"
    assert len(bench.slack.bodies) == 1
    assert f"{status} no_service" in bench.logged()["detail"]


@pytest.mark.parametrize("word", ["invalid_blocks", "invalid_payload"])
def test_a_refused_form_becomes_one_short_plain_message(bench: Bench, word: str) -> None:
    bench.slack.answers = [(400, {}, word)]
    assert bench.send(run_message(what="x" * 5400)) == "sent_plain"
    assert "blocks" in bench.slack.bodies[0]
    assert set(bench.slack.bodies[1]) == {"text"}
    assert len(bench.slack.bodies[1]["text"]) <= FALLBACK_LIMIT
    assert word in bench.logged()["detail"]


def test_a_refused_plain_message_is_not_sent_again(bench: Bench) -> None:
    bench.slack.answers = [(400, {}, "invalid_blocks"), (400, {}, "no_text")]
    assert bench.send(run_message()) == "failed"
    assert len(bench.slack.bodies) == 2


def test_a_slack_that_hangs_costs_its_time_limit_and_no_second_message(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_adapter, "READ_SECONDS", 0.3)
    bench.slack.answers = [(HANG, {}, "")]
    assert bench.send(run_message()) == "failed"
    assert "ReadTimeout" in bench.logged()["detail"]
    assert len(bench.slack.bodies) == 1


def test_a_slack_that_is_not_there_fails_nothing(bench: Bench) -> None:
    bench.secrets.value = "http://127.0.0.1:9/services/very-secret"
    assert bench.send(run_message()) == "failed"
    assert "ConnectionError" in bench.logged()["detail"]


@pytest.mark.parametrize(("failures", "outcome"), [(2, "sent"), (3, "failed")])
def test_a_connection_that_fails_is_tried_again_because_nothing_was_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failures: int, outcome: str
) -> None:
    connect, refusals = HTTPConnection._new_conn, iter(range(failures))

    def flaky(self: HTTPConnection) -> Any:
        if next(refusals, None) is not None:
            raise NewConnectionError(self, "no route to Slack")
        return connect(self)

    monkeypatch.setattr(HTTPConnection, "_new_conn", flaky)
    assert bench.send(run_message()) == outcome
    assert len(bench.slack.bodies) == (1 if outcome == "sent" else 0)


def test_without_time_nothing_is_sent(bench: Bench) -> None:
    bench.context.seconds = 2.5
    assert bench.send(run_message()) == "failed"
    assert bench.slack.bodies == []


@pytest.mark.parametrize(
    "secret",
    [
        SecretError("secret node-fleet/slack-webhook holds no text"),
        "{not json",
        "http://example.com/very-secret",
        '{"url": 1}',
        "very-secret",
    ],
)
def test_a_secret_nobody_wrote_is_named_and_never_shown(bench: Bench, secret: str | Exception) -> None:
    bench.secrets.value = secret
    assert bench.send(run_message()) == "failed"
    logged = json.dumps(bench.logged())
    assert "very-secret" not in logged and "secret" in logged.lower()


def test_no_answer_brings_the_address_into_the_log(bench: Bench) -> None:
    for answers in ([(429, {"Retry-After": "60"}, "x")], [(500, {}, "x")], [(400, {}, "x"), (400, {}, "x")]):
        bench.slack.answers = list(answers)
        bench.send(run_message())
        assert "very-secret" not in json.dumps(bench.logged())


@pytest.mark.parametrize("text", ["plain <text>", "[1, 2]", '{"cluster_id": "x"}', '"text"'])
def test_whatever_else_comes_over_the_topic_is_shown_as_text(bench: Bench, text: str) -> None:
    assert bench.send(text, "Weekly report") == "sent"
    assert bench.slack.bodies[0]["blocks"][0]["text"]["text"] == "Weekly report"


def test_the_json_form_of_the_secret_is_understood(bench: Bench) -> None:
    bench.secrets.value = json.dumps({"webhook_url": bench.slack.url})
    assert bench.send(run_message()) == "sent"


# One incident is one thread -------------------------------------------------------------------------------------


def incident_message(*kinds: str, what: str = "no metrics") -> str:
    alerts = tuple(Alert(kind=kind, text=what) for kind in kinds)
    return json.dumps(
        to_payload(
            Message(
                cluster_id="node-fleet-prod",
                level="error",
                what=what,
                why=what,
                execution_id="run-1",
                trigger="schedule",
                alerts=alerts,
                incidents=kinds,
            )
        )
    )


def end_of(key: str, at: int = 1_000_000) -> str:
    return json.dumps(to_payload(end_message(EndedIncident(key=key, last_seen=at), "node-fleet-prod", "run-9")))


def alarm(name: str, state: str = "ALARM") -> str:
    return json.dumps({"AlarmName": f"node-fleet-prod-{name}", "NewStateValue": state, "AlarmDescription": "d"})


@pytest.fixture
def bot(bench: Bench, slack: Slack, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The same with the token of a bot, whose messages get the ids 1.0, 2.0, ..."""
    monkeypatch.setattr(slack_adapter, "POST_MESSAGE", slack.url)
    bench.secrets.value = json.dumps({"bot_token": "xoxb-very-secret", "channel": "C0123"})
    slack.answers = [(200, {}, json.dumps({"ok": True, "ts": f"{n}.0", "channel": "C0123"})) for n in range(1, 20)]
    return bench


def places(slack: Slack) -> list[tuple[str, bool]]:
    """The thread of each message, and whether the channel shows it."""
    return [(body.get("thread_ts", ""), body.get("reply_broadcast", True)) for body in slack.bodies]


def test_an_outage_with_its_alarms_and_its_end_is_one_thread_of_a_bot(bot: Bench) -> None:
    outage = ("metrics_unavailable", "RunFailedError")
    story = [
        incident_message(*outage),
        alarm("ScalingFailures"),
        alarm("PrometheusUnavailable"),
        alarm("NoCompletedTick"),
        alarm("NoCompletedTick", "OK"),
        end_of("metrics_unavailable"),
    ]
    assert [bot.send(text) for text in story] == ["sent"] * 6
    assert places(bot.slack) == [
        ("", True),
        ("1.0", False),
        ("1.0", False),
        ("1.0", True),
        ("1.0", True),
        ("1.0", True),
    ]
    assert {body["channel"] for body in bot.slack.bodies} == {"C0123"}
    assert bot.records.threads["RunFailedError"].ended_at and bot.records.threads["metrics_unavailable"].ended_at


def test_the_same_outage_is_a_beginning_and_an_end_by_a_webhook(bench: Bench) -> None:
    story = [
        incident_message("metrics_unavailable", "RunFailedError"),
        alarm("ScalingFailures"),
        alarm("PrometheusUnavailable"),
        alarm("PrometheusUnavailable", "OK"),
        end_of("metrics_unavailable"),
    ]
    assert [bench.send(text) for text in story] == ["sent", "known", "known", "known", "sent"]
    assert len(bench.slack.bodies) == 2


def test_two_incidents_are_two_threads_and_an_alarm_joins_that_of_its_kind(bot: Bench) -> None:
    for text in (
        incident_message("drain_failed:i-1"),
        incident_message("not_ready:i-2"),
        alarm("DrainFailures"),
        alarm("LockHeld"),
        alarm("LockHeld", "OK"),
    ):
        bot.send(text)
    assert [ts for ts, _ in places(bot.slack)] == ["", "", "1.0", "", "4.0"]


def test_an_incident_that_begins_in_the_thread_of_another_is_shown_in_the_channel_and_keeps_its_own(bot: Bench) -> None:
    for text in (
        incident_message("no_capacity"),
        incident_message("no_capacity", "not_ready:i-2"),
        incident_message("no_capacity", "not_ready:i-2"),
        incident_message("drain_failed:i-3"),
        incident_message("no_capacity", "drain_failed:i-3"),
        end_of("drain_failed:i-3"),
    ):
        bot.send(text)
    expected = [("", True), ("1.0", True), ("1.0", False), ("", True), ("1.0", False), ("4.0", True)]
    assert places(bot.slack) == expected


def test_a_webhook_shows_that_no_run_completes_although_a_run_has_failed_before(bench: Bench) -> None:
    story = [
        incident_message("StateStoreError", "RunFailedError"),
        alarm("NoCompletedTick"),
        alarm("NoCompletedTick", "OK"),
    ]
    assert [bench.send(text) for text in story] == ["sent"] * 3


@pytest.mark.parametrize("error", ["rate_limited", "ratelimited"])
def test_a_bot_that_is_rate_limited_waits_and_its_reply_stays_in_the_thread(bot: Bench, error: str) -> None:
    bot.send(incident_message("at_maximum"))
    bot.slack.answers.insert(0, (200, {"Retry-After": "3"}, json.dumps({"ok": False, "error": error})))
    assert bot.send(alarm("AtMaximum")) == "sent"
    assert [ts for ts, _ in places(bot.slack)] == ["", "1.0", "1.0"]
    assert bot.clock.slept == [3.0]


def test_a_reply_that_may_have_arrived_is_not_posted_again(bot: Bench) -> None:
    bot.send(incident_message("at_maximum"))
    bot.slack.answers.insert(0, (200, {}, json.dumps({"ok": False, "error": "internal_error"})))
    assert bot.send(alarm("AtMaximum")) == "failed"
    assert len(bot.slack.bodies) == 2


def test_another_channel_gets_threads_of_its_own(bot: Bench) -> None:
    bot.send(incident_message("at_maximum"))
    bot.secrets.value = json.dumps({"bot_token": "xoxb-very-secret", "channel": "C9"})
    bot.send(alarm("AtMaximum"))
    bot.send(end_of("at_maximum"))
    assert [(body["channel"], body.get("thread_ts")) for body in bot.slack.bodies] == [
        ("C0123", None),
        ("C9", None),
        ("C9", "2.0"),
    ]


def test_without_the_table_every_message_arrives_in_the_channel(bot: Bench) -> None:
    bot.records.is_down = True
    assert [bot.send(incident_message("at_maximum")), bot.send(end_of("at_maximum"))] == ["sent", "sent"]
    assert [ts for ts, _ in places(bot.slack)] == ["", ""]


@pytest.mark.parametrize(("error", "outcome"), [("channel_not_found", "failed"), ("invalid_blocks", "sent_plain")])
def test_a_bot_that_slack_refuses_is_logged_without_its_token(bot: Bench, error: str, outcome: str) -> None:
    bot.slack.answers.insert(0, (200, {}, json.dumps({"ok": False, "error": error})))
    assert bot.send(incident_message("at_maximum")) == outcome
    logged = bot.logged()
    assert error in logged["detail"] and "very-secret" not in json.dumps(logged)
    assert bool(bot.records.threads) is (outcome != "failed")


@pytest.mark.parametrize("text", ["not JSON", "[1]"])
def test_an_answer_that_is_no_answer_of_slack_is_a_failure(bot: Bench, text: str) -> None:
    bot.slack.answers.insert(0, (200, {}, text))
    assert bot.send(incident_message("at_maximum")) == "failed"
    assert "chat.postMessage" in bot.logged()["detail"]


@pytest.mark.parametrize("error", ["cannot_reply_to_message", "restricted_action_thread_locked"])
def test_a_first_message_that_takes_no_replies_gets_a_new_thread(bot: Bench, error: str) -> None:
    bot.send(incident_message("at_maximum"))
    bot.slack.answers.insert(0, (200, {}, json.dumps({"ok": False, "error": error})))
    bot.send(alarm("AtMaximum"))
    bot.send(end_of("at_maximum"))
    assert [ts for ts, _ in places(bot.slack)] == ["", "1.0", "", "2.0"]


@pytest.mark.parametrize("fields", [{"bot_token": "xoxb-very-secret"}, {"bot_token": "very-secret", "channel": "C1"}])
def test_an_incomplete_bot_is_named_and_its_token_is_not_shown(bench: Bench, fields: dict[str, str]) -> None:
    bench.secrets.value = json.dumps(fields)
    assert bench.send(run_message()) == "failed"
    logged = bench.logged()["detail"]
    assert "expected bot_token" in logged and "very-secret" not in logged
