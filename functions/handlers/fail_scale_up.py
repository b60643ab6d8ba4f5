"""FailScaleUp: closes the operation with a back-off of its own. Launched workers are kept; no cooldown starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.back_off import SPOT, seconds_left
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.notify.message import Outcome, plain_failure
from node_fleet.domain.notify.totals import count_operation
from node_fleet.domain.scale_up.join import (
    back_off_key,
    is_return,
    no_return_sentence,
    scale_up_failure,
    waits_for_spot,
)
from node_fleet.domain.scale_up.launch import (
    circuit_breaker_alert,
    failure_alert,
    merge_pool_back_offs,
    report_limit,
    reservations_to_release,
    unlaunched_reason,
)
from node_fleet.domain.scale_up.standby import refused_refill
from node_fleet.domain.scaling.memory_update import record_failure, record_replacement
from node_fleet.domain.scaling.roll_out_stop import join_failure, stop, stopped_alert
from node_fleet.payload import add_alerts, known, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `memory`, `outcome` and, after a fault, `failure` in plain words. Safe twice.

    A refused launch of a standby worker, or of one that returns to Spot, is no failure of the run: the load needs none.
    """
    services = load_services()
    run = take(event, "run", Run)
    recorded = services.state.renew(run, even_paused=True).operation
    operation = recorded or _closed_before(event)
    now, policy = services.clock.now(), services.settings.policy()
    failure = scale_up_failure(plain_failure(event["failure"]) if "failure" in event else None, operation)
    rule = event.get("decision", {}).get("rule", "")
    returning = is_return(operation, rule)
    is_refill = operation.for_standby if operation else rule == STANDBY
    key = back_off_key(failure, is_return=returning, is_refill=is_refill)
    memory = take(event, "memory", Memory)
    if operation is not None:
        memory = replace(memory, dry_pools=merge_pool_back_offs(memory.dry_pools, operation.dry_pools, now))
        services.state.unreserve(reservations_to_release(operation, now))
    memory = record_failure(memory, key, now, policy) if key else memory
    memory, stopped = _stop_roll_out(services, memory, operation)
    memory = count_operation(memory, operation, rule)
    is_needed = not (failure or returning or is_refill)
    memory, limited = report_limit(memory, operation, policy, now) if is_needed else (memory, ())
    services.state.close_operation(run, memory)
    if returning and waits_for_spot(failure):
        text = no_return_sentence(operation, failure, seconds_left(memory.back_offs, SPOT, now))
        answer = {name: value for name, value in event.items() if name != "failure"}
        return put(answer, memory=memory, outcome=Outcome(kind="none", text=text))
    if failure and (refill := refused_refill(failure, memory, key, now)):
        answer = {name: value for name, value in event.items() if name != "failure"}
        outcome = Outcome(kind="none", text=refill.text)
        return add_alerts(put(answer, memory=memory, outcome=outcome), alerts=[refill])
    failed = failure_alert(**failure) if failure else None
    alerts = [stopped, failed, circuit_breaker_alert(memory, key, policy, now), *limited]
    answer = add_alerts(put(event, memory=memory), alerts=[alert for alert in alerts if alert])
    if failure is None:
        text = f"no worker was launched: {unlaunched_reason(operation)}"
        return put(answer, outcome=Outcome(kind="none", text=text))
    return put(answer, failure={"Error": failure["error"], "Cause": failure["cause"]})


def _closed_before(event: dict[str, Any]) -> Operation | None:
    """The operation that an earlier call has closed; None for that of an earlier round, which is complete."""
    operation: Operation | None = known(event, "operation", Operation)
    complete = [one["operation_id"] for one in event.get("rounds", ())]
    return None if operation is None or operation.operation_id in complete else operation


def _stop_roll_out(services: Services, memory: Memory, operation: Operation | None) -> tuple[Memory, Alert | None]:
    """The memory and the alert after a worker of a version that has not proved itself did not join.

    A launched replacement whose join is unknown is remembered: later runs see how it ends.
    """
    if operation is None:
        return memory, None
    configured = services.settings.launch_template_version
    why = join_failure(memory.roll_out, operation, configured)
    if not why:
        now = services.clock.now()
        return record_replacement(memory, operation, now) if operation.replaces else memory, None
    roll_out = stop(memory.roll_out, why, operation.template_version or configured)
    return replace(memory, roll_out=roll_out), stopped_alert(roll_out, configured)
