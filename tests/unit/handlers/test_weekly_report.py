"""WeeklyReport reads recorded runs and publishes one message; what it cannot read costs a line, never the report."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock
from zoneinfo import ZoneInfo

import pytest

from handlers import weekly_report
from node_fleet.adapters.records import Event
from node_fleet.domain.model.errors import Ec2Error
from node_fleet.domain.model.snapshot import Snapshot, StandbyWorker
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import FakeServices, worker

NOW = 1_780_876_800
DAY = 86400


@pytest.fixture(autouse=True)
def _sunday(services: FakeServices) -> None:
    services.settings = Settings(currency="BDT", currency_per_usd=122.0)
    services.clock.time = NOW


@functools.cache
def snapshot(workers: int) -> dict[str, Any]:
    crew = tuple(worker(f"i-{n}", launched_at=0) for n in range(workers))
    payload: dict[str, Any] = to_payload(Snapshot(at=0, source="live", cpu_percent=50.0, workers=crew))
    return payload


def decision(at: int, workers: int, **data: Any) -> Event:
    stored = {"snapshot": {**snapshot(workers), "at": at}, **data}
    return Event(kind="decision", at=at, key=f"run-{at}", data=stored)


def report(services: FakeServices, *past: Event) -> dict[str, Any]:
    services.records.past = [*past]
    return weekly_report.handler({}, None)


def test_the_week_is_read_day_by_day_and_reported_in_one_message(services: FakeServices) -> None:
    answer = report(services, *(decision(at, 3) for at in range(NOW - 7 * DAY, NOW, 120)))
    assert services.records.asked == [(NOW - n * DAY, NOW - (n - 1) * DAY) for n in range(7, 0, -1)]
    ((subject, message),) = services.publisher.messages
    assert subject == "weekly cost report, 5040 runs"
    assert message["trigger"] == "weekly" and message["what"] == answer["headline"]
    assert answer["headline"].startswith("workers cost 2,848.75 BDT this week, 37 % less than 5 fixed workers")
    assert any("vol-1" in line for line in answer["lines"])


@pytest.mark.parametrize(("requested", "expected"), [(1500, 1.5), (None, None)])
def test_a_sample_has_the_workers_that_the_requests_fill(requested: int | None, expected: float | None) -> None:
    nodes = [worker(f"i-{n}", cpu_requested_milli=100, cpu_allocatable_milli=2000) for n in range(2)]
    nodes.append(worker("i-2", cpu_requested_milli=requested and 2 * requested - 200, cpu_allocatable_milli=2000))
    sized = tuple(replace(one, memory_requested_mib=10, memory_allocatable_mib=1000) for one in nodes)
    snapshot = Snapshot(at=NOW, source="live", cpu_percent=5.0, memory_percent=6.0, workers=sized)
    event = Event(kind="decision", at=NOW, key="run", data={"snapshot": to_payload(snapshot)})
    found = weekly_report._sample(event, ZoneInfo("UTC"))
    assert found is not None
    assert (found.memory_percent, found.requested_workers) == (6.0, pytest.approx(expected))


def test_workers_under_notice_and_standby_workers_of_a_snapshot_are_billed_beside_the_fleet(
    services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = StandbyWorker(instance_id="i-9", zone="a", instance_type="t3.small", launched_at=1)
    crew = (worker("i-1", launched_at=0), worker("i-2", launched_at=0, under_notice=True))
    snapshot = Snapshot(at=NOW, source="live", workers=crew, standby=(stopped,))
    summarise = mock.Mock(wraps=weekly_report.summarise)
    monkeypatch.setattr(weekly_report, "summarise", summarise)
    report(services, Event(kind="decision", at=NOW - 900, key="a", data={"snapshot": to_payload(snapshot)}))
    ((sample,), _) = summarise.call_args.args
    assert [one.instance_id for one in sample.workers] == ["i-1"]
    assert ([one.instance_id for one in sample.leaving], sample.standby) == (["i-2"], 1)


def test_ends_failures_and_interruptions_are_counted(services: FakeServices) -> None:
    answer = report(
        services,
        decision(NOW - 900, 2, outcome={"kind": "scaled_up"}),
        decision(NOW - 800, 3, outcome={"kind": "scaled_down"}),
        decision(NOW - 700, 3, failure={"Error": "E", "Cause": "c"}),
        Event(kind="interruption", at=NOW - 600, key="i", data={"failure": {"Error": "E", "Cause": "c"}}),
        Event(kind="clean_up", at=NOW - 500, key="c", data={}),
        decision(NOW - 400, 4, outcome={"kind": "scaled_up"}),
    )
    ((_, message),) = services.publisher.messages
    assert (message["workers_before"], message["workers_after"]) == (2, 4)
    assert "scale-ups: 2, scale-downs: 1, failed runs: 1, interruptions: 1" in answer["lines"]


def test_a_run_without_a_snapshot_or_with_another_form_is_left_out(services: FakeServices) -> None:
    broken = ({}, {"snapshot": {"at": "soon"}})
    answer = report(services, *(Event(kind="decision", at=NOW - 900, key="a", data=data) for data in broken))
    ((_, message),) = services.publisher.messages
    assert (message["workers_before"], message["workers_after"]) == (0, 0)
    assert answer["headline"] == "workers cost 0.00 BDT this week, 0 % less than 5 fixed workers (0.00 BDT)"


def test_without_the_right_to_list_volumes_the_report_comes_without_them(services: FakeServices) -> None:
    services.ec2.error = Ec2Error("EC2 refused to list volumes: UnauthorizedOperation")
    assert not any("volume" in line for line in report(services, decision(NOW - 900, 2))["lines"])
    assert len(services.publisher.messages) == 1


def test_the_report_covers_the_seven_days_until_now(services: FakeServices) -> None:
    counts = Counter(scaled_up=1, scaled_down=2, failed=3, interruption=4)
    found = weekly_report.inputs_of(services.settings, counts, NOW, ())
    assert (found.since, found.until) == (NOW - 7 * DAY, NOW)
    assert (found.scale_ups, found.scale_downs, found.failures, found.interruptions) == (1, 2, 3, 4)
