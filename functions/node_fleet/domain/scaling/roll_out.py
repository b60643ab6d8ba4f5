"""The roll-out: outdated workers are replaced one after the other, and each replacement must prove itself first.

A step launches one worker, waits until it has stayed Ready for bake_seconds, and then removes the outdated one. At the
maximum the outdated worker is removed first. The memory keeps the step, so any later run continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from node_fleet.domain.model import back_off
from node_fleet.domain.model.budget import Reason
from node_fleet.domain.model.memory import Memory, Replacement, RollOut
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.scaling.check import Action, Check, Decision, Verdict
from node_fleet.domain.scaling.launch_version import with_good_version
from node_fleet.domain.scaling.memory_update import newly_usable
from node_fleet.domain.scaling.outdated import SETTINGS, Outdated, outdated_workers
from node_fleet.domain.scaling.roll_out_hold import (
    RollOutFacts,
    budget_hold,
    held_reasons,
    hold,
    is_replaceable,
    no_place,
)
from node_fleet.domain.scaling.roll_out_stop import stop, stopped_alert
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import Tick
from node_fleet.domain.scaling.unhealthy import may_reboot

REPLACE_RULES = ("drifted", "expired", "unhealthy", "on-demand")
"""The rules of decisions that replace a worker."""
REMOVAL_TRIES = 3
"""After so many failed removals of one worker its step is given up; the back-off of the worker goes on."""
REBOOTED_FIRST = "rebooted first when the other workers can take its pods"
LOST_PHASES = ("not_ready", "unjoined")
LOST_LIMIT = 2
"""Replacements in a row that may end before they have proved themselves."""


@dataclass(slots=True, kw_only=True)
class RollOutStep:
    """What the roll-out does in this tick: launch ("replace", "scale_up"), remove ("scale_down") or nothing.

    worker: the outdated one. after: what the memory keeps.
    """

    after: RollOut
    action: Action = "none"
    worker: str = ""
    check: Check | None = None
    alerts: list[Alert] = field(default_factory=list)


def evaluate_roll_out(
    tick: Tick, outdated: Sequence[Outdated], pending_pods: PendingPods | None, minimum: int
) -> RollOutStep:
    """The next step for the workers that are outdated now, the first of them first. Without live data none."""
    roll_out = with_good_version(tick)
    if not tick.live or (roll_out.current is None and not outdated):
        return RollOutStep(after=roll_out)
    facts = RollOutFacts(tick=tick, outdated=outdated, pending_pods=pending_pods, minimum=minimum)
    if roll_out.current is None:
        return _begin(facts, roll_out)
    step = _continue(facts, roll_out, roll_out.current)
    if step.after.current is not None or step.check is not None:
        return step
    if roll_out.current.reason == "on-demand":  # whether another worker may return is known without this step only
        facts = replace(facts, outdated=[o for o in outdated if o.reason != "on-demand"])
    return _begin(facts, step.after)


def lost_replacement(snapshot: Snapshot, current: Replacement | None) -> str:
    """The replacement that joined and lost Ready before it has proved itself; empty while there is none."""
    if current is None or not current.replacement:
        return ""
    return next(
        (
            w.instance_id
            for w in snapshot.workers
            if w.instance_id == current.replacement and w.phase in LOST_PHASES and not w.under_notice
        ),
        "",
    )


def surge(tick: Tick) -> int:
    """Usable workers beyond the fleet's size, because the worker that they replace still runs."""
    current = tick.memory.roll_out.current
    return int(current is not None and {current.worker, current.replacement} <= {w.instance_id for w in tick.usable})


def is_rebooted_first(tick: Tick, decision: Decision) -> bool:
    """Whether the worker that this decision replaces is rebooted first, when its pods may move."""
    if decision.action != "replace" or decision.rule not in ("unhealthy", "not_ready"):
        return False
    named = (w for w in tick.workers if w.instance_id == decision.replace)
    return any(may_reboot(tick, worker) for worker in named)


def removal_order(tick: Tick) -> list[str]:
    """The workers that any removal takes first: the one whose replacement runs, then the other outdated ones."""
    current = tick.memory.roll_out.current
    first = [current.worker] if current else []
    others = (o.worker.instance_id for o in outdated_workers(tick) if o.reason != "on-demand")
    return list(dict.fromkeys([*first, *others]))


def inspected_in_vain(memory: Memory, policy: Policy, now: int, rule: str) -> Memory:
    """The memory after an inspection that allowed no replacement: the next one waits as after a failed drain.

    A return to Spot, which may be impossible for as long as the pods run, waits longer each time and holds no other.
    """
    if rule == "on-demand":
        return replace(memory, back_offs=back_off.fail(memory.back_offs, back_off.SPOT, now, policy))
    retry_at = now + policy.drain_back_off_seconds
    return replace(memory, roll_out=replace(memory.roll_out, retry_at=retry_at))


def removed_in_vain(memory: Memory, policy: Policy, now: int) -> Memory:
    """The memory after no idle worker could be removed: until then roll-out and standby workers do not wait for one."""
    first_until = now + policy.drain_back_off_seconds
    return replace(memory, roll_out=replace(memory.roll_out, first_until=first_until))


def goes_first(tick: Tick, step: RollOutStep) -> bool:
    """Whether this step comes before a removal of idle workers, because the last inspection allowed none of those."""
    return step.action != "none" and tick.memory.roll_out.first_until > tick.now


def is_after_vain_removal(tick: Tick, step: RollOutStep) -> bool:
    """Whether standby workers come before a removal of idle workers, because the last inspection allowed none."""
    return step.action == "none" and tick.memory.roll_out.first_until > tick.now


def _begin(facts: RollOutFacts, roll_out: RollOut) -> RollOutStep:
    """Choose the next worker to replace; SelectNodes inspects it before anything is launched."""
    tick = facts.tick
    replaced = [o for o in facts.outdated if is_replaceable(tick, o)]
    if not replaced:
        return RollOutStep(after=roll_out)
    held = held_reasons(tick, roll_out, replaced)
    first = next((o for o in replaced if not held[o.reason]), replaced[0])
    if why := held[first.reason] or hold(facts):
        text = f"{first.sentence}, not replaced now: {why}"
        check = _check(first.reason, "hold", text)
        # Workers wait long for a quiet time, which is nothing to report in each tick.
        is_aside = first.reason == "on-demand"
        return RollOutStep(after=roll_out, check=replace(check, verdict="ok", aside=True) if is_aside else check)
    if why := no_place(facts, first):
        text = f"{first.sentence}, not replaced: {why}"
        return RollOutStep(after=roll_out, check=_check(first.reason, "hold", text, tick.launchable(()).setting))
    if roll_out.retry_at > tick.now:
        text = f"{first.sentence}, no worker could be replaced, next inspection in {span(roll_out.retry_at - tick.now)}"
        return RollOutStep(after=roll_out, check=_check(first.reason, "waiting", text))
    is_reboot = first.reason == "unhealthy" and may_reboot(tick, first.worker)
    text = f"{first.sentence}, {REBOOTED_FIRST}" if is_reboot else first.sentence
    check = _check(first.reason, "down", text)
    return RollOutStep(after=roll_out, action="replace", worker=first.worker.instance_id, check=check)


def _continue(facts: RollOutFacts, roll_out: RollOut, current: Replacement) -> RollOutStep:
    """The step that has begun: launch what was removed first, watch the replacement, then remove the outdated one."""
    tick = facts.tick
    workers = {w.instance_id: w for w in tick.snapshot.workers}
    worker, launched = workers.get(current.worker), workers.get(current.replacement)
    done = RollOutStep(after=replace(roll_out, current=None))
    if not current.replacement:
        # At the maximum, a launch for another reason has taken its place.
        return _launch_removed(facts, roll_out, current) if worker is None and tick.headroom else done
    if launched is None:
        return _lost(tick, roll_out, current)
    if launched.under_notice:
        return done
    if launched.phase in LOST_PHASES:
        return _failed(tick, roll_out, current, launched)
    seconds = tick.now - max(current.since, newly_usable(tick).get(current.replacement, 0))
    if launched.phase != "usable" or seconds < tick.policy.bake_seconds:
        text = f"{current.replacement} replaces {current.worker} and is {launched.phase}"
        if launched.phase == "usable":
            text = f"{current.replacement} replaces {current.worker}, Ready {seconds} of {tick.policy.bake_seconds} s"
        return RollOutStep(after=roll_out, check=_check(_reason(current), "waiting", text, "bake_seconds"))
    done.after = replace(done.after, lost=0)
    still = next((o for o in facts.outdated if o.worker.instance_id == current.worker), None)
    if worker is None or worker.under_notice or still is None:
        return done
    return _remove(facts, roll_out, still, current)


def _remove(facts: RollOutFacts, roll_out: RollOut, outdated: Outdated, current: Replacement) -> RollOutStep:
    tick, minimum = facts.tick, facts.minimum
    key = back_off.node_key(current.worker)
    failed = back_off.active(tick.memory.back_offs, key, tick.now)
    if failed and failed.failures >= REMOVAL_TRIES:
        return RollOutStep(after=replace(roll_out, current=None, lost=0))
    why = hold(facts) or budget_hold(tick, outdated.reason)
    if failed:
        why = f"its removal failed, next try in {span(failed.until - tick.now)}"
    elif not why and sum(w.instance_id != current.worker for w in tick.usable) < minimum:
        why = f"{count_of(len(tick.usable), 'usable worker')}, not above the effective minimum of {minimum}"
    if why:
        text = f"{current.worker} is replaced by {current.replacement}, not removed now: {why}"
        return RollOutStep(after=roll_out, check=_check(outdated.reason, "hold", text))
    text = f"{outdated.sentence}; {current.replacement} replaces it"
    check = _check(outdated.reason, "down", text)
    return RollOutStep(after=roll_out, action="scale_down", worker=current.worker, check=check)


def _launch_removed(facts: RollOutFacts, roll_out: RollOut, current: Replacement) -> RollOutStep:
    """The worker was removed first, at the maximum: its replacement is launched as soon as a launch is allowed."""
    if why := hold(replace(facts, minimum=0)):
        text = f"{current.worker} is removed, its replacement is not launched now: {why}"
        return RollOutStep(after=roll_out, check=_check(_reason(current), "hold", text))
    check = _check(_reason(current), "up", f"{current.worker} is removed, its replacement is launched")
    return RollOutStep(after=roll_out, action="scale_up", worker=current.worker, check=check)


def _lost(tick: Tick, roll_out: RollOut, current: Replacement) -> RollOutStep:
    """The replacement does not exist any more, for example because AWS reclaimed it: once is no failure.

    One that was launched as Spot for its price says nothing about the version.
    """
    if current.reason == "on-demand":
        return RollOutStep(after=replace(roll_out, current=None))
    lost = roll_out.lost + 1
    if lost < LOST_LIMIT:
        return RollOutStep(after=replace(roll_out, current=None, lost=lost))
    why = f"{lost} replacements in a row ended before they had proved themselves, the last was {current.replacement}"
    return _stopped(tick, roll_out, current, why)


def _failed(tick: Tick, roll_out: RollOut, current: Replacement, launched: Worker) -> RollOutStep:
    """The replacement lost Ready. When other workers did too, the cause may be shared, and the step waits."""
    if others := [w for w in tick.not_ready if w.instance_id != launched.instance_id]:
        text = f"{current.replacement} and {count_of(len(others), 'other worker')} NotReady, the roll-out waits"
        return RollOutStep(after=roll_out, check=_check(_reason(current), "waiting", text))
    state = "lost Ready" if launched.phase == "not_ready" else "did not join"
    why = f"{current.replacement}, which replaces {current.worker}, {state}; {current.worker} is kept"
    why += f"; its console ends with: {tick.snapshot.console}" if tick.snapshot.console else ""
    return _stopped(tick, roll_out, current, why)


def _stopped(tick: Tick, roll_out: RollOut, current: Replacement, why: str) -> RollOutStep:
    configured = tick.snapshot.template_version
    after = stop(roll_out, why, configured)
    check = _check(_reason(current), "hold", f"the roll-out is stopped: {why}")
    return RollOutStep(after=after, check=check, alerts=[stopped_alert(after, configured)])


def _reason(current: Replacement) -> Reason:
    return next((reason for reason in SETTINGS if reason == current.reason), "drifted")


def _check(reason: Reason, verdict: Verdict, text: str, setting: str = "") -> Check:
    return Check(name=f"roll_out:{reason}", verdict=verdict, text=text, setting=setting or SETTINGS[reason])
