"""The longest history that any allowed settings make, computed from the definitions, stays below its end.

The relation among the settings uses a few numbers of its own; here they are held to the definition and to real runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cdk_app.workflow import definitions
from node_fleet.domain.interruption.closing import CAPACITY_WAITS
from node_fleet.domain.interruption.response import MAX_DRAIN_CHECKS, POLL_SECONDS
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings
from node_fleet.settings.validation import (
    AWS_HISTORY_LIMIT,
    BESIDE_EVENTS,
    HISTORY_LIMIT,
    LONGEST_STEP_SECONDS,
    MACHINE_SECONDS,
    NETWORK_RETRIES,
    NETWORK_RETRY_EVENTS,
    NETWORK_RETRY_SECONDS,
    POLL_EVENTS,
    RETRIED_POLL_EVENTS,
    ROUND_EVENTS,
    UNRENEWED_SECONDS,
    max_history_events,
)
from simulator.report.graph import all_edges
from tests.support.workflow_harness import BUSY, stage

AUTOSCALER = definitions()["autoscaler"]
INTERRUPTION = definitions()["interruption"]
EVENTS = {"Task": 5, "Choice": 2, "Wait": 2, "Pass": 2, "Succeed": 2, "Fail": 1, "Parallel": 4, "Map": 4}
"""Task: entered, scheduled, started, succeeded, exited. An execution adds its own start and end."""
EVENTS_OF_A_FAILED_TRY = 3
ROOM_RING = ("CheckOutcome", "OutcomeStatus", "ReinstateWorker", "ReinstatementStatus", "WaitForCapacity")
LOOPS = {
    "join": ("WaitForJoin", "CheckJoin", "JoinStatus"),
    "drain": ("WaitForDrain", "CheckDrain", "DrainStatus"),
    "termination": ("WaitForTermination", "ConfirmTermination", "TerminationStatus"),
}


def events(names: Any, machine: dict[str, Any] = AUTOSCALER) -> int:
    return sum(EVENTS[machine["States"][name]["Type"]] for name in names)


def rings(edges: set[tuple[str, str]]) -> Iterator[set[str]]:
    """The largest sets of states that can each be reached again from one another."""
    ahead: dict[str, set[str]] = {}
    for origin, target in edges:
        ahead.setdefault(origin, set()).add(target)
    reach = {name: _reached(name, ahead) for name in ahead}
    seen: set[str] = set()
    for name in sorted(ahead):
        ring = {other for other in reach[name] if name in reach.get(other, set())}
        if ring and name not in seen:
            seen |= ring
            yield ring


def _reached(start: str, ahead: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(ahead.get(start, ()))
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += ahead.get(name, ())
    return found


def network_retries(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for rule in state.get("Retry", ()) if "Lambda.ENINotReadyException" in rule["ErrorEquals"]]


def longest_seconds(state: dict[str, Any]) -> int:
    """The limit of one try and the pauses between network retries, whose tries fail at once."""
    pauses = sum(rule["IntervalSeconds"] * rule["MaxAttempts"] for rule in network_retries(state))
    return int(state.get("TimeoutSeconds", 0)) + pauses


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_one_look_is_a_wait_a_task_and_a_choice(loop: tuple[str, ...]) -> None:
    edges = all_edges(AUTOSCALER)
    assert {(loop[0], loop[1]), (loop[1], loop[2]), (loop[2], loop[0])} <= edges
    assert events(loop) == POLL_EVENTS
    rules = AUTOSCALER["States"][loop[1]]["Retry"]
    tries = sum(rule["MaxAttempts"] for rule in rules if rule not in network_retries(AUTOSCALER["States"][loop[1]]))
    assert events(loop) + tries * EVENTS_OF_A_FAILED_TRY == RETRIED_POLL_EVENTS


def test_every_ring_of_states_is_one_that_the_relation_counts() -> None:
    """A new loop in the definition must be counted too, or a run could go round it without end."""
    edges = all_edges(AUTOSCALER)
    looks = {(loop[2], loop[0]) for loop in LOOPS.values()}
    rounds = {("WaitForScheduling", "CollectMetrics")}
    targets = {(end, begin) for end in ("NextTarget", "UndoStatus") for begin in ("StartDrain", "TerminateNodes")}
    assert list(rings(edges - looks - rounds - targets)) == []
    for ring in rings(edges):
        assert events(ring) <= ROUND_EVENTS, sorted(ring)


def test_the_relations_numbers_are_those_of_the_definition() -> None:
    states = AUTOSCALER["States"]
    assert events(states) + 2 <= BESIDE_EVENTS
    assert AUTOSCALER["TimeoutSeconds"] == MACHINE_SECONDS
    assert max(longest_seconds(state) for state in states.values()) == LONGEST_STEP_SECONDS
    assert (
        sum(longest_seconds(states[name]) for name in ("CheckSetAside", "CollectMetrics", "Decide"))
        == UNRENEWED_SECONDS
    )


def test_network_retries_have_a_fixed_pause_so_that_a_run_has_time_for_few_of_them() -> None:
    """They come on top of the other retries, so the relation counts as many as the longest run has time for."""
    rules = [rule for state in AUTOSCALER["States"].values() for rule in network_retries(state)]
    assert len(rules) == 5
    for rule in rules:
        assert (rule["IntervalSeconds"], rule["MaxAttempts"], rule["BackoffRate"]) == (
            NETWORK_RETRY_SECONDS,
            NETWORK_RETRIES,
            1,
        )
        assert "JitterStrategy" not in rule
    assert NETWORK_RETRY_EVENTS == MACHINE_SECONDS / NETWORK_RETRY_SECONDS * EVENTS_OF_A_FAILED_TRY


def test_the_longest_run_by_default_is_far_below_the_limit() -> None:
    settings = Settings()
    longest = max_history_events(settings)
    assert longest < HISTORY_LIMIT
    assert max_history_events(settings, with_retries=True) < AWS_HISTORY_LIMIT


polls = st.integers(2, 60)


@given(
    given=st.fixed_dictionaries(
        {
            "join_poll_seconds": polls,
            "drain_poll_seconds": polls,
            "terminate_poll_seconds": polls,
            "join_limit_seconds": st.integers(60, 899),
            "drain_timeout_seconds": st.integers(30, 3600),
            "terminate_limit_seconds": st.integers(60, 3600),
            "max_targets": st.integers(1, 10),
            "max_rounds": st.integers(1, 3),
        }
    )
)
def test_settings_are_refused_exactly_when_a_run_could_come_near_the_limit(given: dict[str, Any]) -> None:
    settings = Settings(**given)
    long = max_history_events(settings) >= HISTORY_LIMIT
    long = long or max_history_events(settings, with_retries=True) >= AWS_HISTORY_LIMIT
    if not long:
        assert Settings.from_mapping(given).join_poll_seconds == given["join_poll_seconds"]
        return
    with pytest.raises(InvalidSettingsError, match=r"join_poll_seconds=\d+.* history events .*expected under 10000"):
        Settings.from_mapping(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"drain_poll_seconds": 2, "terminate_poll_seconds": 2, "max_targets": 10, "drain_timeout_seconds": 1800},
            "drain_poll_seconds=2",
        ),
        ({"lease_seconds": 260}, "lease_seconds=260 must be above 260"),
        ({"lease_seconds": 261}, ""),
        ({"lease_seconds": 245, "join_poll_seconds": 60, "scheduling_grace_seconds": 0}, "must be above 245"),
        ({"lease_seconds": 246, "join_poll_seconds": 60, "scheduling_grace_seconds": 0}, ""),
        ({"scheduling_grace_seconds": 300}, "scheduling_grace_seconds=300"),
    ],
    ids=[
        "half an hour of drains polled every 2 s",
        "a lease as long as three steps that do not renew it",
        "a longer lease",
        "a lease as long as a step",
        "a lease longer than a step",
        "a long grace",
    ],
)
def test_settings_with_too_many_events_or_a_lease_that_a_step_could_outlast_are_refused(
    given: dict[str, Any], problem: str
) -> None:
    """The longest step: 90 s for CheckDrain and 90 s of network retries, 60 s of pause, 5 s for clocks that differ.

    Without a renewal: 60 s for CheckSetAside, 150 s for CollectMetrics, 15 s for Decide, 30 s of grace, and these 5 s.
    """
    if problem:
        with pytest.raises(InvalidSettingsError, match=problem):
            Settings.from_mapping(given)
    else:
        assert Settings.from_mapping(given).lease_seconds == given["lease_seconds"]


def test_a_real_run_that_waits_to_the_end_makes_no_more_events_than_computed() -> None:
    with stage(workers=2, warm_up=0, min_workers=3, more=["boot:", "  - {kind: never_joins}"]) as fleet:
        fleet.load(BUSY)
        run = fleet.tick()
        assert run.path.count("CheckJoin") >= 29
        assert POLL_EVENTS * run.path.count("CheckJoin") < run.events_count <= max_history_events(fleet.settings)


def test_a_notice_for_many_workers_stays_below_the_limit() -> None:
    """One event may name several workers; each is an item of the Map, and their events share one history."""
    item = INTERRUPTION["States"]["EachNotice"]["ItemProcessor"]
    branches = [*item["States"]["Respond"]["Branches"], item]
    once = sum(EVENTS[s["Type"]] for branch in branches for s in branch["States"].values()) + 4
    look = sum(EVENTS[kind] for kind in ("Wait", "Task", "Choice"))
    room = sum(EVENTS[item["States"][name]["Type"]] for name in ROOM_RING)
    longest = once + (MAX_DRAIN_CHECKS + 5) * look + len(CAPACITY_WAITS) * room
    assert 10 * longest < HISTORY_LIMIT
    assert INTERRUPTION["States"]["EachNotice"]["MaxConcurrency"] * longest < AWS_HISTORY_LIMIT
    assert POLL_SECONDS * MAX_DRAIN_CHECKS >= 120


def test_the_interruption_workflow_goes_round_only_for_a_drain_and_for_room() -> None:
    item = INTERRUPTION["States"]["EachNotice"]["ItemProcessor"]
    drain = ("WaitForDeadlineDrain", "CheckDeadlineDrain", "DeadlineDrainStatus")
    assert sorted(sorted(ring) for ring in rings(all_edges(item))) == [sorted(drain), sorted(ROOM_RING)]
