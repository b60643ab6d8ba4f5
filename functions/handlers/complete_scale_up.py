"""CompleteScaleUp: closes the operation, stamps the cooldown, and says whether pods still wait for another round."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Memory
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.record import replace
from node_fleet.domain.scale_up.join import Join, completed_sentence, more_demand
from node_fleet.domain.scale_up.launch import keys_to_return, remember_dry
from node_fleet.domain.scaling.outcome import succeeded
from node_fleet.payload import put, take
from node_fleet.run_cost import begun_with
from node_fleet.services import Wiring, wiring
from node_fleet.telling import tell


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `outcome`, `memory`, `next` ("again" or "done") and the run's next round. Safe twice."""
    tools = wiring()
    run, join = take(event, "run", Run), take(event, "join", Join)
    state = tools.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    memory = _memory(tools, take(event, "memory", Memory), operation)
    workers = len({i.instance_id for i in tools.ec2.instances()} - {n.instance_id for n in state.notices})
    tools.state.unreserve(keys_to_return(operation, tools.clock.now()))
    tools.state.close_operation(run, memory, node_count=workers)
    again = more_demand(join, round_number=run.round, max_rounds=tools.settings.max_rounds)
    outcome = Outcome(
        kind="scaled_up" if operation.joined else "none",
        text=completed_sentence(operation, workers_after=workers),
        workers_after=workers,
    )
    answer = put(event, operation=operation, memory=memory, outcome=outcome, next="again" if again else "done")
    answer = put(answer, run=replace(run, round=run.round + again), node_count=workers)
    answer = put(answer, begun_with=begun_with(event, tools.settings.region))
    return tell(answer, notes=[outcome.text] if again else [])


def _memory(tools: Wiring, memory: Memory, operation: Operation) -> Memory:
    """Stamped only when a worker was gained; the pools that ran dry are remembered either way."""
    now = tools.clock.now()
    memory = replace(memory, dry_pools=remember_dry(memory.dry_pools, operation.dry_pools, now))
    if not operation.joined:
        return memory
    joined = {slot.instance_id: slot.joined_at for slot in operation.joined}
    return succeeded(memory, "scale_up", operation.reason, now, joined=joined)
