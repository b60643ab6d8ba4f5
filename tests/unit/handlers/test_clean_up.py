"""CleanUp on DynamoDB's expressions: the lease first, then the record, the cordons last; twice, late, and beside."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from handlers.clean_up import handler as clean_up
from node_fleet.domain.model.errors import (
    CleanUpUnfinishedError,
    LeaseLostError,
    ServerNotFoundError,
    ServerUnreachableError,
    StateStoreError,
)
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target, resume_state
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.drain import CommandResult
from tests.support.handlers.bench import START, Bench
from tests.support.handlers.fakes import LOST_VOLUME, RUNNING, scale_down

DEAD = "arn:aws:states:eu-central-1:123456789012:execution:autoscaler:run-1"
CHANGE = "EC2 Instance State-change Notification"
WARNING = "EC2 Spot Instance Interruption Warning"


def removal(*phases: str, execution_id: str = DEAD) -> Operation:
    targets = tuple(
        Target(
            instance_id=f"i-{n:08x}",
            node_name=f"node-{n}",
            phase=phase,  # type: ignore[arg-type]
            command_id="DrainNode" if phase == "draining" else "",
        )
        for n, phase in enumerate(phases)
    )
    return scale_down(operation_id="down-1", started_at=START, execution_id=execution_id, targets=targets)


def uncordoned(number: int) -> tuple[str, dict[str, str]]:
    return "UncordonNode", {"NodeName": f"node-{number}", "OperationId": "down-1"}


def held(fleet: Bench, *phases: str, **changes: Any) -> Run:
    """The dead run holds the lock, with an open scale-down if it has targets."""
    run = fleet.begin(DEAD)
    if phases:
        fleet.tools.state.save_operation(run, removal(*phases, **changes))
    fleet.server.says("UncordonNode", "result: uncordoned x")
    return run


def cleaned(name: str = DEAD, number: str = "e-1") -> str:
    event = {"id": number, "detail-type": "Step Functions Execution Status Change", "detail": {"executionArn": name}}
    return str(clean_up(event, None)["outcome"]["text"])


def test_the_lock_of_a_dead_run_is_freed_under_a_higher_fence_and_recorded_under_the_events_id(fleet: Bench) -> None:
    dead = held(fleet)
    assert cleaned() == f"freed the lock of {DEAD}"
    state = fleet.state()
    assert (state.lease, state.fence > dead.fence) == (None, True)
    with pytest.raises(LeaseLostError):
        fleet.tools.state.renew(dead)
    (event,) = fleet.records.stored
    assert (event.kind, event.key, event.data["text"]) == ("clean_up", "e-1", f"freed the lock of {DEAD}")


@pytest.mark.parametrize("phase", ["selected", "draining", "drained"])
def test_the_operation_is_given_up_before_its_cordon_is_removed_and_closed_after(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    held(fleet, phase)
    run, seen = fleet.server.run, []

    def watched(document: str, parameters: dict[str, str]) -> CommandResult:
        state = fleet.state()
        assert state.operation is not None and state.lease is not None
        seen.append((state.operation.phase, state.lease.owner))
        return run(document, parameters)

    monkeypatch.setattr(fleet.server, "run", watched)
    assert "closed down-1" in cleaned()
    assert fleet.server.commands[-1] == uncordoned(0)
    assert seen == [("fail", "clean-up:e-1")]
    assert fleet.state().operation is None


def test_a_drain_that_still_runs_is_stopped_for_certain_before_its_node_is_uncordoned(fleet: Bench) -> None:
    held(fleet, "draining")
    assert fleet.server.answers["DrainNode"] is RUNNING
    cleaned()
    assert fleet.server.log == ["result DrainNode", "cancel DrainNode", "wait DrainNode", "UncordonNode"]


def test_targets_that_were_not_begun_and_those_that_are_done_are_left_alone(fleet: Bench) -> None:
    held(fleet, "forgotten", "drained", "selected")
    cleaned()
    assert fleet.server.commands == [uncordoned(1)]


@pytest.mark.parametrize("phase", ["terminating", "terminated"])
def test_an_instance_that_is_being_terminated_is_left_for_the_next_run(fleet: Bench, phase: str) -> None:
    held(fleet, phase)
    assert "stays open: the next run" in cleaned()
    state = fleet.state()
    assert (state.operation is not None, state.lease, fleet.server.log) == (True, None, [])


def test_an_operation_that_the_dead_run_had_only_resumed_stays_open(fleet: Bench) -> None:
    held(fleet, "draining", execution_id="an earlier run")
    assert "stays open" in cleaned()
    assert fleet.server.log == []


@pytest.mark.parametrize("error", [ServerUnreachableError("SSM: no answer"), ServerNotFoundError("no server")])
def test_a_server_that_does_not_answer_leaves_the_operation_given_up_for_the_next_run_to_roll_back(
    fleet: Bench, error: Exception
) -> None:
    held(fleet, "draining", "selected")
    fleet.server.answers["UncordonNode"] = error
    assert f"the next run rolls back the rest: {error}" in cleaned()
    state = fleet.state()
    assert state.lease is None
    assert state.operation is not None and state.operation.phase == "fail"
    assert resume_state(state.operation, now=START + 1, limit_seconds=900) == "UndoDrain"


def test_an_uncordon_that_was_refused_counts_as_a_cordon_that_remains(fleet: Bench) -> None:
    held(fleet, "drained")
    fleet.server.says("UncordonNode", "result: unreadable x")
    assert "may still be cordoned" in cleaned()
    assert fleet.state().operation is not None


def test_a_scale_up_is_closed_and_releases_the_reservations_it_did_not_use(fleet: Bench) -> None:
    run = held(fleet)
    slot = LaunchSlot(number=0, zone="a", subnet_id="s", instance_type="t3.small", market="spot")
    used = replace(slot, number=1, outcome="launched", instance_id="i-1", launched_at=START)
    growth = replace(removal(), operation_id="up-1", kind="scale_up", phase="begin", slots=(slot, used))
    fleet.tools.state.save_operation(run, growth)
    for number in (0, 1):
        fleet.tools.state.reserve(f"up-1:{number}", lambda s: 0, maximum=9, until=START + 900)
    cleaned()
    state = fleet.state()
    assert state.operation is None
    assert [r.key for r in state.reservations] == ["up-1:1"], "EC2 may not list that instance yet"


def test_what_a_dead_run_did_for_an_outdated_worker_is_remembered(fleet: Bench) -> None:
    slot = LaunchSlot(
        number=1,
        zone="a",
        subnet_id="s",
        instance_type="t3.small",
        market="spot",
        outcome="launched",
        instance_id="i-1",
    )
    replacing: dict[str, Any] = {"replaces": "i-00000000", "replace_reason": "drifted"}
    growth = replace(removal(), operation_id="up-1", kind="scale_up", phase="verify", slots=(slot,), **replacing)
    for operation, replacement in ((growth, "i-1"), (replace(removal("forgotten"), **replacing), "")):
        fleet.tools.state.save_operation(held(fleet), operation)
        assert "closed" in cleaned(number=operation.operation_id)
        current = fleet.state().memory.roll_out.current
        assert current is not None and (current.worker, current.replacement) == ("i-00000000", replacement)
        fleet.tools.state.release(fleet.begin(DEAD), Memory())
    fleet.tools.state.save_operation(held(fleet), replace(removal("draining"), **replacing))
    assert "closed" in cleaned(number="down-withdrawn")
    assert fleet.state().memory.roll_out.current is None, "the worker was not removed"


def test_delivered_twice_or_by_another_event_it_does_its_work_once(fleet: Bench) -> None:
    held(fleet, "drained")
    cleaned()
    before = fleet.state()
    assert "nothing to do" in cleaned() and "nothing to do" in cleaned(number="e-2")
    assert fleet.state() == before
    assert fleet.server.commands == [uncordoned(0)]


def test_after_an_error_half_way_the_same_event_continues(fleet: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    held(fleet, "drained")

    def broken(*_: Any, **__: Any) -> None:
        raise StateStoreError("table gone")

    with monkeypatch.context() as patch, pytest.raises(StateStoreError):
        patch.setattr(fleet.tools.state, "close_operation", broken)
        cleaned()
    assert "closed down-1" in cleaned()
    assert fleet.state().lease is None


def test_late_it_leaves_the_run_alone_that_has_the_lock_by_now(fleet: Bench) -> None:
    held(fleet, "draining")
    fleet.clock.advance(fleet.settings.lease_seconds + fleet.settings.lease_skew_seconds + 1)
    fleet.begin("the run that took over")
    before = fleet.state()
    assert "nothing to do" in cleaned()
    assert (fleet.state(), fleet.server.log) == (before, [])


def test_when_the_lock_is_free_and_the_operation_open_it_says_that_the_next_run_resumes_it(fleet: Bench) -> None:
    """The operation of a run that ended red after it freed its lock is resumed by the next run, not closed here."""
    fleet.tools.state.release(held(fleet, "terminating"))
    text = cleaned()
    assert "nothing to do" in text and "operation down-1 (draining) stays open" in text
    assert fleet.state().operation is not None


def ended(begun_with: Any) -> dict[str, Any]:
    """EventBridge's event about a stopped execution of the interruption workflow."""
    return {"id": "e-1", "detail": {"executionArn": DEAD, "status": "ABORTED", "input": begun_with}}


def announced(instance_id: str, name: str = CHANGE) -> dict[str, Any]:
    detail = {"instance-id": instance_id, "state": "terminated"}
    return ended(json.dumps({"detail-type": name, "time": "2026-01-01T00:00:00Z", "detail": detail}))


def dead_worker(fleet: Bench, *, noticed: bool = False) -> Instance:
    """A worker that AWS has terminated; noticed: the dead execution held its notice."""
    worker = fleet.running()
    if noticed:
        fleet.noticed(worker, claimed_by=DEAD)
    fleet.cloud.ec2.reclaim(worker.instance_id)
    fleet.server.says("ForgetNode", "result: forgotten x")
    return worker


def forget(worker: Instance) -> list[Any]:
    return [("ForgetNode", {"NodeName": worker.instance_id, "InstanceId": worker.instance_id})]


@pytest.mark.parametrize(("name", "noticed"), [(CHANGE, False), (WARNING, False), (WARNING, True)])
def test_the_node_of_an_ended_instance_is_forgotten_once(fleet: Bench, name: str, noticed: bool) -> None:
    worker = dead_worker(fleet, noticed=noticed)
    clean_up(announced(worker.instance_id, name), None)
    assert fleet.server.commands == forget(worker) and not fleet.state().notices


@pytest.mark.parametrize("reported", [False, True])
def test_volumes_that_ended_with_an_instance_are_reported_unless_a_message_named_them(
    fleet: Bench, reported: bool
) -> None:
    worker = dead_worker(fleet, noticed=True)
    fleet.server.says("ForgetNode", f"{LOST_VOLUME}result: forgotten x")
    if reported:
        fleet.tools.state.record_lost_volumes(worker.instance_id)
    clean_up(announced(worker.instance_id), None)
    assert [message["level"] for _, message in fleet.publisher.messages] == ([] if reported else ["error"])
    named = "claim shop/data (volume pvc-1, last pod shop/db-0)"
    assert all(named in message["what"] for _, message in fleet.publisher.messages)


def test_the_notices_of_a_dead_execution_are_settled(fleet: Bench) -> None:
    fleet.noticed(fleet.running(), claimed_by=DEAD)
    fleet.server.says("UncordonNode", "result: not-cordoned x")
    fleet.clock.advance(120)
    text = cleaned()
    assert not fleet.state().notices
    assert text.endswith("; the lock is not that execution's") and "nothing to do" not in text


def test_a_notice_to_which_the_response_has_not_begun_is_lifted_without_touching_its_worker(fleet: Bench) -> None:
    worker = fleet.running()
    now = int(fleet.clock.now())
    fleet.tools.state.add_notice(
        Notice(
            instance_id=worker.instance_id,
            kind="scheduled",
            at=now,
            deadline=now + 86_400,
            claimed_by=DEAD,
            is_due=False,
        )
    )
    assert fleet.state().ids_under_notice == frozenset()
    cleaned()
    assert (fleet.state().notices, fleet.server.commands) == ((), [])


def test_a_node_that_still_answers_makes_lambda_deliver_the_event_again(fleet: Bench) -> None:
    worker = dead_worker(fleet)
    fleet.server.says("ForgetNode", "result: ready x")
    with pytest.raises(CleanUpUnfinishedError, match=f"{worker.instance_id} is not deleted: ready"):
        clean_up(announced(worker.instance_id), None)
    fleet.server.says("ForgetNode", "result: forgotten x")
    clean_up(announced(worker.instance_id), None)
    assert fleet.server.commands == 2 * forget(worker)


def test_an_unreachable_server_makes_lambda_deliver_the_event_again(fleet: Bench) -> None:
    worker = dead_worker(fleet)
    fleet.server.unreachable = True
    with pytest.raises(CleanUpUnfinishedError, match="not managed by SSM"):
        clean_up(announced(worker.instance_id), None)


@pytest.mark.parametrize("ours", [True, False])
def test_a_running_worker_keeps_its_node_and_a_foreign_instance_is_left_alone(fleet: Bench, ours: bool) -> None:
    clean_up(announced(fleet.running().instance_id if ours else "i-0000000000000dead", WARNING), None)
    assert fleet.server.commands == []


@pytest.mark.parametrize("begun_with", ['{"trigger": "scheduled"}', "null", "", None, "[]", '{"detail": 1}'])
def test_an_execution_that_no_announcement_began_names_no_instance(fleet: Bench, begun_with: Any) -> None:
    dead_worker(fleet)
    assert "nothing to do" in clean_up(ended(begun_with), None)["outcome"]["text"]
    assert fleet.server.commands == []
