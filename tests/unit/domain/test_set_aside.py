"""Removals that are set aside: no worker, at most so many, never a hindrance to launches, one alert each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.assembly import with_set_aside
from node_fleet.domain.model.memory import BackOff, Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import parse_inspection
from node_fleet.domain.scale_down.selection import stray_cordons
from node_fleet.domain.scale_down.set_aside import next_to_settle
from node_fleet.domain.scaling.decision import Decision, decide
from tests.support.decisions import START, TICK, idle, pods, snapshot, worker, workers
from tests.support.handlers.fakes import OPERATION_ID, A, B, aside, inspection_text, instance, worker_line

POLICY = Policy(set_aside_limit=2)
LONG_IDLE = Memory(since={"idle": Streak(since=START - 600, last=START - 120, readings=5)})


def removals(count: int) -> tuple[SetAside, ...]:
    return tuple(aside(f"i-{number:017x}") for number in range(100, 100 + count))


def decided(count: int, memory: Memory = LONG_IDLE, **changes: Any) -> Decision:
    seen = snapshot(**changes) if changes else idle()
    return decide(replace(seen, set_aside=removals(count)), memory, POLICY, START)


@pytest.mark.parametrize(("count", "action"), [(0, "scale_down"), (1, "scale_down"), (2, "none"), (3, "none")])
def test_removals_pause_once_as_many_are_set_aside_as_the_setting_allows(count: int, action: str) -> None:
    decision = decided(count)
    assert (decision.action, decision.blocked_by) == (action, () if action == "scale_down" else ("set_aside",))


def test_the_replacement_of_a_worker_that_is_not_ready_pauses_too() -> None:
    dead = worker(9, "not_ready", not_ready_seconds=1200)
    assert [decided(n, Memory(), workers=(*workers(4), dead)).action for n in (1, 2)] == ["scale_down", "none"]


@given(st.integers(0, 6), st.integers(1, 9), st.integers(0, 4))
def test_a_launch_is_decided_as_if_no_removal_were_set_aside(count: int, waiting: int, usable: int) -> None:
    changes: dict[str, Any] = {"pending": pods(waiting), "workers": workers(usable)}
    with_them, without = decided(count, Memory(), **changes), decided(0, Memory(), **changes)
    assert (with_them.action, with_them.count, with_them.rule) == (without.action, without.count, without.rule)
    assert with_them.action == "scale_up"


def test_the_sentence_counts_the_removals_and_the_evidence_names_the_setting() -> None:
    decision = decided(1)
    assert decision.sentence.endswith("1 set aside")
    (check,) = [c for c in decision.evidence if c.name == "set_aside"]
    assert (check.value, check.threshold, check.setting) == (1, 2, "set_aside_limit")
    assert "set aside" not in decided(0).sentence


def test_each_removal_and_the_pause_of_removals_are_reported_once() -> None:
    first = decided(2)
    kinds = [f"set_aside:{removal.instance_id}" for removal in removals(2)]
    assert [alert.kind for alert in first.alerts] == [*kinds, "removals_paused"]
    assert all(removal.instance_id in first.alerts[-1].text for removal in removals(2))
    later = decide(idle(START + TICK, set_aside=removals(2)), first.memory, POLICY, START + TICK)
    assert later.alerts == ()
    assert [alert.kind for alert in decided(1).alerts] == kinds[:1] and decided(0).alerts == ()


@pytest.mark.parametrize("kind", ["termination", "rollback"])
def test_the_alert_names_the_worker_the_cause_what_follows_and_a_command(kind: Any) -> None:
    text = aside(A, kind=kind, detail="the cause").alert.text
    command = {"termination": f"--instance-ids {A} --force", "rollback": f"kubectl uncordon {A}"}[kind]
    assert all(part in text for part in (A, "the cause", "scaling continues", "every run", command))


def test_a_node_of_a_removal_that_is_set_aside_is_neither_unmanaged_nor_dead() -> None:
    seen = snapshot(unmanaged=("mine", A), dead_nodes=(A, B))
    found = with_set_aside(seen, [aside(A)])
    assert (found.unmanaged, found.dead_nodes, found.set_aside) == (("mine",), (B,), (aside(A),))


def test_the_record_of_an_earlier_reading_does_not_stay() -> None:
    assert with_set_aside(snapshot(set_aside=removals(1)), ()).set_aside == ()


def test_a_worker_whose_removal_is_set_aside_is_kept_and_its_cordon_is_left_alone() -> None:
    inspection = parse_inspection(inspection_text(worker_line(A, "RCW", OPERATION_ID), worker_line(B)))
    judged = judge_workers(
        inspection, [instance(A), instance(B)], under_notice=frozenset(), back_offs=(), now=0, set_aside=frozenset({A})
    )
    assert [kept.reason for kept in judged.kept] == ["its removal is set aside"]
    assert [candidate.instance.instance_id for candidate in judged.candidates] == [B]
    assert stray_cordons(inspection, frozenset({A})) == ()
    assert stray_cordons(inspection, frozenset()) == ((A, OPERATION_ID),)


STATES = {A: "shutting-down", B: "shutting-down"}


@pytest.mark.parametrize(
    ("first", "second", "states", "noticed", "chosen"),
    [
        ({}, {}, {}, "", ""),
        ({}, {}, {B: "terminated"}, "", B),
        ({}, {}, {A: "gone", B: "terminated"}, "", A),
        ({"tried_at": 1}, {}, {A: "gone", B: "terminated"}, "", B),
        ({"since": 9}, {"since": 8}, {A: "gone", B: "gone"}, "", B),
        ({"kind": "rollback"}, {}, {A: "running"}, "", A),
        ({"kind": "rollback"}, {}, {A: "running"}, A, ""),
        ({"kind": "rollback"}, {}, {A: "gone"}, A, A),
    ],
)
def test_a_run_settles_what_has_ended_or_can_be_uncordoned_and_was_tried_least_recently(
    first: dict[str, Any], second: dict[str, Any], states: dict[str, str], noticed: str, chosen: str
) -> None:
    found = next_to_settle([aside(A, **first), aside(B, **second)], STATES | states, frozenset({noticed}))
    assert (found.instance_id if found else "") == chosen


def test_a_back_off_of_removals_blocks_before_the_count_of_those_set_aside() -> None:
    memory = replace(LONG_IDLE, back_offs=(BackOff(key="removal", failures=1, until=START + 9),))
    assert [decided(n, memory).blocked_by for n in (1, 2)] == [("removal_back_off",), ("set_aside",)]
