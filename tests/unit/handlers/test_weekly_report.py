"""WeeklyReport reads recorded runs and publishes one message; what it cannot read costs a line, never the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from handlers import weekly_report
from node_fleet.adapters.records import Event
from node_fleet.domain.model.errors import Ec2Error
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

NOW = 1_780_876_800
DAY = 86400


@dataclass(slots=True)
class Records:
    """Events by time; remembers which spans were asked for."""

    found: list[Event] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    def events(self, since: int, until: int) -> tuple[Event, ...]:
        self.asked.append((since, until))
        return tuple(event for event in self.found if since <= event.at < until)


@dataclass(slots=True)
class Ec2:
    error: Exception | None = None

    def unattached_volumes(self) -> tuple[tuple[str, int], ...]:
        if self.error:
            raise self.error
        return (("vol-1", 100),)


@dataclass(slots=True)
class Publisher:
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def publish(self, subject: str, message: dict[str, Any]) -> None:
        self.sent.append((subject, message))


@dataclass(slots=True, kw_only=True)
class Bench:
    records: Records = field(default_factory=Records)
    ec2: Ec2 = field(default_factory=Ec2)
    publisher: Publisher = field(default_factory=Publisher)

    def run(self) -> dict[str, Any]:
        return weekly_report.handler({}, None)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench()
    tools = SimpleNamespace(
        settings=Settings(currency="BDT", currency_per_usd=122.0),
        clock=SimpleNamespace(now=lambda: NOW),
        records=made.records,
        ec2=made.ec2,
        publisher=made.publisher,
    )
    monkeypatch.setattr(weekly_report, "load_services", lambda: tools)
    return made


def decision(at: int, workers: int, **data: Any) -> Event:
    snapshot = Snapshot(
        at=at,
        source="live",
        cpu_percent=50.0,
        workers=tuple(
            Worker(
                instance_id=f"i-{n}",
                zone="a",
                market="spot",
                instance_type="t3.small",
                phase="usable",
                launched_at=0,
            )
            for n in range(workers)
        ),
    )
    return Event(kind="decision", at=at, key=f"run-{at}", data={"snapshot": to_payload(snapshot), **data})


def test_the_week_is_read_day_by_day_and_told_in_one_message(bench: Bench) -> None:
    bench.records.found = [decision(at, 3) for at in range(NOW - 7 * DAY, NOW, 120)]
    answer = bench.run()
    assert bench.records.asked == [(NOW - n * DAY, NOW - (n - 1) * DAY) for n in range(7, 0, -1)]
    ((subject, message),) = bench.publisher.sent
    assert subject == "weekly cost report"
    assert message["trigger"] == "weekly" and message["what"] == answer["headline"]
    assert answer["headline"].startswith("workers cost 534.95 BDT this week")
    assert any("vol-1" in line for line in answer["lines"])


def test_ends_failures_and_interruptions_are_counted(bench: Bench) -> None:
    bench.records.found = [
        decision(NOW - 900, 2, outcome={"kind": "scaled_up"}),
        decision(NOW - 800, 3, outcome={"kind": "scaled_down"}),
        decision(NOW - 700, 3, failure={"Error": "E", "Cause": "c"}),
        Event(kind="interruption", at=NOW - 600, key="i", data={}),
        Event(kind="clean_up", at=NOW - 500, key="c", data={}),
    ]
    assert "scale-ups: 1, scale-downs: 1, failed runs: 1, interruptions: 1" in bench.run()["lines"]


def test_a_run_that_saw_nothing_or_has_another_form_is_left_out(bench: Bench) -> None:
    bench.records.found = [
        Event(kind="decision", at=NOW - 900, key="a", data={}),
        Event(kind="decision", at=NOW - 800, key="b", data={"snapshot": {"at": "soon"}}),
    ]
    assert bench.run()["headline"] == "workers cost 0.00 BDT this week, 0 % less than 5 fixed workers (0.00 BDT)"


def test_without_the_right_to_list_volumes_the_report_comes_without_them(bench: Bench) -> None:
    bench.ec2.error = Ec2Error("EC2 refused to list volumes: UnauthorizedOperation")
    bench.records.found = [decision(NOW - 900, 2)]
    assert not any("volume" in line for line in bench.run()["lines"])
    assert len(bench.publisher.sent) == 1
