"""CollectMetrics: live, cached or none, what is recorded, and when history is fetched."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from handlers import collect_metrics
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.domain.model.fleet_state import FleetState, Notice
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, NodeReading, Reading, Snapshot
from node_fleet.payload import from_payload
from node_fleet.settings import Settings

HALF_PAST = 1_780_302_600
NOW = HALF_PAST


def instance(name: str, launched_at: int = 0) -> Instance:
    return Instance(
        instance_id=name, zone="a", instance_type="t3.small", market="spot", state="running", launched_at=launched_at
    )


def reading(at: int, cpu: float = 42.0) -> Reading:
    node = NodeReading(
        node_name="i-a",
        provider_id="aws:///a/i-a",
        ready=True,
        cores=2.0,
        cpu_percent=cpu,
        memory_used_mib=1,
        memory_total_mib=2,
    )
    figures = dict.fromkeys(("cpu_percent", "cpu_max_percent", "memory_percent", "memory_max_percent"), cpu)
    return Reading(at=at, **figures, pending=(), nodes=(node,))


@dataclass
class Bench:
    """Tools that answer what they hold and record what they are asked."""

    settings: Settings = field(default_factory=lambda: Settings(cached_reading_seconds=300))
    now: int = NOW
    answer: Reading | MetricsUnavailableError | None = None
    latest: Snapshot | None = None
    notices: tuple[Notice, ...] = ()
    stored: list[Snapshot] = field(default_factory=list)
    hourly_asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def clock(self) -> Any:
        return SimpleNamespace(now=lambda: self.now)

    @property
    def ec2(self) -> Any:
        return SimpleNamespace(instances=lambda: (instance("i-a"),))

    @property
    def state(self) -> Any:
        return SimpleNamespace(load=lambda: FleetState(cluster_id="c", notices=self.notices))

    @property
    def prometheus(self) -> Any:
        return SimpleNamespace(read=self._read)

    @property
    def records(self) -> Any:
        return SimpleNamespace(
            put_reading=self.stored.append, latest_snapshot=lambda: self.latest, hourly_loads=self._hourly
        )

    def _read(self, now: int) -> Reading:
        if isinstance(self.answer, MetricsUnavailableError):
            raise self.answer
        return self.answer or reading(now)

    def _hourly(self, since: int, until: int) -> tuple[HourlyLoad, ...]:
        self.hourly_asked.append((since, until))
        return (HourlyLoad(hour_epoch=0, cpu_percent=1.0, readings=30),)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
        monkeypatch.setattr(collect_metrics, "load_services", lambda: self)
        answer = collect_metrics.handler({"status": "acquired"}, None)
        assert answer["status"] == "acquired"
        snapshot: Snapshot = from_payload(Snapshot, answer["snapshot"])
        return snapshot


def live(at: int) -> Snapshot:
    bench = Bench(now=at)
    with pytest.MonkeyPatch.context() as patch:
        return bench.run(patch)


GONE = MetricsUnavailableError("Prometheus at http://10.0.0.1:30090 gives no answer to query nodes: cannot connect")


def test_a_live_reading_is_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    snapshot = bench.run(monkeypatch)
    assert (snapshot.source, snapshot.cpu_percent, snapshot.pending_count, snapshot.problem) == ("live", 42, 0, "")
    assert bench.stored == [snapshot]


@pytest.mark.parametrize(("age", "source"), [(120, "cached"), (300, "cached"), (301, "none")])
def test_without_prometheus_a_young_reading_stands_in_and_an_old_one_does_not(
    monkeypatch: pytest.MonkeyPatch, age: int, source: str
) -> None:
    bench = Bench(answer=GONE, latest=live(NOW - age))
    snapshot = bench.run(monkeypatch)
    assert (snapshot.source, snapshot.problem) == (source, str(GONE))
    assert snapshot.cpu_percent == (42 if source == "cached" else None)
    assert [worker.instance_id for worker in snapshot.workers] == ["i-a"]
    assert bench.stored == []


def test_without_prometheus_and_without_any_reading_the_instances_are_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = Bench(answer=GONE).run(monkeypatch)
    assert (snapshot.source, snapshot.pending, snapshot.problem) == ("none", None, str(GONE))
    assert [worker.phase for worker in snapshot.workers] == ["unknown"]


def test_a_reading_in_which_all_is_missing_is_live_and_names_it_and_is_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    empty = Reading(
        at=NOW,
        cpu_percent=None,
        cpu_max_percent=None,
        memory_percent=None,
        memory_max_percent=None,
        pending=None,
        nodes=(),
        missing=("nodes", "pending"),
    )
    bench = Bench(answer=empty)
    snapshot = bench.run(monkeypatch)
    assert bench.stored == []
    assert snapshot.source == "live"
    assert snapshot.missing == ("nodes", "pending", "cpu_percent", "memory_percent")


def test_notices_of_the_state_item_reach_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Bench(notices=(Notice(instance_id="i-a", kind="spot", at=NOW),)).run(monkeypatch)
    assert snapshot.workers[0].under_notice


@pytest.mark.parametrize(
    ("predictive", "zone", "minute", "asked"),
    [
        (True, "UTC", 49, False),
        (True, "UTC", 50, True),
        (True, "UTC", 59, True),
        (False, "UTC", 55, False),
        (True, "Asia/Kolkata", 25, True),
        (True, "Asia/Kolkata", 55, False),
    ],
)
def test_history_is_fetched_only_in_the_minutes_of_prediction(
    monkeypatch: pytest.MonkeyPatch, predictive: bool, zone: str, minute: int, asked: bool
) -> None:
    hour = NOW // 3600 * 3600
    bench = Bench(settings=Settings(predictive=predictive, timezone=zone), now=hour + minute * 60)
    snapshot = bench.run(monkeypatch)
    assert bool(snapshot.hourly) is asked
    assert bench.hourly_asked == ([(bench.now - 14 * 86_400, bench.now)] if asked else [])
