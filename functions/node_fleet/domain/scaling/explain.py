"""The words of a decision: one sentence that a person understands without the code, and its reasons.

Puts together what the checks say; weighs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.scaling.check import Action, Check
from node_fleet.domain.scaling.tick import Tick

_SIGN = {"scale_up": "+", "scale_down": "-", "none": ""}
_FIRST = {"up": 0, "blocked": 1, "waiting": 2, "hold": 3, "missing": 4, "down": 5, "ok": 6}


def sentence(view: Tick, action: Action, count: int, lead: Check, checks: Iterable[Check]) -> str:
    """The lead with its outcome, then what else was weighed, then the workers: 'pending 3 ... -> +1; CPU ...'."""
    outcome = f"{_SIGN[action]}{count}" if count else "no change"
    others = [c for c in checks if c is not lead and not c.aside and not _quiet_metric(c)]
    others.sort(key=lambda c: c.verdict != "blocked")
    told = [f"{lead.text} -> {outcome}", *(c.text for c in others)]
    if view.readable and not view.live:
        told.append(f"on a reading {view.now - view.read_at} s old")
    return "; ".join([*told, workers_words(view)])


def _quiet_metric(check: Check) -> bool:
    """A custom metric that asks for nothing and forbids nothing: in the evidence, not in the sentence."""
    return check.name.startswith("custom:") and check.verdict == "down"


def workers_words(view: Tick) -> str:
    """'workers 4 of 10, 1 joining': every instance of the fleet that stays, of the maximum."""
    words = f"workers {view.counted} of {view.policy.max_workers}"
    for count, name in (
        (len(view.joining), "joining"),
        (len(view.not_ready), "NotReady"),
        (view.unknown, "unknown"),
        (len(view.snapshot.workers) - view.counted, "under notice"),
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


def nearest(checks: list[Check]) -> Check:
    """The check that says best why nothing is done: the one nearest to an action, in the order of the rules."""
    return min(checks, key=lambda c: _FIRST[c.verdict])
