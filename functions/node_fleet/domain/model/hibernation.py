"""Off at night: when the fleet is to be off, what the state item remembers of it, and the next step of a run.

Functions of their arguments: they read no clock and stop nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from node_fleet.domain.model.local_time import DAY_MINUTES, DAY_NAMES, WINDOW, DailyWindow, instants, parse_window, zone
from node_fleet.domain.model.value_class import value_class

OrderKind = Literal["wake", "sleep"]
Phase = Literal["on", "draining", "stopping", "off", "waking"]
Step = Literal["on", "drain", "stop", "check", "wake"]

ALL_DAY = " 00:00-24:00"
WEEK_MINUTES = 7 * DAY_MINUTES
MOST_TARGETS = 50
"""Workers of one operation that switches the fleet off: its record and its run stay small."""
LEAST_OFF_SECONDS = 1800
"""A shorter time off is not begun: it would cost more than it saves."""
CHECK_SECONDS = 600
"""How often a run checks, while the fleet is off, whether someone has started the server by hand."""
JOIN_MARGIN_SECONDS = 300
"""How long workers may take to join after the server is healthy."""
LONGEST_LEAD_SECONDS = 3600
KEPT_ALERT_SECONDS = 3600
"""How long something may keep the fleet on before it is reported."""
ALERT_SECONDS = 240
"""How long a wake-up may take before it is reported: with a tick every two minutes the alert comes within five."""
REPEAT_SECONDS = 900
"""How often a fleet that does not wake up is reported again, until it does."""
SETTLE_SECONDS = 30
"""How long EC2 may show an earlier state of the server."""
STOP_LIMIT_SECONDS = 1800
"""How long the end of the workers, the backup and the stop of the server may take together."""


@value_class
class Order:
    """What a person ordered, with the author: the fleet is on ("wake") or off ("sleep") until then (epoch seconds)."""

    kind: OrderKind
    by: str
    since: int
    until: int

    def is_active(self, at: int) -> bool:
        """Whether it holds at that time."""
        return at < self.until


@value_class
class Hibernation:
    """What the state item remembers. since: of the phase (epoch seconds). detail: why the fleet is kept on, or failed.

    idle_until: no run has anything to do before; order_seen: `since` of the order that was known then, 0 without one.
    kept_since: since when something keeps the fleet on. wake_seconds: from the start of the server to its health, last
    time; 0 when unknown. backup_id: of the command that copies the datastore.
    """

    phase: Phase = "on"
    since: int = 0
    idle_until: int = 0
    order_seen: int = 0
    detail: str = ""
    kept_since: int = 0
    wake_seconds: int = 0
    backup_id: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the fleet is on and nothing is remembered that must be ended."""
        return self.phase == "on" and not self.kept_since

    @property
    def forbids_launches(self) -> bool:
        """Whether workers are being removed or are off, so that none may be launched."""
        return self.phase in ("draining", "stopping", "off")


@value_class
class Times:
    """When the fleet is to be off: the windows in their zone, an order over them, and how early it is started.

    drain_seconds: how long its workers are drained before. on: from when until when capacity is ordered, which goes
    over the windows.
    """

    windows: tuple[DailyWindow, ...]
    timezone: str
    order: Order | None = None
    lead_seconds: int = 0
    drain_seconds: int = 0
    on: tuple[tuple[int, int], ...] = ()

    def is_off(self, at: int) -> bool:
        """Whether the fleet is to be off at that time. An order goes over the windows."""
        if self.order is not None and self.order.is_active(at):
            return self.order.kind == "sleep"
        return self.window_end(at) > at and not any(since <= at < until for since, until in self.on)

    def stays_off(self, now: int, *, at_least: int = 0) -> bool:
        """Whether the fleet is to be off now, for longer than its start takes and for at_least seconds before that."""
        left = self.on_again(now) - now - self.lead_seconds
        return left > 0 and left >= at_least

    def window_end(self, at: int) -> int:
        """The end of the windows that are open at that time, one after the other; that time when none is."""
        end, last = at, -1
        while end != last:  # windows that follow each other are one time off
            last = end
            end = max([end, *(past for first, past in _spans_at(self.windows, self.timezone, end) if first <= end)])
        return end

    def on_again(self, now: int) -> int:
        """The first time from now on at which the fleet is to be on; now when it is."""
        at, last = now, -1
        while at != last:
            last = at
            if self.order is not None and self.order.is_active(at):
                at = self.order.until if self.order.kind == "sleep" else at
            elif self.is_off(at):
                end = self.window_end(at)
                at = min([end, *(since for since, _ in self.on if at < since < end)])
        return at

    def off_again(self, now: int) -> int | None:
        """The next time within eight days at which the fleet is to be off; None when it is not."""
        starts = {first for day in range(9) for first, _ in _spans_at(self.windows, self.timezone, now + day * 86_400)}
        ends = [until for _, until in self.on]
        ends += [self.order.until] if self.order is not None and self.order.is_active(now) else []
        return next((at for at in sorted({now, *starts, *ends}) if at >= now and self.is_off(at)), None)


def lead_seconds(configured: int, hibernation: Hibernation) -> int:
    """How early the fleet is started: as configured, or as long as the last start took where that is longer."""
    measured = hibernation.wake_seconds + JOIN_MARGIN_SECONDS if hibernation.wake_seconds else 0
    return min(max(configured, measured), LONGEST_LEAD_SECONDS)


def next_step(hibernation: Hibernation, times: Times, now: int) -> Step:
    """What a run does now. "on": nothing. "check": the fleet is off and stays off."""
    phase = hibernation.phase
    if phase == "waking":
        return "wake"
    if phase in ("stopping", "off"):
        return "check" if times.stays_off(now) else "wake"
    least = 0 if phase == "draining" else times.drain_seconds + LEAST_OFF_SECONDS
    return "drain" if times.stays_off(now, at_least=least) else "on"


def parse_windows(value: Any) -> tuple[DailyWindow, ...]:
    """Read windows such as "Sun-Fri 20:00-07:00; Sat-Sun"; days without times are whole days.

    Raises:
        ValueError: names the window that cannot be read and shows the form.
    """
    texts = value.split(";") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError('expected text such as "Sun-Fri 20:00-07:00; Sat-Sun"')
    return tuple(
        each if isinstance(each, DailyWindow) else _window(str(each).strip()) for each in texts if str(each).strip()
    )


def _window(text: str) -> DailyWindow:
    found = re.fullmatch(WINDOW, text) or re.fullmatch(WINDOW, text + ALL_DAY)
    if not found:
        raise ValueError(f"cannot read window {text!r}, expected e.g. 'Mon-Fri 20:00-07:00', 'Sat-Sun' or '2026-12-24'")
    return parse_window(found, text)


def off_minutes(windows: Iterable[DailyWindow]) -> int:
    """The minutes of a week in which the fleet is off, by the windows of weekdays."""
    return sum(_week(windows))


def midnight_warning(windows: Iterable[DailyWindow]) -> str:
    """What surprises in the windows of weekdays: a day that begins on, while other nights last until the morning."""
    nights = [w for w in windows if w.days and 0 < w.end_minute < w.start_minute]
    off = _week(windows)
    days = [day for day in range(7) if off[day * DAY_MINUTES - 1] and not off[day * DAY_MINUTES]]
    if not nights or not days:
        return ""
    night = max(nights, key=lambda w: w.end_minute)
    mornings = ",".join(DAY_NAMES[day].capitalize() for day in days)
    end = f"{night.end_minute // 60:02}:{night.end_minute % 60:02}"
    return (
        f"the fleet is on from 00:00 on {mornings}, while other nights end at {end}: a window belongs to the day on "
        f"which it starts. To stay off until {end}, add {mornings} 00:00-{end}"
    )


def _week(windows: Iterable[DailyWindow]) -> bytearray:
    """1 for each minute of a week in which the fleet is off, from Monday 00:00."""
    off = bytearray(WEEK_MINUTES)
    for window in windows:
        for day in window.days:
            for minute in range(window.length_minutes):
                off[(day * DAY_MINUTES + window.start_minute + minute) % WEEK_MINUTES] = 1
    return off


def _spans_at(windows: tuple[DailyWindow, ...], timezone: str, at: int) -> tuple[tuple[int, int], ...]:
    if not windows:
        return ()
    return _spans(windows, timezone, datetime.fromtimestamp(at, zone(timezone)).date())


@functools.lru_cache(maxsize=512)
def _spans(windows: tuple[DailyWindow, ...], timezone: str, today: date) -> tuple[tuple[int, int], ...]:
    """Start and end of every window that may be open at some time of this local day.

    Where the clock jumps, a start and an end are at the first possible time: the fleet is on early, never late. A
    window inside the jump ends when it starts, or before.
    """
    days = (today - timedelta(days=1), today, today + timedelta(days=1))
    return tuple(_span(w, timezone, day) for w in windows for day in days if w.starts_on(day))


def _span(window: DailyWindow, timezone: str, day: date) -> tuple[int, int]:
    end = window.start_minute + window.length_minutes
    return min(instants(day, window.start_minute, timezone)), min(instants(day, end, timezone))


def utc_minute(epoch: int) -> str:
    """For example: 2026-11-27 18:00 UTC."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%d %H:%M UTC")
