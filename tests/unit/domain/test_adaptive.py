"""The preset `adaptive`, decision by decision: what it adds, what it lets go, what it says, what it remembers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import AdaptiveMemory, Memory, PlanTrials, Streak, WorkerNeed
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.domain.model.weight import LimitUse
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.strategies.adaptive import trials
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate, estimate_capacity
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import from_payload, to_payload
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, Fleet, pods, snapshot, worker

POLICY = Settings.from_mapping({"preset": "adaptive"}).policy()
DAY_TICKS = 720


def filled(number: int, count: int, **changes: Any) -> Worker:
    """A worker that runs `count` pods of 250m and 128 MiB beside a DaemonSet's 20m and 32 MiB; seven fill it."""
    values: dict[str, Any] = {
        "cpu_allocatable_milli": 1900,
        "cpu_requested_milli": 20 + 250 * count,
        "memory_allocatable_mib": 1698,
        "memory_requested_mib": 32 + 128 * count,
        "pods": count + 1,
        **changes,
    }
    return worker(number, **values)


def large(number: int, count: int, **changes: Any) -> Worker:
    """Such a worker that 28 pods fill."""
    values = {"instance_type": "m5.xlarge", "cpu_allocatable_milli": 7020, "memory_allocatable_mib": 16_000}
    return filled(number, count, **{**values, **changes})


def fleet_of(*counts: int, at: int = START, waiting: int = 0, joining: int = 0, **changes: Any) -> Snapshot:
    """Workers with so many pods each, and pods of the same kind that wait."""
    coming = tuple(worker(f"j{n}", "joining", launched_at=at - 60) for n in range(joining))
    return snapshot(
        at,
        cpu_percent=changes.pop("cpu_percent", 45.0),
        workers=(*(filled(n, count) for n, count in enumerate(counts)), *coming),
        pending=pods(waiting, 250, 128, oldest_seconds=changes.pop("oldest", 95)),
        **changes,
    )


def steady_memory(*counts: int, ticks: int = 30) -> Memory:
    """After one hour without change. One worker was once empty, so that pods are distinguished from DaemonSets."""
    fleet = Fleet(POLICY)
    fleet.tick(fleet_of(0, *counts, at=START - (ticks + 1) * TICK))
    for index in range(ticks, 0, -1):
        fleet.tick(fleet_of(*counts, at=START - index * TICK))
    return fleet.memory


def decided(seen: Snapshot, memory: Memory | None = None, **changes: Any) -> Decision:
    return decide(seen, memory or Memory(), replace(POLICY, **changes), START)


@pytest.mark.parametrize("seen", [fleet_of(7, 7, waiting=7), fleet_of(3, 2), snapshot(pending=None)])
def test_a_terse_decision_differs_in_texts_only(seen: Snapshot) -> None:
    explained, bare = (decide(seen, Memory(), POLICY, START, terse=terse) for terse in (False, True))
    assert explained.sentence and explained.reasons and not bare.sentence and not bare.reasons
    texts: dict[str, Any] = {"sentence": "", "reasons": (), "evidence": ()}
    assert replace(explained, **texts) == replace(bare, **texts)
    kept = [
        (c.name, c.verdict, c.value) for c in explained.evidence if c.name not in ("headroom_cost", "scale_down_delay")
    ]
    assert kept == [(c.name, c.verdict, c.value) for c in bare.evidence]
    assert {c.text for c in bare.evidence if c.name in ("cpu", "memory", "headroom")} == {""}


@pytest.mark.parametrize(("counts", "times"), [((5, 5), 0), ((1, 0, 0, 0), 1)])
def test_a_terse_decision_chooses_a_plan_once_and_only_where_workers_may_be_started_or_removed(
    counts: tuple[int, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, choose = steady_memory(*counts), trials.choose_plan
    chosen: list[PlanTrials] = []

    def counted(tried: PlanTrials, **costs: float) -> trials.PlanChoice:
        chosen.append(tried)
        return choose(tried, **costs)

    monkeypatch.setattr(trials, "choose_plan", counted)
    decide(fleet_of(*counts), memory, POLICY, START, terse=True)
    assert len(chosen) == times


class TestUp:
    @pytest.mark.parametrize(("waiting", "workers"), [(1, 1), (7, 1), (15, 3), (40, 6)])
    def test_one_wave_brings_what_the_waiting_pods_need(self, waiting: int, workers: int) -> None:
        memory = steady_memory(7, 7)
        settled = replace(memory, learned=replace(memory.learned, read_at=START))
        decision = decided(fleet_of(7, 7, waiting=waiting), settled)
        assert (decision.action, decision.count, decision.rule) == ("scale_up", workers, "pending")

    @pytest.mark.parametrize(("oldest", "workers"), [(POLICY.scheduling_grace_seconds - 1, 0), (95, 1)])
    def test_free_capacity_counts_for_pods_that_the_scheduler_had_no_time_to_place(
        self, oldest: int, workers: int
    ) -> None:
        memory = steady_memory(3, 3)
        settled = replace(memory, learned=replace(memory.learned, read_at=START))
        seen = fleet_of(3, 3, waiting=4, oldest=oldest)
        assert decided(seen, settled).count == workers

    def test_it_never_passes_the_maximum(self) -> None:
        assert decided(fleet_of(7, 7, waiting=500)).count == 8

    def test_headroom_that_a_limit_forbids_raises_no_alert_and_blocks_no_other_rule(self) -> None:
        used_up = LimitUse(name="max_vcpu", most=8, used=8, of_kind={"t3.small/spot": 2})
        decision = decided(replace(fleet_of(7, 6), limits=(used_up,)), steady_memory(2, 2))
        assert (decision.action, decision.blocked_by, decision.alerts) == ("none", (), ())
        waiting = decided(replace(fleet_of(7, 6, waiting=7), limits=(used_up,)), steady_memory(2, 2))
        assert [alert.kind for alert in waiting.alerts] == ["at_maximum:max_vcpu"]

    def test_joining_workers_are_capacity(self) -> None:
        memory = steady_memory(7, 7)
        settled = replace(memory, learned=replace(memory.learned, read_at=START))
        assert decided(fleet_of(7, 7, waiting=14, joining=2), settled).action == "none"
        assert decided(fleet_of(7, 7, waiting=15, joining=2), settled).count == 1

    def test_pods_that_fit_on_joining_workers_are_named_beside_those_that_are_left(self) -> None:
        decision = decided(fleet_of(7, 7, waiting=9, joining=1), steady_memory(7, 7))
        pending = next(check for check in decision.evidence if check.name == "pending")
        assert pending.text == "pending 9, 7 of them fit on joining workers" and pending.value == 2

    @pytest.mark.parametrize(("instance_type", "workers"), [("t3.small", 1), ("t3.xlarge", 0)])
    def test_a_joining_worker_counts_with_the_capacity_of_its_own_type(self, instance_type: str, workers: int) -> None:
        """Fourteen pods: one t3.small holds seven of them."""
        memory = steady_memory(7, 7)
        settled = replace(memory, learned=replace(memory.learned, read_at=START))
        seen = fleet_of(7, 7, waiting=14)
        coming = worker("j0", "joining", launched_at=START - 60, instance_type=instance_type)
        decision = decided(replace(seen, workers=(*seen.workers, coming)), settled)
        assert decision.count == workers

    @pytest.mark.parametrize(
        ("taint", "workers"),
        [("node.kubernetes.io/not-ready:NoSchedule", 1), ("team=search:NoSchedule", 2)],
    )
    def test_a_joining_worker_is_capacity_despite_the_taint_that_it_carries_until_it_is_ready(
        self, taint: str, workers: int
    ) -> None:
        memory = steady_memory(7, 7)
        settled = replace(memory, learned=replace(memory.learned, read_at=START))
        seen = fleet_of(7, 7, waiting=8)
        coming = worker("j0", "joining", launched_at=START - 60, taints=(taint,))
        assert decided(replace(seen, workers=(*seen.workers, coming)), settled).count == workers

    def test_waiting_pods_wait_for_no_cooldown(self) -> None:
        resting = replace(steady_memory(7, 7), last_action="scale_up", last_action_at=START - 1)
        assert decided(fleet_of(7, 7, waiting=1), resting, cooldown_up_seconds=300).action == "scale_up"

    def test_pods_too_large_for_any_worker_are_listed_and_bring_nothing(self) -> None:
        seen = replace(fleet_of(6, 6, 6), pending=pods(3, 4000, 128))
        decision = decided(seen, steady_memory(6, 6, 6))
        assert decision.action == "none"
        assert any(check.name == "pod_too_large" for check in decision.evidence)

    def test_a_fast_rise_starts_workers_before_any_pod_waits(self) -> None:
        memory = steady_memory(2, 2)
        decision = decided(fleet_of(7, 6), memory)
        assert (decision.action, decision.rule) == ("scale_up", "headroom")
        assert "is worth" in decision.sentence

    def test_a_hot_fleet_grows_although_requests_would_fit(self) -> None:
        fleet = Fleet(POLICY, steady_memory(3, 3))
        first = fleet.tick(fleet_of(3, 3, at=START, cpu_percent=92.0))
        second = fleet.tick(fleet_of(3, 3, at=START + TICK, cpu_percent=92.0))
        assert (first.action, second.action, second.rule) == ("none", "scale_up", "cpu")


class TestDown:
    def test_capacity_is_removed_when_it_was_unneeded_for_the_delay(self) -> None:
        decision = decided(fleet_of(3, 3, 3, 3, cpu_percent=20.0), steady_memory(3, 3, 3, 3))
        assert (decision.action, decision.rule) == ("scale_down", "idle")
        assert decision.count == 2

    def test_no_more_at_once_than_the_setting_allows(self) -> None:
        assert decided(fleet_of(2, 2, 2, 2, 2, 2), steady_memory(2, 2, 2, 2, 2, 2), max_targets=1).count == 1

    def test_capacity_needed_a_moment_ago_stays(self) -> None:
        memory = steady_memory(3, 3, 3, 3)
        recent = replace(memory.learned, needs=(WorkerNeed(at=START - 60, workers=4),))
        decision = decided(fleet_of(3, 3, 3, 3), replace(memory, learned=recent))
        assert decision.action == "none"
        assert "unneeded for 60 of" in decision.sentence

    def test_capacity_that_was_never_needed_and_is_less_than_a_worker_is_unneeded_since_no_known_time(self) -> None:
        """The second worker holds 28 pods: the capacity is 5.0 workers, of which 4 were needed a minute ago."""
        seen, memory = replace(fleet_of(3), workers=(filled(0, 3), large(1, 3))), steady_memory(3, 3)
        recent = replace(memory.learned, needs=(WorkerNeed(at=START - 60, workers=4),))
        decision = decided(seen, replace(memory, learned=recent), min_workers=0)
        checks = {check.name: check for check in decision.evidence}
        assert checks["idle"].text.startswith("capacity of 4 workers unneeded for 0 of ")
        assert (checks["idle"].verdict, checks["idle"].value) == ("waiting", 0)

    @pytest.mark.parametrize(
        "change",
        [
            {"source": "cached"},
            {"cpu_percent": None},
            {"cpu_percent": 75.0},
            {"memory_percent": 75.0},
            {"missing": ("nodes",)},
        ],
    )
    def test_nothing_is_removed_on_missing_old_or_high_readings(self, change: dict[str, Any]) -> None:
        assert decided(fleet_of(3, 3, 3, 3, **change), steady_memory(3, 3, 3, 3)).action != "scale_down"

    def test_nothing_is_removed_while_pods_wait_or_workers_join(self) -> None:
        memory = steady_memory(3, 3, 3, 3)
        assert decided(fleet_of(3, 3, 3, 3, waiting=1, oldest=5), memory).action != "scale_down"
        assert decided(fleet_of(3, 3, 3, 3, joining=1), memory).action != "scale_down"

    def test_a_worker_is_removed_only_when_its_pods_fit_on_the_others(self) -> None:
        """(free, used) places of each worker, the cheapest to empty first."""
        places = CapacityEstimate(
            demand=2.0, have=3.0, workers=3, pods_per_worker=7, new_workers=(), worker_slots=((7, 0), (3, 4), (2, 5))
        )
        assert [places.fits_without(count) for count in (1, 2, 3)] == [True, False, False]

    def test_the_load_that_is_left_must_stay_under_the_marks(self) -> None:
        decision = decided(fleet_of(3, 3, 3, 3, cpu_percent=45.0), steady_memory(3, 3, 3, 3))
        assert (decision.action, decision.count) == ("scale_down", 1)

    def test_never_below_the_minimum(self) -> None:
        assert decided(fleet_of(0, 0), steady_memory(0, 0)).action == "none"
        assert decided(fleet_of(1, 1, 1), steady_memory(1, 1, 1), min_workers=3).action == "none"

    @pytest.mark.parametrize(
        ("change", "workers_more"),
        [
            ({"phase": "cordoned"}, 3 / 7),
            ({"under_notice": True}, 3 / 7),
            ({"phase": "cordoned", "cpu_requested_milli": None}, 0),
            ({"phase": "cordoned", "cpu_requested_milli": 20 + 125}, 0.5 / 7),
            ({"phase": "cordoned", "cpu_requested_milli": 0}, 0),
        ],
        ids=["cordoned", "under notice", "cordoned with unknown requests", "half a pod", "less than its DaemonSets"],
    )
    def test_the_pods_of_a_worker_that_leaves_count_as_demand(
        self, change: dict[str, Any], workers_more: float
    ) -> None:
        memory = steady_memory(3, 3)
        seen = fleet_of(3, 3)
        leaving = replace(seen, workers=(*seen.workers, filled(9, 3, **change)))
        before, after = (
            estimate_capacity(make_tick(one, memory, POLICY, START), None, memory.learned.pods)
            for one in (seen, leaving)
        )
        assert before is not None and after is not None
        assert after.demand - before.demand == pytest.approx(workers_more)


class TestWorkersOfOtherTypes:
    """The minimum and the maximum count instances, capacity and demand workers of the type that a launch creates."""

    @pytest.mark.parametrize("most", [4, 10])
    def test_no_worker_is_launched_because_those_of_the_minimum_are_small(self, most: int) -> None:
        """A large worker and three that hold a quarter of it: 1.75 workers."""
        seen = replace(fleet_of(), workers=(large(0, 1), filled(1, 1), filled(2, 1), filled(3, 1)))
        types = ("m5.xlarge", "t3.small")
        decision = decided(seen, steady_memory(1, 1), min_workers=4, max_workers=most, instance_types=types)
        assert (decision.action, decision.alerts) == ("none", ())

    @pytest.mark.parametrize(("minimum", "maximum"), [((1, 0), (4, 1)), ((4, 1), (10, 7)), ((2, 0), (3, 1))])
    def test_a_launch_adds_a_worker_of_the_first_type_to_those_that_are_smaller(
        self, minimum: tuple[int, int], maximum: tuple[int, int]
    ) -> None:
        """Four workers that have the capacity of 1.75; one more than the maximum takes the average away."""
        seen = replace(fleet_of(), workers=(large(0, 1), filled(1, 1), filled(2, 1), filled(3, 1)))
        memory, policy = steady_memory(1, 1), replace(POLICY, instance_types=("m5.xlarge", "t3.small"))
        capacity = estimate_capacity(make_tick(seen, memory, policy, START), None, memory.learned.pods)
        assert capacity is not None and capacity.have == 1.75
        assert (capacity.of_minimum(minimum[0]), capacity.of_maximum(maximum[0])) == (minimum[1], maximum[1])

    def test_pods_that_fit_on_the_workers_of_the_minimum_wait_under_no_plan(self) -> None:
        """The minimum of two holds 0.875 workers, and 13 pods need 0.46; for half an hour there is none."""
        policy = replace(POLICY, min_workers=2, max_workers=4, instance_types=("m5.xlarge", "t3.small"), wait_cost=0.1)
        fleet, smallest = Fleet(policy), 1
        for number in range(60):
            pods_of = (10, 1, 1, 1) if number % 16 == 0 else (0, 0, 0, 0)
            workers = (large(0, pods_of[0]), *(filled(n, pods_of[n]) for n in range(1, 4)))
            fleet.tick(replace(fleet_of(at=START + number * TICK), workers=workers))
            smallest = min(smallest, *fleet.memory.learned.tried.workers)
        assert smallest == 0 and {*fleet.memory.learned.tried.waited} == {0}

    def test_small_workers_above_the_minimum_are_removed(self) -> None:
        workers = (large(0, 1), *(filled(n, 1) for n in range(1, 7)))
        seen = replace(fleet_of(cpu_percent=20.0, memory_percent=10.0), workers=workers)
        types = ("m5.xlarge", "t3.small")
        decision = decided(seen, steady_memory(1, 1), min_workers=4, instance_types=types, wait_cost=0.1)
        assert (decision.action, decision.count) == ("scale_down", 3)

    def test_needs_beyond_the_number_of_the_maximum_are_learned(self) -> None:
        """Eight large workers, of which six are full, need as much as 24 of the first type; at most ten may run."""
        fleet, seen = Fleet(replace(POLICY, wait_cost=0.1)), fleet_of()
        fleet.tick(replace(seen, workers=(filled(9, 0), *(large(n, 28) for n in range(8)))))
        assert fleet.memory.learned.needs[-1].workers == 32

    def test_no_more_large_workers_are_removed_than_are_unneeded(self) -> None:
        """Capacity of 7 workers is unneeded: one worker of 3.6 on average, not three."""
        memory = steady_memory(7, 7)
        needed = replace(memory.learned, needs=(WorkerNeed(at=START - 60, workers=18),))
        workers = (filled(9, 7), *(large(n, 7) for n in range(6)))
        seen = replace(fleet_of(cpu_percent=20.0, memory_percent=10.0), workers=workers)
        assert decided(seen, replace(memory, learned=needed)).count == 1


class TestWords:
    def test_the_sentence_says_the_requests_the_headroom_and_why(self) -> None:
        decision = decided(fleet_of(5, 5, 5), steady_memory(5, 5, 5))
        assert decision.sentence.startswith(
            "demand 2.1 workers, capacity 3.0 workers; a headroom of 0.9 workers is worth its price "
            "(a pod's minute of waiting costs 4 worker-minutes) -> no change"
        )

    def test_the_evidence_holds_both_costs(self) -> None:
        evidence = {check.name: check for check in decided(fleet_of(5, 5, 5), steady_memory(5, 5, 5)).evidence}
        assert evidence["headroom_cost"].setting == "wait_cost" and "would save" in evidence["headroom_cost"].text
        assert evidence["scale_down_delay"].setting == "change_cost" and "unneeded" in evidence["scale_down_delay"].text


class TestMissing:
    def test_without_requests_the_default_rules_decide_and_it_says_so(self) -> None:
        bare = tuple(replace(filled(n, 3), cpu_requested_milli=None) for n in range(3))
        decision = decided(snapshot(cpu_percent=71.0, workers=bare))
        assert "requests of most workers are unknown, so the rules of the preset node-fleet decide" in decision.sentence
        assert "71.0 % over 70 %" in decision.sentence

    def test_before_the_first_pod_the_default_rules_decide_and_it_says_so(self) -> None:
        bare = tuple(filled(n, 0, pods=0, cpu_requested_milli=0, memory_requested_mib=0) for n in range(2))
        decision = decided(snapshot(cpu_percent=71.0, workers=bare))
        assert "no pod was seen yet, so the rules of the preset node-fleet decide" in decision.sentence

    def test_the_default_rules_use_thresholds_that_an_operator_has_set_and_the_targets_of_the_preset(self) -> None:
        bare = tuple(replace(filled(n, 3), cpu_requested_milli=None) for n in range(9))
        waited = Memory(
            since={name: Streak(since=START - 600, last=START - TICK, readings=5) for name in ("cpu", "idle")}
        )
        own = decided(snapshot(cpu_percent=65.0, workers=bare), waited, cpu_up_percent=60.0)
        assert (own.action, own.rule) == ("scale_up", "cpu")
        unrequested = tuple(replace(w, memory_requested_mib=None) for w in bare)
        quiet = snapshot(cpu_percent=1.0, memory_percent=1.0, workers=unrequested)
        assert [decided(quiet, waited).count, decided(quiet, waited, max_targets=2).count] == [3, 2]

    @pytest.mark.parametrize(("cpu", "action", "seconds"), [(71.0, "scale_up", 300), (1.0, "scale_down", 600)])
    @pytest.mark.parametrize("left", [1, 0])
    def test_the_default_rules_wait_for_their_cooldowns(self, cpu: float, action: str, seconds: int, left: int) -> None:
        bare = tuple(worker(n, cpu_requested_milli=None, memory_requested_mib=None) for n in range(5))
        waited = Memory(
            since={name: Streak(since=START - 600, last=START - TICK, readings=5) for name in ("cpu", "idle")},
            last_action=action,
            last_action_at=START - seconds + left,
        )
        decision = decided(snapshot(cpu_percent=cpu, memory_percent=1.0, workers=bare), waited)
        assert (decision.action, decision.blocked_by) == (("none", ("cooldown",)) if left else (action, ()))

    def test_without_usage_requests_still_bring_workers(self) -> None:
        seen = fleet_of(7, 7, waiting=8, cpu_percent=None, memory_percent=None)
        assert decided(seen, steady_memory(7, 7)).action == "scale_up"

    def test_capacity_was_not_unneeded_while_no_reading_could_be_made(self) -> None:
        memory = steady_memory(7, 7, 7, 7)
        slow = replace(memory.learned.tried, held=(10**9,) * 8 + (0,) * 40)  # the plan with a delay of 45 minutes
        memory = replace(memory, learned=replace(memory.learned, tried=slow))
        after, policy = START + 4 * 3600, replace(POLICY, wait_cost=0.0)
        decision = decide(fleet_of(3, 3, 0, 0, at=after, cpu_percent=20.0), memory, policy, after)
        assert decision.action == "none" and "unneeded for 600 of 2700 s" in decision.sentence

    def test_a_cached_reading_teaches_nothing(self) -> None:
        memory = steady_memory(5, 5)
        later = fleet_of(6, 5, at=START, source="cached")
        assert decided(later, memory).memory.learned == memory.learned


class TestMemory:
    def test_it_stays_small_and_survives_the_state_item(self) -> None:
        fleet = Fleet(POLICY)
        for index in range(DAY_TICKS):
            busy = index * index % 97 // 7
            fleet.tick(fleet_of(*(min(7, max(0, busy - 7 * n)) for n in range(3)), at=START + index * TICK))
        learned = fleet.memory.learned
        written = json.dumps(to_payload(learned))
        assert len(written) < 4000
        assert to_payload(from_payload(AdaptiveMemory, json.loads(written))) == json.loads(written)

    def test_it_stays_small_after_a_month_when_new_entries_weigh_most(self) -> None:
        learned = steady_memory(5, 5).learned
        heavy = replace(learned.tried, weight=1023.9, held=(3e8,) * 48, waited=(3e8,) * 48, turns=(3e7,) * 48)
        assert len(json.dumps(to_payload(replace(learned, tried=heavy)))) < 5000

    def test_a_state_item_of_before_the_preset_is_read(self) -> None:
        old = to_payload(Memory())
        del old["learned"]
        assert from_payload(Memory, old).learned == AdaptiveMemory()

    @pytest.mark.parametrize(("ahead", "learns"), [(1800, False), (1801, True), (30 * 86_400, True)])
    def test_a_reading_of_a_clock_that_was_ahead_ends_neither_learning_nor_removals(
        self, ahead: int, learns: bool
    ) -> None:
        memory = steady_memory(7, 7, 7)
        future = (WorkerNeed(at=START + ahead, workers=3),)
        learned = replace(memory.learned, read_at=START + ahead, needs=future)
        after = decided(fleet_of(7, 7, 0), replace(memory, learned=learned)).memory.learned
        assert (after.read_at == START, after.needs[0].at == START) == (learns, learns)
        assert not learns or all(need.at <= START for need in after.needs)

    def test_damaged_trials_start_anew(self) -> None:
        memory = steady_memory(5, 5)
        damaged = replace(memory.learned, tried=replace(memory.learned.tried, weight=0.0))
        assert decided(fleet_of(5, 5), replace(memory, learned=damaged)).memory.learned.tried.weight > 0

    def test_the_trials_of_a_version_with_16_delays_are_read_and_start_anew(self) -> None:
        """A state item that cannot be read would stop the autoscaler."""
        old = to_payload(steady_memory(5, 5).learned)
        old["tried"] = {"workers": [3] * 16, "moved": [1] * 16, "held": [1.53] * 16, "turns": [0.99] * 16}
        read = from_payload(AdaptiveMemory, json.loads(json.dumps(old)))
        learned = decided(fleet_of(5, 5), Memory(learned=read)).memory.learned
        assert len(learned.tried.workers) == 48 and set(learned.tried.turns) == {0}
        assert learned.rises != AdaptiveMemory().rises, "the rises stay"

    def test_counts_of_another_shape_start_anew(self) -> None:
        odd = replace(Memory(), learned=AdaptiveMemory(rises=(1.0, 2.0), tried=PlanTrials(turns=(3,))))
        assert decided(fleet_of(5, 5), odd).memory.learned.rises == decided(fleet_of(5, 5)).memory.learned.rises

    def test_the_same_reading_twice_counts_once(self) -> None:
        first = decided(fleet_of(5, 5), steady_memory(5, 5))
        assert decided(fleet_of(5, 5), first.memory).memory.learned == first.memory.learned

    def test_the_boot_time_is_learned_from_joins(self) -> None:
        launched = decided(fleet_of(7, 7, waiting=8), steady_memory(7, 7))
        joined = replace(launched.memory, last_action="scale_up", last_action_at=START + 190)
        later = decide(fleet_of(7, 7, 7, 7, at=START + 240), joined, POLICY, START + 240)
        assert later.memory.learned.boot_seconds == pytest.approx(90 + (190 - 90) / 5)
