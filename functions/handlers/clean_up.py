"""CleanUp: after an execution died, frees its lock, closes its operation, and only then undoes its own cordons.

Started by the rule on FAILED, TIMED_OUT and ABORTED. Safe twice, late, and beside a run that already resumed.
"""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.server import stop_and_uncordon
from node_fleet.domain.message import Outcome
from node_fleet.domain.operation import Operation
from node_fleet.domain.recovery import cordons_to_undo, may_close
from node_fleet.domain.run import Run
from node_fleet.observability import log
from node_fleet.payload import to_payload
from node_fleet.wiring import Wiring, wiring


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Take EventBridge's execution status event; answer what was done."""
    tools = wiring()
    dead = event["detail"]["executionArn"]
    run = tools.state.take_over(dead, f"clean-up:{event['id']}")
    if run is None:
        return {"outcome": "nothing to do: the lock is not that execution's"}
    operation = tools.state.load().operation
    closed = _close(tools, run, operation, dead)
    tools.state.release(run)
    outcome = f"freed the lock of {dead}" + (f"; closed {closed.operation_id}" if closed else "")
    log(outcome, execution_id=dead)
    tools.records.put_event("clean_up", tools.clock.now(), {"execution": dead, "text": outcome}, key=event["id"])
    return {"outcome": to_payload(Outcome(kind="failed", text=outcome))}


def _close(tools: Wiring, run: Run, operation: Operation | None, dead: str) -> Operation | None:
    if operation is None or not may_close(operation, dead):
        return None
    tools.state.close_operation(run, tools.state.load().memory)
    tools.state.unreserve(f"{operation.operation_id}:{slot.number}" for slot in operation.slots)
    for target in cordons_to_undo(operation):
        stop_and_uncordon(tools.server, target, operation.operation_id)
    return operation
