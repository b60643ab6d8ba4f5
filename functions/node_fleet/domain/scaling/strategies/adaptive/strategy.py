"""The rule set `adaptive`: as many workers as the pods ask for, and the spare room that is worth its price.

Composes packing, spare room and calm; the floors, back-offs and guards that bind every rule set stand in decision.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

from node_fleet.domain.model.memory import AdaptiveMemory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.custom_metrics import weigh_custom
from node_fleet.domain.scaling.signals.idle import obstacle, projection
from node_fleet.domain.scaling.signals.pending_pods import Demand
from node_fleet.domain.scaling.strategies.adaptive import headroom
from node_fleet.domain.scaling.strategies.adaptive.capacity import CapacityEstimate, figures
from node_fleet.domain.scaling.strategies.adaptive.learning import Estimate, filled, weigh, with_pods
from node_fleet.domain.scaling.strategies.adaptive.preset import ADAPTIVE_PRESET
from node_fleet.domain.scaling.strategies.thresholds import (
    Wanted,
    held_by_joining,
    steps,
    weigh_cpu,
    weigh_memory,
)
from node_fleet.domain.scaling.tick import Tick


def adaptive(view: Tick, demand: Demand | None, floor: int) -> Wanted:
    """Add what is missing in one wave; let go what was not needed for the learned rest; else say what is held."""
    before = filled(view.memory.learned)
    learned = with_pods(view, before)
    seen = figures(view, demand, learned.pods)
    if seen is None:
        return _by_default_rules(view, demand, floor, learned)
    result = weigh(view, seen, learned, floor)
    wanted = Wanted(learned=result.learned)
    _weigh_up(view, demand, seen, result, wanted)
    customs = weigh_custom(view, wanted.streaks)
    _weigh_usage(view, wanted, [check for check, _ in customs])
    if not wanted.add:
        low = all(low for _, low in customs)
        wanted.remove, checks = _weigh_down(view, demand, seen, result, floor=floor, customs_low=low)
        wanted.checks += checks
        wanted.rule = "idle" if wanted.remove else "none"
    if wanted.add:
        wanted.learned = replace(result.learned, adding_since=view.now)
    return wanted


def _by_default_rules(view: Tick, demand: Demand | None, floor: int, learned: AdaptiveMemory) -> Wanted:
    """The default preset's rules, with its own marks, while requests are missing."""
    plain, own = Policy(), ADAPTIVE_PRESET
    marks = {
        name: getattr(plain, name)
        for name, value in own.items()
        if hasattr(plain, name) and name != "max_targets" and getattr(view.policy, name) == value
    }
    wanted = steps(replace(view, policy=replace(view.policy, **marks)), demand, floor)
    text = "requests of the workers missing, the default rules decide"
    wanted.checks.append(Check(name="requests", verdict="missing", text=text, setting="PRESET"))
    wanted.learned = learned
    return wanted


def _weigh_up(view: Tick, demand: Demand | None, seen: CapacityEstimate, result: Estimate, wanted: Wanted) -> None:
    """One wave for the pods that wait and for the spare room; unmet demand waits for no cooldown."""
    choice, left = result.choice, demand.left if demand else 0
    by_room = max(0, math.ceil(choice.start - seen.have - 1e-6)) - view.unknown if demand else 0
    add = max(seen.new_workers, by_room, 0)
    pending = Check(name="pending", verdict="missing", text="pending pods missing", setting="PENDING_READINGS")
    if demand:
        verdict: Verdict = "up" if seen.new_workers else "hold" if demand.waiting else "ok"
        text = f"pending {left} (unschedulable, oldest {demand.oldest_seconds} s)" if left else "pending 0"
        if demand.waiting > left:
            text = f"pending {demand.waiting}, {demand.waiting - left} of them fit on workers that are joining"
        pending = Check(name="pending", verdict=verdict, text=text, value=left, threshold=0, setting="PENDING_READINGS")
    wanted.checks += [pending, _room_check(view, seen, choice, up=add > 0), *_sums(view, result)]
    if add:
        wanted.add, wanted.bypasses_cooldown = add, True
        wanted.rule = "pending" if seen.new_workers else "room"


def _room_check(view: Tick, seen: CapacityEstimate, choice: headroom.Choice, *, up: bool) -> Check:
    price = view.policy.wait_cost
    text = (
        f"pods ask for {seen.demand:.1f} of {seen.have:.1f} workers' room; {choice.spare:.1f} workers spare is worth "
        f"holding (a minute of waiting costs {counted_minutes(price)})"
    )
    return Check(
        name="room",
        verdict="up" if up else "hold",
        text=text,
        value=round(seen.demand, 4),
        threshold=choice.workers,
        setting="WAIT_COST",
    )


def counted_minutes(price: float) -> str:
    """'1 worker-minute', '8 worker-minutes'."""
    return f"{price:g} worker-minute{'' if price == 1 else 's'}"


def _sums(view: Tick, result: Estimate) -> list[Check]:
    """The two sums behind the answer, for those who ask."""
    choice, rest = result.choice, result.rest
    spared = (
        f"one more worker would save {choice.saved_by_next:.2f} of the 1.00 it costs; with {choice.workers} the "
        f"expected waiting costs {choice.waiting:.2f} worker-minutes a minute (from {choice.samples:.0f} rises)"
    )
    rested = (
        f"room goes after {rest.seconds} s unneeded: over the last days this rest would have cost {rest.holding:.0f} "
        f"worker-minutes of held room and {rest.changing:.0f} of changed direction, the shortest {rest.at_once:.0f}"
    )
    return [
        Check(name="spare", verdict="ok", text=spared, value=round(choice.spare, 4), setting="WAIT_COST", aside=True),
        Check(name="calm", verdict="ok", text=rested, value=rest.seconds, setting="CHANGE_COST", aside=True),
    ]


def _weigh_usage(view: Tick, wanted: Wanted, customs: list[Check]) -> None:
    """Usage beside requests: a fleet that is hot, or a metric of the user's own, adds a step when requests did not."""
    first = len(wanted.checks)
    weigh_cpu(view, wanted)
    if view.policy.use_memory:
        weigh_memory(view, wanted)
    wanted.checks += [held_by_joining(view, check) for check in customs]
    hot = [c for c in wanted.checks[first:] if c.verdict == "up"]
    if hot and not wanted.add:
        wanted.rule, wanted.add = hot[0].name, view.policy.step_normal


def _weigh_down(
    view: Tick, demand: Demand | None, seen: CapacityEstimate, result: Estimate, *, floor: int, customs_low: bool
) -> tuple[int, list[Check]]:
    """FreeCapacity that was unneeded for the rest goes, if its pods fit on the others and every guard agrees."""
    have = math.floor(seen.have + 1e-6)
    spare_now = have - max(floor, result.choice.workers)
    if spare_now <= 0 or view.joining:
        return 0, []
    if stop := obstacle(view, demand, customs_low=customs_low):
        return 0, [Check(name="idle", verdict=stop[0], text=stop[1], setting=stop[2], aside=True)]
    most = min(have - result.keep, len(view.usable) - floor, view.policy.max_targets)
    if most <= 0:
        return 0, [_resting(view, result, spare_now)]
    return _removal(view, seen, result, most)


def _removal(view: Tick, seen: CapacityEstimate, result: Estimate, most: int) -> tuple[int, list[Check]]:
    """As many as fit, at most `most`."""
    for count in range(most, 0, -1):
        guard, fits = projection(view, count), seen.fits_without(count)
        if guard.verdict == "down" and fits:
            words = f"room of {counted(count, 'worker')} unneeded for {result.rest.seconds} s"
            return count, [_idle("down", f"{words}, its pods fit on the others", count), guard]
    if guard.verdict != "down":
        return 0, [guard]
    return 0, [_idle("hold", "room to headroom, but the pods of no worker fit on the others", 0)]


def _idle(verdict: Verdict, text: str, value: float) -> Check:
    return Check(name="idle", verdict=verdict, text=text, value=value, setting="CHANGE_COST")


def _resting(view: Tick, result: Estimate, spare_now: int) -> Check:
    """How long the first of the spare workers has been unneeded."""
    have = result.choice.workers + spare_now
    last = max((n.at for n in result.learned.needs if n.workers >= have), default=0)
    seconds = min(view.read_at - last, result.rest.seconds) if last else 0
    text = f"room of {counted(spare_now, 'worker')} unneeded for {seconds} of {result.rest.seconds} s"
    return Check(
        name="idle", verdict="waiting", text=text, value=seconds, threshold=result.rest.seconds, setting="CHANGE_COST"
    )
