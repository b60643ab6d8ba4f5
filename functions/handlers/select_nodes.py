"""SelectNodes: chooses the workers to remove, says why each other one stays, and records the plan before anything."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.notify.message import Outcome
from node_fleet.domain.scale_down.eligibility import Eligibility, judge_workers
from node_fleet.domain.scale_down.inspection import Inspection, parse_inspection, taken_up
from node_fleet.domain.scale_down.selection import Plan, begin_removal, choose, leftovers, stray_cordons
from node_fleet.domain.scaling.decision import Decision
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.payload import put, take
from node_fleet.services import Services, load_services

KEPT_SHOWN = 20


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Answer `selection` and, when somebody goes, the `operation` that is already in the state item."""
    services = load_services()
    run, inspected = take(event, "run", Run), event["inspection"]
    rest = {key: value for key, value in event.items() if key != "inspection"}
    if not inspected["known"]:
        return _nobody(rest, f"unknown: {inspected['detail']}", tell=bool(event.get("alerts")))
    inspection = parse_inspection(taken_up(inspected))
    state, instances = services.state.renew(run), services.ec2.instances()
    eligibility = _judge(services, event, inspection, state, instances)
    plan = _choose(services, event, eligibility)
    kept = [k.sentence for k in eligibility.kept][:KEPT_SHOWN]
    if run.dry_run:
        return _dry_run(rest, plan, kept)
    _tidy(services, run, inspection, state, instances)
    if not plan.targets:
        return _nobody(rest, plan.sentence, kept=kept, tell=bool(take(event, "decision", Decision).replace))
    operation = _begin(services, run, plan, len(instances))
    return put(rest, operation=operation, selection={"status": "selected", "detail": plan.sentence, "kept": kept})


def _begin(services: Services, run: Run, plan: Plan, workers_before: int) -> Operation:
    """The plan in the state item: from here on a dead run can be resumed or undone."""
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
        under_notice=frozenset(n.instance_id for n in state.notices),
        back_offs=take(event, "memory", Memory).back_offs,
        now=services.clock.now(),
        cpu_percent={w.instance_id: w.cpu_percent for w in snapshot.workers},
        not_ready=take(event, "decision", Decision).replace,
    )


def _choose(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan:
    decision = take(event, "decision", Decision)
    view = make_tick(
        take(event, "snapshot", Snapshot),
        take(event, "memory", Memory),
        services.settings.policy(),
        services.clock.now(),
    )
    return choose(
        eligibility,
        count=min(max(decision.count, 1), services.settings.max_targets),
        minimum=effective_minimum(view).workers,
        order=services.settings.scale_down_order,
        spot_percent=services.settings.spot_percent,
        not_ready=decision.replace,
    )


def _tidy(
    services: Services, run: Run, inspection: Inspection, state: FleetState, instances: tuple[Instance, ...]
) -> None:
    """At most one stray cordon and one leftover a run: the first that EC2 says is dead."""
    notices = frozenset(n.instance_id for n in state.notices)
    for node_name, operation_id in stray_cordons(inspection, notices)[:1]:
        services.server.run("UncordonNode", {"NodeName": node_name, "OperationId": operation_id})
    found = leftovers(inspection, frozenset(i.instance_id for i in instances))[:KEPT_SHOWN]
    states = services.ec2.states(instance_id for _, instance_id in found) if found else {}
    for node_name, instance_id in [pair for pair in found if states[pair[1]] in ("terminated", "gone")][:1]:
        services.state.renew(run)
        services.server.run("ForgetNode", {"NodeName": node_name, "InstanceId": instance_id})


def _dry_run(event: dict[str, Any], plan: Plan, kept: list[str]) -> dict[str, Any]:
    text = (
        f"dry run: would remove {plan.sentence}" if plan.targets else f"dry run: would remove nobody, {plan.sentence}"
    )
    selection = {"status": "dry_run", "detail": plan.sentence, "kept": kept}
    return put(event, selection=selection, outcome=Outcome(kind="dry_run", text=text))


def _nobody(event: dict[str, Any], sentence: str, *, kept: list[str] | None = None, tell: bool) -> dict[str, Any]:
    selection = {"status": "none", "detail": sentence, "kept": kept or [], "tell": tell}
    return put(event, selection=selection, outcome=Outcome(kind="none", text=f"no worker was removed: {sentence}"))
