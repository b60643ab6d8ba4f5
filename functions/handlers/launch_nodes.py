"""LaunchNodes: plans, records the plan, reserves capacity, launches, records. A repetition launches what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from node_fleet.adapters.launcher import InstanceListing, Launcher, placement_from, recover_by_tag
from node_fleet.domain.model.errors import NoCapacityError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, NewWorker, Snapshot
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.model.text import span
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_up.launch import (
    dry_run_sentence,
    launch_notes,
    launch_sentence,
    mark_under_notice,
    operation_id_of,
)
from node_fleet.domain.scale_up.moved import moved_sentence
from node_fleet.domain.scale_up.placement import (
    Placement,
    plan_slots,
    pools_in_back_off,
    pools_of_return,
    pools_of_zone,
)
from node_fleet.domain.scale_up.refusals import launch_error, refusal_alerts
from node_fleet.domain.scale_up.standby import refill_pools, with_standby
from node_fleet.domain.scaling.launch_version import version_to_launch
from node_fleet.logs import logger
from node_fleet.payload import add_alerts, from_payload, known, put, take
from node_fleet.services import Services, load_services


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `launch` and `operation`. Raises the error of EC2's refusal when nothing was launched."""
    services = load_services()
    run = take(event, "run", Run)
    if run.dry_run:
        return _plan_only(services, event)
    state = services.state.renew(run)
    running, standby = services.ec2.with_standby()
    listing = InstanceListing(instances=running, version=state.slots_version)
    moved = ""
    if state.operation is not None and state.operation.kind == "scale_up":
        operation = recover_by_tag(services.ec2, state.operation)
    else:
        instances = mark_under_notice(running, state.due_notices)
        free = tuple(one for one in standby if one.instance_id not in state.ids_set_aside)  # their Nodes are cordoned
        operation, moved = _begin_operation(services, run, event, instances, free)
    launcher = _launcher(services, run, _placement(services, event))
    operation = launcher.launch(launcher.start(launcher.reserve(operation, listing)))
    operation = replace(operation, phase="verify", phase_at=services.clock.now())
    services.state.save_operation(run, operation)
    logger.info("launch", operation=operation.operation_id, slots=launch_sentence(operation))
    if not operation.instance_ids and launcher.refusals:
        raise launch_error(launcher.refusals)
    status = "launched" if operation.instance_ids else "none"
    answer = put(event, operation=operation, launch={"status": status, "detail": launch_sentence(operation)})
    notes = (*filter(None, [moved]), *launcher.notes, *launch_notes(operation, launcher.refusals))
    return add_alerts(answer, notes=notes, alerts=refusal_alerts(launcher.refusals))


def _begin_operation(
    services: Services,
    run: Run,
    event: dict[str, Any],
    instances: tuple[Instance, ...],
    standby: tuple[Instance, ...],
) -> tuple[Operation, str]:
    """A new operation, recorded before anything is launched or started, and what noisy Spot pools changed in it.

    A slot without a pool is not planned.
    """
    placement, now = _placement(services, event), services.clock.now()
    slots = _plan(event, placement, instances, now, standby)
    moved = ""
    if placement.noisy:
        usual = _plan(event, replace(placement, noisy=frozenset()), instances, now, standby)
        moved = moved_sentence(slots, usual, placement.noisy, services.settings.tariff())
    decision, replaced, memory = event["decision"], _replaced(event), take(event, "memory", Memory)
    for_standby = decision.get("rule") == STANDBY
    if standby and services.settings.standby_workers and not replaced and not for_standby:
        slots = _started_first(event, placement, slots, standby, now)
    operation = Operation(
        operation_id=operation_id_of(run.execution_id, run.round, for_standby=for_standby),
        kind="scale_up",
        phase="begin",
        started_at=now,
        requested=decision["count"],
        reason="; ".join(filter(None, [decision["sentence"], moved])),
        execution_id=run.execution_id,
        slots=slots,
        workers_before=sum(not i.under_notice for i in instances),
        phase_at=now,
        dry_pools=memory.dry_pools,
        template_version=version_to_launch(
            memory.roll_out, services.settings.launch_template_version, services.settings.k3s_version
        ),
        replaces=replaced,
        replace_reason=decision["rule"] if replaced else "",
    )
    services.state.save_operation(run, operation)
    return operation, moved


def _placement(services: Services, event: dict[str, Any]) -> Placement:
    return placement_from(services.settings, take(event, "memory", Memory), services.clock.now())


def _started_first(
    event: dict[str, Any],
    placement: Placement,
    slots: tuple[LaunchSlot, ...],
    standby: tuple[Instance, ...],
    now: int,
) -> tuple[LaunchSlot, ...]:
    """The slots, served by standby workers as far as these suit. One whose old Node remains could not join."""
    snapshot = known(event, "snapshot", Snapshot)
    return with_standby(
        slots,
        standby,
        placement,
        closed=pools_in_back_off(take(event, "memory", Memory).dry_pools, now),
        avoid=(*snapshot.dead_nodes, *snapshot.unmanaged) if snapshot else (),
    )


def _plan(
    event: dict[str, Any],
    placement: Placement,
    instances: tuple[Instance, ...],
    now: int,
    standby: tuple[Instance, ...] = (),
) -> tuple[LaunchSlot, ...]:
    """A return to Spot has a slot in Spot, or none; every other launch has a slot, or an error."""
    back_offs = take(event, "memory", Memory).dry_pools
    wanted = from_payload(tuple[NewWorker, ...], event["decision"].get("new_workers", []))
    count = event["decision"]["count"]
    replaced = _replaced(event)
    staying = [i for i in instances if i.instance_id != replaced]
    if old := next((i for i in instances if i.instance_id == replaced), None):
        if event["decision"]["rule"] == "on-demand":
            pools = pools_of_return(old, placement, back_offs, now)
            wanted = (NewWorker(pools=pools),)
            return plan_slots(count, staying, placement, back_offs=back_offs, now=now, wanted=wanted) if pools else ()
        wanted = (NewWorker(pools=pools_of_zone(placement, old.zone)),)
    if event["decision"].get("rule") == STANDBY:
        slots = _refill_slots(event, placement, staying, now, standby)
    else:
        slots = plan_slots(count, staying, placement, back_offs=back_offs, now=now, wanted=wanted)
    if not slots and replaced:
        slots = plan_slots(count, staying, placement, back_offs=back_offs, now=now)
    if not slots:
        seconds = min((pool.until for pool in back_offs if pool.until > now), default=now) - now
        raise NoCapacityError(
            f"no worker was launched: EC2 recently refused every pool of {', '.join(placement.instance_types)}; "
            f"node-fleet asks the first of them again in {span(seconds)}. What you can do: add instance types or "
            "zones, or fix the cause of the refusals, which `node-fleet history` shows at the last scale-ups"
        )
    return slots


def _refill_slots(
    event: dict[str, Any],
    placement: Placement,
    instances: Sequence[Instance],
    now: int,
    standby: tuple[Instance, ...],
) -> tuple[LaunchSlot, ...]:
    """On-Demand in a zone with the fewest standby workers, or in another one where that has no capacity."""
    back_offs, count = take(event, "memory", Memory).dry_pools, event["decision"]["count"]
    every = refill_pools(placement, ())
    for wanted in (refill_pools(placement, [one.zone for one in standby]), every):
        slots = plan_slots(count, instances, placement, back_offs=back_offs, now=now, wanted=(wanted,))
        if slots:
            return tuple(replace(slot, pools=every.pools) for slot in slots)
    return ()


def _replaced(event: dict[str, Any]) -> str:
    """The outdated worker that the launched worker replaces; empty for any other launch."""
    decision = event["decision"]
    if decision["action"] == "replace":
        return str(event["selection"]["worker"])
    return str(decision.get("replace", ""))


def _launcher(services: Services, run: Run, placement: Placement) -> Launcher:
    def guard(operation: Operation) -> None:
        services.state.renew(run)
        services.state.save_operation(run, operation)

    return Launcher(
        ec2=services.ec2,
        state=services.state,
        clock=services.clock,
        settings=services.settings,
        guard=guard,
        record=lambda operation: services.state.save_operation(run, operation),
        placement=placement,
    )


def _plan_only(services: Services, event: dict[str, Any]) -> dict[str, Any]:
    instances = mark_under_notice(services.ec2.instances(), services.state.load().due_notices)
    slots = _plan(event, _placement(services, event), instances, services.clock.now())
    text = dry_run_sentence(slots)
    outcome = Outcome(kind="dry_run", text=text, workers_after=len(instances))
    return put(event, launch={"status": "dry_run", "detail": text}, outcome=outcome)
