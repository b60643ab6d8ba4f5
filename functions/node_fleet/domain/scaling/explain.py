"""The words of a decision: one sentence that a person understands without the code, and its reasons.

Puts together what the checks say; weighs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.scaling.check import Action, Check
from node_fleet.domain.scaling.tick import Tick

_SIGN = {"scale_up": "+", "scale_down": "-", "none": ""}
_FIRST = {"up": 0, "blocked": 1, "waiting": 2, "hold": 3, "missing": 4, "down": 5, "ok": 6}


def sentence(tick: Tick, action: Action, count: int, lead: Check, checks: Iterable[Check]) -> str:
    """The lead with its outcome, then what else was weighed, then the workers: 'pending 3 ... -> +1; CPU ...'."""
    outcome = f"{_SIGN[action]}{count}" if count else "no change"
    others = [c for c in checks if c is not lead and not c.aside and not _quiet_metric(c)]
    others.sort(key=lambda c: c.verdict != "blocked")
    parts = [f"{lead.text} -> {outcome}", *(c.text for c in others)]
    if tick.readable and not tick.live:
        parts.append(f"on a reading {tick.now - tick.read_at} s old")
    return "; ".join([*parts, workers_words(tick)])


def _quiet_metric(check: Check) -> bool:
    """A custom metric that asks for nothing and forbids nothing: in the evidence, not in the sentence."""
    return check.name.startswith("custom:") and check.verdict == "down"


def workers_words(tick: Tick) -> str:
    """'workers 4 of 10, 1 joining': every instance of the fleet that stays, of the maximum."""
    words = f"workers {tick.counted} of {tick.policy.max_workers}"
    for count, name in (
        (len(tick.joining), "joining"),
        (len(tick.not_ready), "NotReady"),
        (tick.unknown, "unknown"),
        (len(tick.snapshot.workers) - tick.counted, "under notice"),
    ):
        if count:
            words += f", {count} {name}"
    return words


def counted(count: int, word: str) -> str:
    """'1 worker', '2 workers'."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def reason(check: Check) -> str:
    """The check's words and the setting that changes it."""
    return f"{check.text} [{check.setting}]"


def leading_check(checks: list[Check]) -> Check:
    """The check that says best why nothing is done: the one nearest to an action, in the order of the rules."""
    return min(checks, key=lambda c: _FIRST[c.verdict])
