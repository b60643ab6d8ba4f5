"""wake, sleep, and what status and explain show of times off."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cli import main as program
from cli import target as targets
from cli.cluster_status import ClusterStatus
from cli.doctor import ticks
from cli.explain import explain_now, explain_past
from cli.hibernate import LONGEST_SECONDS
from cli.output import ExitCode
from cli.status_rows import status_rows
from node_fleet.adapters.records import Event
from node_fleet.domain.model.fleet_state import FleetState, Pause
from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.settings import Settings

MONDAY_NOON = 1_790_020_800 + 12 * 3600 - 1_790_020_800 % 86_400
NIGHTS = Settings.from_mapping({"hibernate": "Mon-Fri 20:00-07:00", "min_workers": 3})


@dataclass
class Desk:
    """A cluster whose state item is here, asked by the real command line."""

    capture: pytest.CaptureFixture[str]
    settings: Settings = NIGHTS
    item: FleetState = field(default_factory=lambda: FleetState(cluster_id="c"))
    now: int = MONDAY_NOON
    started: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    past: list[Event] = field(default_factory=list)

    @property
    def target(self) -> Any:
        records = SimpleNamespace(
            put_event=lambda kind, at, data, key="": self.noted.append(f"{kind}: {data['text']}"),
            events=lambda since, until, kind=None: tuple(self.past),
        )
        state = SimpleNamespace(load=lambda: self.item, set_hibernate_order=self._order, set_pause=lambda pause: None)
        clock = SimpleNamespace(now=lambda: self.now)
        services = SimpleNamespace(settings=self.settings, state=state, records=records, clock=clock)
        return SimpleNamespace(
            services=services, place="the desk", start=lambda name, data: self.started.append(f"{name} {data}")
        )

    def _order(self, order: Order) -> FleetState:
        self.item = replace(self.item, hibernate_order=order)
        return self.item

    def run(self, *words: str) -> tuple[int, str]:
        code = program.main(list(words))
        captured = self.capture.readouterr()
        return code, " ".join((captured.out + captured.err).split())

    def known(self, phase: str, **changes: Any) -> None:
        self.item = replace(self.item, hibernation=Hibernation(phase=phase, since=self.now - 600, **changes))  # type: ignore[arg-type]

    def off_times(self) -> str:
        found = ClusterStatus(
            place="the desk", now=self.now, state=self.item, instances=(), last=None, settings=self.settings
        )
        return dict(status_rows(found)).get("off times", "")


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    made = Desk(capture=capsys)

    @contextlib.contextmanager
    def opened(**options: Any) -> Iterator[Any]:
        yield made.target

    monkeypatch.setattr(targets, "open_target", opened)
    monkeypatch.setenv("COLUMNS", "300")
    return made


def test_the_time_is_a_monday(desk: Desk) -> None:
    assert desk.off_times() == "off from 2026-09-21 20:00 to 2026-09-22 07:00 UTC"


def test_status_names_a_day_that_begins_on_after_a_day_off(desk: Desk) -> None:
    desk.settings = Settings.from_mapping({"hibernate": "Mon-Fri 20:00-07:00; Sat-Sun"})
    assert "00:00 on Mon" in desk.off_times() and desk.off_times().endswith("add Mon 00:00-07:00")


@pytest.mark.parametrize(
    ("measured", "said"), [(0, "about 6 min (not measured yet)"), (480, "about 10 min (as the last time)")]
)
def test_wake_starts_the_server_at_once_and_prints_the_time_that_it_takes(desk: Desk, measured: int, said: str) -> None:
    desk.now += 11 * 3600
    desk.known("off", wake_seconds=measured)
    code, out = desk.run("wake")
    assert code == ExitCode.OK
    assert out == (
        f"the fleet is on until 2026-09-22 07:00 UTC the server starts now; 3 workers should be ready in {said}"
    )
    order = desk.item.hibernate_order
    assert order is not None and (order.kind, order.since) == ("wake", desk.now)
    assert desk.started == [f"wake-{desk.now} {{'trigger': 'manual'}}"]
    assert desk.noted[0].startswith("wake: switched on by ")


def test_wake_for_a_time_keeps_the_fleet_on_over_the_beginning_of_a_time_off(desk: Desk) -> None:
    code, out = desk.run("wake", "--for", "9h", "--json")
    answer = json.loads(out)
    assert (code, answer["order"]["until"], answer["expected_seconds"]) == (ExitCode.OK, desk.now + 9 * 3600, 0)
    assert desk.started == []
    assert desk.off_times().startswith("on until 2026-09-21 21:00 UTC, ordered by ")


def test_wake_without_a_time_while_the_fleet_is_on_does_nothing(desk: Desk) -> None:
    code, out = desk.run("wake")
    assert code == ExitCode.NOTHING_DONE and "node-fleet wake --for 3h" in out
    assert desk.item.hibernate_order is None


def test_sleep_lasts_until_the_end_of_the_next_time_off(desk: Desk) -> None:
    code, out = desk.run("sleep", "--yes")
    assert code == ExitCode.OK and "switched off until 2026-09-22 07:00 UTC" in out
    order = desk.item.hibernate_order
    assert order is not None and (order.kind, order.until) == ("sleep", desk.now + 19 * 3600)
    assert desk.started == [f"sleep-{desk.now} {{'trigger': 'manual'}}"]


@pytest.mark.parametrize(
    ("length", "code"),
    [("69m", ExitCode.WRONG_USE), ("70m", ExitCode.OK), ("30d", ExitCode.OK), ("31d", ExitCode.WRONG_USE)],
)
def test_a_time_off_must_be_long_enough_to_be_begun_and_has_an_end(desk: Desk, length: str, code: int) -> None:
    assert LONGEST_SECONDS == 30 * 86_400
    assert desk.run("sleep", "--yes", "--for", length)[0] == code


def test_sleep_at_the_end_of_a_time_off_lasts_until_the_end_of_the_next(desk: Desk) -> None:
    desk.now += 19 * 3600 - 70 * 60
    assert "until 2026-09-22 07:00 UTC" in desk.run("sleep", "--yes")[1]
    desk.now += 1
    assert "until 2026-09-23 07:00 UTC" in desk.run("sleep", "--yes")[1]


@pytest.mark.parametrize(("hours", "warned"), [("10h", False), ("11h", True)])
def test_a_pause_that_holds_back_the_start_of_a_fleet_that_is_off_warns(desk: Desk, hours: str, warned: bool) -> None:
    desk.now += 8 * 3600 + 1800
    desk.known("off")
    code, out = desk.run("pause", "--reason", "x", "--for", hours)
    assert code == ExitCode.OK
    assert ("its start at 2026-09-22 06:50 UTC waits for the end of the pause" in out) is warned
    desk.known("on")
    assert "its start" not in desk.run("pause", "--reason", "x", "--for", hours)[1]


@pytest.mark.parametrize("command", ["wake", "sleep --yes"])
def test_an_order_that_a_pause_holds_back_says_so(desk: Desk, command: str) -> None:
    desk.now += 9 * 3600
    desk.known("off")
    desk.item = replace(desk.item, pause=Pause(reason="x", by="ben", since=desk.now, until=desk.now + 60))
    out = desk.run(*command.split())[1]
    assert "paused by ben" in out and "nothing is switched before it ends; end it with node-fleet resume" in out
    assert "the server starts now" not in out


def test_sleep_asks_before_it_stops_a_cluster(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.confirm", lambda *given, **more: False)
    assert desk.run("sleep")[0] == ExitCode.NOTHING_DONE
    assert desk.item.hibernate_order is None and desk.started == []


def test_json_of_sleep_holds_the_order(desk: Desk) -> None:
    answer = json.loads(desk.run("sleep", "--yes", "--for", "2h", "--json")[1])
    assert (answer["order"]["kind"], answer["phase"]) == ("sleep", "on")


def test_without_times_off_no_server_may_be_stopped_and_the_setting_is_named(desk: Desk) -> None:
    desk.settings = Settings()
    for words in (("sleep", "--yes"), ("wake",)):
        code, out = desk.run(*words)
        assert code == ExitCode.NOTHING_DONE and "set hibernate in cdk.json" in out
    assert desk.off_times() == ""


def test_without_a_window_in_reach_sleep_needs_a_time(desk: Desk) -> None:
    desk.settings = Settings.from_mapping({"hibernate": "2027-01-01"})
    assert desk.run("sleep", "--yes")[0] == ExitCode.WRONG_USE
    assert desk.off_times() == "none within eight days"


@pytest.mark.parametrize(
    ("phase", "changes", "said"),
    [
        ("draining", {"detail": "its workers are drained"}, "being switched off, 10 min ago: its workers are drained"),
        ("off", {"detail": "it is on again at 7"}, "off, 10 min ago: it is on again at 7"),
        ("waking", {"detail": "the server is started"}, "starting, 10 min ago: the server is started"),
        (
            "on",
            {"kept_since": MONDAY_NOON - 1200, "detail": "Job a/b runs"},
            "to be off, kept on, 20 min ago: Job a/b runs",
        ),
    ],
)
def test_status_says_where_the_fleet_is_on_its_way(desk: Desk, phase: str, changes: Any, said: str) -> None:
    desk.known(phase, **changes)
    assert desk.off_times() == said


def test_doctor_says_that_ticks_wait_because_the_fleet_is_off(desk: Desk) -> None:
    desk.known("off", detail="it is on again at 7")
    found = ticks(desk.target)
    assert (found.verdict, found.saw) == ("warn", "the fleet is off: it is on again at 7")


def test_explain_says_that_the_fleet_is_off_now_and_what_a_past_run_did(desk: Desk) -> None:
    desk.known("off", detail="it is on again at 7")
    assert "it is on again at 7; switch it on with: node-fleet wake" in explain_now(desk.target).decision.sentence
    data = {"hibernate": {"status": "waiting", "detail": "the server is stopped"}, "run": {}}
    desk.past = [Event(kind="decision", at=desk.now, key="arn:tick-1", data=data)]
    found = explain_past(desk.target, "tick-1")
    assert (found.decision.rule, found.account and found.account.text) == ("hibernate", "the server is stopped")
