"""How many workers may be disrupted now for one reason: the strictest of the budgets that apply.

A pure function of the budgets, the time and two counts. Interruption notices and workers that no longer run ask no
budget. Windows are open while the local clock shows a time inside them: an hour that the clock skips opens nothing, an
hour that it repeats opens twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from node_fleet.domain.model.budget import Budget, Reason
from node_fleet.domain.model.local_time import DailyWindow, zone
from node_fleet.domain.model.value_class import value_class

HORIZON_DAYS = 400
"""How far the next opening is searched: a year, and a margin for a window that is a date."""
CHANGES_SEARCHED = 1_000
"""How many starts and ends of schedules and windows the search passes before it gives up."""
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@value_class
class Allowance:
    """How many more workers may be disrupted now, and why not more.

    number: at most the number of workers. budget: the text of the strictest budget that applies, empty without one;
    setting: the environment name of the setting that it comes from.
    next_opening: while number is 0, the epoch second at which schedules and windows next allow one more; None when it
    is not a matter of time.
    """

    number: int
    budget: str = ""
    next_opening: int | None = None
    setting: str = ""


@value_class
class Opening:
    """A time in which at least one worker may be disrupted. end: None while no end is known.

    limit: the number of workers at its start. jumps: the epoch seconds on its local days at which the clock jumps.
    """

    start: int
    end: int | None
    limit: int
    jumps: tuple[int, ...] = ()


def allowed(budgets: Sequence[Budget], reason: Reason, *, now: int, workers: int, disrupted: int) -> Allowance:
    """How many more workers may be disrupted for that reason now.

    workers: the workers that have joined, whatever their state. disrupted: how many of them serve no pods now or are
    leaving: NotReady, under interruption notice, being drained or replaced. They count against every budget.
    """
    strictest = _strictest(budgets, reason, now, workers)
    if strictest is None:
        return Allowance(number=workers)
    number = min(workers, max(0, strictest.limit(workers) - disrupted))
    if number:
        return Allowance(number=number, budget=strictest.text, setting=strictest.setting)
    opening = next(_openings(budgets, reason, now, workers, disrupted), None)
    start = opening.start if opening else None
    return Allowance(number=0, budget=strictest.text, next_opening=start, setting=strictest.setting)


def next_openings(budgets: Sequence[Budget], reason: Reason, *, now: int, workers: int, count: int) -> list[Opening]:
    """The next times at which schedules and windows allow at least one disruption, the present one included."""
    zones = sorted({b.timezone for b in budgets if b.concerns(reason) and not b.is_always_active})
    found = itertools.islice(_openings(budgets, reason, now, workers, 0), count)
    return [replace(opening, jumps=_jumps_on_its_days(opening, zones)) for opening in found]


def _jumps_on_its_days(opening: Opening, zones: Iterable[str]) -> tuple[int, ...]:
    last = opening.start if opening.end is None else opening.end - 1
    found: set[int] = set()
    for name in zones:
        begin, end = (_midnight(at, name, days) for at, days in ((opening.start, 0), (last, 1)))
        found.update(clock_jumps(name, begin, end))
    return tuple(sorted(found))


def _midnight(at: int, timezone: str, days: int) -> int:
    """The begin of the local day at that time, or of a later one."""
    day = datetime.fromtimestamp(at, zone(timezone)).date() + timedelta(days=days)
    return int(datetime(day.year, day.month, day.day, tzinfo=zone(timezone)).timestamp())


def clock_jumps(timezone: str, begin: int, end: int) -> list[int]:
    """The epoch seconds from begin to end at which the local clock jumps."""
    tz, found = zone(timezone), []
    step = 86_400
    for low in range(begin, end, step):
        high = min(low + step, end)
        if _offset(tz, low) != _offset(tz, high):
            first, last = low, high
            while last - first > 1:
                middle = (first + last) // 2
                first, last = (middle, last) if _offset(tz, middle) == _offset(tz, low) else (first, middle)
            found.append(last)
    return found


def is_active(budget: Budget, now: int) -> bool:
    """Whether the budget holds at that time."""
    if budget.schedule:
        return _next_time(budget, now - budget.duration_seconds) <= now
    if budget.is_always_active:
        return True
    wall = datetime.fromtimestamp(now, zone(budget.timezone))
    inside = any(_contains(window, wall) for window in budget.windows)
    return inside is bool(budget.never)


def _strictest(budgets: Iterable[Budget], reason: Reason, now: int, workers: int) -> Budget | None:
    """Of equally strict budgets the first."""
    active = [b for b in budgets if b.concerns(reason) and is_active(b, now)]
    return min(active, key=lambda b: b.limit(workers), default=None)


def _openings(budgets: Sequence[Budget], reason: Reason, now: int, workers: int, disrupted: int) -> Iterator[Opening]:
    """The spans from `now` on in which more than `disrupted` workers may be disrupted."""
    ours = [b for b in budgets if b.concerns(reason)]
    started: tuple[int, int] | None = None
    for at in _changes(ours, now):
        strictest = _strictest(ours, reason, at, workers)
        limit = workers if strictest is None else strictest.limit(workers)
        if limit > disrupted and started is None:
            started = (at, limit)
        elif limit <= disrupted and started is not None:
            yield Opening(start=started[0], end=at, limit=started[1])
            started = None
    if started is not None:
        yield Opening(start=started[0], end=None, limit=started[1])


def _changes(budgets: Sequence[Budget], now: int) -> Iterator[int]:
    """`now`, then each time at which a budget may begin or cease to hold, in order."""
    yield now
    at = now
    timed = [b for b in budgets if not b.is_always_active]
    for _ in range(CHANGES_SEARCHED):
        found = [change for b in timed if (change := _next_change(b, at)) is not None]
        if not found or min(found) > now + HORIZON_DAYS * 86_400:
            return
        at = min(found)
        yield at


def _next_change(budget: Budget, after: int) -> int | None:
    if budget.schedule:
        end = _next_time(budget, after - budget.duration_seconds) + budget.duration_seconds
        return min(_next_time(budget, after), end)
    first = datetime.fromtimestamp(after, zone(budget.timezone)).date() - timedelta(days=1)
    found: list[int] = []
    last = HORIZON_DAYS
    for number in range(last):
        day = first + timedelta(days=number)
        bounds = [at for w in budget.windows if w.starts_on(day) for at in _bounds(w, day, budget.timezone)]
        if not found and any(at > after for at in bounds):
            last = number + 2  # a window of a later day may open or close before that of an earlier one
        found += [at for at in bounds if at > after]
        if number == last:
            break
    return min(found, default=None)


def _next_time(budget: Budget, after: int) -> int:
    """The next time of the schedule after that epoch second, in its zone, as Debian's cron would run a job."""
    from cronsim import CronSim  # only schedules need it

    tz = zone(budget.timezone)
    # In an hour that the clock repeats, the search begins with the first pass.
    begin = datetime.fromtimestamp(after, tz).replace(fold=0)
    times = (int(when.timestamp()) for when in CronSim(MACROS.get(budget.schedule, budget.schedule), begin))
    return next(at for at in times if at > after)


def _contains(window: DailyWindow, wall: datetime) -> bool:
    minute = wall.hour * 60 + wall.minute
    end = window.start_minute + window.length_minutes
    day = wall.date()
    began_today = window.starts_on(day) and window.start_minute <= minute < end
    return began_today or (window.starts_on(day - timedelta(days=1)) and minute + 24 * 60 < end)


def _bounds(window: DailyWindow, day: date, timezone: str) -> list[int]:
    """Every time at which the window of that day may open or close: its start and end, and jumps of the clock."""
    tz, midnight = zone(timezone), datetime(day.year, day.month, day.day)
    end = window.start_minute + window.length_minutes
    walls = [midnight + timedelta(minutes=minute) for minute in (window.start_minute, end)]
    found = [int(wall.replace(tzinfo=tz, fold=fold).astimezone(UTC).timestamp()) for wall in walls for fold in (0, 1)]
    return [*found, *clock_jumps(timezone, min(found), max(found))]


def _offset(tz: object, at: int) -> timedelta | None:
    return datetime.fromtimestamp(at, tz).utcoffset()  # type: ignore[arg-type]
