"""A worker that AWS did not reclaim is reinstated, removed, or waits for capacity."""

from __future__ import annotations

from node_fleet.domain.interruption.closing import CAPACITY_WAITS
from node_fleet.domain.interruption.response import operation_of
from node_fleet.domain.model.snapshot import Instance
from simulator.runner import Execution
from tests.support.handlers.bench import Bench
from tests.support.handlers.fakes import check_text
from tests.support.interruptions import (
    WARNING,
    WARNING_SECONDS,
    commands,
    event,
    finish,
    messages,
    replacements,
    start,
    worker,
)


def test_a_cancelled_notice_gives_the_worker_back(fleet: Bench) -> None:
    taken = worker(fleet)
    execution = finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "ReinstateWorker" in execution.path
    assert commands(fleet) == ["DrainNode", "UncordonNode"]
    assert not fleet.state().notices and not fleet.state().reservations[1:]
    assert taken.instance_id in fleet.ids()


def test_in_a_full_fleet_a_drained_worker_is_terminated_because_its_replacement_runs(fleet: Bench) -> None:
    fleet_of = [worker(fleet, n) for n in range(1, 5)]
    taken = fleet_of[0]
    fleet.server.says("DrainNode", f"node/{taken.instance_id} drained")
    fleet.server.says("CheckNode", check_text(taken.instance_id, owner=operation_of(taken.instance_id)))
    execution = finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert "ReinstateWorker" in execution.path
    assert len(fleet.instances()) == 4
    assert taken.instance_id not in fleet.ids()


def not_reclaimed_in_a_full_fleet(fleet: Bench) -> tuple[Instance, Execution]:
    """A worker that AWS did not reclaim, with pods that did not move, in a fleet at its maximum."""
    taken, *_ = [worker(fleet, n) for n in range(1, 5)]
    fleet.server.says("DrainNode", "result: unreadable the pods")
    execution = start(fleet, event(fleet, WARNING, taken.instance_id))
    fleet.clock.advance(WARNING_SECONDS + fleet.settings.interruption_settle_seconds + 30)
    assert execution.path[-2:] == ["ReinstatementStatus", "WaitForCapacity"]
    assert taken.instance_id in fleet.ids() and "DrainNode" in commands(fleet)
    return taken, execution


def test_a_worker_with_pods_in_a_full_fleet_is_left_to_an_operator_in_the_end(fleet: Bench) -> None:
    taken, execution = not_reclaimed_in_a_full_fleet(fleet)
    begun = fleet.clock.now()
    finish(fleet, execution)
    assert execution.path.count("ReinstateWorker") == len(CAPACITY_WAITS) + 1
    assert sum(CAPACITY_WAITS) - 60 <= fleet.clock.now() - begun <= sum(CAPACITY_WAITS) + 60
    assert taken.instance_id in fleet.ids()
    assert "pods run on the worker" in messages(fleet)
    assert [n.instance_id for n in fleet.state().notices] == [taken.instance_id]
    advice = f"or keep it (the next runs uncordon it): ./node-fleet resume --worker {taken.instance_id}"
    assert advice in str(fleet.publisher.messages)


def test_a_worker_is_reinstated_as_soon_as_there_is_capacity(fleet: Bench) -> None:
    taken, execution = not_reclaimed_in_a_full_fleet(fleet)
    others = [i for i in fleet.instances() if i.operation_id == "up-before" and i.instance_id != taken.instance_id]
    fleet.cloud.ec2.reclaim(others[0].instance_id)
    finish(fleet, execution)
    assert execution.path.count("WaitForCapacity") == 1 and commands(fleet)[-1] == "UncordonNode"
    assert not fleet.state().notices and "pods run on the worker" not in messages(fleet)


def test_a_worker_that_ends_while_it_waits_for_capacity_is_forgotten(fleet: Bench) -> None:
    taken, execution = not_reclaimed_in_a_full_fleet(fleet)
    fleet.cloud.ec2.reclaim(taken.instance_id)
    finish(fleet, execution)
    assert execution.path[-4:-2] == ["ForgetInterrupted", "CloseNotice"] and not fleet.state().notices


def test_a_worker_under_a_later_notice_while_it_waits_is_answered_again(fleet: Bench) -> None:
    taken, execution = not_reclaimed_in_a_full_fleet(fleet)
    again = fleet.cloud.runner.start(event(fleet, WARNING, taken.instance_id), "again")
    finish(fleet, execution, again)
    assert "Superseded" in execution.path and "StartDeadlineDrain" in again.path
    assert len(replacements(fleet, taken.instance_id)) == 1


def test_a_worker_under_a_later_notice_while_the_server_is_away_stays_cordoned(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.server.says("UncordonNode", "result: unreadable the server")
    execution = start(fleet, event(fleet, WARNING, taken.instance_id))
    fleet.clock.run_until(lambda: "UncordonNode" in commands(fleet), limit=fleet.clock.now() + 3600)
    again = start(fleet, event(fleet, WARNING, taken.instance_id), "again")
    finish(fleet, execution)
    assert execution.path[-4:-2] == ["ReinstatementStatus", "Superseded"]
    fleet.cloud.ec2.reclaim(taken.instance_id)
    finish(fleet, again)
    assert "StartDeadlineDrain" in again.path and commands(fleet).count("UncordonNode") == 1


def test_a_worker_whose_fleet_is_paused_waits_for_the_end_of_the_pause(fleet: Bench) -> None:
    taken = worker(fleet)
    execution = start(fleet, event(fleet, WARNING, taken.instance_id))
    fleet.clock.advance(WARNING_SECONDS)
    paused_until = fleet.clock.now() + 7200
    fleet.pause(seconds=7200)
    finish(fleet, execution)
    assert execution.path.count("WaitForCapacity") > 11 and fleet.clock.now() >= paused_until
    assert not fleet.state().notices
