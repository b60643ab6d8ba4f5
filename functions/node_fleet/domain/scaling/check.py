"""The form of an answer: each thing that was weighed, and the decision that carries them all.

Records only; decision.py makes them, and its callers import them from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Alert

Action = Literal["scale_up", "scale_down", "none"]
Verdict = Literal["up", "down", "hold", "ok", "missing", "waiting", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was weighed: its value, the mark it was held to, for how long, what followed, and the setting.

    verdict: "up" asks for a worker, "down" allows one to go, "hold" keeps what is there, "ok" is neither, "waiting" is
    over its mark but not for long enough, "blocked" forbids what was asked, "missing" could not be weighed.
    setting: the environment name that changes this check. aside: not worth a place in the sentence.
    """

    name: str
    verdict: Verdict
    text: str
    value: float | None = None
    threshold: float | None = None
    readings: int = 0
    needed: int = 0
    setting: str = ""
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer as data. `sentence` says it to a person; `memory` is what the next decision starts from.

    rule: the rule that decided ("minimum", "schedule", "prediction", "pending", "cpu", "memory", "custom:NAME",
    "not_ready", "idle", "none"). replace: instance id that the scale-down must remove (the NotReady path), or with
    the action none the one that ReapUnjoined looks for; else empty.
    reasons: the same words as the evidence, each with its setting in brackets.
    settings: environment names and values that differed from the defaults, so that the decision can be made again.
    """

    action: Action
    count: int
    rule: str
    sentence: str
    reasons: tuple[str, ...]
    blocked_by: tuple[str, ...] = ()
    evidence: tuple[Check, ...] = ()
    alerts: tuple[Alert, ...] = ()
    replace: str = ""
    workers_before: int = 0
    workers_after: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def notify(self) -> bool:
        """Whether Notify sends a message about this decision: it acts, or it carries an alert."""
        return bool(self.alerts) or self.action != "none"
