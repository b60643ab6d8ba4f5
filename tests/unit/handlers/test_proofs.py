"""Every change follows a proof of the lease; every handler under a pause, without its lease, and called twice."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import handlers
from node_fleet.domain.model.errors import LeaseLostError, PausedError
from node_fleet.domain.model.hibernation import Hibernation
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Target, TargetPhase
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scaling.decision import Decision
from node_fleet.payload import put, to_payload
from tests.support.handlers.bench import MOTO_IMAGE, Bench, bench
from tests.support.handlers.fakes import (
    Handler,
    aside,
    check_text,
    inspected,
    scale_down,
    worker,
)
from tests.support.handlers.trace import Step, Trace, take_lease, traced

SERVER, DEAD_NODE = "i-0aaaaaaaaaaaaaaaa", "i-0dead00000000000"
Event = dict[str, Any]


def handler_of(state: str) -> Handler:
    return importlib.import_module(f"handlers.{state}").handler  # type: ignore[no-any-return]


def removal(fleet: Bench, *phases: TargetPhase) -> Event:
    """A scale-down of new workers whose targets are in these phases, and a server that answers each command well."""
    run, crew = fleet.begin(), [fleet.running(n) for n in range(1, 4)]
    ids = [one.instance_id for one in crew]
    now = int(fleet.clock.now())
    operation = None
    if phases:
        targets = tuple(
            Target(
                instance_id=name,
                node_name=name,
                phase=phase,
                command_id="" if phase == "selected" else "DrainNode",
                started_at=now,
            )
            for name, phase in zip(ids, phases, strict=False)
        )
        operation = scale_down(started_at=now, phase_at=now, execution_id=run.execution_id, targets=targets)
        fleet.tools.state.save_operation(run, operation)
        for document, word in (("UncordonNode", "uncordoned"), ("ForgetNode", "forgotten")):
            fleet.server.says(document, f"result: {word} {ids[0]}")
        fleet.server.says("CheckNode", check_text(ids[0], owner=operation.operation_id))
        fleet.inspected(fleet.line(ids[0], "RCW", operation.operation_id), *map(fleet.line, ids[1:]))
    decision = Decision(action="scale_down", count=1, rule="idle", sentence="idle -> -1", reasons=())
    snapshot = Snapshot(at=now, source="live", pending=(), workers=tuple(worker(name) for name in ids))
    return put(
        fleet.event(run, 0),
        decision={k: v for k, v in to_payload(decision).items() if k != "memory"},
        snapshot=snapshot,
        operation=operation,
    )


def select_nodes(fleet: Bench) -> Event:
    """One worker carries the cordon of a dead run, and one node belongs to an instance that has ended."""
    event = removal(fleet)
    first, *others = sorted(fleet.ids())
    lines = (fleet.line(first, "RCW", "down-3-1"), *map(fleet.line, others), fleet.line(DEAD_NODE, "TW"))
    fleet.server.says("UncordonNode", f"result: uncordoned {first}")
    fleet.server.says("ForgetNode", f"result: forgotten {DEAD_NODE}")
    return put(event, inspection=inspected(fleet.inspected(*lines)))


def check_drain(fleet: Bench) -> Event:
    event = removal(fleet, "drained")
    return put(event, snapshot=None)


def confirm_termination(fleet: Bench) -> Event:
    event = removal(fleet, "terminating")
    operation = fleet.state().operation
    assert operation is not None
    fleet.cloud.ec2.reclaim(operation.targets[0].instance_id)
    fleet.server.says("CheckNode", check_text(operation.targets[0].instance_id, ready="not-ready"))
    return event


def hibernate(fleet: Bench) -> Event:
    """The server is stopped, and the fleet is to be on."""
    ec2, run = fleet.cloud.client("ec2"), fleet.begin()
    for one in fleet.cloud.ec2.instances():
        ec2.terminate_instances(InstanceIds=[one.id])
    tags = [{"Key": "Role", "Value": fleet.settings.server_role_tag}]
    kinds = [{"ResourceType": "instance", "Tags": tags}]
    answer = ec2.run_instances(ImageId=MOTO_IMAGE, MinCount=1, MaxCount=1, TagSpecifications=kinds)
    fleet.clock.advance(60)
    ec2.stop_instances(InstanceIds=[answer["Instances"][0]["InstanceId"]])
    fleet.clock.advance(60)
    now = int(fleet.clock.now())
    fleet.tools.state.save_hibernation(run, Hibernation(phase="waking", since=now, detail="the server is started"))
    return fleet.event(run, 0)


def launch_nodes(fleet: Bench) -> Event:
    return fleet.event(fleet.begin(), 2)


def check_join(fleet: Bench) -> Event:
    payload, ids = fleet.launched()
    fleet.ready(*ids)
    return payload


def abandon_unjoined(fleet: Bench) -> Event:
    payload, _ = fleet.launched()
    fleet.clock.advance(fleet.settings.join_limit_seconds)
    fleet.listed({SERVER: "RS"})
    return payload


def reap_unjoined(fleet: Bench) -> Event:
    orphan, now = fleet.running(operation_id="up-dead").instance_id, int(fleet.clock.now())
    fleet.listed({SERVER: "RS"})
    lost = worker(orphan, phase="unjoined", launched_at=now - 3600)
    snapshot, memory = Snapshot(at=now, source="live", workers=(lost,)), Memory(suspects={orphan: now - 120})
    return put(fleet.event(fleet.begin(), 0), snapshot=snapshot, memory=memory)


def check_set_aside(fleet: Bench) -> Event:
    run = fleet.begin()
    fleet.tools.state.update_set_aside(run, aside(DEAD_NODE))
    fleet.server.says("ForgetNode", f"result: forgotten {DEAD_NODE}")
    return fleet.event(run, 0)


def clean_up(fleet: Bench) -> Event:
    removal(fleet, "draining", "selected")
    return {"id": "e-1", "detail": {"executionArn": "exec-1"}}


Prepare = Callable[[Bench], Event]
UNDER_LEASE: dict[str, tuple[Prepare, str]] = {
    "check_set_aside": (check_set_aside, "refuses"),
    "select_nodes": (select_nodes, "refuses"),
    "start_drain": (lambda fleet: removal(fleet, "selected"), "refuses"),
    "check_drain": (check_drain, "withdraws"),
    "undo_drain": (lambda fleet: removal(fleet, "draining"), "continues"),
    "terminate_nodes": (lambda fleet: removal(fleet, "drained"), "refuses"),
    "confirm_termination": (confirm_termination, "continues"),
    "forget_nodes": (lambda fleet: removal(fleet, "terminated"), "refuses"),
    "complete_scale_down": (lambda fleet: removal(fleet, "forgotten"), "continues"),
    "fail_scale_down": (lambda fleet: removal(fleet, "undone"), "continues"),
    "hibernate": (hibernate, "refuses"),
    "launch_nodes": (launch_nodes, "refuses"),
    "check_join": (check_join, "continues"),
    "abandon_unjoined": (abandon_unjoined, "refuses"),
    "complete_scale_up": (lambda fleet: handler_of("check_join")(check_join(fleet), None), "continues"),
    "fail_scale_up": (lambda fleet: fleet.launched()[0], "continues"),
    "reap_unjoined": (reap_unjoined, "refuses"),
    "release_lock": (lambda fleet: {**removal(fleet), "later_failure": {"Error": "E", "Cause": "c"}}, "continues"),
    "clean_up": (clean_up, "continues"),
}
"""The handlers that hold the lease: what precedes the call, and what a pause does."""


def drained(fleet: Bench) -> Event:
    """A drained worker that AWS did not reclaim."""
    one = fleet.running()
    fleet.server.says("UncordonNode", f"result: uncordoned {one.instance_id}")
    fleet.server.says("ForgetNode", f"result: forgotten {one.instance_id}")
    fleet.server.says("DrainNode")
    return fleet.interrupted(one, response={"drain": {"status": "drained", "node_name": one.instance_id}})


def claim_notices(fleet: Bench) -> Event:
    detail = {"instance-id": fleet.running().instance_id}
    event = {"detail-type": "EC2 Spot Instance Interruption Warning", "time": "2026-09-21T14:14:20Z", "detail": detail}
    return {"event": event, "execution_id": "exec-1"}


WITHOUT_LEASE: dict[str, tuple[Prepare, str]] = {
    "claim_notices": (claim_notices, "continues"),
    "begin_response": (drained, "continues"),
    "start_deadline_drain": (drained, "waits"),
    "launch_replacement": (drained, "refuses"),
    "check_outcome": (drained, "continues"),
    "forget_interrupted": (drained, "continues"),
    "reinstate_worker": (drained, "waits"),
    "close_notice": (lambda fleet: {**drained(fleet), "settle": {"status": "gone", "detail": "ended"}}, "continues"),
}
"""The handlers that respond to a notice: an interruption does not wait for the lock."""
CASES = {**UNDER_LEASE, **WITHOUT_LEASE}
ANEW = ("hibernate", "launch_nodes", "abandon_unjoined", "launch_replacement", "confirm_termination")
"""Their calls depend on instances that an earlier call has launched or terminated."""
WITHOUT_CHANGE = {
    "acquire_lock": "it takes the lease and refuses under a pause: test_lock.py",
    "check_deadline_drain": "it reads the result of a command",
    "collect_metrics": "it reads Prometheus and EC2",
    "decide": "it computes",
    "inspect_nodes": "it reads the cluster",
    "notify": "it reports, whatever happened to the lease",
    "notify_response": "it reports",
    "slack_message": "it reports",
    "start_on_alert": "it starts an execution, which takes the lock itself",
    "weekly_report": "it reports",
}
"""The handlers that change neither EC2, the cluster nor the state item of a run, each with the reason."""


def kinds(steps: Iterable[Step]) -> list[str]:
    """The steps without their targets, which differ between two fleets."""
    return [step.what for step in steps]


class Replay:
    """Calls one handler again and again in the same situation: the state item and the server are as before each call.

    An expired pause is in the item: it stops nothing.
    """

    def __init__(self, fleet: Bench, state: str) -> None:
        self.fleet, self.state = fleet, state
        self.prepare, self.pause = CASES[state]
        self._prepare()
        self.whole, self.error = self.call()

    def restore(self) -> None:
        if self.state in ANEW:
            self.fleet.clear()
            self._prepare()
            return
        self.fleet.server.answers = dict(self._answers)
        self._table().put_item(TableName=self.fleet.settings.state_table, Item=self._item)

    def call(self, event: Event | None = None, **how: Any) -> tuple[Trace, Exception | None]:
        """The trace of one call, and the error that ended it."""
        with traced(self.fleet, **how) as trace:
            try:
                handler_of(self.state)(event or self.event, None)
            except (LeaseLostError, PausedError) as error:
                return trace, error
        return trace, None

    def stored(self) -> Any:
        """The state item without its lease and the count of its writes, and the workers."""
        return replace(self.fleet.state(), lease=None, fence=0, slots_version=0), self.fleet.instances()

    def _prepare(self) -> None:
        self.event = self.prepare(self.fleet)
        self.fleet.pause(seconds=0)
        key = {"cluster_id": {"S": self.fleet.settings.cluster_id}}
        self._item = self._table().get_item(TableName=self.fleet.settings.state_table, Key=key)["Item"]
        self._answers = dict(self.fleet.server.answers)

    def _table(self) -> Any:
        return self.fleet.cloud.client("dynamodb")


@pytest.fixture(scope="module")
def replay(request: pytest.FixtureRequest) -> Iterator[Replay]:
    with bench(min_workers=1, max_workers=6, spot_percent=100) as fleet:
        yield Replay(fleet, request.param)


def of(states: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("replay", list(states), indirect=True, scope="module")


def test_every_handler_stands_in_one_list() -> None:
    modules = sorted(path.stem for path in Path(handlers.__file__).parent.glob("[a-z]*.py"))
    assert sorted([*UNDER_LEASE, *WITHOUT_LEASE, *WITHOUT_CHANGE]) == modules


@of(UNDER_LEASE)
def test_each_change_follows_a_proof_and_a_lease_that_is_lost_before_a_proof_ends_the_call(replay: Replay) -> None:
    whole = replay.whole
    assert (replay.error, whole.without_proof()) == (None, []) and whole.proofs
    for number in range(whole.proofs):
        replay.restore()
        before = replay.stored()
        lost, error = replay.call(lost_before=number)
        is_release = replay.state == "release_lock" or (replay.state == "clean_up" and number == whole.proofs - 1)
        assert isinstance(error, LeaseLostError) is not is_release
        assert kinds(lost.changes) == kinds(whole.changes_before_proof(number))
        assert number or replay.stored() == before


@of(UNDER_LEASE)
def test_a_handler_that_forgets_a_proof_makes_the_change_that_the_proof_prevents(replay: Replay) -> None:
    whole = replay.whole
    for number in range(whole.proofs):
        replay.restore()
        broken, _ = replay.call(lost_before=number, dropped=[number])
        assert kinds(broken.changes) == kinds(whole.changes_before_proof(number + 1))
    replay.restore()
    forgetful, _ = replay.call(dropped=range(whole.proofs))
    assert kinds(forgetful.without_proof()) == kinds(whole.changes)


@of(UNDER_LEASE)
def test_a_handler_works_on_the_recorded_operation_whatever_its_payload_holds(replay: Replay) -> None:
    replay.restore()
    other = scale_down(operation_id="down-0-0", started_at=0, execution_id="another run")
    trace, error = replay.call({**replay.event, "operation": to_payload(other)})
    assert (error, kinds(trace.steps)) == (None, kinds(replay.whole.steps))


@of(CASES)
def test_a_pause_in_force_stops_changes_and_no_roll_back(replay: Replay) -> None:
    replay.restore()
    replay.fleet.pause()
    before = replay.stored()
    trace, error = replay.call()
    assert isinstance(error, PausedError) is (replay.pause == "refuses")
    if replay.pause == "continues":
        assert kinds(trace.steps) == kinds(replay.whole.steps)
    else:
        assert (trace.changes, replay.stored()) == ([], before)


@of(CASES)
def test_a_repeated_call_leaves_what_the_first_one_left_and_launches_nothing_more(replay: Replay) -> None:
    replay.restore()
    first, error = replay.call()
    before = replay.stored()
    second, _ = replay.call()
    assert (error, replay.stored()) == (None, before)
    assert set(kinds(second.changes)) <= set(kinds(first.changes)) - {"launch"}


@of(WITHOUT_LEASE)
def test_the_response_to_a_notice_does_not_wait_for_the_lease_of_a_run(replay: Replay) -> None:
    replay.restore()
    take_lease(replay.fleet)
    trace, error = replay.call()
    assert (error, kinds(trace.steps)) == (None, kinds(replay.whole.steps))
