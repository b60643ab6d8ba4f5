"""Shows a message of the topic where its incident is shown in Slack, and remembers where that is.

A thread that cannot be read or stored costs no message: it is shown in the channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from node_fleet.adapters.records import Records
from node_fleet.adapters.slack import Sent, SlackHook
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.notify.threads import (
    Display,
    Notice,
    Thread,
    continues,
    display_of,
    keys_that_share,
    takes,
    thread_after,
)
from node_fleet.logs import logger


class IncidentThreads:
    """The threads of one cluster. quiet_seconds: how long after its end an incident continues in its thread."""

    def __init__(self, hook: SlackHook, records: Records, *, now: int, quiet_seconds: int) -> None:
        self._hook = hook
        self._records = records
        self._now = now
        self._quiet_seconds = quiet_seconds

    def show(self, payload: Mapping[str, Any], notice: Notice | None) -> Sent:
        """Send the payload. Outcome "known": the incident is shown already, and this channel has no threads."""
        if notice is None or not notice.keys:
            return self._hook.send(payload)
        shown = {key: self._thread(key) for key in dict.fromkeys((*notice.keys, *keys_that_share(notice)))}
        known = shown[notice.keys[0]]
        display = display_of(
            notice,
            known,
            can_reply=self._hook.can_reply,
            now=self._now,
            quiet_seconds=self._quiet_seconds,
            has_new=any(not self._lasts(shown[key]) for key in notice.named),
        )
        sent = Sent(outcome="known", tries=0, detail=f"{notice.keys[0]} is shown already")
        if display.action != "skip":
            sent = self._hook.send(payload, thread_ts=display.ts, broadcast=display.broadcast)
        if sent.outcome != "failed":
            self._remember(notice, shown, display, sent)
        return sent

    def _remember(self, notice: Notice, shown: Mapping[str, Thread | None], display: Display, sent: Sent) -> None:
        first = notice.keys[0]
        thread = thread_after(notice, shown[first], display, sent.ts, self._now)
        thread = replace(thread, channel=self._hook.channel)
        self._store(first, thread)
        for key in keys_that_share(notice):
            other = shown[key]
            lasts = display.action != "begin" and self._lasts(other)
            if takes(key, other, thread, notice, lasts=lasts):
                self._store(key, thread)

    def _lasts(self, thread: Thread | None) -> bool:
        return thread is not None and continues(thread, self._now, self._quiet_seconds)

    def _thread(self, key: str) -> Thread | None:
        """What this channel shows of an incident."""
        try:
            thread = self._records.thread(key)
        except StateStoreError as error:
            logger.warning("the thread of an incident is unknown, so its message begins one", problem=str(error))
            return None
        return thread if thread is not None and thread.channel == self._hook.channel else None

    def _store(self, key: str, thread: Thread) -> None:
        try:
            self._records.put_thread(key, thread)
        except StateStoreError as error:
            logger.warning(
                "the thread of an incident is not stored, so the next message begins one", problem=str(error)
            )
