"""CompleteScaleDown: closes the operation and, when a worker was removed, starts the cooldown; remembers a reboot."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.notify.totals import count_operation
from node_fleet.domain.scale_down.termination import removal_sentence
from node_fleet.domain.scaling.memory_update import record_reboots, record_replaced, record_stopped, record_success
from node_fleet.payload import put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `outcome`, `memory` and `node_count`. A second call finds the operation closed and returns the same."""
    services = load_services()
    run = take(event, "run", Run)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    memory = take(event, "memory", Memory, default=Memory())
    now, left = services.clock.now(), len(services.ec2.instances())
    if operation.removed and operation.replaces:
        memory = record_replaced(memory, operation, now)
    elif operation.removed and not operation.for_standby:
        memory = record_success(memory, "scale_down", operation.reason, now)
    if any(target.standby for target in operation.removed):
        memory = record_stopped(memory)
    memory = count_operation(memory, operation, event.get("decision", {}).get("rule", ""))
    memory = record_reboots(memory, operation, now)
    if state.operation is not None:
        services.state.close_operation(run, memory, node_count=left)
    kind = "rebooted" if operation.rebooted else "scaled_down" if operation.removed else "none"
    ended = Outcome(kind=kind, text=removal_sentence(operation, left), workers_after=left)
    return put(event, operation=operation, memory=memory, node_count=left, outcome=ended)
