"""The scaling decision: one pure function of the snapshot, the memory, the policy and the time.

It holds the order of the rules and the limits that apply to all of them. signals/ and strategies/ evaluate the load.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling import alerts, explain
from node_fleet.domain.scaling.check import Action, Check, Decision, DesiredChange, Verdict
from node_fleet.domain.scaling.cooldown import (
    evaluate_cooldown,
    evaluate_launch_back_off,
    evaluate_removal_back_off,
    evaluate_set_aside,
)
from node_fleet.domain.scaling.disruption import evaluate_budget
from node_fleet.domain.scaling.launch_version import launch_checks
from node_fleet.domain.scaling.memory_update import newly_usable, track_missing_metrics, update_memory
from node_fleet.domain.scaling.minimum_size import TIMED, MinimumSize, effective_minimum, timed_check
from node_fleet.domain.scaling.not_ready import MANY_NOT_READY, evaluate_many_not_ready, evaluate_not_ready
from node_fleet.domain.scaling.outdated import outdated_checks, outdated_workers
from node_fleet.domain.scaling.prediction import predict
from node_fleet.domain.scaling.roll_out import RollOutStep, evaluate_roll_out, goes_first, is_after_vain_removal, surge
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, evaluate_pending_pods, listed_checks
from node_fleet.domain.scaling.strategies.thresholds import apply_thresholds
from node_fleet.domain.scaling.tick import Tick, make_tick
from node_fleet.domain.scaling.unhealthy import (
    MANY_UNHEALTHY,
    many_unhealthy,
    many_unhealthy_alert,
    may_reboot,
    track_conditions,
)

if TYPE_CHECKING:
    from node_fleet.domain.scaling.standby import StandbyStep

__all__ = ["STRATEGIES", "Action", "Check", "Decision", "Verdict", "decide"]


_Strategy = Callable[[Tick, "PendingPods | None", int], DesiredChange]


@functools.cache
def _adaptive() -> _Strategy:
    """Loaded when it first decides: a cold start of a fleet without `adaptive` need not wait for it."""
    from node_fleet.domain.scaling.strategies.adaptive.strategy import apply_adaptive

    return apply_adaptive


def _apply_adaptive(tick: Tick, pending_pods: PendingPods | None, minimum: int) -> DesiredChange:
    return _adaptive()(tick, pending_pods, minimum)


STRATEGIES: dict[str, _Strategy] = {
    "thresholds": apply_thresholds,
    "adaptive": _apply_adaptive,
}
"""The strategies by their name, the value of the setting."""


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """The action, the check that leads to it, and the names of the checks that block it."""

    action: Action = "none"
    count: int = 0
    rule: str = "none"
    lead: Check
    blocked_by: tuple[str, ...] = ()
    replace: str = ""


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: int, *, terse: bool = False) -> Decision:
    """Decide for one tick. `now` is epoch seconds UTC. The same arguments always give the same decision.

    terse: leaves out the sentence, the reasons and the texts about load, headroom and plan, for a back-test.
    """
    tick = make_tick(snapshot, memory, policy, now, terse=terse)
    minimum = effective_minimum(tick)
    fresh = newly_usable(tick)
    pending_pods = evaluate_pending_pods(tick, fresh) if tick.readable else None
    least = minimum.workers + surge(tick)
    change = STRATEGIES[policy.strategy](tick, pending_pods, least) if tick.readable else _no_metrics(tick)
    prediction = predict(tick)
    change.checks[:0] = listed_checks(pending_pods) if pending_pods else []
    if prediction.check:
        change.checks.append(prediction.check)
    if prediction.add and not change.add:
        change.add, change.rule = policy.step_normal, "prediction"
    if set_aside := evaluate_set_aside(tick):
        change.checks.append(set_aside)
    track_conditions(tick, change.streaks)
    many_ill = many_unhealthy(tick, change.streaks) if tick.live else ""
    outdated = outdated_workers(tick, change.streaks)
    change.checks += outdated_checks(tick, outdated) + launch_checks(tick) + _spot_checks(tick)
    track_missing_metrics(tick, change.streaks)
    if many := evaluate_many_not_ready(tick, change.streaks):
        change.checks.append(many)
    step = evaluate_roll_out(tick, outdated, pending_pods, minimum.workers)
    found = alerts.standing_alerts(tick, pending_pods, change.streaks)
    found += [(f"{alert.kind}:{tick.now}", alert) for alert in step.alerts]  # each stop is reported
    found += [(MANY_UNHEALTHY, many_unhealthy_alert(many_ill))] if many_ill else []
    acting = replace(tick, policy=change.policy) if change.policy else tick
    if launch := _raise_to_minimum(acting, minimum, change, found) or _add(acting, change, found):
        outcome = _repair_at_maximum(acting, minimum, change, many_ill, launch)
    else:
        standby = _evaluate_standby(tick, pending_pods, least, change, found)
        outcome = (
            _replace_not_ready(acting, minimum, change, many_ill)
            or _stop_for_standby(standby, change)
            or (_refill_standby(standby, change) if is_after_vain_removal(tick, step) else None)
            or _remove_or_replace(acting, step, change)
            or _refill_standby(standby, change)
            or _nothing(acting, change)
        )
    if (order := timed_check(tick)) and all(check.name != TIMED for check in change.checks):
        change.checks.append(order)
    new_alerts, alerted = alerts.new_alerts(tick, found)
    after = update_memory(
        tick,
        change,
        pending_pods=pending_pods,
        launching=outcome.action == "scale_up",
        prediction=prediction,
        fresh=fresh,
        alerted=alerted,
        roll_out=step.after,
    )
    return _decision(tick, outcome, change, new_alerts, after)


def _no_metrics(tick: Tick) -> DesiredChange:
    why = tick.snapshot.problem or "no reading is recent enough"
    text = f"no metrics ({why}), only the minimum is enforced"
    return DesiredChange(checks=[Check(name="metrics", verdict="missing", text=text, setting="cached_reading_seconds")])


def _spot_checks(tick: Tick) -> list[Check]:
    """The noisy Spot pools. Loaded when pools were interrupted: a cold start need not wait for it."""
    if tick.policy.spot_learning == "off" or not any(pool.lost for pool in tick.memory.spot_pools):
        return []
    from node_fleet.domain.scaling.spot_return import spot_checks

    return spot_checks(tick)


def _raise_to_minimum(tick: Tick, minimum: MinimumSize, change: DesiredChange, found: alerts.Found) -> _Outcome | None:
    """Rule 1. Below min_workers or an operator's order no cooldown applies; for a schedule or a prediction it does."""
    missing = minimum.workers - tick.have
    if missing <= 0:
        return None
    lead = Check(
        name=minimum.rule,
        verdict="up",
        text=f"{count_of(tick.have, 'worker')}, under {minimum.text}",
        value=tick.have,
        threshold=minimum.workers,
        setting=minimum.setting,
    )
    change.checks.insert(0, lead)
    at_once = tick.have < tick.policy.min_workers or minimum.rule == TIMED or change.bypasses_cooldown
    return _launch(tick, lead, missing, found, change, bypass=at_once)


def _add(tick: Tick, change: DesiredChange, found: alerts.Found) -> _Outcome | None:
    """Rule 2."""
    if not change.add:
        return None
    lead = next(c for c in change.checks if c.verdict == "up" and c.name == change.rule)
    return _launch(tick, lead, change.add, found, change, bypass=change.bypasses_cooldown)


def _launch(
    tick: Tick, lead: Check, count: int, found: alerts.Found, change: DesiredChange, *, bypass: bool
) -> _Outcome:
    """Launch as many as the maximum, the limits, the back-offs and the cooldown allow, or name what forbids it."""
    checks, launchable = change.checks, tick.launchable(change.new_workers)
    change.new_workers = launchable.wanted
    if any(check.name == MANY_NOT_READY for check in checks):
        return _Outcome(lead=lead, blocked_by=(MANY_NOT_READY,))
    if launchable.count == 0:
        found.append(alerts.at_maximum(tick, lead.text, count, launchable))
        text, setting = launchable.against, launchable.setting
        checks.append(Check(name="maximum", verdict="blocked", text=text, value=tick.counted, setting=setting))
        return _Outcome(lead=lead, blocked_by=("maximum",))
    if back_off := evaluate_launch_back_off(tick):
        checks.append(back_off)
        if back_off.name == "circuit_breaker":
            found.append(alerts.blocked_launch(back_off))
        return _Outcome(lead=lead, blocked_by=(back_off.name,))
    cooldown = evaluate_cooldown(tick, "scale_up")
    if bypass and cooldown.verdict == "blocked":
        cooldown = replace(cooldown, verdict="ok", text=f"{cooldown.text}, not required")
    checks.append(cooldown)
    if cooldown.verdict == "blocked":
        return _Outcome(lead=lead, blocked_by=("cooldown",))
    return _Outcome(action="scale_up", count=min(count, launchable.count), rule=lead.name, lead=lead)


def _replace_not_ready(tick: Tick, minimum: MinimumSize, change: DesiredChange, many_ill: str) -> _Outcome | None:
    """Rule 3. many_ill: so many workers are unhealthy that the cause is likely shared; empty otherwise."""
    worker, check = evaluate_not_ready(tick, minimum.workers, many_ill)
    if check:
        change.checks.append(check)
    if worker is None or check is None:
        return None
    action: Action = "replace" if may_reboot(tick, worker) else "scale_down"
    removal = _Outcome(action=action, count=1, rule="not_ready", lead=check, replace=worker.instance_id)
    return _after_cooldown(tick, removal, change.checks)


def _repair_at_maximum(
    tick: Tick, minimum: MinimumSize, change: DesiredChange, many_ill: str, outcome: _Outcome
) -> _Outcome:
    """Only the maximum forbids a launch: then a NotReady worker is rebooted, or removed to make place for one."""
    if outcome.blocked_by != ("maximum",):
        return outcome
    repair = _replace_not_ready(tick, minimum, change, many_ill)
    return repair if repair is not None and repair.action != "none" else outcome


def _remove(tick: Tick, change: DesiredChange) -> _Outcome | None:
    """Rule 4."""
    if not change.remove:
        return None
    lead = next(c for c in change.checks if c.name == change.rule)
    count, budget = evaluate_budget(tick, "idle", change.remove)
    change.checks += [budget] if budget else []
    if not count:
        return _Outcome(lead=lead, blocked_by=("budget",))
    removal = _Outcome(action="scale_down", count=count, rule=change.rule, lead=lead)
    return _after_cooldown(tick, removal, change.checks)


def _remove_or_replace(tick: Tick, step: RollOutStep, change: DesiredChange) -> _Outcome | None:
    """Rules 4 and 5. A removal that waits for its cooldown will take an outdated worker, so none is replaced before."""
    removal = _remove(tick, change)
    if removal is not None and removal.blocked_by != ("budget",) and not goes_first(tick, step):
        return removal
    return _roll_out(tick, step, change) or removal


def _roll_out(tick: Tick, step: RollOutStep, change: DesiredChange) -> _Outcome | None:
    """Rule 5. No cooldown applies: the size of the fleet is not to change."""
    if step.check is None:
        return None
    change.checks.append(step.check)
    if step.action == "none":
        return None
    rule = step.check.name.partition(":")[2]
    return _Outcome(action=step.action, count=1, rule=rule, lead=step.check, replace=step.worker)


def _after_cooldown(tick: Tick, removal: _Outcome, checks: list[Check]) -> _Outcome:
    if any(c.name == "set_aside" and c.verdict == "hold" for c in checks):
        return _Outcome(lead=removal.lead, blocked_by=("set_aside",))
    if back_off := evaluate_removal_back_off(tick):
        checks.append(back_off)
        return _Outcome(lead=removal.lead, blocked_by=(back_off.name,))
    cooldown = evaluate_cooldown(tick, "scale_down")
    checks.append(cooldown)
    return _Outcome(lead=removal.lead, blocked_by=("cooldown",)) if cooldown.verdict == "blocked" else removal


def _evaluate_standby(
    tick: Tick, pending_pods: PendingPods | None, least: int, change: DesiredChange, found: alerts.Found
) -> StandbyStep | None:
    """Loaded when standby workers are configured or exist."""
    if not tick.policy.standby_workers and not tick.snapshot.standby:
        return None
    from node_fleet.domain.scaling.standby import evaluate_standby

    step = evaluate_standby(tick, pending_pods, least, change.checks)
    if step is not None:
        found += [(alert.kind, alert) for alert in step.alerts]
        change.checks += [step.check] if step.action == "none" else []
    return step


def _stop_for_standby(step: StandbyStep | None, change: DesiredChange) -> _Outcome | None:
    """Before rule 4: a worker that was launched to be stopped is not kept in the place of an idle one."""
    if step is None or step.action != "stop":
        return None
    change.checks.append(step.check)
    return _Outcome(action="scale_down", count=1, rule=step.check.name, lead=step.check, replace=step.worker)


def _refill_standby(step: StandbyStep | None, change: DesiredChange) -> _Outcome | None:
    """Rule 6, and before rule 4 while the last inspection allowed no removal. No cooldown follows."""
    if step is None or step.action not in ("refill", "renew"):
        return None
    change.checks.append(step.check)
    if step.action == "refill":
        return _Outcome(action="scale_up", count=1, rule=step.check.name, lead=step.check)
    return _Outcome(rule=step.check.name, lead=step.check, replace=step.worker)


def _nothing(tick: Tick, change: DesiredChange) -> _Outcome:
    """Rule 7: no change, led by the check that came nearest to an action."""
    lead = explain.leading_check(change.checks)
    change.checks.append(evaluate_cooldown(tick, "scale_down" if lead.name == "idle" else "scale_up"))
    return _Outcome(lead=lead)


def _decision(
    tick: Tick, outcome: _Outcome, change: DesiredChange, new_alerts: tuple[Alert, ...], memory: Memory
) -> Decision:
    checks = change.checks
    difference = {"scale_up": outcome.count, "scale_down": -outcome.count}.get(outcome.action, 0)
    sentence = ""
    reasons: tuple[str, ...] = ()
    if not tick.terse:
        sentence = explain.sentence(tick, outcome.action, outcome.count, outcome.lead, checks)
        triggers = [c for c in checks if c is outcome.lead or c.verdict in ("up", "blocked")]
        reasons = tuple(explain.reason(c) for c in sorted(triggers, key=lambda c: c is not outcome.lead))
    unjoined = tick.snapshot.unjoined if outcome.action == "none" else ()
    return Decision(
        action=outcome.action,
        count=outcome.count,
        rule=outcome.rule,
        sentence=sentence,
        reasons=reasons,
        blocked_by=outcome.blocked_by,
        evidence=tuple(checks),
        alerts=new_alerts,
        replace=outcome.replace or (unjoined[0].instance_id if unjoined else ""),
        workers_before=tick.counted,
        workers_after=tick.counted + difference,
        new_workers=change.new_workers[: outcome.count] if outcome.action == "scale_up" else (),
        memory=memory,
    )
