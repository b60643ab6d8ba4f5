"""Problems that operators of such systems reported: the reported input, then variants of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import record_failure
from tests.support.decisions import START, TICK, Fleet, idle, pods, snapshot, worker, workers
from tests.support.fake_prometheus import NOW, Bench, Rows, fleet_rows, worker_rows

POLICY = Policy()


def instances(*names: str) -> tuple[Instance, ...]:
    return tuple(
        Instance(
            instance_id=f"i-{name}",
            zone="a",
            instance_type="t3.medium",
            market="spot",
            state="running",
            launched_at=NOW - 86_400,
        )
        for name in names
    )


def read(figures: dict[str, Rows], *names: str | Instance, at: int = NOW) -> Snapshot:
    """What Prometheus answers, read and joined with EC2 as in production."""
    bench = Bench()
    bench.session.figures = figures
    machines = tuple(one if isinstance(one, Instance) else instances(one)[0] for one in names)
    return replace(assemble(machines, bench.reader.read(NOW), (), POLICY, at), read_at=at)


def waiting(count: int) -> dict[str, Rows]:
    rows: Rows = [({"namespace": "shop", "pod": f"p{n}", "uid": f"u{n}"}, 95.0) for n in range(count)]
    needs: Rows = [({**labels, "resource": "cpu"}, 0.5) for labels, _ in rows]
    return {"age": rows, "pending_requests": needs}


class TestPodsOfAJoiningWorker:
    """Pods that a joining worker will hold start no second scale-up."""

    BOOTING = worker("boot", "joining", launched_at=START - 120, instance_type="t3.medium")

    def decided(self, count: int, cpu_milli: int, *booting: Any, memory: Memory | None = None) -> Decision:
        seen = workers(3, cpu_allocatable_milli=1900, cpu_requested_milli=1900, instance_type="t3.medium")
        shape = pods(count, cpu_milli, 16, oldest_seconds=150)
        return decide(snapshot(pending=shape, workers=(*seen, *booting)), memory or Memory(), POLICY, START)

    def test_start_no_second_scale_up(self) -> None:
        decision = self.decided(2, 500, self.BOOTING)
        assert decision.action == "none"
        assert decision.sentence.startswith("pending 2, all will fit on 1 joining worker -> no change")

    @pytest.mark.parametrize(
        ("count", "cpu_milli", "left"),
        [(3, 500, 0), (4, 500, 1), (1, 1900, 0), (2, 1900, 1), (19, 100, 0), (20, 100, 1)],
    )
    def test_what_it_cannot_hold_still_counts(self, count: int, cpu_milli: int, left: int) -> None:
        decision = self.decided(count, cpu_milli, self.BOOTING)
        assert decision.count == left
        assert decision.evidence[0].value == left

    @given(count=st.integers(1, 40), cpu=st.integers(50, 1900), booting=st.integers(0, 4))
    @settings(deadline=None)
    def test_launches_stop_as_soon_as_the_booting_workers_hold_all(self, count: int, cpu: int, booting: int) -> None:
        joining = tuple(replace(self.BOOTING, instance_id=f"i-b{n}") for n in range(booting))
        left = max(0, count - booting * (1900 // cpu))
        assert self.decided(count, cpu, *joining).count == min(2 if left > 5 else 1 if left else 0, 7 - booting)

    @pytest.mark.parametrize("change", [{"phase": "unjoined"}, {"under_notice": True}])
    def test_a_worker_past_its_join_limit_or_under_interruption_notice_holds_nothing(self, change: Any) -> None:
        assert self.decided(2, 500, replace(self.BOOTING, **change)).action == "scale_up"

    @pytest.mark.parametrize(("ready_for", "action"), [(0, "none"), (29, "none"), (30, "scale_up"), (120, "scale_up")])
    def test_after_ready_the_scheduler_has_its_grace(self, ready_for: int, action: str) -> None:
        ready = worker("boot", launched_at=START - 100, cpu_requested_milli=0)
        memory = Memory(fresh={"i-boot": START - ready_for})
        assert self.decided(2, 500, ready, memory=memory).action == action

    def test_the_grace_counts_from_the_first_reading_that_shows_it_usable(self) -> None:
        ready = worker("boot", launched_at=START - 100, cpu_requested_milli=0)
        first = self.decided(2, 500, ready)
        assert (first.action, first.memory.fresh) == ("none", {"i-boot": START})


class TestSaturatedWorker:
    """A saturated worker is 100 % busy, not a seventh of it."""

    def test_counts_as_fully_busy(self) -> None:
        seen = [read(fleet_rows(worker_rows("a", cpu=100.0), worker_rows("b", cpu=100.0)), "a", "b")]
        seen.append(replace(seen[0], at=NOW + TICK, read_at=NOW + TICK))
        decision = Fleet().ticks(*seen)
        assert (decision.action, decision.count, seen[0].cpu_percent) == ("scale_up", 2, 100.0)


class TestNewWorkersLoad:
    """A worker that has just joined counts with its own load, weighted by its cores."""

    @pytest.mark.parametrize(
        ("loads", "mean"),
        [
            (((90.0, 2), (0.0, 2)), 45.0),
            (((90.0, 8), (0.0, 2)), 72.0),
            (((90.0, 2), (0.0, 2), (0.0, 4)), 22.5),
            (((100.0, 2), (100.0, 2), (5.0, 2)), 205 / 3),
        ],
    )
    def test_is_weighted_by_cores(self, loads: tuple[tuple[float, int], ...], mean: float) -> None:
        names = [chr(ord("a") + n) for n in range(len(loads))]
        rows = [worker_rows(n, cpu=cpu, cores=cores) for n, (cpu, cores) in zip(names, loads, strict=True)]
        types = {2: "t3.medium", 4: "t3.xlarge", 8: "t3.2xlarge"}
        machines = [
            replace(one, instance_type=types[cores]) for one, (_, cores) in zip(instances(*names), loads, strict=True)
        ]
        seen = read(fleet_rows(*rows), *machines)
        assert seen.cpu_percent == pytest.approx(mean)
        decision = Fleet().ticks(seen, replace(seen, at=NOW + TICK, read_at=NOW + TICK))
        assert (decision.action == "scale_up") == (mean > 70)


class TestPodsOfSeveralExporters:
    """Pods count once, however many exporters show them."""

    @pytest.mark.parametrize(("real", "replicas"), [(1, 2), (3, 2), (5, 3), (6, 2)])
    def test_count_once(self, real: int, replicas: int) -> None:
        once = waiting(real)
        twice = {name: [row for row in rows for _ in range(replicas)] for name, rows in once.items()}
        healthy = fleet_rows(worker_rows("a"), worker_rows("b"))
        seen = read(healthy | twice, "a", "b")
        assert seen.pending_count == real
        assert decide(seen, Memory(), POLICY, NOW).count == (2 if real > 5 else 1)


class TestPodsThatLaunchesDoNotHelp:
    """Pods that launches do not help are listed, reported once, and not counted for a time."""

    def rounds(self, policy: Policy = POLICY, count: int = 1, **shape: Any) -> list[Decision]:
        """Tick after tick with the same pods waiting; every worker launched for them becomes usable and stays empty."""
        fleet, size, decisions = Fleet(policy, takes=80), 3, []
        for k in range(30):
            now = START + k * TICK
            seen = workers(3) + tuple(
                worker(100 + n, cpu_requested_milli=0, memory_requested_mib=0, pods=1, launched_at=START - 9000)
                for n in range(size - 3)
            )
            waits = pods(count, oldest_seconds=3600 + k * TICK, example="batch/exec-5", **shape)
            decision = fleet.tick(snapshot(now, pending=waits, workers=seen))
            size += decision.count
            decisions.append(decision)
        return decisions

    def test_cause_no_third_worker(self) -> None:
        decisions = self.rounds()
        assert sum(d.count for d in decisions) == 2
        alerts = [a for d in decisions for a in d.alerts]
        assert [a.kind for a in alerts] == ["pods_not_helped:500m/256Mi"]
        assert "batch/exec-5" in alerts[0].text

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_the_number_of_useless_launches_is_a_setting(self, limit: int) -> None:
        assert sum(d.count for d in self.rounds(replace(POLICY, not_helped_launches=limit))) == limit

    @pytest.mark.parametrize("count", [1, 4, 9])
    def test_however_many_they_are(self, count: int) -> None:
        assert sum(d.action == "scale_up" for d in self.rounds(count=count)) == 2

    def test_after_the_time_on_the_list_one_more_launch_is_tried(self) -> None:
        decisions = self.rounds(replace(POLICY, not_helped_seconds=1200))
        assert sum(d.count for d in decisions) == 4

    def test_new_pods_of_the_same_shape_count_beside_the_stuck_ones(self) -> None:
        memory = self.rounds(count=2)[-1].memory
        now = START + 30 * TICK
        decision = decide(snapshot(now, pending=pods(3, oldest_seconds=9000)), memory, POLICY, now)
        assert (decision.action, decision.evidence[1].value) == ("scale_up", 1)
        later = decide(snapshot(now + 60, pending=pods(2, oldest_seconds=9060)), decision.memory, POLICY, now + 60)
        assert (later.action, later.evidence[1].value) == ("none", 0)

    def test_a_launch_that_helped_some_of_them_is_no_useless_launch(self) -> None:
        fleet = Fleet(takes=80)
        counts = (9, 7, 5, 3, 1)
        actions = [
            fleet.tick(snapshot(START + k * TICK, pending=pods(count, oldest_seconds=3600), workers=workers(3 + k)))
            for k, count in enumerate(counts)
        ]
        assert [d.action for d in actions] == ["scale_up"] * 5
        assert fleet.memory.not_helped == {}

    def test_pods_without_free_capacity_anywhere_are_counted(self) -> None:
        fleet, full = Fleet(takes=80), {"cpu_requested_milli": 1900}
        for k in range(6):
            seen = snapshot(START + k * TICK, pending=pods(4, oldest_seconds=3600), workers=workers(3 + k, **full))
            assert fleet.tick(seen).action == "scale_up"

    def test_a_launch_that_failed_proves_nothing(self) -> None:
        memory = Memory()
        for k in range(6):
            now = START + k * 900
            memory = decide(snapshot(now, pending=pods(1, oldest_seconds=9000)), memory, POLICY, now).memory
            memory = record_failure(memory, "scale_up", now + 60, POLICY)
        assert memory.not_helped == {}


@pytest.mark.parametrize(("lasting", "alerts"), [(True, ["pod_unfit:500m/256Mi@1e72da24"]), (False, [])])
def test_a_pod_whose_volume_is_lost_brings_no_launch_and_one_alert(lasting: bool, alerts: list[str]) -> None:
    problem = "its volume pvc-1 (claim data) is bound to node i-0dead, and no such node exists"
    seen = snapshot(pending=pods(1, example="shop/report-1", problem=problem, lasting=lasting))
    decision = decide(seen, Memory(), POLICY, START)
    assert (decision.action, [alert.kind for alert in decision.alerts]) == ("none", alerts)
    assert problem in decision.sentence
    assert decide(seen, decision.memory, POLICY, START).alerts == ()


class TestPodLargerThanAnyWorker:
    """A pod larger than any worker launches nothing and is named once."""

    def decided(self, cpu_milli: int, memory_mib: int, memory: Memory | None = None, **changes: Any) -> Decision:
        seen = workers(4, cpu_allocatable_milli=1900, memory_allocatable_mib=3600, memory_requested_mib=3600, **changes)
        return decide(
            snapshot(pending=pods(1, cpu_milli, memory_mib, example="ml/train-1"), workers=seen),
            memory or Memory(),
            POLICY,
            START,
        )

    def test_launches_nothing_and_is_named(self) -> None:
        decision = self.decided(8000, 4096)
        assert decision.action == "none"
        assert [a.kind for a in decision.alerts] == ["pod_too_large:8000m/4096Mi"]
        assert self.decided(8000, 4096, decision.memory).alerts == (), "it is reported once"
        assert decision.sentence.startswith("pod ml/train-1: requests 8000m CPU, the largest worker offers 1900m")

    @pytest.mark.parametrize(
        ("cpu", "memory", "launched"), [(1900, 3600, 1), (1901, 64, 0), (100, 3601, 0), (1900, 64, 1)]
    )
    def test_exactly_as_large_as_a_worker_still_counts(self, cpu: int, memory: int, launched: int) -> None:
        assert self.decided(cpu, memory).count == launched

    @pytest.mark.parametrize(
        ("types", "launched"), [(("t3.small",), 0), (("t3.small", "m5.4xlarge"), 1), (("odd",), 0)]
    )
    def test_a_larger_type_that_may_be_launched_makes_it_count(self, types: tuple[str, ...], launched: int) -> None:
        shape = pods(1, 8000, 4096)
        policy = replace(POLICY, instance_types=types)
        assert decide(snapshot(pending=shape), Memory(), policy, START).count == launched

    def test_it_neither_hides_other_pods_nor_keeps_an_idle_worker(self) -> None:
        both = pods(1, 8000, 4096) + pods(2, 500)
        assert decide(snapshot(pending=both), Memory(), POLICY, START).count == 1
        memory = Memory(since={"idle": Streak(since=START - 600, last=START - TICK, readings=6)})
        assert decide(idle(pending=pods(1, 8000, 4096)), memory, POLICY, START).action == "scale_down"


class TestEmptyAnswers:
    """Empty answers are missing: no worker is removed, and an alert is sent after a second reading."""

    IDLE = Memory(since={"idle": Streak(since=NOW - 6000, last=NOW - TICK, readings=50)})

    def figures(self, *without: str) -> dict[str, Rows]:
        rows = fleet_rows(*(worker_rows(chr(ord("a") + n), cpu=5.0, memory_available=4000 * 2**20) for n in range(8)))
        return {name: [] if name in without else some for name, some in rows.items()}

    @pytest.mark.parametrize(
        "without",
        [
            ("cpu", "pods_known"),
            ("cpu",),
            ("pods_known",),
            ("nodes_known",),
            ("memory_available",),
            ("cpu", "cores", "memory_total", "memory_available", "pods_known", "nodes_known"),
        ],
    )
    def test_remove_no_worker_and_are_reported(self, without: tuple[str, ...]) -> None:
        seen = read(self.figures(*without), *"abcdefgh")
        fleet = Fleet(memory=self.IDLE)
        decisions = [fleet.tick(replace(seen, at=NOW + k * TICK, read_at=NOW + k * TICK)) for k in range(12)]
        assert {d.action for d in decisions} == {"none"}
        assert [[a.kind for a in d.alerts] for d in decisions][:3] == [[], ["metrics_missing"], []]

    def test_with_everything_there_the_same_fleet_would_shrink(self) -> None:
        assert decide(read(self.figures(), *"abcdefgh"), self.IDLE, POLICY, NOW).action == "scale_down"
