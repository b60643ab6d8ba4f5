"""Branches that only an odd order of events reaches: each once, so that the ledger of the whole suite knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from handlers import (
    check_drain,
    check_join,
    complete_scale_up,
    confirm_termination,
    fail_scale_down,
    inspect_nodes,
    launch_nodes,
    select_nodes,
    start_drain,
    terminate_nodes,
    undo_drain,
)
from node_fleet.domain.model.errors import DrainFailedError, NoCapacityError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.snapshot import PodShape
from node_fleet.payload import to_payload
from tests.support.handlers.scale_down import (
    A_CORDONED,
    A,
    B,
    C,
    Tools,
    answer,
    event,
    inspected,
    inspection_text,
    look_text,
    wired,
    worker_line,
)
from tests.support.handlers.scale_up import Bench, bench
from tests.unit.handlers.test_reap_unjoined import listed, lost, tick

Wire = Callable[[ModuleType], Tools]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return lambda module: wired(monkeypatch, module)


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def test_a_check_of_a_drain_that_was_not_begun_goes_on_to_the_next_step(wire: Wire) -> None:
    tools = wire(check_drain)
    tools.begun("selected")
    assert check_drain.handler(event(tools), None)["drain"]["status"] == "skipped"
    assert tools.server.sent == []


def test_a_drained_worker_is_looked_at_again_without_asking_for_its_command(wire: Wire) -> None:
    tools = wire(check_drain)
    tools.begun("drained")
    tools.server.says["CheckNode"] = answer(look_text())
    assert check_drain.handler(event(tools), None)["drain"]["status"] == "drained"
    assert "result c-9" not in tools.server.log


def test_a_look_without_an_answer_does_not_count_as_empty(wire: Wire) -> None:
    tools = wire(check_drain)
    tools.begun("drained")
    tools.server.says["CheckNode"] = answer(status="TimedOut", code=-1)
    assert check_drain.handler(event(tools), None)["drain"]["status"] == "waiting"


def test_a_drain_whose_operation_is_closed_is_not_started(wire: Wire) -> None:
    tools = wire(start_drain)
    assert start_drain.handler(event(tools), None)["operation"] is None
    assert tools.server.sent == []


def test_without_a_target_nobody_is_terminated(wire: Wire) -> None:
    tools = wire(terminate_nodes)
    tools.begun("forgotten")
    with pytest.raises(DrainFailedError, match="no worker left to terminate"):
        terminate_nodes.handler(event(tools), None)
    assert tools.ec2.terminated == []


def test_nobody_is_terminated_while_the_others_cannot_be_looked_at(wire: Wire) -> None:
    tools = wire(terminate_nodes)
    tools.begun("drained")
    tools.server.says = {"CheckNode": answer(look_text()), "InspectNodes": answer(A_CORDONED, status="TimedOut")}
    with pytest.raises(DrainFailedError, match="could not be inspected"):
        terminate_nodes.handler(event(tools), None)
    assert tools.ec2.terminated == []


def test_a_look_that_failed_does_not_hold_up_what_ec2_knows(wire: Wire) -> None:
    tools = wire(confirm_termination)
    tools.begun("terminating")
    tools.ec2.state[A] = "terminated"
    tools.server.says["CheckNode"] = answer(code=69)
    assert confirm_termination.handler(event(tools), None)["termination"]["status"] == "terminated"


def test_an_operation_that_somebody_closed_meanwhile_is_said_to_be_closed(wire: Wire) -> None:
    tools = wire(fail_scale_down)
    tools.begun("undone")
    payload = event(tools)
    tools.state.item = replace(tools.state.item, operation=None)
    assert fail_scale_down.handler(payload, None)["outcome"]["text"] == "the operation is closed"


def test_what_the_server_complained_of_stands_in_the_detail(wire: Wire) -> None:
    tools = wire(inspect_nodes)
    tools.server.says["InspectNodes"] = answer(code=69, stderr="kubectl: connection refused\n")
    assert "connection refused" in inspect_nodes.handler(event(tools), None)["inspection"]["detail"]


def test_a_dry_run_that_would_remove_nobody_says_so(wire: Wire) -> None:
    tools = wire(select_nodes)
    text = inspection_text(*(worker_line(one, blockers="shop/orders-db-0:s") for one in (A, B, C)))
    payload = event(tools, inspection=inspected(text))
    payload["run"]["dry_run"] = True
    assert "would remove no worker" in select_nodes.handler(payload, None)["outcome"]["text"]


def test_a_fault_during_a_drain_is_what_it_is_undone_for(wire: Wire) -> None:
    tools = wire(undo_drain)
    tools.begun("draining")
    tools.server.says["UncordonNode"] = answer(f"result: uncordoned {A}")
    failure = {"Error": "DrainFailedError", "Cause": "it broke"}
    assert "it broke" in str(undo_drain.handler(event(tools, failure=failure), None)["notes"])


def test_a_machine_that_did_not_end_in_time_is_the_failure(wire: Wire) -> None:
    tools = wire(fail_scale_down)
    tools.begun("terminating")
    late = {"status": "timeout", "detail": "still shutting-down after 120 s"}
    failure = fail_scale_down.handler(event(tools, termination=late), None)["failure"]
    assert failure == {"Error": "Ec2Error", "Cause": "still shutting-down after 120 s"}


def test_a_drain_taken_up_without_a_snapshot_is_withdrawn_for_any_pod_that_waits(wire: Wire) -> None:
    tools = wire(check_drain)
    tools.begun("draining")
    tools.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=1),)
    payload = event(tools)
    del payload["snapshot"]
    assert check_drain.handler(payload, None)["drain"]["status"] == "withdrawn"


def test_room_that_is_taken_meanwhile_leaves_nothing_to_launch() -> None:
    with bench(min_workers=1, max_workers=1) as made:
        lost(made)
        assert launch_nodes.handler(made.event(made.begin(), 1), None)["launch"]["status"] == "none"


def test_when_nothing_waits_any_more_nobody_is_asked_again(fleet: Bench) -> None:
    payload = launch_nodes.handler(fleet.event(fleet.begin(), 1), None)
    fleet.clock.advance(60)
    fleet.ready(*(i.instance_id for i in fleet.instances()))
    joined = check_join.handler(payload, None)
    fleet.prometheus.known_nodes = ()
    assert check_join.handler(joined, None)["join"]["status"] == "joined"


def test_a_scale_up_that_gained_nobody_is_not_stamped(fleet: Bench) -> None:
    waiting = check_join.handler(launch_nodes.handler(fleet.event(fleet.begin(), 1), None), None)
    answered = complete_scale_up.handler(waiting, None)
    assert answered["outcome"]["kind"] == "none"
    assert fleet.state().memory.last_action_at == 0


def test_while_every_pool_rests_nothing_is_tried() -> None:
    with bench() as made:
        made.cloud.ec2.dry_pool()
        with pytest.raises(NoCapacityError):
            launch_nodes.handler(made.event(made.begin(), 1), None)
        operation = made.state().operation
        assert operation is not None
    with bench() as made:
        memory = to_payload(Memory(dry_pools=operation.dry_pools))
        with pytest.raises(NoCapacityError, match="asks the first of them again in 600 s"):
            launch_nodes.handler({**made.event(made.begin(), 1), "memory": memory}, None)
        assert made.cloud.recorder.of("RunInstances") == []


def test_the_setting_keeps_a_lost_machine_for_inspection() -> None:
    with bench(keep_unjoined=True) as made:
        machine = lost(made)
        made.clock.advance(600)
        run = made.begin()
        listed(made)
        first = tick(made, run)
        made.clock.advance(120)
        listed(made)
        tick(made, run, memory=first["memory"])
        assert {i.instance_id for i in made.instances()} == {machine}
