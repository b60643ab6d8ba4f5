"""FailScaleUp: closes the operation with a back-off of its own. Launched workers are kept; no cooldown starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.notify.message import Outcome, plain_failure
from node_fleet.domain.scale_up.join import back_off_key, scale_up_failure
from node_fleet.domain.scale_up.launch import (
    circuit_breaker_alert,
    failure_alert,
    merge_pool_back_offs,
    reservations_to_release,
)
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.payload import add_alerts, known, put, take
from node_fleet.services import load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `memory`, `outcome` and, after a fault, `failure` in plain words. Safe twice."""
    services = load_services()
    run = take(event, "run", Run)
    recorded = services.state.renew(run, even_paused=True).operation
    operation = recorded or known(event, "operation", Operation)
    now, policy = services.clock.now(), services.settings.policy()
    failure = scale_up_failure(plain_failure(event["failure"]) if "failure" in event else None, operation)
    key = back_off_key(failure)
    memory = take(event, "memory", Memory)
    if operation is not None:
        memory = replace(memory, dry_pools=merge_pool_back_offs(memory.dry_pools, operation.dry_pools, now))
        services.state.unreserve(reservations_to_release(operation, now))
    memory = record_failure(memory, key, now, policy) if key else memory
    services.state.close_operation(run, memory)
    alerts = [failure_alert(**failure) if failure else None, circuit_breaker_alert(memory, key, policy, now)]
    answer = add_alerts(put(event, memory=memory), alerts=[alert for alert in alerts if alert])
    if failure is None:
        text = "no worker was launched: the fleet reached its maximum size in the meantime"
        return put(answer, outcome=Outcome(kind="none", text=text))
    return put(answer, failure={"Error": failure["error"], "Cause": failure["cause"]})
