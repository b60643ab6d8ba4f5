"""Shows a message of the topic where its incident is shown in Slack, and remembers where that is.

A thread that cannot be read or stored costs no message: it is shown in the channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_fleet.adapters.records import Records
from node_fleet.adapters.slack import Sent, SlackHook
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.notify.threads import Notice, Thread, display_of, keys_that_share, thread_after
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
        known = self._thread(notice.keys[0])
        display = display_of(
            notice, known, can_reply=self._hook.can_reply, now=self._now, quiet_seconds=self._quiet_seconds
        )
        sent = Sent(outcome="known", tries=0, detail=f"{notice.keys[0]} is shown already")
        if display.action != "skip":
            sent = self._hook.send(payload, thread_ts=display.ts, broadcast=display.broadcast)
        if sent.outcome != "failed":
            self._remember(notice, thread_after(notice, known, display, sent.ts, self._now))
        return sent

    def _remember(self, notice: Notice, thread: Thread) -> None:
        self._store(notice.keys[0], thread)
        for key in keys_that_share(notice):
            other = self._thread(key) if notice.is_end else None
            if not notice.is_end or (other is not None and other.ts == thread.ts):
                self._store(key, thread)

    def _thread(self, key: str) -> Thread | None:
        try:
            return self._records.thread(key)
        except StateStoreError as error:
            logger.warning("the thread of an incident is unknown, so its message begins one", problem=str(error))
            return None

    def _store(self, key: str, thread: Thread) -> None:
        try:
            self._records.put_thread(key, thread)
        except StateStoreError as error:
            logger.warning(
                "the thread of an incident is not stored, so the next message begins one", problem=str(error)
            )
