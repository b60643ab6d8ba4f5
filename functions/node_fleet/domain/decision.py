"""What to do, and why: one pure function of the snapshot, the memory, the policy and the time.

Here stands the order of the rules and what binds all of them; how each is weighed stands in its own module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node_fleet.domain import alerts, explain
from node_fleet.domain.adoption import unjoined
from node_fleet.domain.back_off import node_key
from node_fleet.domain.cooldown import cooldown, launch_back_off
from node_fleet.domain.demand import Demand, listed_checks, remember_launch, weigh_demand
from node_fleet.domain.evidence import Action, Check, Decision, Verdict
from node_fleet.domain.floor import Floor, effective_minimum
from node_fleet.domain.model import Alert, BackOff, Memory, ReadingPoint, Snapshot, Streak
from node_fleet.domain.not_ready import weigh_not_ready
from node_fleet.domain.policy import Policy
from node_fleet.domain.prediction import Foreseen, foresee
from node_fleet.domain.sizing import RULE_SETS, Wanted
from node_fleet.domain.sustained import advance
from node_fleet.domain.view import View, known, look

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
    bypassed: bool = False


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: int) -> Decision:
    """Decide for one tick. `now` is epoch seconds UTC. Reads nothing but its arguments; same arguments, same answer."""
    view = look(snapshot, memory, policy, now)
    floor = effective_minimum(view)
    fresh = _fresh(view)
    demand = weigh_demand(view, fresh) if view.readable else None
    wanted = RULE_SETS[policy.sizing](view, demand, floor.workers) if view.readable else _no_metrics(view)
    foreseen = foresee(view)
    wanted.checks[:0] = listed_checks(demand) if demand else []
    if foreseen.check:
        wanted.checks.append(foreseen.check)
    if foreseen.add and not wanted.add:
        wanted.add, wanted.rule = policy.step_normal, "prediction"
    found = alerts.standing_alerts(view, demand, _with_missing(view, wanted.streaks))
    answer = (
        _raise_to_floor(view, floor, wanted, found)
        or _add(view, wanted, found)
        or _replace_not_ready(view, floor, wanted)
        or _remove(view, wanted)
        or _nothing(view, wanted)
    )
    told, alerted = alerts.new_alerts(view, found)
    after = _remembered(view, answer, wanted, demand=demand, foreseen=foreseen, fresh=fresh, alerted=alerted)
    return _told(view, answer, wanted, told, after)


def _no_metrics(view: View) -> Wanted:
    why = view.snapshot.problem or "no reading young enough"
    text = f"no metrics ({why}), only the minimum is enforced"
    return Wanted(checks=[Check(name="metrics", verdict="missing", text=text, setting="CACHED_READING_SECONDS")])


def _raise_to_floor(view: View, floor: Floor, wanted: Wanted, found: alerts.Found) -> _Answer | None:
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


def _add(view: View, wanted: Wanted, found: alerts.Found) -> _Answer | None:
    """Rule 2."""
    if not wanted.add:
        return None
    lead = next(c for c in wanted.checks if c.verdict == "up" and c.name == wanted.rule)
    return _launch(view, lead, wanted.rule, wanted.add, found, bypass=wanted.bypasses_cooldown, wanted=wanted)


def _launch(
    view: View, lead: Check, rule: str, count: int, found: alerts.Found, *, bypass: bool, wanted: Wanted
) -> _Answer:
    """Launch as many as headroom, back-offs and the cooldown allow, or say which of them forbids it."""
    if view.headroom == 0:
        found.append(alerts.at_maximum(view, lead.text))
        text = f"at maximum of {view.policy.max_workers} workers"
        full = Check(name="maximum", verdict="blocked", text=text, value=view.counted, setting="MAX_NODES")
        wanted.checks.append(full)
        return _Answer(action="none", count=0, rule="none", lead=lead, blocked_by=("maximum",))
    failed = launch_back_off(view)
    if failed:
        wanted.checks.append(failed)
        if failed.name == "circuit_breaker":
            found.append(alerts.blocked_launch(failed))
        return _Answer(action="none", count=0, rule="none", lead=lead, blocked_by=(failed.name,))
    rest = cooldown(view, "scale_up")
    if rest.verdict == "blocked" and not bypass:
        wanted.checks.append(rest)
        return _Answer(action="none", count=0, rule="none", lead=lead, blocked_by=("cooldown",))
    if rest.verdict == "blocked":
        rest = replace(rest, verdict="ok", text=f"{rest.text}, not waited for")
    wanted.checks.append(rest)
    return _Answer(action="scale_up", count=min(count, view.headroom), rule=rule, lead=lead)


def _replace_not_ready(view: View, floor: Floor, wanted: Wanted) -> _Answer | None:
    worker, check = weigh_not_ready(view, floor.workers)
    if check:
        wanted.checks.append(check)
    if worker is None or check is None:
        return None
    rest = cooldown(view, "scale_down")
    wanted.checks.append(rest)
    if rest.verdict == "blocked":
        return _Answer(action="none", count=0, rule="none", lead=check, blocked_by=("cooldown",))
    return _Answer(action="scale_down", count=1, rule="not_ready", lead=check, replace=worker.instance_id)


def _remove(view: View, wanted: Wanted) -> _Answer | None:
    """Rule 3."""
    if not wanted.remove:
        return None
    lead = next(c for c in wanted.checks if c.name == wanted.rule)
    rest = cooldown(view, "scale_down")
    wanted.checks.append(rest)
    if rest.verdict == "blocked":
        return _Answer(action="none", count=0, rule="none", lead=lead, blocked_by=("cooldown",))
    return _Answer(action="scale_down", count=wanted.remove, rule=wanted.rule, lead=lead)


def _nothing(view: View, wanted: Wanted) -> _Answer:
    """Rule 4."""
    lead = explain.nearest(wanted.checks)
    wanted.checks.append(cooldown(view, "scale_down" if lead.name == "idle" else "scale_up"))
    return _Answer(action="none", count=0, rule="none", lead=lead)


def _told(view: View, answer: _Answer, wanted: Wanted, told: tuple[Alert, ...], memory: Memory) -> Decision:
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


def _to_look_for(view: View, action: Action) -> str:
    """On a tick without an action: the oldest worker that should have joined long ago, for ReapUnjoined to judge."""
    found = unjoined(view.snapshot) if action == "none" else ()
    return found[0].instance_id if found else ""


def _remembered(
    view: View,
    answer: _Answer,
    wanted: Wanted,
    *,
    demand: Demand | None,
    foreseen: Foreseen,
    fresh: dict[str, int],
    alerted: dict[str, int],
) -> Memory:
    before = view.memory
    launched_for, not_helped = before.launched_for, before.not_helped
    if demand:
        launching = answer.action == "scale_up" and demand.left > 0
        launched_for = remember_launch(demand, view.now) if launching else demand.launched_for
        not_helped = dict(demand.not_helped)
    return replace(
        before,
        since=wanted.streaks if view.readable else _kept_streaks(view),
        readings=_readings(view),
        predictive_hold_until=foreseen.hold_until,
        predictive_hold_workers=foreseen.hold_workers,
        predicted_hour=foreseen.hour_judged,
        launched_for=launched_for,
        not_helped=not_helped,
        back_offs=_kept_back_offs(view),
        fresh=fresh,
        alerted=alerted,
    )


def _with_missing(view: View, streaks: dict[str, Streak]) -> dict[str, Streak]:
    """The run of readings that lacked something, kept with the others so that people hear of a lasting gap."""
    gone = bool(alerts.missing_names(view)) if view.readable else False
    gap = view.policy.reading_gap_seconds
    streak = advance(view.memory.since.get("missing"), holds=gone, at=view.read_at, gap_seconds=gap)
    if streak:
        streaks["missing"] = streak
    return streaks


def _kept_streaks(view: View) -> dict[str, Streak]:
    """Without a reading the runs stand still until the gap ends them; only the idle clock starts again."""
    gap = view.policy.reading_gap_seconds
    return {name: s for name, s in view.memory.since.items() if name != "idle" and view.now - s.last <= gap}


def _kept_back_offs(view: View) -> tuple[BackOff, ...]:
    """All but those of workers that are gone."""
    if not (before := view.memory.back_offs):
        return before
    ids = {node_key(w.instance_id) for w in view.snapshot.workers}
    return tuple(b for b in before if not b.key.startswith(node_key("")) or b.key in ids)


def _readings(view: View) -> tuple[ReadingPoint, ...]:
    snapshot, past = view.snapshot, view.memory.readings
    if not view.live or (past and past[-1].at >= view.read_at):
        return past
    point = ReadingPoint(
        at=view.read_at,
        cpu_percent=known(snapshot.cpu_percent),
        memory_percent=known(snapshot.memory_percent),
        pending=snapshot.pending_count,
        usable=len(view.usable),
    )
    return (*past, point)[-view.policy.readings_kept :]


def _fresh(view: View) -> dict[str, int]:
    """Instance -> when it was first known usable, for workers launched a short while ago only."""
    policy, known_before = view.policy, view.memory.fresh
    recent = view.now - policy.join_limit_seconds - policy.scheduling_grace_seconds - policy.reading_gap_seconds
    return {w.instance_id: known_before.get(w.instance_id, view.now) for w in view.usable if w.launched_at >= recent}
