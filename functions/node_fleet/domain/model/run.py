"""One execution: its trigger, its times and its fence, and how its input is read; and the alerts of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, cast

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.value_class import value_class

Trigger = Literal["schedule", "alert", "manual"]
TRIGGERS = ("schedule", "alert", "manual")
CLOCK_DIFFERENCE_SECONDS = 60
UNKNOWN_FIELDS_SHOWN = 5
INPUT_FIELDS = ("trigger", "scheduled_at", "dry_run")


@value_class
class Run:
    """One execution. `scheduled_at` and `started_at` are epoch seconds; scheduled_at is 0 for alert and manual runs."""

    execution_id: str
    trigger: Trigger
    scheduled_at: int
    started_at: int
    dry_run: bool = False
    fence: int = 0
    round: int = 1


@value_class
class Timing:
    """The pauses of the Wait states (SecondsPath), in seconds."""

    join_poll_seconds: int
    drain_poll_seconds: int
    terminate_poll_seconds: int
    scheduling_grace_seconds: int


@value_class
class Alert:
    """One problem to report to people: a stable kind for de-duplication, and the message. is_critical: data is lost."""

    kind: str
    text: str
    is_critical: bool = False


def read_input(data: Any, *, execution_id: str, started_at: str) -> Run:
    """The run that an execution input requests; `started_at` is the ISO start time of the execution.

    Raises:
        InvalidInputError: lists everything that is wrong with the input, and shows a correct input.
    """
    problems = _problems(data, _epoch(started_at))
    if problems:
        example = '{"trigger": "schedule", "scheduled_at": "2026-11-27T18:00:00Z", "dry_run": false}'
        raise InvalidInputError(f"execution input: {'; '.join(problems)}; expected e.g. {example}")
    scheduled = data.get("scheduled_at", "")
    return Run(
        execution_id=execution_id,
        trigger=cast(Trigger, data["trigger"]),
        scheduled_at=_epoch(scheduled) if scheduled else 0,
        started_at=_epoch(started_at),
        dry_run=data.get("dry_run", False),
    )


def _problems(data: Any, started_at: int) -> list[str]:
    if not isinstance(data, Mapping):
        return [f"it is {data!r:.60}, not an object"]
    found = [f"unknown field {name!r:.60}" for name in sorted(set(data) - set(INPUT_FIELDS))][:UNKNOWN_FIELDS_SHOWN]
    if data.get("trigger") not in TRIGGERS:
        found.append(f"trigger is {data.get('trigger')!r:.60}, expected {', '.join(TRIGGERS)}")
    if not isinstance(data.get("dry_run", False), bool):
        found.append(f"dry_run is {data['dry_run']!r:.60}, expected true or false")
    return [*found, *_time_problems(data.get("trigger"), data.get("scheduled_at", ""), started_at)]


def _time_problems(trigger: Any, scheduled: Any, started_at: int) -> list[str]:
    """The state item keeps the latest scheduled_at, and a run that is not later is stale: only the schedule sets it."""
    if not scheduled:
        return ["scheduled_at is missing, a scheduled run needs it"] if trigger == "schedule" else []
    if not _is_time(scheduled):
        return [f"scheduled_at is {scheduled!r:.60}, expected an ISO time with zone"]
    if trigger != "schedule":
        return [f"scheduled_at is {scheduled!r:.60}, but only a scheduled run has it"]
    if _epoch(scheduled) > started_at + CLOCK_DIFFERENCE_SECONDS:
        return [f"scheduled_at is {scheduled!r:.60}, expected no time after the start of the execution"]
    return []


def _is_time(text: Any) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except (TypeError, ValueError):
        return False


def _epoch(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
