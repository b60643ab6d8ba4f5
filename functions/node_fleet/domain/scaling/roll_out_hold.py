"""Why no outdated worker is replaced now: its own state, what the fleet waits for, the maximum, and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node_fleet.domain.disruption.drift import MARKED
from node_fleet.domain.model import back_off
from node_fleet.domain.model.budget import Reason
from node_fleet.domain.model.memory import RollOut
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.cooldown import (
    evaluate_launch_back_off,
    evaluate_removal_back_off,
    evaluate_set_aside,
)
from node_fleet.domain.scaling.disruption import allowance_for, held_text
from node_fleet.domain.scaling.outdated import Outdated, outdated_workers
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.tick import Tick
from node_fleet.domain.scaling.unhealthy import recovering_text

if TYPE_CHECKING:
    from node_fleet.domain.model.operation import ReplaceReason

NOT_READY_PERCENT = 20
"""No worker is replaced while more workers than this are NotReady."""


@dataclass(slots=True, kw_only=True)
class RollOutFacts:
    """What every rule of the roll-out needs: the tick, what is outdated, what waits, and the effective minimum."""

    tick: Tick
    outdated: Sequence[Outdated]
    pending_pods: PendingPods | None
    minimum: int


def replaceable_workers(tick: Tick, rule: str = "") -> list[tuple[str, ReplaceReason]]:
    """Id and reason of each outdated worker that may be replaced now, the first first.

    rule: of the decision that replaces one; a return to Spot launches in another way than the other replacements.
    """
    found = [o for o in outdated_workers(tick) if is_replaceable(tick, o)]
    if rule:
        found = [o for o in found if (o.reason == "on-demand") == (rule == "on-demand")]
    held = held_reasons(tick, tick.memory.roll_out, found)
    return [(o.worker.instance_id, o.reason) for o in found if not held[o.reason]]


def is_replaceable(tick: Tick, outdated: Outdated) -> bool:
    """Whether the settings, its state and its back-off let the worker be replaced now."""
    only_reported = outdated.reason == "drifted" and tick.policy.drift != "replace"
    if only_reported and not outdated.words.startswith(MARKED):
        return False
    key = back_off.node_key(outdated.worker.instance_id)
    phases = ("usable", "unjoined") if outdated.reason == "unhealthy" else ("usable",)
    is_open = outdated.worker.phase in phases and bool(outdated.worker.node_name or outdated.worker.phase == "usable")
    return is_open and not back_off.active(tick.memory.back_offs, key, tick.now)


def hold(facts: RollOutFacts) -> str:
    """Why no worker is replaced now; empty when one may be."""
    tick, pending_pods, minimum = facts.tick, facts.pending_pods, facts.minimum
    disputed = {dispute.instance_id for dispute in tick.snapshot.disputes}
    unknown = sum(w.phase == "unknown" and w.instance_id not in disputed for w in tick.workers)
    set_aside = evaluate_set_aside(tick)
    for check in (evaluate_launch_back_off(tick), evaluate_removal_back_off(tick)):
        if check:
            return check.text
    if set_aside and set_aside.verdict == "hold":
        return set_aside.text
    if pending_pods is None:
        return "it is unknown which pods are pending"
    if pending_pods.waiting:
        return f"{count_of(pending_pods.waiting, 'pod')} pending"
    if tick.joining or unknown:
        return f"{count_of(len(tick.joining), 'worker')} joining, {unknown} unknown"
    if len(tick.not_ready) * 100 > tick.counted * NOT_READY_PERCENT:
        return f"{len(tick.not_ready)} of {count_of(tick.counted, 'worker')} NotReady"
    if len(tick.usable) < minimum:
        return f"{count_of(len(tick.usable), 'usable worker')}, under the effective minimum of {minimum}"
    return ""


def no_place(facts: RollOutFacts, outdated: Outdated) -> str:
    """Why the worker can neither be replaced launch first, because of the maximum, nor be removed first."""
    tick, least = facts.tick, facts.minimum
    if tick.headroom or sum(w.instance_id != outdated.worker.instance_id for w in tick.usable) >= least:
        return ""
    return (
        f"{_held_by(tick)} allows no launch before its removal, and the effective minimum of {least} no removal before "
        f"a launch; raise {tick.launchable(()).setting}"
    )


def _held_by(tick: Tick) -> str:
    """For example: the maximum of 10; max_vcpu: 8 of 8 vCPU."""
    setting = tick.launchable(()).setting
    return f"the maximum of {tick.policy.max_workers}" if setting == "max_workers" else f"the limit {setting}"


def held_reasons(tick: Tick, roll_out: RollOut, outdated: Sequence[Outdated]) -> dict[Reason, str]:
    """For each reason of these workers why none is replaced for it now; empty when one may be."""
    reasons: set[Reason] = {o.reason for o in outdated}
    stopped = ""
    if roll_out.is_stopped(tick.snapshot.template_version):
        stopped = f"the roll-out is stopped: {roll_out.stopped}"
    why: dict[Reason, str] = dict.fromkeys(reasons, stopped)
    if "unhealthy" in why:
        why["unhealthy"] = recovering_text(tick)
    if "on-demand" in why:
        from node_fleet.domain.scaling.spot_return import return_hold  # few fleets need it: every start loads this

        why["on-demand"] = stopped or return_hold(tick)
    return {r: why[r] or budget_hold(tick, r) for r in why}


def budget_hold(tick: Tick, reason: Reason) -> str:
    """The budget that allows no disruption for that reason now; empty when one more is allowed."""
    if not tick.policy.budgets:
        return ""
    allowance = allowance_for(tick, reason)
    return "" if allowance.number else held_text(tick, allowance, reason)
