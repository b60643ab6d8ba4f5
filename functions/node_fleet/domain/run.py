"""What one execution knows of itself: who started it, when, under which fence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Trigger = Literal["schedule", "alert", "manual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution. `scheduled_at` and `started_at` are epoch seconds; scheduled_at is 0 for alert and manual runs."""

    execution_id: str
    trigger: Trigger
    scheduled_at: int
    started_at: int
    dry_run: bool = False
    fence: int = 0
    round: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Pauses of the Wait states, handed to SecondsPath. All in seconds."""

    join_poll_seconds: int
    drain_poll_seconds: int
    terminate_poll_seconds: int
    scheduling_grace_seconds: int
