"""Which messages begin, continue or end an incident. The memory keeps its key and when its cause was last seen.

A key is the kind of an alert with its object ("drain_failed:i-0ab"), or the class of an error without a kind.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from node_fleet.domain.model.back_off import JOIN, REMOVAL, SCALE_UP, active, node_key
from node_fleet.domain.model.memory import BackOff, ReadingPoint
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import CLOCK_DIFFERENCE_SECONDS, Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.incidents import RUN_FAILED, incident_of, incident_of_error, most_severe

READING_END_SECONDS = 600
"""An incident whose cause every reading looks for has ended after so long without it: five ticks."""
MOST_UNSENT, UNSENT_LENGTH, CUT = 3, 500, " ... (cut, because the state item keeps only this much of an alert)"
"""How many alerts the state item keeps until a topic accepts them, how many characters of each, and their end then."""
_BACK_OFF_OF = {
    "circuit_breaker": JOIN,
    "join_failed": JOIN,
    "launch_configuration": SCALE_UP,
    "no_capacity": SCALE_UP,
    "quota_exceeded": SCALE_UP,
    "scale_up_failed": SCALE_UP,
    "termination_refused": REMOVAL,
}
"""Kind -> the back-off during which its cause is not tried again, so that its absence says nothing."""
_WITH_DIGIT = re.compile(r"\b(?=[\w-]*\d)[\w-]+")
_LISTS_TRIES = ("scale_up_failed", "no_capacity", "join_failed")
"""Kinds whose errors list tries, in words that differ from run to run."""


@value_class
class EndedIncident:
    """last_seen: epoch seconds."""

    key: str
    last_seen: int

    @property
    def sentence(self) -> str:
        """The end in one sentence."""
        at = datetime.fromtimestamp(self.last_seen, UTC).strftime("%Y-%m-%d %H:%M")
        return f"ended: {self.key} was last seen at {at} UTC"


@value_class
class News:
    """keys: the incidents of a run's message, the most severe first. is_new: at least one begins with it."""

    keys: tuple[str, ...]
    is_new: bool


@value_class
class Failure:
    """How a run failed: the class of its error, and its message. Empty: it did not."""

    error: str = ""
    text: str = ""

    @property
    def incident(self) -> str:
        """The key of its incident; empty without a failure."""
        return incident_of_error(self.error) if self.error else ""

    @property
    def detail(self) -> str:
        """The error with a checksum of the words of its message, without ids and numbers; empty where these vary.

        Two causes with one class, such as two missing permissions, differ in it.
        """
        if not self.text or self.incident in _LISTS_TRIES:
            return ""
        words = " ".join(_WITH_DIGIT.sub("", self.text).split())
        return f"{self.error}#{zlib.crc32(words.encode()):08x}"


def ended_incidents(
    before: Mapping[str, int],
    after: Mapping[str, int],
    snapshot: Snapshot,
    quiet_seconds: int,
    *,
    back_offs: tuple[BackOff, ...] = (),
    complete_since: int = 0,
) -> tuple[tuple[EndedIncident, ...], dict[str, int]]:
    """The incidents that are over, and what of `after` stays remembered.

    before, after: key -> when the cause was last seen, without and with this decision. An incomplete reading ends
    none: a cause may be absent only because it cannot be seen. Nor does one end while its action is in back-off.
    complete_since: see there; what every reading looks for ends so long after that time at the earliest.
    """
    is_complete, over, kept = _is_complete(snapshot), dict[str, int](), dict[str, int]()
    for key, seen in before.items():
        absent_since = max(seen, complete_since) if _is_read(key) else seen
        is_absent = snapshot.at - absent_since > _end_seconds(key, quiet_seconds)
        if after.get(key, seen) != seen:
            continue
        if is_absent and is_complete and not _backs_off(key, back_offs, snapshot.at):
            over[key] = seen
        elif _has_end(key):
            kept[key] = seen
    ended = tuple(EndedIncident(key=key, last_seen=seen) for key, seen in over.items() if _has_end(key))
    return ended, {**kept, **{key: seen for key, seen in after.items() if key not in over}}


def complete_since(readings: Sequence[ReadingPoint], policy: Policy) -> int:
    """Since when readings have been complete without a gap; 0 when that is longer than they are kept."""
    since = 0
    for reading in reversed(readings):
        is_gap = since and since - reading.at > policy.reading_gap_seconds
        if is_gap or reading.cpu_percent is None or reading.pending is None:
            return since
        since = reading.at
    return 0 if len(readings) >= policy.readings_kept else since


def news_of(
    decided: Sequence[Alert],
    found: Sequence[Alert],
    failure: Failure,
    *,
    alerted: Mapping[str, int],
    started_at: int,
    now: int,
    quiet_seconds: int,
) -> News:
    """Whether a run's alerts and its failure report anything that an earlier message did not.

    decided: the alerts of the decision, which are new by its rule. found: those of other steps; some of these steps
    have marked them in `alerted` during this run. A failure is news again when its class is known for another cause.
    """
    cause, detail = failure.incident, failure.detail
    known = {key for key, seen in alerted.items() if now - seen <= quiet_seconds}
    marked = {key for key in known if alerted[key] >= started_at - CLOCK_DIFFERENCE_SECONDS}
    begun = any(not _is_remembered(a.kind) or a.kind not in known or a.kind in marked for a in found)
    is_other = detail not in known and any(key.startswith(f"{failure.error}#") for key in known)
    failed = bool(cause) and (not _is_remembered(cause) or cause not in known or (bool(detail) and is_other))
    return News(
        keys=incident_keys((*decided, *found), failure.error),
        is_new=bool(decided) or begun or failed,
    )


def is_worth_sending(news: News, outcome: str, *, has_notes: bool, has_ended: bool) -> bool:
    """Whether a run's message is sent: not when it only repeats known incidents, or has only ends to report.

    outcome: its kind, empty when the run ended before it had one.
    """
    if news.is_new or outcome in ("scaled_up", "scaled_down", "rebooted", "dry_run"):
        return True
    return not news.keys and not (has_ended and not outcome and not has_notes)


def incident_keys(alerts: Iterable[Alert], error: str = "") -> tuple[str, ...]:
    """The incidents of these alerts and of a failure, each once, the most severe first."""
    order = ("critical", "warning", "info")
    kinds = [alert.kind for alert in alerts]
    cause = incident_of_error(error) if error else ""
    if cause and cause not in {kind.partition(":")[0] for kind in kinds}:
        kinds.append(cause)
    kinds.sort(key=lambda kind: order.index(most_severe([kind])))
    return tuple(dict.fromkeys([*kinds, *([RUN_FAILED] if error else [])]))


def remembered(alerted: Mapping[str, int], keys: Iterable[str], failure: Failure, now: int) -> dict[str, int]:
    """What the memory keeps after a message about these incidents."""
    causes = [key for key in (*keys, failure.incident, failure.detail) if key and key != RUN_FAILED]
    return {**alerted, **dict.fromkeys(causes, now)}


def unreported(alerted: Mapping[str, int], keys: Iterable[str], ended: Iterable[EndedIncident]) -> dict[str, int]:
    """What the memory keeps after a message about these incidents and ends that no topic accepted.

    An incident that lasts is news in the next run again, and an end is reported by the next complete reading.
    """
    lost = set(keys)
    return {**{k: seen for k, seen in alerted.items() if k not in lost}, **{one.key: one.last_seen for one in ended}}


def kept_unsent(alerts: Iterable[Alert]) -> tuple[Alert, ...]:
    """Of alerts that no topic accepted the last critical ones that no later run finds again, to be sent by the next."""
    found = [a for a in alerts if a.is_critical or most_severe([a.kind]) == "critical"]
    once = [a for a in found if not _is_remembered(a.kind)]
    return tuple(replace(a, text=_cut(a.text)) for a in once[-MOST_UNSENT:])


def _cut(text: str) -> str:
    """Ends with a whole word, so that a command in the text names no other object, and says that it is cut."""
    if len(text) <= UNSENT_LENGTH:
        return text
    return text[: UNSENT_LENGTH - len(CUT)].rpartition(" ")[0] + CUT


def _is_complete(snapshot: Snapshot) -> bool:
    known = snapshot.pending is not None and snapshot.cpu_percent is not None
    return snapshot.source == "live" and not snapshot.problem and known


def _end_seconds(key: str, quiet_seconds: int) -> int:
    return min(quiet_seconds, READING_END_SECONDS) if _is_read(key) else quiet_seconds


def _is_read(key: str) -> bool:
    row = incident_of(key)
    return row is not None and row.end == "reading"


def _backs_off(key: str, back_offs: tuple[BackOff, ...], now: int) -> bool:
    kind, _, of = key.partition(":")
    names = (_BACK_OFF_OF.get(kind, ""), node_key(of) if of and _has_quiet_end(kind) else "")
    return any(active(back_offs, name, now) for name in names if name)


def _has_quiet_end(kind: str) -> bool:
    row = incident_of(kind)
    return row is not None and row.end == "quiet"


def _has_end(key: str) -> bool:
    row = incident_of(key)
    return row is not None and row.end != "none"


def _is_remembered(kind: str) -> bool:
    """Whether a repetition is no news. What is over with its report is news each time."""
    row = incident_of(kind)
    return row is None or row.end != "none"
