"""What to do, and why: one pure function of the snapshot, the memory, the policy and the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from node_fleet.domain.model import Alert, Memory, Snapshot
from node_fleet.domain.policy import Policy

Action = Literal["scale_up", "scale_down", "none"]
Verdict = Literal["up", "down", "hold", "ok", "missing", "waiting", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was weighed: its value, the mark it was held to, for how long, what followed, and the setting."""

    name: str
    verdict: Verdict
    text: str
    value: float | None = None
    threshold: float | None = None
    readings: int = 0
    needed: int = 0
    setting: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer as data. `sentence` says it to a person; `memory` is what the next decision starts from.

    rule: the rule that decided ("minimum", "pending", "cpu", "memory", "custom:NAME", "prediction", "schedule",
    "not_ready", "idle", "none"). replace: instance id that the scale-down must remove (the NotReady path), else empty.
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
    memory: Memory = field(default_factory=Memory)


def decide(snapshot: Snapshot, memory: Memory, policy: Policy, now: int) -> Decision:
    """Decide for one tick. `now` is epoch seconds UTC. Reads nothing but its arguments; same arguments, same answer."""
    usable, coming = len(snapshot.usable), len(snapshot.in_flight)
    counted = len(snapshot.counted)
    if snapshot.source == "none":
        usable, coming = counted, 0
    shortfall = policy.min_workers - usable - coming
    headroom = max(0, policy.max_workers - counted)
    if shortfall > 0 and headroom > 0:
        count = min(shortfall, headroom)
        sentence = f"{usable + coming} workers under the minimum of {policy.min_workers} -> +{count}"
        return Decision(
            action="scale_up",
            count=count,
            rule="minimum",
            sentence=sentence,
            reasons=(sentence,),
            memory=memory,
        )
    return Decision(action="none", count=0, rule="none", sentence="nothing to do", reasons=(), memory=memory)
