"""The records of a decision: every check, the change that a strategy asks for, and the decision itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from node_fleet.domain.model.memory import AdaptiveMemory, Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import NewWorker
from node_fleet.domain.model.value_class import value_class

Action = Literal["scale_up", "scale_down", "replace", "none"]
Verdict = Literal["up", "down", "hold", "ok", "missing", "waiting", "blocked"]


@value_class
class Check:
    """One evaluated condition: its value, its threshold, how many readings it held for, and the setting behind it.

    verdict: "up" asks for a worker, "down" allows a removal, "hold" keeps the fleet as it is, "ok" does neither,
    "waiting" is over its threshold but not for long enough, "blocked" forbids what was asked, "missing" has no data.
    setting: the environment name that changes this check. aside: left out of the sentence.
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


@dataclass(slots=True, kw_only=True)
class DesiredChange:
    """The answer of a strategy: workers to add or to remove (0: none), the rule that asks for it, and all checks.

    The check named like the rule leads the sentence; when workers are added its verdict is "up". streaks: condition ->
    its streak, stored for the next tick. learned: what the strategy stores for itself; None keeps what is stored.
    new_workers: those of the added workers that pending pods need, each with the pools that may serve. policy: whose
    cooldowns apply, where it is not that of the tick.
    """

    add: int = 0
    remove: int = 0
    rule: str = "none"
    bypasses_cooldown: bool = False
    checks: list[Check] = field(default_factory=list)
    streaks: dict[str, Streak] = field(default_factory=dict)
    learned: AdaptiveMemory | None = None
    new_workers: tuple[NewWorker, ...] = ()
    policy: Policy | None = None


@value_class
class Decision:
    """What to do and why. `memory` is where the next decision starts.

    rule: "minimum", "schedule", "timed", "prediction", "pending", "cpu", "memory", "custom:NAME", "headroom",
    "not_ready", "idle", "drifted", "expired", "on-demand", "standby" or "none". The action "replace" launches a
    worker for an outdated one, which is removed when the new one has proved itself, or reboots an unhealthy or NotReady
    one. reasons: the text of the deciding checks, each with its setting in brackets.
    replace: the instance id that the scale-down must remove, or that the launched worker replaces, or, with the action
    "none", the one that ReapUnjoined inspects, or the standby worker that it terminates. new_workers: as in
    DesiredChange, at most `count`; the other workers may be of any pool. settings: environment names and values that
    differ from the defaults; they repeat the decision.
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
    new_workers: tuple[NewWorker, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)

    @property
    def notify(self) -> bool:
        """Whether Notify sends a message about this decision: it acts, or it carries an alert."""
        return bool(self.alerts) or self.action != "none"
