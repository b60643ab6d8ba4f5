"""Off at night: workers are drained and ended, the server is stopped and started, and the fleet is as before."""

from __future__ import annotations

import json

from node_fleet.domain.model.hibernation import Order
from simulator.aws.faults import FaultRule
from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import QUIET, nothing_left_behind

BEGUN = ["AcquireLock", "LockStatus", "Resume", "Hibernate", "HibernateStatus"]


def ordered(fleet: Stage, kind: str, hours: int = 3) -> None:
    """What `node-fleet sleep` or `wake` stores."""
    now = int(fleet.deployment.clock.now())
    fleet.store.set_hibernate_order(Order(kind=kind, by="mira", since=now, until=now + hours * 3600))  # type: ignore[arg-type]


def server_state(fleet: Stage) -> str:
    return str(fleet.cloud.ec2.instance(fleet.deployment.server_id).state)


def test_a_fleet_is_switched_off_and_on_and_ticks_in_between_do_nothing() -> None:
    with stage(workers=2, warm_up=1, hibernate="Sun 00:00-06:00", hibernate_drain_seconds=60) as fleet:
        assert fleet.tick().path == QUIET, "a time off that is configured costs a quiet tick nothing"
        ordered(fleet, "sleep")
        fleet.break_state("Hibernate", RuntimeError("the next run continues"), times=1)
        assert fleet.tick().path == [*BEGUN[:4], "Notify", "ReleaseLock", "RunFailed"]
        drained = fleet.tick()
        assert (drained.status, drained.path[:6]) == ("SUCCEEDED", [*BEGUN, "StartDrain"])
        assert len(fleet.workers()) == 1, "a budget keeps a pod of the last worker"
        ended = fleet.tick()
        assert ended.path[:6] == [*BEGUN, "TerminateNodes"] and not fleet.workers()
        assert fleet.tick().path == [*BEGUN, "ReleaseLock"]
        assert fleet.tick().path == [*BEGUN, "Notify", "ReleaseLock"]
        assert (server_state(fleet), fleet.state().hibernation.phase) == ("stopped", "off")
        assert all(run.path == ["AcquireLock", "LockStatus", "SwitchedOff"] for run in fleet.ticks(3))
        ordered(fleet, "wake")
        assert fleet.tick().path == [*BEGUN, "ReleaseLock"]
        awake = fleet.tick_until(lambda run: "CollectMetrics" in run.path, limit=3)
        assert awake.path[: len(BEGUN) + 4] == [*BEGUN, "CollectMetrics", "Decide", "Route", "LaunchNodes"]
        assert (server_state(fleet), len(fleet.workers())) == ("running", 2)
        assert fleet.tick().path == QUIET
        assert fleet.state().memory.roll_out.lost == 0
        said = [json.loads(one["Message"])["what"] for one in fleet.deployment.messages]
        assert any(text.startswith("the fleet is off; it is on again at") for text in said)
        nothing_left_behind(fleet)


def test_all_workers_are_ended_together_and_one_that_ec2_refuses_to_end_is_tried_again() -> None:
    settings = {"hibernate": "Sun 00:00-06:00", "hibernate_drain_seconds": 0}
    with stage(workers=3, warm_up=1, **settings) as fleet:
        ordered(fleet, "sleep")
        rule = FaultRule(service="ec2", operation="TerminateInstances", code="OperationNotPermitted", count=1)
        fleet.cloud.faults.inject(rule)
        refused = fleet.tick()
        at = refused.path.index("TerminateNodes")
        assert refused.path[at : at + 4] == ["TerminateNodes", "UndoDrain", "UndoStatus", "TerminateNodes"]
        assert refused.path[refused.path.index("NextTarget") + 1] == "TerminateNodes"
        assert (refused.status, refused.path.count("ForgetNodes"), len(fleet.workers())) == ("FAILED", 2, 1)
        ended = fleet.tick()
        assert (ended.status, ended.path[:6]) == ("SUCCEEDED", [*BEGUN, "TerminateNodes"])
        assert [node.role for node in fleet.sim.cluster.nodes()] == ["server"]
        nothing_left_behind(fleet)
