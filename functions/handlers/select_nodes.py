"""SelectNodes: selects the workers to remove, gives the reason why each other is kept, and records the plan."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.leftovers import remove_leftover
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_down.eligibility import Eligibility, judge_workers
from node_fleet.domain.scale_down.inspection import Inspection, parse_inspection
from node_fleet.domain.scale_down.selection import Plan, begin_removal, choose, stray_cordons
from node_fleet.domain.scaling.decision import Decision
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import add_alerts, put, take, unpacked
from node_fleet.services import Services, load_services

KEPT_SHOWN = 20


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `selection` and, when workers are removed, the `operation` that the state item already holds."""
    services = load_services()
    run, inspected = take(event, "run", Run), event["inspection"]
    rest = {key: value for key, value in event.items() if key != "inspection"}
    if not inspected["known"]:
        return _no_worker(rest, f"unknown: {inspected['detail']}", notify=bool(event.get("alerts")))
    inspection = parse_inspection("\n".join(unpacked(inspected["lines"])))
    state, instances = services.state.renew(run), services.ec2.instances()
    eligibility = _judge(services, event, inspection, state, instances)
    plan = _choose(services, event, eligibility)
    kept = [k.sentence for k in eligibility.kept][:KEPT_SHOWN]
    if run.dry_run:
        return _dry_run(rest, plan, kept)
    lost = _tidy(services, run, inspection, state, instances)
    rest = add_alerts(rest, alerts=lost) if lost else rest
    if not plan.targets:
        notify = bool(take(event, "decision", Decision).replace or lost)
        return _no_worker(rest, plan.sentence, kept=kept, notify=notify)
    operation = _begin(services, run, plan, len(instances))
    return put(rest, operation=operation, selection={"status": "selected", "detail": plan.sentence, "kept": kept})


def _begin(services: Services, run: Run, plan: Plan, workers_before: int) -> Operation:
    """Store the plan in the state item: from here on a later run can resume it or roll it back."""
    now = services.clock.now()
    operation = begin_removal(
        plan,
        operation_id=f"down-{run.fence}-{now}",
        execution_id=run.execution_id,
        reason=plan.sentence,
        now=now,
        workers_before=workers_before,
    )
    services.state.save_operation(run, operation)
    return operation


def _judge(
    services: Services,
    event: dict[str, Any],
    inspection: Inspection,
    state: FleetState,
    instances: tuple[Instance, ...],
) -> Eligibility:
    snapshot = take(event, "snapshot", Snapshot)
    return judge_workers(
        inspection,
        instances,
        under_notice=state.ids_under_notice,
        back_offs=take(event, "memory", Memory).back_offs,
        now=services.clock.now(),
        cpu_percent={w.instance_id: w.cpu_percent for w in snapshot.workers},
        not_ready=take(event, "decision", Decision).replace,
        set_aside=state.ids_set_aside,
        protections=state.active_protections(services.clock.now()),
    )


def _choose(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan:
    decision = take(event, "decision", Decision)
    snapshot, memory = take(event, "snapshot", Snapshot), take(event, "memory", Memory)
    tick = make_tick(snapshot, memory, services.settings.policy(), services.clock.now())
    return choose(
        eligibility,
        count=min(max(decision.count, 1), services.settings.max_targets),
        minimum=effective_minimum(tick).workers,
        order=services.settings.scale_down_order,
        spot_percent=services.settings.spot_percent,
        not_ready=decision.replace,
    )


def _tidy(
    services: Services, run: Run, inspection: Inspection, state: FleetState, instances: tuple[Instance, ...]
) -> tuple[Alert, ...]:
    """Remove at most one stray cordon and one dead node or secret a run; EC2 confirms that the instance has ended."""
    for node_name, operation_id in stray_cordons(inspection, state.ids_under_notice | state.ids_set_aside)[:1]:
        services.server.uncordon(node_name, operation_id)
    return remove_leftover(services, run, inspection, frozenset(i.instance_id for i in instances))


def _dry_run(event: dict[str, Any], plan: Plan, kept: list[str]) -> dict[str, Any]:
    removed = plan.sentence if plan.targets else f"no worker, {plan.sentence}"
    selection = {"status": "dry_run", "detail": plan.sentence, "kept": kept}
    return put(event, selection=selection, outcome=Outcome(kind="dry_run", text=f"dry run: would remove {removed}"))


def _no_worker(event: dict[str, Any], sentence: str, *, kept: list[str] | None = None, notify: bool) -> dict[str, Any]:
    selection = {"status": "none", "detail": sentence, "kept": kept or [], "notify": notify}
    return put(event, selection=selection, outcome=Outcome(kind="none", text=f"no worker was removed: {sentence}"))
