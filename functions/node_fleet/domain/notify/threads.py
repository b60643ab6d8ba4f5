"""Where Slack shows a message: in the channel, in the thread of its incident, or not at all.

With a bot token an incident is one thread. A webhook cannot reply: there an alarm about a known incident is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.incidents import ALWAYS_SHOWN, CRITICAL_ALARMS, OF_ALARM, RUN_FAILED, Severity
from node_fleet.domain.notify.message import Message

_RISING = ("info", "warning", "critical")
LONGEST_SILENCE_SECONDS = 86400
"""What begins after so long without a message gets a thread of its own, because an old thread is not read."""


@value_class
class Thread:
    """What is shown of one incident. ts: Slack's id of its first message, empty for a webhook. Times are epoch seconds.

    severity: the highest shown. alarms: those that are shown. by_run: whether a run has reported it, and will report
    its end. ended_at: 0 while it lasts. channel: of the first message, empty for a webhook.
    """

    ts: str
    severity: Severity
    seen_at: int
    by_run: bool
    alarms: tuple[str, ...] = ()
    ended_at: int = 0
    channel: str = ""


@value_class
class Notice:
    """One message of the topic. keys: its incidents, of which the first has the thread. alarm: the name of an alarm.

    named: those that the message itself names, without RunFailedError.
    """

    keys: tuple[str, ...]
    severity: Severity
    is_end: bool = False
    alarm: str = ""
    named: tuple[str, ...] = ()


@value_class
class Display:
    """begin: the first message of an incident, in the channel. reply: in the thread `ts`, and with broadcast also in
    the channel. post: a further message where no reply is possible. skip: not shown, because the incident is known.
    """

    action: Literal["begin", "reply", "post", "skip"]
    ts: str = ""
    broadcast: bool = False


def notice_of_message(message: Message) -> Notice:
    """The incidents of a message, and for each with an object also its kind, which alarms name."""
    kinds = [key.partition(":")[0] for key in message.incidents]
    keys = dict.fromkeys([*message.incidents, *kinds])
    named = tuple(key for key in message.incidents if key != RUN_FAILED)
    return Notice(keys=tuple(keys), severity=message.severity, is_end=message.is_end, named=named)


def notice_of_alarm(alarm: Mapping[str, Any], cluster_id: str) -> Notice:
    """The incident of an alarm of this cluster."""
    name = str(alarm["AlarmName"]).removeprefix(f"{cluster_id}-")
    return Notice(
        keys=(OF_ALARM.get(name, name),),
        severity="critical" if name in CRITICAL_ALARMS else "warning",
        is_end=alarm.get("NewStateValue", "ALARM") != "ALARM",
        alarm=name,
    )


def display_of(
    notice: Notice, known: Thread | None, *, can_reply: bool, now: int, quiet_seconds: int, has_new: bool = False
) -> Display:
    """Where the message is shown. known: what is shown of its first incident. has_new: another one is not shown yet."""
    if known is None or not (notice.is_end or continues(known, now, quiet_seconds)):
        return Display(action="begin")
    is_louder = _RISING.index(notice.severity) > _RISING.index(known.severity)
    is_louder = is_louder or (bool({notice.alarm, *notice.named} & set(ALWAYS_SHOWN)) and not notice.is_end)
    if can_reply and known.ts:
        is_shown = notice.is_end or is_louder or has_new or known.ended_at > 0
        return Display(action="reply", ts=known.ts, broadcast=is_shown)
    if not notice.alarm or not known.by_run:
        return Display(action="post")
    is_known = notice.alarm not in known.alarms if notice.is_end else not is_louder
    return Display(action="skip" if is_known else "post")


def thread_after(notice: Notice, known: Thread | None, display: Display, ts: str, now: int) -> Thread:
    """The thread after the message. ts: Slack's id of a first message."""
    alarms = (notice.alarm,) if notice.alarm and display.action != "skip" else ()
    if known is None or display.action == "begin":
        ended_at = now if notice.is_end else 0
        return Thread(
            ts=ts, severity=notice.severity, seen_at=now, by_run=not notice.alarm, alarms=alarms, ended_at=ended_at
        )
    ended_at = 0
    if notice.is_end:  # the end of an alarm does not end what a run has reported
        ended_at = known.ended_at if notice.alarm and known.by_run else now
    return replace(
        known,
        ts=ts or known.ts,
        severity=max(known.severity, notice.severity, key=_RISING.index),
        seen_at=now,
        by_run=known.by_run or not notice.alarm,
        alarms=tuple(dict.fromkeys([*known.alarms, *alarms])),
        ended_at=ended_at,
    )


def keys_that_share(notice: Notice) -> tuple[str, ...]:
    """The further keys of the thread: a message gives it to them, and an end ends those that still have it."""
    more = (RUN_FAILED,) if notice.is_end and not notice.alarm else ()
    return tuple(key for key in dict.fromkeys([*notice.keys[1:], *more]) if key != notice.keys[0])


def takes(key: str, other: Thread | None, thread: Thread, notice: Notice, *, lasts: bool) -> bool:
    """Whether the key gets this thread. other: what is shown of the key; lasts: and that continues.

    An incident with a thread of its own keeps it, so that its end is shown there. Failed runs follow the last message.
    """
    is_same = other is not None and other.ts == thread.ts
    if notice.is_end:
        return is_same
    return is_same or not lasts or key == RUN_FAILED


def continues(known: Thread, now: int, quiet_seconds: int) -> bool:
    """Whether a further message belongs to this thread."""
    if known.ended_at:
        return now - known.ended_at <= quiet_seconds
    return now - known.seen_at <= LONGEST_SILENCE_SECONDS
