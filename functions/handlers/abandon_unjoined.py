"""AbandonUnjoined: abandons instances that certainly did not join in time. Those with an unknown status are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.adapters.launcher import check_slots, recover_by_tag
from node_fleet.adapters.node_listing import list_nodes_closely, pending_pod_count
from node_fleet.domain.model.errors import Ec2Error, TerminationRefusedError
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.scale_up.join import (
    NO_NODE_LIST,
    close_unjoined,
    console_end,
    final_join_progress,
    join_alerts,
    unjoined_refusal_alert,
)
from node_fleet.domain.scale_up.launch import slot_key
from node_fleet.payload import add_alerts, put, take
from node_fleet.services import Services, load_services

CONSOLES_READ = 1


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `join` ("partial" when a worker joined or may yet join) and `operation`."""
    services = load_services()
    run = take(event, "run", Run)
    recorded = services.state.renew(run).operation or take(event, "operation", Operation)
    operation = _close_slots(services, recorded)
    services.state.save_operation(run, operation)
    refusals = _remove(services, run, operation)
    now = services.clock.now()
    join = final_join_progress(operation, now=now, pods_waiting=pending_pod_count(services.prometheus, now))
    alerts = [*join_alerts(operation, keep_unjoined=services.settings.keep_unjoined), *refusals]
    return add_alerts(put(event, operation=operation, join=join), alerts=alerts)


def _close_slots(services: Services, operation: Operation) -> Operation:
    """A last check by the server. An operation that died between launch and record is completed from EC2's tags."""
    if any(slot.outcome == "planned" for slot in operation.slots):
        operation = recover_by_tag(services.ec2, operation)
    now = services.clock.now()
    node_list = list_nodes_closely(services.prometheus, services.server, now) if operation.waiting else NO_NODE_LIST
    operation = check_slots(services, operation, node_list)
    operation = close_unjoined(operation, node_list, now=now, limit_seconds=services.settings.join_limit_seconds)
    return _with_consoles(services, operation)


def _with_consoles(services: Services, operation: Operation) -> Operation:
    """The operation with the end of the console output of the first instance that did not join."""
    unjoined = [slot for slot in operation.slots if slot.outcome == "unjoined"]
    for slot in [slot for slot in unjoined[:CONSOLES_READ] if not slot.console]:
        try:
            console = console_end(services.ec2.console_output(slot.instance_id))
        except Ec2Error as error:
            console = str(error)
        operation = operation.with_slot(replace(slot, console=console))
    return operation


def _remove(services: Services, run: Run, operation: Operation) -> list[Alert]:
    """Tag, then terminate (unless kept for inspection), then release the reservations. Safe twice.

    Return an alert for each instance that EC2 refuses to terminate: it runs on, and counts as a worker.
    """
    lost = [slot for slot in operation.slots if slot.outcome == "unjoined"]
    services.ec2.tag((slot.instance_id for slot in lost), {"JoinFailed": "true"})
    alerts = []
    for slot in lost if not services.settings.keep_unjoined else ():
        services.state.renew(run)
        try:
            services.ec2.terminate([slot.instance_id])
        except TerminationRefusedError as error:
            alerts.append(unjoined_refusal_alert(slot.instance_id, str(error)))
    ended = (slot for slot in operation.slots if slot.outcome in ("unjoined", "failed"))
    services.state.unreserve(slot_key(operation.operation_id, slot.number) for slot in ended)
    return alerts
