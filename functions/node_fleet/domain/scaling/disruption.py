"""What the disruption budgets allow now, counted from the tick context.

Interruption notices, workers that are NotReady for long and instances that never joined ask no budget.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from node_fleet.domain.model.budget import Reason
from node_fleet.domain.model.local_time import zone
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.tick import Tick

if TYPE_CHECKING:
    from node_fleet.domain.disruption.budgets import Allowance

JOINED = ("usable", "cordoned", "not_ready")


def disrupted_workers(tick: Tick) -> tuple[int, int]:
    """The number of workers that have joined, and how many of them serve no pods now or are about to leave.

    NotReady and cordoned workers and those under interruption notice count as disrupted, as NotReady nodes and nodes
    that are being deleted do in Karpenter.
    """
    joined = [w for w in tick.snapshot.workers if w.phase in JOINED]
    return len(joined), len(joined) - len(tick.usable)


def allowance_for(tick: Tick, reason: Reason) -> Allowance:
    """How many more workers may be disrupted for that reason now."""
    from node_fleet.domain.disruption.budgets import allowed  # only budgets need it: every start loads this module

    workers, disrupted = disrupted_workers(tick)
    return allowed(tick.policy.budgets, reason, now=tick.now, workers=workers, disrupted=disrupted)


def evaluate_budget(tick: Tick, reason: Reason, wanted: int) -> tuple[int, Check | None]:
    """How many of the wanted disruptions the budgets allow, and the check; none when they allow all of them."""
    if not tick.policy.budgets or (allowance := allowance_for(tick, reason)).number >= wanted:
        return wanted, None
    _, disrupted = disrupted_workers(tick)
    if allowance.number:
        text = f"{allowance.number} of {wanted} {reason} workers {_verb(reason)}: {allowance.budget}"
        return allowance.number, _check("ok", text, disrupted, allowance)
    return 0, _check("blocked", held_text(tick, allowance, reason), disrupted, allowance)


def held_text(tick: Tick, allowance: Allowance, reason: Reason) -> str:
    """For example: no idle worker is removed: at most 1 worker, 1 disrupted."""
    _, disrupted = disrupted_workers(tick)
    text = f"no {reason} worker is {_verb(reason)}: {allowance.budget}"
    if disrupted:
        text += f", {disrupted} disrupted"
    if allowance.next_opening is None:
        return text
    return f"{text}, next opening {local_text(allowance.next_opening, tick.policy.timezone)}"


def _verb(reason: Reason) -> str:
    return "removed" if reason == "idle" else "replaced"


def local_text(at: int, timezone: str) -> str:
    """For example: Mon 2026-09-21 09:00 Asia/Dhaka."""
    return f"{datetime.fromtimestamp(at, zone(timezone)):%a %Y-%m-%d %H:%M} {timezone}"


def _check(verdict: Verdict, text: str, disrupted: int, allowance: Allowance) -> Check:
    return Check(
        name="budget",
        verdict=verdict,
        text=text,
        value=disrupted,
        setting=allowance.setting,
    )
