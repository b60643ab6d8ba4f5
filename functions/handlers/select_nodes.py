"""SelectNodes: selects the workers to remove, gives the reason why each other is kept, and records the plan."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.cluster_report import send_report
from node_fleet.adapters.leftovers import remove_cordon, remove_leftover
from node_fleet.domain.model.back_off import node_key
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.domain.model.standby import PREFIX, STANDBY
from node_fleet.domain.notify.cluster_report import kept_due, kept_report
from node_fleet.domain.notify.message import Message, Outcome
from node_fleet.domain.scale_down.drain import alert_once
from node_fleet.domain.scale_down.eligibility import Eligibility, judge_workers
from node_fleet.domain.scale_down.inspection import Inspection, parse_inspection
from node_fleet.domain.scale_down.selection import (
    Plan,
    as_reboot,
    begin_removal,
    choose,
    choose_replaced,
    choose_stopped,
    to_standby,
)
from node_fleet.domain.scaling.decision import Decision
from node_fleet.domain.scaling.memory_update import record_failure
from node_fleet.domain.scaling.minimum_size import effective_minimum
from node_fleet.domain.scaling.outdated import outdated_workers
from node_fleet.domain.scaling.roll_out import (
    REPLACE_RULES,
    inspected_in_vain,
    is_rebooted_first,
    removal_order,
    removed_in_vain,
    surge,
)
from node_fleet.domain.scaling.roll_out_hold import replaceable_workers
from node_fleet.domain.scaling.signals.chosen_headroom import keeps_headroom
from node_fleet.domain.scaling.signals.idle import evaluate_projection
from node_fleet.domain.scaling.tick import Tick, make_tick
from node_fleet.payload import add_alerts, put, take, unpacked
from node_fleet.services import Services, load_services

KEPT_SHOWN = 20


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Return `selection` and, when workers are removed, the `operation` that the state item already holds."""
    services = load_services()
    run, inspected = take(event, "run", Run), event["inspection"]
    rest = {key: value for key, value in event.items() if key != "inspection"}
    if not inspected["known"]:
        return _no_worker(rest, f"unknown: {inspected['detail']}")
    inspection = parse_inspection("\n".join(unpacked(inspected["lines"])))
    state, instances = services.state.renew(run), services.ec2.instances()
    eligibility = _judge(services, event, inspection, state, instances)
    decision = take(event, "decision", Decision)
    replacing = decision.rule in REPLACE_RULES
    choose_plan = _choose_replaced if replacing else _choose_stopped if decision.rule == STANDBY else _choose
    plan = choose_plan(services, event, eligibility)
    if is_rebooted_first(_tick(services, event), decision):
        strict = _judge(services, event, inspection, state, instances, before_launch=False)
        plan = _choose_rebooted(services, event, strict) or plan
    kept = [k.sentence for k in eligibility.kept][:KEPT_SHOWN]
    if run.dry_run:
        return _dry_run(rest, plan, kept)
    remove_cordon(services, inspection, state)
    lost = remove_leftover(services, run, inspection, frozenset(i.instance_id for i in instances))
    rest = add_alerts(rest, alerts=lost)
    if plan.replaces and not plan.targets:
        selection = {"status": "replace", "detail": plan.sentence, "kept": kept, "worker": plan.replaces}
        return put(rest, selection=selection)
    if not plan.targets and (replacing or decision.rule == STANDBY):
        rest = _remember_refusal(services, rest, plan)
        return _no_worker(rest, plan.sentence, kept=kept)
    if not plan.targets:
        rest = _report_kept(services, rest if decision.replace else _after_no_removal(services, rest), eligibility)
        return _no_worker(rest, plan.sentence, kept=kept, notify=bool(decision.replace))
    operation = _begin(services, run, event, plan, len(instances))
    return put(rest, operation=operation, selection={"status": "selected", "detail": plan.sentence, "kept": kept})


def _begin(services: Services, run: Run, event: dict[str, Any], plan: Plan, workers_before: int) -> Operation:
    """Store the plan in the state item: from here on a later run can resume it or roll it back."""
    now, snapshot = services.clock.now(), take(event, "snapshot", Snapshot)
    prefix = PREFIX if event["decision"].get("rule") == STANDBY else "down-"
    places = services.settings.standby_workers - len(snapshot.standby)
    operation = begin_removal(
        plan,
        operation_id=f"{prefix}{run.fence}-{now}",
        execution_id=run.execution_id,
        reason=plan.sentence,
        now=now,
        workers_before=workers_before,
        standby=to_standby(plan, places=places, outdated=_outdated(services, event)),
    )
    services.state.save_operation(run, operation)
    return operation


def _judge(
    services: Services,
    event: dict[str, Any],
    inspection: Inspection,
    state: FleetState,
    instances: tuple[Instance, ...],
    *,
    before_launch: bool = True,
) -> Eligibility:
    snapshot, decision = take(event, "snapshot", Snapshot), take(event, "decision", Decision)
    tick = _tick(services, event)
    return judge_workers(
        inspection,
        instances,
        under_notice=state.ids_under_notice,
        back_offs=take(event, "memory", Memory).back_offs,
        now=services.clock.now(),
        cpu_percent={w.instance_id: w.cpu_percent for w in snapshot.workers},
        not_ready=decision.replace if decision.rule == "not_ready" else "",
        set_aside=state.ids_set_aside,
        protections=state.active_protections(services.clock.now()),
        before_launch=before_launch and decision.action == "replace" and tick.headroom > 0,
        to_spot=decision.rule == "on-demand",
        unhealthy=frozenset(i for i, reason in replaceable_workers(tick) if reason == "unhealthy"),
    )


def _choose(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan:
    decision, tick = take(event, "decision", Decision), _tick(services, event)
    current = tick.memory.roll_out.current
    return choose(
        eligibility,
        count=min(max(decision.count, 1), services.settings.max_targets),
        minimum=effective_minimum(tick).workers + surge(tick),
        order=services.settings.scale_down_order,
        spot_percent=services.settings.spot_percent,
        on_demand_minimum=services.settings.on_demand_minimum,
        not_ready=decision.replace,
        outdated=removal_order(tick),
        unproven=current.replacement if current else "",
    )


def _outdated(services: Services, event: dict[str, Any]) -> set[str]:
    """Workers that would have to be renewed as standby workers."""
    tick = _tick(services, event)
    outdated = {one.worker.instance_id for one in outdated_workers(tick) if one.reason != "on-demand"}
    return outdated | {worker.instance_id for worker in tick.snapshot.workers if worker.drift}


def _choose_stopped(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan:
    """The worker that was launched to become a standby worker."""
    decision, tick = take(event, "decision", Decision), _tick(services, event)
    return choose_stopped(eligibility, decision.replace, minimum=effective_minimum(tick).workers + surge(tick))


def _choose_rebooted(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan | None:
    """The worker to reboot; None when its pods may not move, or the others cannot do without a worker that serves."""
    decision, tick = take(event, "decision", Decision), _tick(services, event)
    if decision.rule == "not_ready":
        return as_reboot(_choose(services, event, eligibility))
    if (keeps_headroom(tick, 1) or evaluate_projection(tick, 1)).verdict != "down":
        return None
    minimum, workers = effective_minimum(tick).workers, replaceable_workers(tick)
    plan = choose_replaced(eligibility, workers, minimum=minimum, removed=decision.replace)
    return as_reboot(plan) if plan.targets else None


def _choose_replaced(services: Services, event: dict[str, Any], eligibility: Eligibility) -> Plan:
    """The outdated worker to replace. At the maximum it is removed first, when the others can take its load."""
    decision, tick = take(event, "decision", Decision), _tick(services, event)
    workers, minimum = replaceable_workers(tick, decision.rule), effective_minimum(tick).workers
    if decision.action == "scale_down":
        return choose_replaced(eligibility, workers, minimum=minimum, removed=decision.replace)
    if tick.headroom:
        return choose_replaced(eligibility, workers, minimum=minimum)
    held = keeps_headroom(tick, 1) or evaluate_projection(tick, 1)
    if held.verdict != "down":
        return Plan(targets=(), sentence=f"the fleet is at its maximum and cannot do without a worker: {held.text}")
    first = next((w for w in workers if w[0] in {c.instance.instance_id for c in eligibility.candidates}), ("", ""))
    return choose_replaced(eligibility, workers, minimum=minimum, removed=first[0] or decision.replace)


def _remember_refusal(services: Services, event: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """The event after the one worker could not be replaced, removed or stopped: the next try waits.

    That of an outdated worker is reported once.
    """
    decision, memory = take(event, "decision", Decision), take(event, "memory", Memory)
    now, policy = services.clock.now(), services.settings.policy()
    if decision.action == "replace":
        return put(event, memory=inspected_in_vain(memory, policy, now, decision.rule))
    memory = record_failure(memory, node_key(decision.replace), now, policy)
    if decision.rule == STANDBY:
        return put(event, memory=memory)
    text = f"worker {decision.replace} has a replacement and cannot be removed: {plan.sentence}; node-fleet tries again"
    alert = Alert(kind=f"replaced_worker_kept:{decision.replace}", text=text)
    memory, alerts = alert_once(memory, alert, now, policy.alert_quiet_seconds)
    return add_alerts(put(event, memory=memory), alerts=alerts)


def _after_no_removal(services: Services, event: dict[str, Any]) -> dict[str, Any]:
    """The event after no idle worker could be removed: outdated and standby workers do not wait for such a removal."""
    policy, tick = services.settings.policy(), _tick(services, event)
    if not (policy.standby_workers or tick.snapshot.standby or replaceable_workers(tick)):
        return event
    memory = take(event, "memory", Memory)
    return put(event, memory=removed_in_vain(memory, policy, services.clock.now()))


def _report_kept(services: Services, event: dict[str, Any], eligibility: Eligibility) -> dict[str, Any]:
    """The event after the kept workers are reported to the cluster, which is done once in the quiet time of alerts."""
    now, snapshot = services.clock.now(), take(event, "snapshot", Snapshot)
    run, decision, workers = take(event, "run", Run), take(event, "decision", Decision), len(eligibility.usable)
    message = Message(
        cluster_id=services.settings.cluster_id,
        level="info",
        what="no worker was removed",
        why=decision.sentence,
        execution_id=run.execution_id,
        trigger=run.trigger,
        workers_before=workers,
        workers_after=workers,
    )
    kept = {worker.instance_id: worker.reason for worker in eligibility.kept}
    report = kept_report(message, kept, at=now, snapshot=snapshot)
    memory = kept_due(take(event, "memory", Memory), now, services.settings.alert_quiet_seconds)
    if memory is None or not report.events:
        return event
    send_report(services.reports, report)
    return put(event, memory=memory)


def _tick(services: Services, event: dict[str, Any]) -> Tick:
    snapshot, memory = take(event, "snapshot", Snapshot), take(event, "memory", Memory)
    return make_tick(snapshot, memory, services.settings.policy(), services.clock.now())


def _dry_run(event: dict[str, Any], plan: Plan, kept: list[str]) -> dict[str, Any]:
    removed = plan.sentence if plan.targets or plan.replaces else f"no worker, {plan.sentence}"
    verb = "reboot" if plan.reboot else "replace" if plan.replaces and not plan.targets else "remove"
    selection = {"status": "dry_run", "detail": plan.sentence, "kept": kept}
    return put(event, selection=selection, outcome=Outcome(kind="dry_run", text=f"dry run: would {verb} {removed}"))


def _no_worker(
    event: dict[str, Any], sentence: str, *, kept: list[str] | None = None, notify: bool = False
) -> dict[str, Any]:
    """The event after no worker was selected. notify: this is reported even when the run has no other news."""
    has_news = any(event.get(name) for name in ("alerts", "notes", "ended")) or bool(event["decision"].get("alerts"))
    selection = {"status": "none", "detail": sentence, "kept": kept or [], "notify": notify or has_news}
    return put(event, selection=selection, outcome=Outcome(kind="none", text=f"no worker was removed: {sentence}"))
