"""What to do, and why: one pure function of the snapshot, the memory, the policy and the time.

Here stands the order of the rules and what binds all of them; how each is weighed stands in its own module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scaling import alerts, explain
from node_fleet.domain.scaling.check import Action, Check, Decision, Verdict
from node_fleet.domain.scaling.cooldown import cooldown, launch_back_off
from node_fleet.domain.scaling.memory_update import newly_usable, track_missing_metrics, update_memory
from node_fleet.domain.scaling.minimum_size import MinimumSize, effective_minimum
from node_fleet.domain.scaling.not_ready import evaluate_not_ready
from node_fleet.domain.scaling.prediction import predict
from node_fleet.domain.scaling.signals.pending_pods import evaluate_pending_pods, listed_checks
from node_fleet.domain.scaling.strategies.strategy_table import STRATEGIES
from node_fleet.domain.scaling.strategies.thresholds import DesiredChange
from node_fleet.domain.scaling.tick import Tick, make_tick

__all__ = ["Action", "Check", "Decision", "Verdict", "decide"]


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """The outcome while it is put together."""

    action: Action
    count: int
    rule: str
    lead: Check
    blocked_by: tuple[str, ...] = ()
    replace: str = ""


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: int) -> Decision:
    """Decide for one tick. `now` is epoch seconds UTC. Reads nothing but its arguments; same arguments, same answer."""
    tick = make_tick(snapshot, memory, policy, now)
    minimum = effective_minimum(tick)
    fresh = newly_usable(tick)
    pending_pods = evaluate_pending_pods(tick, fresh) if tick.readable else None
    change = STRATEGIES[policy.strategy](tick, pending_pods, minimum.workers) if tick.readable else _no_metrics(tick)
    prediction = predict(tick)
    change.checks[:0] = listed_checks(pending_pods) if pending_pods else []
    if prediction.check:
        change.checks.append(prediction.check)
    if prediction.add and not change.add:
        change.add, change.rule = policy.step_normal, "prediction"
    track_missing_metrics(tick, change.streaks)
    found = alerts.standing_alerts(tick, pending_pods, change.streaks)
    outcome = (
        _raise_to_minimum(tick, minimum, change, found)
        or _add(tick, change, found)
        or _replace_not_ready(tick, minimum, change)
        or _remove(tick, change)
        or _nothing(tick, change)
    )
    notified, alerted = alerts.new_alerts(tick, found)
    after = update_memory(
        tick,
        change.streaks,
        pending_pods=pending_pods,
        launching=outcome.action == "scale_up",
        prediction=prediction,
        fresh=fresh,
        alerted=alerted,
        learned=change.learned,
    )
    return _decision(tick, outcome, change, notified, after)


def _no_metrics(tick: Tick) -> DesiredChange:
    why = tick.snapshot.problem or "no reading young enough"
    text = f"no metrics ({why}), only the minimum is enforced"
    return DesiredChange(checks=[Check(name="metrics", verdict="missing", text=text, setting="CACHED_READING_SECONDS")])


def _raise_to_minimum(tick: Tick, minimum: MinimumSize, change: DesiredChange, found: alerts.Found) -> _Outcome | None:
    """Rule 1. Below the minimum nothing but a back-off waits; a schedule or a hold waits for the cooldown."""
    short = minimum.workers - tick.have
    if short <= 0:
        return None
    lead = Check(
        name=minimum.rule,
        verdict="up",
        text=f"{explain.counted(tick.have, 'worker')}, under {minimum.text}",
        value=tick.have,
        threshold=minimum.workers,
        setting=minimum.setting,
    )
    change.checks.insert(0, lead)
    at_once = tick.have < tick.policy.min_workers or change.bypasses_cooldown
    return _launch(tick, lead, minimum.rule, short, found, bypass=at_once, change=change)


def _add(tick: Tick, change: DesiredChange, found: alerts.Found) -> _Outcome | None:
    """Rule 2."""
    if not change.add:
        return None
    lead = next(c for c in change.checks if c.verdict == "up" and c.name == change.rule)
    return _launch(tick, lead, change.rule, change.add, found, bypass=change.bypasses_cooldown, change=change)


def _launch(
    tick: Tick, lead: Check, rule: str, count: int, found: alerts.Found, *, bypass: bool, change: DesiredChange
) -> _Outcome:
    """Launch as many as headroom, back-offs and the cooldown allow, or say which of them forbids it."""
    if tick.headroom == 0:
        found.append(alerts.at_maximum(tick, lead.text))
        text = f"at maximum of {tick.policy.max_workers} workers"
        full = Check(name="maximum", verdict="blocked", text=text, value=tick.counted, setting="MAX_NODES")
        change.checks.append(full)
        return _nothing_done(lead, full)
    failed = launch_back_off(tick)
    if failed:
        change.checks.append(failed)
        if failed.name == "circuit_breaker":
            found.append(alerts.blocked_launch(failed))
        return _nothing_done(lead, failed)
    rest = cooldown(tick, "scale_up")
    if rest.verdict == "blocked" and not bypass:
        change.checks.append(rest)
        return _nothing_done(lead, rest)
    if rest.verdict == "blocked":
        rest = replace(rest, verdict="ok", text=f"{rest.text}, not waited for")
    change.checks.append(rest)
    return _Outcome(action="scale_up", count=min(count, tick.headroom), rule=rule, lead=lead)


def _replace_not_ready(tick: Tick, minimum: MinimumSize, change: DesiredChange) -> _Outcome | None:
    """Rule 3."""
    worker, check = evaluate_not_ready(tick, minimum.workers)
    if check:
        change.checks.append(check)
    if worker is None or check is None:
        return None
    rest = cooldown(tick, "scale_down")
    change.checks.append(rest)
    if rest.verdict == "blocked":
        return _nothing_done(check, rest)
    return _Outcome(action="scale_down", count=1, rule="not_ready", lead=check, replace=worker.instance_id)


def _remove(tick: Tick, change: DesiredChange) -> _Outcome | None:
    """Rule 4."""
    if not change.remove:
        return None
    lead = next(c for c in change.checks if c.name == change.rule)
    rest = cooldown(tick, "scale_down")
    change.checks.append(rest)
    if rest.verdict == "blocked":
        return _nothing_done(lead, rest)
    return _Outcome(action="scale_down", count=change.remove, rule=change.rule, lead=lead)


def _nothing(tick: Tick, change: DesiredChange) -> _Outcome:
    """Rule 5: none, with the reason that came nearest to an action."""
    lead = explain.leading_check(change.checks)
    change.checks.append(cooldown(tick, "scale_down" if lead.name == "idle" else "scale_up"))
    return _nothing_done(lead)


def _nothing_done(lead: Check, *blocks: Check) -> _Outcome:
    return _Outcome(action="none", count=0, rule="none", lead=lead, blocked_by=tuple(c.name for c in blocks))


def _decision(
    tick: Tick, outcome: _Outcome, change: DesiredChange, notified: tuple[Alert, ...], memory: Memory
) -> Decision:
    difference = {"scale_up": outcome.count, "scale_down": -outcome.count, "none": 0}[outcome.action]
    triggers = [c for c in change.checks if c is outcome.lead or c.verdict in ("up", "blocked")]
    triggers.sort(key=lambda c: c is not outcome.lead)
    return Decision(
        action=outcome.action,
        count=outcome.count,
        rule=outcome.rule,
        sentence=explain.sentence(tick, outcome.action, outcome.count, outcome.lead, change.checks),
        reasons=tuple(explain.reason(c) for c in triggers),
        blocked_by=outcome.blocked_by,
        evidence=tuple(change.checks),
        alerts=notified,
        replace=outcome.replace or _to_look_for(tick, outcome.action),
        workers_before=tick.counted,
        workers_after=tick.counted + difference,
        memory=memory,
    )


def _to_look_for(tick: Tick, action: Action) -> str:
    """On a tick without an action: the oldest worker that should have joined long ago, for ReapUnjoined to judge."""
    found = tick.snapshot.unjoined if action == "none" else ()
    return found[0].instance_id if found else ""
