"""Which messages begin, continue or end an incident. The memory keeps its key and when its cause was last seen.

A key is the kind of an alert with its object ("drain_failed:i-0ab"), or the class of an error without a kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from node_fleet.domain.model.run import CLOCK_DIFFERENCE_SECONDS, Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.incidents import RUN_FAILED, incident_of, incident_of_error, most_severe

READING_END_SECONDS = 600
"""An incident whose cause every reading looks for has ended after so long without it: five ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedIncident:
    """last_seen: epoch seconds."""

    key: str
    last_seen: int

    @property
    def sentence(self) -> str:
        """The end in one sentence."""
        at = datetime.fromtimestamp(self.last_seen, UTC).strftime("%Y-%m-%d %H:%M")
        return f"ended: {self.key} was last seen at {at} UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """keys: the incidents of a run's message, the most severe first. is_new: at least one begins with it."""

    keys: tuple[str, ...]
    is_new: bool


def ended_incidents(
    before: Mapping[str, int], after: Mapping[str, int], snapshot: Snapshot, quiet_seconds: int
) -> tuple[tuple[EndedIncident, ...], dict[str, int]]:
    """The incidents that are over, and what of `after` stays remembered.

    before, after: key -> when the cause was last seen, without and with this decision. An incomplete reading ends
    none: a cause may be absent only because it cannot be seen.
    """
    if not _is_complete(snapshot):
        return (), {**before, **after}
    over = {key: seen for key, seen in before.items() if after.get(key, seen) == seen}
    over = {key: seen for key, seen in over.items() if snapshot.at - seen > _end_seconds(key, quiet_seconds)}
    ended = tuple(EndedIncident(key=key, last_seen=seen) for key, seen in over.items() if _has_end(key))
    return ended, {key: seen for key, seen in after.items() if key not in over}


def news_of(
    decided: Sequence[Alert],
    found: Sequence[Alert],
    error: str,
    *,
    alerted: Mapping[str, int],
    started_at: int,
    now: int,
    quiet_seconds: int,
) -> News:
    """Whether a run's alerts and its failure report anything that an earlier message did not.

    decided: the alerts of the decision, which are new by its rule. found: those of other steps; some of these steps
    have marked them in `alerted` during this run. error: the class of the failure, or nothing.
    """
    cause = incident_of_error(error) if error else ""
    known = {key for key, seen in alerted.items() if now - seen <= quiet_seconds}
    marked = {key for key in known if alerted[key] >= started_at - CLOCK_DIFFERENCE_SECONDS}
    begun = any(not _is_remembered(a.kind) or a.kind not in known or a.kind in marked for a in found)
    failed = bool(cause) and (not _is_remembered(cause) or cause not in known)
    return News(
        keys=incident_keys((*decided, *found), error),
        is_new=bool(decided) or begun or failed,
    )


def incident_keys(alerts: Iterable[Alert], error: str = "") -> tuple[str, ...]:
    """The incidents of these alerts and of a failure, each once, the most severe first."""
    order = ("critical", "warning", "info")
    kinds = [alert.kind for alert in alerts]
    cause = incident_of_error(error) if error else ""
    if cause and cause not in {kind.partition(":")[0] for kind in kinds}:
        kinds.append(cause)
    kinds.sort(key=lambda kind: order.index(most_severe([kind])))
    return tuple(dict.fromkeys([*kinds, *([RUN_FAILED] if error else [])]))


def remembered(alerted: Mapping[str, int], keys: Iterable[str], error: str, now: int) -> dict[str, int]:
    """What the memory keeps after a message about these incidents."""
    causes = [*keys, *([incident_of_error(error)] if error else [])]
    return {**alerted, **{key: now for key in causes if key != RUN_FAILED}}


def _is_complete(snapshot: Snapshot) -> bool:
    known = snapshot.pending is not None and snapshot.cpu_percent is not None
    return snapshot.source == "live" and not snapshot.problem and known


def _end_seconds(key: str, quiet_seconds: int) -> int:
    row = incident_of(key)
    return min(quiet_seconds, READING_END_SECONDS) if row and row.end == "reading" else quiet_seconds


def _has_end(key: str) -> bool:
    row = incident_of(key)
    return row is not None and row.end != "none"


def _is_remembered(kind: str) -> bool:
    """Whether a repetition is no news. What is over with its report is news each time."""
    row = incident_of(kind)
    return row is None or row.end != "none"
