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
from node_fleet.domain.scaling.memory_update import newly_usable, note_missing, remembered
from node_fleet.domain.scaling.minimum_size import MinimumSize, effective_minimum
from node_fleet.domain.scaling.not_ready import weigh_not_ready
from node_fleet.domain.scaling.predicted_demand import foresee
from node_fleet.domain.scaling.signals.pending_pods import listed_checks, weigh_demand
from node_fleet.domain.scaling.strategies.strategy_table import RULE_SETS
from node_fleet.domain.scaling.strategies.thresholds import Wanted
from node_fleet.domain.scaling.tick import Tick, look

__all__ = ["Action", "Check", "Decision", "Verdict", "decide"]


@dataclass(slots=True, kw_only=True)
class _Answer:
    """The outcome while it is put together."""

    action: Action
    count: int
    rule: str
    lead: Check
    blocked_by: tuple[str, ...] = ()
    replace: str = ""


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: int) -> Decision:
    """Decide for one tick. `now` is epoch seconds UTC. Reads nothing but its arguments; same arguments, same answer."""
    view = look(snapshot, memory, policy, now)
    floor = effective_minimum(view)
    fresh = newly_usable(view)
    demand = weigh_demand(view, fresh) if view.readable else None
    wanted = RULE_SETS[policy.sizing](view, demand, floor.workers) if view.readable else _no_metrics(view)
    foreseen = foresee(view)
    wanted.checks[:0] = listed_checks(demand) if demand else []
    if foreseen.check:
        wanted.checks.append(foreseen.check)
    if foreseen.add and not wanted.add:
        wanted.add, wanted.rule = policy.step_normal, "prediction"
    note_missing(view, wanted.streaks)
    found = alerts.standing_alerts(view, demand, wanted.streaks)
    answer = (
        _raise_to_floor(view, floor, wanted, found)
        or _add(view, wanted, found)
        or _replace_not_ready(view, floor, wanted)
        or _remove(view, wanted)
        or _nothing(view, wanted)
    )
    told, alerted = alerts.new_alerts(view, found)
    after = remembered(
        view,
        wanted.streaks,
        demand=demand,
        launching=answer.action == "scale_up",
        foreseen=foreseen,
        fresh=fresh,
        alerted=alerted,
        learned=wanted.learned,
    )
    return _told(view, answer, wanted, told, after)


def _no_metrics(view: Tick) -> Wanted:
    why = view.snapshot.problem or "no reading young enough"
    text = f"no metrics ({why}), only the minimum is enforced"
    return Wanted(checks=[Check(name="metrics", verdict="missing", text=text, setting="CACHED_READING_SECONDS")])


def _raise_to_floor(view: Tick, floor: MinimumSize, wanted: Wanted, found: alerts.Found) -> _Answer | None:
    """Rule 1. Below the minimum nothing but a back-off waits; a schedule or a hold waits for the cooldown."""
    short = floor.workers - view.have
    if short <= 0:
        return None
    lead = Check(
        name=floor.rule,
        verdict="up",
        text=f"{explain.counted(view.have, 'worker')}, under {floor.text}",
        value=view.have,
        threshold=floor.workers,
        setting=floor.setting,
    )
    wanted.checks.insert(0, lead)
    at_once = view.have < view.policy.min_workers or wanted.bypasses_cooldown
    return _launch(view, lead, floor.rule, short, found, bypass=at_once, wanted=wanted)


def _add(view: Tick, wanted: Wanted, found: alerts.Found) -> _Answer | None:
    """Rule 2."""
    if not wanted.add:
        return None
    lead = next(c for c in wanted.checks if c.verdict == "up" and c.name == wanted.rule)
    return _launch(view, lead, wanted.rule, wanted.add, found, bypass=wanted.bypasses_cooldown, wanted=wanted)


def _launch(
    view: Tick, lead: Check, rule: str, count: int, found: alerts.Found, *, bypass: bool, wanted: Wanted
) -> _Answer:
    """Launch as many as headroom, back-offs and the cooldown allow, or say which of them forbids it."""
    if view.headroom == 0:
        found.append(alerts.at_maximum(view, lead.text))
        text = f"at maximum of {view.policy.max_workers} workers"
        full = Check(name="maximum", verdict="blocked", text=text, value=view.counted, setting="MAX_NODES")
        wanted.checks.append(full)
        return _nothing_done(lead, full)
    failed = launch_back_off(view)
    if failed:
        wanted.checks.append(failed)
        if failed.name == "circuit_breaker":
            found.append(alerts.blocked_launch(failed))
        return _nothing_done(lead, failed)
    rest = cooldown(view, "scale_up")
    if rest.verdict == "blocked" and not bypass:
        wanted.checks.append(rest)
        return _nothing_done(lead, rest)
    if rest.verdict == "blocked":
        rest = replace(rest, verdict="ok", text=f"{rest.text}, not waited for")
    wanted.checks.append(rest)
    return _Answer(action="scale_up", count=min(count, view.headroom), rule=rule, lead=lead)


def _replace_not_ready(view: Tick, floor: MinimumSize, wanted: Wanted) -> _Answer | None:
    """Rule 3."""
    worker, check = weigh_not_ready(view, floor.workers)
    if check:
        wanted.checks.append(check)
    if worker is None or check is None:
        return None
    rest = cooldown(view, "scale_down")
    wanted.checks.append(rest)
    if rest.verdict == "blocked":
        return _nothing_done(check, rest)
    return _Answer(action="scale_down", count=1, rule="not_ready", lead=check, replace=worker.instance_id)


def _remove(view: Tick, wanted: Wanted) -> _Answer | None:
    """Rule 4."""
    if not wanted.remove:
        return None
    lead = next(c for c in wanted.checks if c.name == wanted.rule)
    rest = cooldown(view, "scale_down")
    wanted.checks.append(rest)
    if rest.verdict == "blocked":
        return _nothing_done(lead, rest)
    return _Answer(action="scale_down", count=wanted.remove, rule=wanted.rule, lead=lead)


def _nothing(view: Tick, wanted: Wanted) -> _Answer:
    """Rule 5: none, with the reason that came nearest to an action."""
    lead = explain.nearest(wanted.checks)
    wanted.checks.append(cooldown(view, "scale_down" if lead.name == "idle" else "scale_up"))
    return _nothing_done(lead)


def _nothing_done(lead: Check, *blocks: Check) -> _Answer:
    return _Answer(action="none", count=0, rule="none", lead=lead, blocked_by=tuple(c.name for c in blocks))


def _told(view: Tick, answer: _Answer, wanted: Wanted, told: tuple[Alert, ...], memory: Memory) -> Decision:
    change = {"scale_up": answer.count, "scale_down": -answer.count, "none": 0}[answer.action]
    triggers = [c for c in wanted.checks if c is answer.lead or c.verdict in ("up", "blocked")]
    triggers.sort(key=lambda c: c is not answer.lead)
    return Decision(
        action=answer.action,
        count=answer.count,
        rule=answer.rule,
        sentence=explain.sentence(view, answer.action, answer.count, answer.lead, wanted.checks),
        reasons=tuple(explain.reason(c) for c in triggers),
        blocked_by=answer.blocked_by,
        evidence=tuple(wanted.checks),
        alerts=told,
        replace=answer.replace or _to_look_for(view, answer.action),
        workers_before=view.counted,
        workers_after=view.counted + change,
        tell=bool(told) or answer.action != "none",
        memory=memory,
    )


def _to_look_for(view: Tick, action: Action) -> str:
    """On a tick without an action: the oldest worker that should have joined long ago, for ReapUnjoined to judge."""
    found = view.snapshot.unjoined if action == "none" else ()
    return found[0].instance_id if found else ""
