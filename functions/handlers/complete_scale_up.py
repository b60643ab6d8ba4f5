"""CompleteScaleUp: closes the operation, starts the cooldown, and decides whether pods need another round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before
from node_fleet.domain.model.errors import Ec2Error
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.notify.totals import count_operation
from node_fleet.domain.scale_up.join import JoinProgress, completed_sentence, needs_another_round
from node_fleet.domain.scale_up.launch import merge_pool_back_offs, reservations_to_release
from node_fleet.domain.scale_up.standby import tags_after
from node_fleet.domain.scaling.memory_update import record_refill, record_replacement, record_success
from node_fleet.logs import logger
from node_fleet.payload import add_alerts, known, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `outcome`, `memory`, `next` ("again" or "done") and the run's next round. Safe twice."""
    services = load_services()
    run, join = take(event, "run", Run), take(event, "join", JoinProgress)
    state = services.state.renew(run, even_paused=True)
    operation = state.operation or take(event, "operation", Operation)
    memory = _memory(services, take(event, "memory", Memory), operation)
    memory = count_operation(memory, operation, event.get("decision", {}).get("rule", ""))
    _mark_started(services, operation)
    workers = len({i.instance_id for i in services.ec2.instances()} - state.ids_under_notice)
    services.state.unreserve(reservations_to_release(operation, services.clock.now()))
    services.state.close_operation(run, memory, node_count=workers)
    again = needs_another_round(join, round_number=run.round, max_rounds=services.settings.max_rounds)
    outcome = Outcome(
        kind="scaled_up" if operation.joined else "none",
        text=completed_sentence(operation, workers_after=workers),
        workers_after=workers,
    )
    answer = put(event, operation=operation, memory=memory, outcome=outcome, next="again" if again else "done")
    answer = put(answer, run=replace(run, round=run.round + again), node_count=workers)
    if again:
        answer["rounds"] = [*event.get("rounds", []), _round(operation)]
    before = known(event, "fleet_before", FleetBefore) or fleet_before(
        known(event, "snapshot", Snapshot), known(event, "operation", Operation), services.settings.tariff()
    )
    answer = put(answer, fleet_before=before)
    return add_alerts(answer, notes=[outcome.text] if again else [])


def _mark_started(services: Services, operation: Operation) -> None:
    """Without the mark a worker that joined is a worker like every other, so no failure may keep the operation open."""
    try:
        for instance_id, word in tags_after(operation).items():
            services.ec2.tag([instance_id], {"Standby": word})
    except Ec2Error as error:
        logger.warning("a started standby worker keeps its old mark", problem=str(error))


def _round(operation: Operation) -> dict[str, Any]:
    """What the record of the run keeps of a round when another one follows."""
    names = ("operation_id", "kind", "requested", "workers_before", "reason")
    return {name: getattr(operation, name) for name in names}


def _memory(services: Services, memory: Memory, operation: Operation) -> Memory:
    """The cooldown starts only when a worker joined; pools in back-off are kept in both cases."""
    now = services.clock.now()
    memory = replace(memory, dry_pools=merge_pool_back_offs(memory.dry_pools, operation.dry_pools, now))
    if operation.replaces:
        return record_replacement(memory, operation, now)
    if operation.for_standby:
        return record_refill(memory, operation)
    if not operation.joined:
        return memory
    joined = {slot.instance_id: slot.joined_at for slot in operation.joined}
    return record_success(memory, "scale_up", operation.reason, now, joined=joined)
