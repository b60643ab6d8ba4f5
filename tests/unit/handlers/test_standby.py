"""Standby workers in the handlers: started before launches, stopped instead of terminated, renewed, not announced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.abandon_unjoined import handler as abandon
from handlers.check_join import handler as check_join
from handlers.check_set_aside import handler as check_set_aside
from handlers.claim_notices import handler as claim_notices
from handlers.collect_metrics import handler as collect_metrics
from handlers.complete_scale_down import handler as complete_scale_down
from handlers.complete_scale_up import handler as complete_scale_up
from handlers.confirm_termination import handler as confirm_termination
from handlers.fail_scale_up import handler as fail_scale_up
from handlers.forget_nodes import handler as forget_nodes
from handlers.launch_nodes import handler as launch_nodes
from handlers.reap_unjoined import handler as reap
from handlers.select_nodes import handler as select_nodes
from handlers.terminate_nodes import handler as terminate_nodes
from node_fleet.domain.model.errors import Ec2Error, NoCapacityError
from node_fleet.domain.model.memory import BackOff, Memory, PoolBackOff
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import Reading, Snapshot, StandbyWorker
from node_fleet.domain.scale_up.launch import count_workers
from node_fleet.domain.scaling.decision import Decision
from node_fleet.payload import from_payload, take, to_payload
from node_fleet.settings import Settings
from simulator.aws import FaultRule
from tests.support.handlers.bench import Bench
from tests.support.handlers.fakes import (
    ALL_FREE,
    NOW,
    A,
    B,
    C,
    FakeServices,
    check_text,
    inspected,
    inspection_text,
    instance,
    worker,
    worker_line,
)

REFILL = {"action": "scale_up", "count": 1, "sentence": "quiet -> +1", "rule": "standby", "new_workers": []}
TWO = pytest.mark.settings(standby_workers=2, spot_percent=50)


def refilled(made: Bench, *, execution_id: str = "refill") -> str:
    """A worker that was launched to become a standby worker and has joined; its operation is closed."""
    run = made.begin(execution_id)
    payload = launch_nodes({**made.event(run, 1), "decision": REFILL}, None)
    (instance_id,) = made.operation(payload).instance_ids
    made.clock.advance(60)
    made.ready(instance_id)
    payload = complete_scale_up(check_join(payload, None), None)
    made.tools.state.release(run, from_payload(Memory, payload["memory"]))
    return instance_id


def stopped(made: Bench) -> str:
    """A standby worker."""
    instance_id = refilled(made)
    made.tools.ec2.tag([instance_id], {"Standby": "ready"})
    made.tools.ec2.stop_worker(instance_id)
    made.clock.advance(60)
    made.prometheus.known_nodes = ()
    return instance_id


def tag_of(made: Bench, instance_id: str) -> str:
    found = made.tools.ec2.find_worker(instance_id)
    assert found is not None
    return found.standby


# a scale-up -------------------------------------------------------------------------------------------------------


@TWO
def test_a_refill_is_on_demand_starts_no_cooldown_and_closes_its_back_off(fleet: Bench) -> None:
    instance_id = refilled(fleet)
    (one,) = fleet.instances()
    assert (one.instance_id, one.market, one.operation_id[:8]) == (instance_id, "on-demand", "standby-")
    assert (fleet.state().memory.last_action, fleet.state().operation, tag_of(fleet, instance_id)) == ("", None, "")


@TWO
def test_a_standby_worker_is_started_before_another_worker_is_launched(fleet: Bench) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    payload = launch_nodes({**fleet.event(run, 2)}, None)
    operation = fleet.operation(payload)
    assert [s.instance_id == instance_id for s in operation.slots].count(True) == 1
    assert (len(fleet.ids()), instance_id in fleet.ids()) == (2, True)
    assert {r.instance_id for r in fleet.state().reservations} == set(operation.instance_ids)
    again = launch_nodes({**fleet.event(run, 2)}, None)
    assert (fleet.operation(again).instance_ids, len(fleet.ids())) == (operation.instance_ids, 2)
    fleet.clock.advance(60)
    fleet.ready(*fleet.ids())
    complete_scale_up(check_join(payload, None), None)
    assert tag_of(fleet, instance_id) == "started"


@pytest.mark.settings(standby_workers=1, spot_percent=50)
@pytest.mark.parametrize("lost", ["StartInstances", "the record"])
def test_a_run_that_dies_around_the_start_starts_the_same_worker_again(
    fleet: Bench, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    if lost == "StartInstances":
        fleet.cloud.faults.inject(FaultRule(operation=lost, code="ReplyLost", count=9))
        fleet.cloud.faults.rules[-1].until = fleet.clock.now() + 1
    else:
        saved = iter([None, None, Ec2Error("lost")])
        save = type(fleet.tools.state).save_operation

        def fails(*words: Any, **more: Any) -> None:
            if error := next(saved, None):
                raise error
            save(*words, **more)

        monkeypatch.setattr(type(fleet.tools.state), "save_operation", fails)
    with pytest.raises(Ec2Error):
        launch_nodes(fleet.event(run, 1), None)
    monkeypatch.undo()
    fleet.clock.advance(2)
    payload = launch_nodes(fleet.event(run, 1), None)
    assert (fleet.operation(payload).instance_ids, fleet.ids()) == ((instance_id,), {instance_id})


@TWO
@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "UnsupportedOperation"])
def test_a_refused_start_is_a_note_and_a_worker_is_launched_in_the_same_run(fleet: Bench, code: str) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    fleet.cloud.faults.inject(FaultRule(operation="StartInstances", code=code))
    payload = launch_nodes(fleet.event(run, 1), None)
    assert payload["launch"]["status"] == "launched"
    assert (len(fleet.ids()), instance_id in fleet.ids()) == (1, False)
    assert payload["alerts"] == []
    assert f"standby worker {instance_id} was not started: EC2 returned {code}" in payload["notes"][0]
    assert tag_of(fleet, instance_id) == "ready"


@pytest.mark.settings(
    standby_workers=1, spot_percent=50, max_vcpu=3, min_workers=0, instance_types="t3.small,t3.xlarge"
)
def test_a_standby_worker_that_takes_more_of_a_limit_than_is_left_is_not_started(fleet: Bench) -> None:
    instance_id = stopped(fleet)
    fleet.cloud.ec2.instance(instance_id).instance_type = "t3.xlarge"
    payload = launch_nodes(fleet.event(fleet.begin("demand"), 1), None)
    (slot,) = fleet.operation(payload).slots
    assert (slot.instance_type, slot.instance_id == instance_id, slot.outcome) == ("t3.small", False, "launched")
    assert fleet.cloud.recorder.of("StartInstances") == []


@pytest.mark.settings(standby_workers=1, max_vcpu=3, min_workers=0)
def test_a_refill_without_a_free_place_waits_without_an_alert(fleet: Bench) -> None:
    fleet.running()
    event = {**fleet.event(fleet.begin("refill"), 1), "decision": REFILL}
    payload = launch_nodes(event, None)
    assert payload["launch"]["status"] == "none"
    answer = fail_scale_up(payload, None)
    assert (answer["alerts"], "failure" in answer) == ([], False)
    assert [b.key for b in take(answer, "memory", Memory).back_offs] == ["standby"]


@TWO
def test_a_refused_start_of_a_worker_that_runs_already_is_a_start(fleet: Bench) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    event = fleet.event(run, 1)
    fleet.tools.ec2.start_worker(instance_id)
    fleet.cloud.faults.inject(FaultRule(operation="StartInstances", code="InternalError", count=9))
    assert fleet.tools.ec2.start_worker(instance_id).code == ""
    assert launch_nodes(event, None)["launch"]["status"] == "launched"


@TWO
@pytest.mark.parametrize("node", ["dead_nodes", "unmanaged"])
def test_a_standby_worker_whose_old_node_remains_is_not_started(fleet: Bench, node: str) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    seen = Snapshot(at=1, source="live", **{node: (instance_id,)})
    payload = launch_nodes({**fleet.event(run, 1), "snapshot": to_payload(seen)}, None)
    assert instance_id not in fleet.operation(payload).instance_ids


@TWO
def test_a_standby_worker_whose_stop_is_set_aside_is_not_started(fleet: Bench) -> None:
    """Its Node is still cordoned: it would run and never become usable."""
    instance_id, run = stopped(fleet), fleet.begin("demand")
    state = fleet.tools.state
    removal = SetAside(
        instance_id=instance_id, node_name=instance_id, kind="termination", operation_id="o", since=1, detail="stopping"
    )
    state.update_set_aside(run, removal)
    operation = fleet.operation(launch_nodes(fleet.event(run, 1), None))
    assert operation.instance_ids and instance_id not in operation.instance_ids


@TWO
def test_a_started_worker_counts_once_although_the_run_dies_before_the_next_step(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")

    def dies(*_: Any) -> Operation:
        raise Ec2Error("lost")

    monkeypatch.setattr("node_fleet.adapters.launcher.Launcher.launch", dies)
    with pytest.raises(Ec2Error):
        launch_nodes(fleet.event(run, 1), None)
    assert count_workers(fleet.instances(), fleet.state(), fleet.clock.now()) == 1
    assert fleet.ids() == {instance_id}


@TWO
def test_neither_a_replacement_nor_a_refill_starts_a_standby_worker(fleet: Bench) -> None:
    first = stopped(fleet)
    second = refilled(fleet, execution_id="second")
    assert fleet.ids() == {second}
    run = fleet.begin("replace")
    decision = {**REFILL, "rule": "drifted", "replace": second}
    launch_nodes({**fleet.event(run, 1), "decision": decision}, None)
    assert (len(fleet.ids()), first in fleet.ids()) == (2, False)


@TWO
def test_a_started_worker_that_stops_again_is_renewed_and_shows_nothing_about_launches(fleet: Bench) -> None:
    instance_id, run = stopped(fleet), fleet.begin("demand")
    payload = launch_nodes(fleet.event(run, 1), None)
    fleet.tools.ec2.stop_worker(instance_id)
    fleet.clock.advance(60)
    payload = check_join(payload, None)
    assert payload["join"]["status"] == "timeout"
    payload = abandon(payload, None)
    assert payload["join"]["status"] == "partial"
    payload = complete_scale_up(payload, None)
    assert (payload["outcome"]["kind"], tag_of(fleet, instance_id)) == ("none", "failed")
    assert fleet.state().memory.back_offs == ()


@TWO
@pytest.mark.parametrize("is_known", [False, True])
def test_a_refill_is_launched_in_another_zone_where_the_one_with_the_fewest_has_no_capacity(
    fleet: Bench, is_known: bool
) -> None:
    first = stopped(fleet)
    (zone,) = {one.zone for one in fleet.tools.ec2.with_standby()[1]}
    others = [name for name in fleet.tools.settings.zones if name != zone]
    fleet.clock.advance(700)
    for other in others:
        fleet.cloud.ec2.dry_pool(az=other)
    run = fleet.begin("second")
    closed = [
        PoolBackOff(zone=name, instance_type=kind, market="on-demand", until=int(fleet.clock.now()) + 60)
        for name in others
        for kind in fleet.tools.settings.instance_types
    ]
    memory = Memory(dry_pools=tuple(closed) if is_known else ())
    launch_nodes({**fleet.event(run, 1), "decision": REFILL, "memory": to_payload(memory)}, None)
    assert [(one.zone, one.market) for one in fleet.instances()] == [(zone, "on-demand")]
    assert first not in fleet.ids()


@TWO
def test_a_refill_waits_while_every_on_demand_pool_is_in_back_off(fleet: Bench) -> None:
    settings, until = fleet.tools.settings, int(fleet.clock.now()) + 60
    closed = (
        PoolBackOff(zone=zone, instance_type=kind, market="on-demand", until=until)
        for zone in settings.zones
        for kind in settings.instance_types
    )
    event = {**fleet.event(fleet.begin(), 1), "decision": REFILL, "memory": to_payload(Memory(dry_pools=tuple(closed)))}
    with pytest.raises(NoCapacityError):
        launch_nodes(event, None)
    assert fleet.ids() == set()


@TWO
@pytest.mark.parametrize("is_planned", [True, False])
def test_a_refused_refill_is_one_alert_and_no_failure(fleet: Bench, is_planned: bool) -> None:
    fleet.cloud.ec2.dry_pool()
    run = fleet.begin()
    event = {**fleet.event(run, 1), "decision": REFILL}
    if is_planned:
        with pytest.raises(NoCapacityError):
            launch_nodes(event, None)
    answer = fail_scale_up({**event, "failure": {"Error": "NoCapacityError", "Cause": "no capacity"}}, None)
    assert "failure" not in answer
    assert [row[0] for row in answer["alerts"]["rows"]] == ["standby_refused"]
    assert [b.key for b in take(answer, "memory", Memory).back_offs] == ["standby"]
    assert fleet.state().operation is None


def test_a_refill_that_fails_for_another_reason_is_a_failure(fleet: Bench) -> None:
    event = {**fleet.event(fleet.begin(), 1), "decision": REFILL}
    answer = fail_scale_up({**event, "failure": {"Error": "StateStoreError", "Cause": "throttled"}}, None)
    assert answer["failure"]["Error"] == "StateStoreError"


@TWO
def test_a_mark_that_cannot_be_written_keeps_no_operation_open(fleet: Bench) -> None:
    stopped(fleet)
    payload = launch_nodes(fleet.event(fleet.begin("demand"), 1), None)
    fleet.clock.advance(60)
    fleet.ready(*fleet.ids())
    fleet.cloud.faults.inject(FaultRule(operation="CreateTags", code="UnauthorizedOperation"))
    assert complete_scale_up(check_join(payload, None), None)["outcome"]["kind"] == "scaled_up"
    assert fleet.state().operation is None


# a scale-down -----------------------------------------------------------------------------------------------------


def selected(services: FakeServices, rule: str = "idle", **snapshot: Any) -> dict[str, Any]:
    """What SelectNodes answers of a fleet of On-Demand workers."""
    services.ec2.fleet = tuple(replace(instance(i), market="on-demand") for i in (A, B, C))
    decision = Decision(
        action="scale_down", count=1, rule=rule, sentence="-1", reasons=(), replace=C if rule == "standby" else ""
    )
    seen = Snapshot(
        at=NOW, source="live", pending=(), workers=tuple(worker(i, market="on-demand") for i in (A, B, C)), **snapshot
    )
    return services.run(select_nodes, decision=decision, snapshot=seen, inspection=inspected(ALL_FREE))


@pytest.mark.parametrize(("have", "standby"), [(0, True), (1, False)])
def test_a_removed_worker_is_marked_while_a_place_is_free(services: FakeServices, have: int, standby: bool) -> None:
    services.settings = Settings(standby_workers=1)
    one = StandbyWorker(instance_id="i-s", zone="a", instance_type="t3.small", launched_at=1)
    selected(services, standby=(one,) * have)
    assert services.state.item.operation is not None
    (target,) = services.state.item.operation.targets
    assert (target.standby, services.state.item.operation.for_standby) == (standby, False)


def test_the_worker_that_was_launched_for_it_is_selected(services: FakeServices) -> None:
    services.settings = Settings(standby_workers=1)
    selected(services, "standby")
    assert services.state.item.operation is not None
    (target,) = services.state.item.operation.targets
    assert (target.instance_id, target.standby, services.state.item.operation.for_standby) == (C, True, True)


def test_a_worker_that_may_not_be_drained_is_tried_again_later_without_a_message(services: FakeServices) -> None:
    services.settings = Settings(standby_workers=1, min_workers=3)
    answer = selected(services, "standby")
    assert (answer["selection"]["status"], answer["selection"]["notify"]) == ("none", False)
    assert [b.key for b in take(answer, "memory", Memory).back_offs] == [f"node:{C}"]


@pytest.mark.parametrize("standby", [0, 1])
def test_a_removal_in_vain_lets_standby_workers_go_first(services: FakeServices, standby: int) -> None:
    services.settings = Settings(standby_workers=standby, min_workers=3)
    answer = selected(services)
    assert answer["selection"]["status"] == "none"
    assert (take(answer, "memory", Memory).roll_out.first_until > NOW) == bool(standby)


def drained(services: FakeServices, *, standby: bool = True, operation_id: str = "") -> None:
    """A is empty under our cordon, and is to become a standby worker."""
    services.begun("drained")
    operation = services.state.item.operation
    assert operation is not None
    operation = operation.with_target(replace(operation.targets[0], standby=standby))
    operation = replace(operation, operation_id=operation_id or operation.operation_id)
    services.state.item = replace(services.state.item, operation=operation)
    services.server.says("CheckNode", check_text(owner=operation.operation_id))
    lines = (worker_line(A, "RCW", operation.operation_id), worker_line(B), worker_line(C))
    services.server.says("InspectNodes", inspection_text(*lines))


def test_a_drained_worker_is_marked_then_stopped_and_a_second_call_does_the_same(services: FakeServices) -> None:
    drained(services)
    for _ in range(2):
        assert services.run(terminate_nodes)["termination"]["status"] == "waiting"
    assert (services.ec2.stopped, services.ec2.terminated) == ([A, A], [])
    assert services.ec2.tags == {A: {"Standby": "ready"}}
    assert services.state.phases == ["terminating"]


def test_a_worker_that_ec2_does_not_stop_is_terminated(services: FakeServices) -> None:
    drained(services)
    services.ec2.stop_error = Ec2Error("EC2: cannot stop: UnsupportedOperation")
    services.run(terminate_nodes)
    assert (services.ec2.terminated, services.ec2.tags) == ([A], {A: {"Standby": "kept"}})
    assert services.state.item.operation is not None
    assert not services.state.item.operation.targets[0].standby


def test_a_stop_that_is_refused_again_and_again_is_one_alert_and_lengthens_the_back_off(services: FakeServices) -> None:
    memory, seconds, kinds = Memory(), [], []
    services.ec2.stop_error = Ec2Error("EC2: cannot stop: UnsupportedOperation")
    for _ in range(2):
        drained(services)
        answer = services.run(terminate_nodes, memory=memory)
        memory = take(answer, "memory", Memory)
        (entry,) = memory.back_offs
        seconds.append(entry.until - NOW)
        kinds.append([row[0] for row in (answer["alerts"] or {"rows": []})["rows"]])
    assert entry.key == "standby" and seconds == [600, 1200]
    assert kinds == [["standby_refused"], []]


def test_the_headroom_keeps_no_worker_that_was_launched_to_be_stopped(services: FakeServices) -> None:
    services.settings = Settings(standby_workers=1, headroom_workers=2)
    drained(services, operation_id="standby-7-1000000")
    services.run(terminate_nodes)
    assert services.ec2.stopped == [A]


@pytest.mark.parametrize(
    ("state", "waited", "standby", "status"),
    [
        ("stopping", 10, True, "waiting"),
        ("stopped", 10, True, "terminated"),
        ("stopped", 10, False, "waiting"),
        ("running", 61, True, "not_terminated"),
        ("stopping", 901, True, "set_aside"),
        ("terminated", 10, True, "terminated"),
    ],
)
def test_a_stop_ends_when_the_instance_is_stopped_or_at_the_limit(
    services: FakeServices, state: str, waited: int, standby: bool, status: str
) -> None:
    drained(services, standby=standby)
    services.settings = Settings(terminate_limit_seconds=900)
    services.run(terminate_nodes)
    services.clock.time += waited
    services.ec2.state = {A: state}
    services.server.says("CheckNode", check_text(ready="dead"))
    answer = services.run(confirm_termination)
    assert answer["termination"]["status"] == status
    if status in ("not_terminated", "set_aside"):
        assert "after StopInstances" in answer["termination"]["detail"]
    assert services.ec2.tags == ({A: {"Standby": "kept" if status == "not_terminated" else "ready"}} if standby else {})


def test_a_worker_that_is_not_stopped_is_released_also_when_its_tag_cannot_be_changed(services: FakeServices) -> None:
    """For example because standby_workers: 0 was deployed meanwhile. Every later run would fail at the same tag."""
    drained(services)
    services.run(terminate_nodes)
    services.clock.time += 61
    services.ec2.state = {A: "running"}
    services.ec2.tag_error = Ec2Error("EC2: cannot tag: UnauthorizedOperation")
    assert services.run(confirm_termination)["termination"]["status"] == "not_terminated"
    assert services.state.phases == ["drained"]


def test_the_node_of_a_stopped_worker_is_deleted_and_its_place_is_named(services: FakeServices) -> None:
    services.begun("terminated")
    operation = services.state.item.operation
    assert operation is not None
    operation = operation.with_target(replace(operation.targets[0], standby=True))
    services.state.item = replace(services.state.item, operation=operation)
    services.server.says("ForgetNode", "result: forgotten node and secret\n")
    answer = services.run(forget_nodes)
    assert take(answer, "operation", Operation).targets[0].detail == (
        "drained, stopped as a standby worker and its node deleted"
    )


@pytest.mark.parametrize(("operation_id", "action"), [("down-1", "scale_down"), ("standby-1", "")])
def test_only_a_removal_for_the_load_starts_the_cooldown(
    services: FakeServices, operation_id: str, action: str
) -> None:
    services.begun("forgotten")
    assert services.state.item.operation is not None
    operation = replace(services.state.item.operation, operation_id=operation_id)
    services.state.item = replace(services.state.item, operation=operation)
    services.run(complete_scale_down)
    assert services.state.closed[-1].last_action == action


def test_a_stopped_worker_ends_the_back_off_of_standby_workers(services: FakeServices) -> None:
    services.begun("forgotten")
    operation = services.state.item.operation
    assert operation is not None
    memory = Memory(back_offs=tuple(BackOff(key=key, failures=2, until=NOW) for key in ("standby", "spot")))
    for standby, keys in ((False, ["standby", "spot"]), (True, ["spot"])):
        changed = operation.with_target(replace(operation.targets[0], standby=standby))
        services.state.item = replace(services.state.item, operation=changed)
        services.run(complete_scale_down, memory=memory)
        assert [b.key for b in services.state.closed[-1].back_offs] == keys


@pytest.mark.parametrize(("kind", "left"), [("termination", 0), ("rollback", 1)])
def test_a_stop_that_was_set_aside_is_settled_once_the_instance_is_stopped(
    services: FakeServices, kind: Any, left: int
) -> None:
    services.set_aside(A, kind=kind)
    services.ec2.state = {A: "stopped"}
    services.server.says("ForgetNode", "result: forgotten node and secret\n")
    services.server.says("UncordonNode", "", 69)
    services.run(check_set_aside)
    assert len(services.state.item.set_aside) == left


# what exists ------------------------------------------------------------------------------------------------------


def test_the_snapshot_names_the_standby_workers_apart_from_the_workers(services: FakeServices) -> None:
    services.ec2.standby = (replace(instance("i-0s"), state="stopped", standby="ready", market="on-demand"),)
    services.prometheus.reading = Reading(at=NOW, pending=(), nodes=())
    seen = from_payload(Snapshot, services.run(collect_metrics)["snapshot"])
    assert [w.instance_id for w in seen.standby] == ["i-0s"]
    assert [w.instance_id for w in seen.workers] == [A, B, C]


@pytest.mark.parametrize(("tag", "refill"), [("", True), ("kept", True), ("ready", False), ("started", False)])
def test_a_worker_that_was_launched_for_it_and_not_stopped_is_known(
    services: FakeServices, tag: str, refill: bool
) -> None:
    services.ec2.fleet = (replace(instance(A), operation_id="standby-1", standby=tag),)
    services.prometheus.reading = Reading(at=NOW, pending=(), nodes=())
    seen = from_payload(Snapshot, services.run(collect_metrics)["snapshot"])
    assert [w.refill for w in seen.workers] == [refill]


@TWO
@pytest.mark.parametrize(
    ("state", "dry_run", "status"),
    [("stopped", False, "ended"), ("stopped", True, "dry_run"), ("running", False, "watching")],
)
def test_the_standby_worker_of_the_decision_is_terminated_unless_it_runs(
    fleet: Bench, state: str, dry_run: bool, status: str
) -> None:
    instance_id = stopped(fleet)
    if state == "running":
        fleet.tools.ec2.start_worker(instance_id)
        fleet.clock.advance(30)
    decision = {"rule": "standby", "replace": instance_id, "action": "none", "sentence": "renewed"}
    event = {**fleet.event(fleet.begin("tick", dry_run=dry_run), 0), "decision": decision}
    assert reap(event, None)["reap"]["status"] == status
    fleet.clock.advance(60)
    assert fleet.tools.ec2.states([instance_id])[instance_id] == ("terminated" if status == "ended" else state)


@TWO
def test_a_standby_worker_that_ec2_refuses_to_terminate_is_reported_once_and_fails_no_run(fleet: Bench) -> None:
    instance_id = stopped(fleet)
    fleet.cloud.faults.inject(FaultRule(operation="TerminateInstances", code="OperationNotPermitted"))
    decision = {"rule": "standby", "replace": instance_id, "action": "none", "sentence": "renewed"}
    event, kinds = {**fleet.event(fleet.begin("tick"), 0), "decision": decision}, list[str]()
    for _ in range(2):
        answer = reap({**event, "notify": False}, None)
        assert answer["reap"]["status"] == "refused"
        kinds += [alert.kind for alert in take(answer, "alerts", tuple[Alert, ...])]
        event["memory"] = answer["memory"]
    assert kinds == [f"standby_kept:{instance_id}"]
    assert [b.failures for b in take(answer, "memory", Memory).back_offs if b.key == f"node:{instance_id}"] == [2]


@TWO
def test_no_announcement_about_a_standby_worker_is_answered(fleet: Bench) -> None:
    instance_id = stopped(fleet)
    for name, detail in (
        ("EC2 Instance State-change Notification", {"state": "stopped"}),
        ("EC2 Spot Instance Interruption Warning", {}),
    ):
        announced = {
            "time": "2026-09-21T14:00:00Z",
            "detail-type": name,
            "detail": {"instance-id": instance_id, **detail},
        }
        answer = claim_notices({"event": announced, "execution_id": "e"}, None)
        assert (answer["status"], "standby" in answer["ignored"][instance_id]) == ("ignored", True)
    assert fleet.state().notices == ()
