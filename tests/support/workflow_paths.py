"""What the tests of the autoscaler's paths share: expected paths, operations that a run leaves, and the final state."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.operation import LaunchSlot, Operation
from simulator.runner import Execution
from tests.support.workflow_harness import Stage

SOON_IDLE: dict[str, Any] = {"idle_seconds": 240, "cooldown_down_seconds": 0}
QUIET = ["AcquireLock", "LockStatus", "CollectMetrics", "Decide", "Route", "ReleaseLock"]


def nothing_left_behind(fleet: Stage) -> None:
    state = fleet.state()
    promised = [r for r in state.reservations if not r.instance_id]
    assert (state.lease, state.operation, promised, state.problems) == (None, None, [], ())


def scaled_down(execution: Execution) -> bool:
    return "InspectNodes" in execution.path


def an_operation(fleet: Stage, *, kind: Any = "scale_up", age: int = 10, **fields: Any) -> Operation:
    return Operation(
        operation_id=fields.pop("operation_id", f"{kind.replace('_', '-')}-left-behind"),
        kind=kind,
        phase=fields.pop("phase", "begin" if kind == "scale_up" else "draining"),
        started_at=fleet.now() - age,
        requested=1,
        reason="left behind",
        execution_id="dead",
        workers_before=2,
        **fields,
    )


def a_slot(fleet: Stage, **fields: Any) -> LaunchSlot:
    zone, subnet = next(iter(fleet.settings.zones.items()))
    given = {"number": 0, "zone": zone, "subnet_id": subnet, "instance_type": "t3.small", "market": "on-demand"}
    return LaunchSlot(**{**given, **fields})
