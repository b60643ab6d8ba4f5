"""The reboot before a replacement: which worker, once, and how long its result is awaited."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.memory import BackOff, Memory, newest_memory
from node_fleet.domain.model.operation import Operation, Target, TargetPhase, may_close, resume_state
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import STATUS_CHECK, SYSTEM_CHECK, Worker
from node_fleet.domain.scale_down.drain import after_target
from node_fleet.domain.scale_down.termination import NOT_REBOOTED, judge_reboot, removal_sentence
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.memory_update import REBOOTS_KEPT, record_reboots
from node_fleet.domain.scaling.roll_out import is_rebooted_first
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, snapshot, worker, workers

POLICY = Policy(repair_reboot=True, reboot_wait_seconds=600, unhealthy_seconds=1800)
ILL = "i-0009"


def ill(*conditions: str, phase: str = "usable", **more: Any) -> Worker:
    return worker(9, phase, node_name=ILL, conditions=conditions, **more)


DEAD = ill(phase="not_ready", not_ready_seconds=1200)
IMPAIRED = ill(STATUS_CHECK)


def decided(seen: Worker, memory: Memory | None = None, policy: Policy = POLICY, *, others: int = 4) -> Decision:
    return decide(snapshot(workers=(*workers(others), seen)), memory or Memory(), policy, START)


def first(seen: Worker, memory: Memory | None = None, policy: Policy = POLICY) -> bool:
    """Whether the decision about this worker reboots it first."""
    memory = memory or Memory()
    decision = decided(seen, memory, policy)
    return is_rebooted_first(make_tick(snapshot(workers=(*workers(4), seen)), memory, policy, START), decision)


@pytest.mark.parametrize("seen", [DEAD, IMPAIRED], ids=["NotReady", "impaired"])
@pytest.mark.parametrize(
    ("memory", "policy", "expected"),
    [
        (Memory(), POLICY, True),
        (Memory(), replace(POLICY, repair_reboot=False), False),
        (Memory(), replace(POLICY, repair=False), False),
        (Memory(rebooted={ILL: START - 600}), POLICY, False),
        (Memory(rebooted={ILL: START - 90 * 86_400}), POLICY, False),
        (Memory(rebooted={"i-0001": START - 600}), POLICY, True),
        (Memory(back_offs=(BackOff(key=f"node:{ILL}", failures=1, until=START - 1),)), POLICY, False),
        (Memory(back_offs=(BackOff(key="node:i-0001", failures=1, until=START - 1),)), POLICY, True),
    ],
    ids=["never", "off", "no repair", "before", "long before", "another", "failed drain", "another's failed drain"],
)
def test_a_worker_is_rebooted_once_where_it_is_configured_and_not_after_a_failed_drain(
    seen: Worker, memory: Memory, policy: Policy, expected: bool
) -> None:
    assert first(seen, memory, policy) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"rule": "not_ready"}, True),
        ({"rule": "drifted"}, False),
        ({"rule": "expired"}, False),
        ({"action": "scale_down"}, False),
        ({"replace": "i-0001x"}, False),
    ],
    ids=["unhealthy", "NotReady", "drifted", "expired", "its removal", "a worker that does not exist"],
)
def test_only_the_replacement_of_an_unhealthy_or_not_ready_worker_begins_with_a_reboot(
    changes: dict[str, Any], expected: bool
) -> None:
    tick = make_tick(snapshot(workers=(*workers(4), IMPAIRED)), Memory(), POLICY, START)
    decision = decided(IMPAIRED)
    assert (decision.action, decision.rule) == ("replace", "unhealthy")
    assert is_rebooted_first(tick, replace(decision, **changes)) is expected


def test_a_reboot_is_no_removal_and_the_decision_says_so() -> None:
    decision = decided(DEAD)
    assert (decision.action, decision.rule, decision.replace) == ("replace", "not_ready", ILL)
    assert decision.workers_after == decision.workers_before
    assert decision.sentence.startswith(f"{ILL} NotReady for 1200 s, rebooted first -> replace 1")
    assert f"{ILL} unhealthy: {STATUS_CHECK}" in decided(IMPAIRED).sentence
    assert "rebooted first when the other workers can take its pods" in decided(IMPAIRED).sentence
    assert decided(DEAD, policy=replace(POLICY, repair_reboot=False)).action == "scale_down"


def test_a_failed_check_of_the_host_is_no_case_for_a_reboot() -> None:
    assert decided(ill(SYSTEM_CHECK)).rule == "unhealthy"
    assert not first(ill(SYSTEM_CHECK))
    assert not first(ill(STATUS_CHECK, SYSTEM_CHECK))


@pytest.mark.parametrize("seen", [DEAD, IMPAIRED], ids=["NotReady", "impaired"])
@pytest.mark.parametrize(("ago", "acts"), [(599, False), (600, True)])
def test_the_result_of_the_reboot_is_awaited_for_the_whole_time(seen: Worker, ago: int, acts: bool) -> None:
    decision = decided(seen, Memory(rebooted={ILL: START - ago}))
    assert (decision.action != "none") is acts
    if not acts:
        texts = [c.text for c in decision.evidence if c.name == "reboot"]
        assert texts == [f"{ILL} was rebooted and has 1 s left to become healthy"]


@pytest.mark.parametrize("seen", [DEAD, IMPAIRED], ids=["NotReady", "impaired"])
def test_one_worker_is_rebooted_at_a_time(seen: Worker) -> None:
    recovering = worker(8, "not_ready", node_name="i-0008", not_ready_seconds=100)
    policy = replace(POLICY, repair_max_percent=100.0, max_workers=20)
    state = snapshot(workers=(*workers(8), recovering, seen))
    memory = Memory(rebooted={"i-0008": START - 60})
    assert decide(state, memory, policy, START).action == "none"
    well = snapshot(workers=(*workers(8), worker(8), seen))
    assert decide(well, memory, policy, START).replace == ILL


def test_above_the_share_of_unhealthy_workers_none_is_rebooted() -> None:
    seen = (*workers(4), ill(STATUS_CHECK), worker(8, node_name="i-0008", conditions=(STATUS_CHECK,)))
    decision = decide(snapshot(workers=seen), Memory(), POLICY, START)
    assert decision.action == "none"
    assert [a.kind for a in decision.alerts] == ["many_unhealthy"]
    dead = (*workers(6), DEAD, worker(8, "not_ready", not_ready_seconds=1200))
    assert decide(snapshot(workers=dead), Memory(), POLICY, START).action == "none"


def test_a_rebooted_worker_counts_towards_that_share_while_it_recovers() -> None:
    seen = (*workers(4), ill(STATUS_CHECK), worker(8, node_name="i-0008", conditions=(STATUS_CHECK,)))
    decision = decide(snapshot(workers=seen), Memory(rebooted={ILL: START - 60}), POLICY, START)
    assert [a.kind for a in decision.alerts] == ["many_unhealthy"]


def test_a_budget_holds_the_reboot_of_a_worker_that_runs_and_not_that_of_one_that_is_not_ready() -> None:
    policy = replace(POLICY, disruption_budgets=(Budget(nodes="0"),))
    assert decided(IMPAIRED, policy=policy).action == "none"
    assert decided(DEAD, policy=policy).action == "replace"


@pytest.mark.parametrize(("others", "maximum", "action"), [(3, 4, "replace"), (3, 5, "scale_up"), (4, 5, "replace")])
def test_a_worker_that_is_not_ready_is_rebooted_where_only_the_maximum_forbids_a_launch(
    others: int, maximum: int, action: str
) -> None:
    policy = replace(POLICY, min_workers=4, max_workers=maximum)
    decision = decided(DEAD, policy=policy, others=others)
    assert decision.action == action
    if others < 4 and action == "replace":
        assert "at_maximum" in [a.kind for a in decision.alerts]
        again = decided(DEAD, Memory(rebooted={ILL: START - 700}), policy, others=others)
        assert (again.action, again.blocked_by) == ("none", ("maximum",)), "without its replacement it is not removed"


def operation(phase: TargetPhase, **more: Any) -> Operation:
    target = Target(instance_id=ILL, node_name=ILL, phase=phase, detail="drained and rebooted")
    return Operation(
        operation_id="down-1",
        kind="scale_down",
        phase="draining",
        started_at=START,
        requested=1,
        reason="x",
        execution_id="dead",
        targets=(target,),
        reboot=True,
        **more,
    )


def test_a_recorded_reboot_is_finished_by_a_later_run_and_never_closed_by_the_clean_up() -> None:
    begun = operation("rebooting")
    for late in (0, 10**6):
        assert resume_state(begun, now=START + late, limit_seconds=60) == "ConfirmTermination"
    assert not may_close(begun, "dead")
    assert may_close(operation("rebooted"), "dead")
    assert after_target(operation("rebooted")) == "done"
    assert removal_sentence(operation("rebooted"), 3).startswith("rebooted 1 worker: i-0009")
    refused = operation("rebooted")
    refused = refused.with_target(replace(refused.targets[0], detail=f"{NOT_REBOOTED}: UnauthorizedOperation"))
    assert removal_sentence(refused, 3).startswith("no worker was rebooted: i-0009")
    assert "not rebooted: UnauthorizedOperation" in removal_sentence(refused, 3)


@pytest.mark.parametrize(("waited", "status"), [(59, "waiting"), (60, "rebooted")])
def test_the_node_stays_cordoned_until_the_reboot_has_begun(waited: int, status: str) -> None:
    assert judge_reboot(waited).status == status


@pytest.mark.parametrize("phase", ["rebooting", "rebooted"])
def test_a_reboot_is_remembered_as_long_as_the_worker_exists(phase: TargetPhase) -> None:
    memory = record_reboots(Memory(), operation(phase), START)
    assert memory.rebooted == {ILL: START}
    assert record_reboots(memory, operation("undone"), START + 9) == memory
    assert decided(worker(9), memory).memory.rebooted == {ILL: START}
    assert decided(worker(8), memory).memory.rebooted == {}


def test_the_newest_reboots_are_remembered() -> None:
    many = Memory(rebooted={f"i-{n}": START - 100 + n for n in range(REBOOTS_KEPT)})
    after = record_reboots(many, operation("rebooting"), START)
    assert list(after.rebooted) == [*(f"i-{n}" for n in range(1, REBOOTS_KEPT)), ILL]


def test_a_failed_run_forgets_no_reboot_that_the_state_item_holds() -> None:
    stored, carried = Memory(rebooted={ILL: START}), Memory(rebooted={"i-0001": START - 9})
    assert newest_memory(stored, carried).rebooted == {"i-0001": START - 9, ILL: START}
