"""The text of a decision: one sentence that needs no knowledge of the code, and the reasons behind it.

Joins the texts of the checks; evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.scaling.check import Action, Check
from node_fleet.domain.scaling.tick import Tick

_SIGN = {"scale_up": "+", "scale_down": "-", "replace": "replace ", "none": ""}
_FIRST = {"up": 0, "blocked": 1, "waiting": 2, "hold": 3, "missing": 4, "down": 5, "ok": 6}


def sentence(tick: Tick, action: Action, count: int, lead: Check, checks: Iterable[Check]) -> str:
    """The leading check with the outcome, the other checks, then the workers: 'pending 3 ... -> +1; CPU ...'.

    A custom metric that is under its low threshold is left out.
    """
    outcome = f"{_SIGN[action]}{count}" if count else "no change"
    others = [
        c
        for c in checks
        if c is not lead and not c.aside and not (c.name.startswith("custom:") and c.verdict == "down")
    ]
    others.sort(key=lambda c: c.verdict != "blocked")
    parts = [f"{lead.text} -> {outcome}", *(c.text for c in others)]
    if tick.readable and not tick.live:
        parts.append(f"on a reading {tick.now - tick.read_at} s old")
    return "; ".join([*parts, _worker_counts(tick)])


def _worker_counts(tick: Tick) -> str:
    """'workers 4 of 10, 1 joining': instances without those under interruption notice, of the maximum."""
    text = f"workers {tick.counted} of {tick.policy.max_workers}"
    for count, name in (
        (len(tick.joining), "joining"),
        (len(tick.not_ready), "NotReady"),
        (tick.unknown, "unknown"),
        (len(tick.snapshot.workers) - tick.counted, "under notice"),
        (len(tick.snapshot.set_aside), "set aside"),
    ):
        if count:
            text += f", {count} {name}"
    return "; ".join([text, *(use.text for use in tick.snapshot.limits)])


def reason(check: Check) -> str:
    """The check's text with its setting in brackets."""
    return f"{check.text} [{check.setting}]"


def leading_check(checks: list[Check]) -> Check:
    """The check that came nearest to an action; of equals the first in the order of the rules."""
    return min(checks, key=lambda c: _FIRST[c.verdict])
