"""What must hold of every decision, whatever the load, the memory and the settings."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.memory import BackOff, Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import CustomReading, PodShape, Snapshot, Worker
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.schedule import parse_schedules
from node_fleet.settings import Settings
from node_fleet.settings.presets import PRESETS
from tests.support.decisions import START, TICK, Fleet, snapshot, worker
from tests.support.tiers import examples

pytestmark = pytest.mark.sampled(5)  # with --all, every one

QUEUE = CustomMetric(name="queue", query="q", high=1000, low=100, readings=1)
PHASES = ("usable", "usable", "usable", "joining", "cordoned", "not_ready", "unjoined", "unknown")
SETTINGS = set(Settings.__dataclass_fields__)

percents = st.one_of(st.none(), st.floats(0, 100), st.sampled_from([30.0, 50.0, 70.0, 75.0, 85.0, float("nan")]))


@st.composite
def some_workers(draw: st.DrawFn, most: int = 14) -> tuple[Worker, ...]:
    made = []
    for number in range(draw(st.integers(0, most))):
        phase = draw(st.sampled_from(PHASES))
        made.append(
            worker(
                number,
                phase,
                under_notice=draw(st.integers(0, 9)) == 0,
                not_ready_seconds=draw(st.sampled_from([0, 1199, 1200, 5000])) if phase == "not_ready" else 0,
                launched_at=START - draw(st.sampled_from([30, 250, 90_000])),
                **({"cpu_requested_milli": draw(st.sampled_from([0, 500, 1900]))} if phase != "joining" else {}),
            )
        )
    return tuple(made)


some_pods = st.lists(
    st.builds(
        PodShape,
        cpu_milli=st.sampled_from([0, 100, 500, 1500, 9000]),
        memory_mib=st.sampled_from([0, 64, 512, 9000]),
        count=st.integers(0, 12),
        oldest_seconds=st.integers(0, 4000),
        example=st.sampled_from(["", "shop/web-1"]),
    ),
    max_size=3,
).map(tuple)

streaks = st.builds(
    lambda ago, length, readings: Streak(since=START - ago - length, last=START - ago, readings=readings),
    st.sampled_from([0, 60, 120, 300, 301, 900]),
    st.sampled_from([0, 120, 600, 3000]),
    st.integers(1, 9),
)

memories = st.builds(
    Memory,
    last_action=st.sampled_from(["", "scale_up", "scale_down"]),
    last_action_at=st.sampled_from([0, START - 1, START - 299, START - 300, START - 600, START - 9000]),
    since=st.dictionaries(st.sampled_from(["cpu", "memory", "pending", "idle", "custom:queue", "missing"]), streaks),
    back_offs=st.lists(
        st.builds(
            BackOff,
            key=st.sampled_from(["join", "scale_up", "node:i-0001"]),
            failures=st.integers(1, 5),
            until=st.sampled_from([0, START, START + 60]),
        ),
        max_size=2,
    ).map(tuple),
    predictive_hold_until=st.sampled_from([0, START, START + 600]),
    predictive_hold_workers=st.integers(0, 12),
)

policies = st.builds(
    lambda preset, least, schedule, predictive, more: Policy(
        **{
            **{k: v for k, v in PRESETS[preset].items() if k in Policy.__dataclass_fields__},
            "custom_metrics": (QUEUE,),
            "min_workers": least,
            "schedules": parse_schedules(schedule),
            "predictive": predictive,
            **more,
        }
    ),
    st.sampled_from(sorted(PRESETS)),
    st.integers(0, 4),
    st.sampled_from(["", "Mon-Sun 00:00-24:00: 6", "Mon 14:00-15:00: 5"]),
    st.booleans(),
    st.sampled_from(
        [
            {},
            {},
            {"headroom_workers": 1},
            {"headroom_pods": HeadroomPods(count=4, cpu_milli=500, memory_mib=256)},
            {"disruption_budgets": (Budget(nodes="25%"), Budget(nodes="2", reasons=("idle",)))},
        ]
    ),
)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    return snapshot(
        source=draw(st.sampled_from(["live", "live", "live", "cached", "none"])),
        read_at=START - draw(st.sampled_from([0, 0, 0, 100, 300])),
        cpu_percent=draw(percents),
        memory_percent=draw(percents),
        pending=draw(st.one_of(st.none(), some_pods)),
        workers=draw(some_workers()),
        custom=draw(
            st.lists(
                st.builds(
                    CustomReading,
                    name=st.sampled_from(["queue", "other"]),
                    value=st.one_of(st.none(), st.floats(0, 5000)),
                ),
                max_size=1,
            ).map(tuple)
        ),
        missing=draw(st.sampled_from([(), (), ("nodes",), ("custom:queue",)])),
    )


def change(decision: Decision) -> int:
    return {"scale_up": decision.count, "scale_down": -decision.count, "none": 0}[decision.action]


def minimum_of(seen: Snapshot, policy: Policy, memory: Memory) -> int:
    """The effective minimum, written down a second time and more plainly than the rules do."""
    minimums = [policy.min_workers, *(w.minimum for w in policy.schedules)]
    if policy.predictive and memory.predictive_hold_until > START:
        minimums.append(memory.predictive_hold_workers)
    return min(max(minimums), policy.max_workers)


@given(snapshots(), memories, policies)
@examples(120)
def test_never_above_the_maximum(seen: Snapshot, memory: Memory, policy: Policy) -> None:
    decision = decide(seen, memory, policy, START)
    if decision.action == "scale_up":
        assert decision.count > 0
        assert len(seen.counted) + decision.count <= policy.max_workers


@given(snapshots(), memories, policies)
@examples(120)
def test_never_removes_below_the_effective_minimum(seen: Snapshot, memory: Memory, policy: Policy) -> None:
    decision = decide(seen, memory, policy, START)
    if decision.action == "scale_down":
        removed_usable = 0 if decision.replace else decision.count
        assert len(seen.usable) - removed_usable >= minimum_of(seen, policy, memory)


@given(snapshots(), memories, policies)
@examples(120)
def test_never_removes_on_missing_stale_or_nan_data(seen: Snapshot, memory: Memory, policy: Policy) -> None:
    decision = decide(seen, memory, policy, START)
    if decision.action == "scale_down":
        assert seen.source == "live" and START - seen.read_at < policy.cached_reading_seconds
    if decision.rule == "idle":
        assert seen.cpu_percent is not None and seen.cpu_percent < policy.cpu_down_percent
        assert seen.pending_count is not None
        assert "nodes" not in seen.missing
        assert not policy.use_memory or (seen.memory_percent or 100) < policy.memory_down_percent


@given(snapshots(), memories, policies, st.randoms(use_true_random=False))
@examples(120)
def test_no_decision_depends_on_the_order_of_lists_or_dicts(
    seen: Snapshot, memory: Memory, policy: Policy, dice: random.Random
) -> None:
    def shuffled(items: Any) -> Any:
        mixed = list(items)
        dice.shuffle(mixed)
        return mixed

    other = replace(
        seen,
        workers=tuple(shuffled(seen.workers)),
        pending=None if seen.pending is None else tuple(shuffled(seen.pending)),
        missing=tuple(shuffled(seen.missing)),
    )
    mixed = replace(memory, since=dict(shuffled(memory.since.items())))
    first, second = decide(seen, memory, policy, START), decide(other, mixed, policy, START)
    assert replace(first, memory=Memory()) == replace(second, memory=Memory())
    assert first.memory.since == second.memory.since


@given(
    snapshots(),
    memories,
    policies,
    st.sampled_from(["cpu_percent", "memory_percent", "pending", "custom"]),
    st.tuples(st.floats(0, 100), st.floats(0, 100)),
)
@examples(250)
def test_more_load_never_yields_fewer_workers(
    seen: Snapshot, memory: Memory, policy: Policy, name: str, pair: tuple[float, float]
) -> None:
    low, high = sorted(pair)

    def with_load(value: float) -> Snapshot:
        if name == "pending":
            shape = PodShape(cpu_milli=500, memory_mib=64, count=int(value / 4), oldest_seconds=int(value))
            return replace(seen, pending=(shape,) if shape.count else ())
        if name == "custom":
            return replace(seen, custom=(CustomReading(name="queue", value=value * 20),))
        return replace(seen, **{name: value})

    changes = [change(decide(with_load(v), memory, policy, START)) for v in (low, high)]
    assert changes[0] <= changes[1]


@given(snapshots(), memories, policies)
@examples(120)
def test_every_reason_and_every_check_names_a_setting_that_exists(
    seen: Snapshot, memory: Memory, policy: Policy
) -> None:
    decision = decide(seen, memory, policy, START)
    assert decision.reasons and decision.sentence
    assert {check.setting for check in decision.evidence} <= SETTINGS
    assert {reason.rsplit("[", 1)[1].rstrip("]") for reason in decision.reasons} <= SETTINGS
    assert decision.reasons[0].rsplit(" [", 1)[0] == decision.sentence.split(" -> ", 1)[0]


@given(snapshots(), memories, policies)
@examples(100)
def test_an_action_says_what_it_makes_of_the_worker_count(seen: Snapshot, memory: Memory, policy: Policy) -> None:
    decision = decide(seen, memory, policy, START)
    assert decision.workers_after - decision.workers_before == change(decision)
    assert decision.notify == (bool(decision.alerts) or decision.action != "none")
    assert (decision.action == "none") == (decision.count == 0)


loads = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(0, 3), st.booleans()), min_size=30, max_size=120
)


@pytest.mark.parametrize("bypass", [False, True])
@given(load=loads, start_workers=st.integers(2, 10))
@examples(10)
def test_a_day_of_any_load_changes_direction_at_most_once_per_cooldown(
    bypass: bool, load: list[tuple[float, float, int, bool]], start_workers: int
) -> None:
    policy = Policy(pending_bypasses_cooldown=bypass)
    fleet, count = Fleet(policy), start_workers
    turns: list[tuple[int, str]] = []
    for index in range(720):
        cpu, memory, waiting, low = load[index % len(load)]
        now = START + index * TICK
        seen = snapshot(
            now,
            cpu_percent=cpu / 5 if low or index % 90 > 30 else cpu,
            memory_percent=memory / 4,
            pending=(PodShape(cpu_milli=500, memory_mib=64, count=waiting),) if waiting and index % 90 < 4 else (),
            workers=tuple(worker(k, cpu_requested_milli=100, memory_requested_mib=50) for k in range(count)),
        )
        decision = fleet.tick(seen)
        count += change(decision)
        assert 2 <= count <= 10
        if decision.action != "none" and decision.rule != "minimum":
            turns.append((now, decision.action))
    reversals = [second for first, second in pairwise(turns) if first[1] != second[1]]
    for at, _ in turns:
        assert sum(at < turned < at + policy.cooldown_down_seconds for turned, _ in reversals) <= 1
    if not bypass:
        waits = {"scale_up": policy.cooldown_up_seconds, "scale_down": policy.cooldown_down_seconds}
        assert all(second[0] - first[0] >= waits[second[1]] for first, second in pairwise(turns))
