"""One virtual clock for the whole simulator: callbacks that are due, and virtual threads that wait.

A virtual thread is a greenlet. Exactly one runs at any moment, and time moves only when all of them wait, so the same
start gives the same order of events. The clock knows no AWS and no cluster.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest import mock

import greenlet
import time_machine

DEFAULT_START = 1_780_300_800.0  # Monday 2026-06-01 08:00:00 UTC
GRAIN_SECONDS = 1e-6  # times are kept to the microsecond; a shorter wait still lets one pass
real_monotonic = time.monotonic
real_sleep = time.sleep


class ClockError(RuntimeError):
    """The clock was asked for something that cannot happen in virtual time."""


class ThreadKilledError(BaseException):
    """Ends a virtual thread where it waits. It is no Exception, so no `except Exception` keeps the thread alive."""


class Scope(Protocol):
    """A state that holds only while one virtual thread runs: left when it waits, entered again before it continues."""

    def enter(self) -> None: ...

    def leave(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Handle:
    """A callback that is due at a time; `VirtualClock.cancel` cancels it."""

    due: float
    callback: Callable[[], object] | None
    every_seconds: float | None = None

    @property
    def cancelled(self) -> bool:
        return self.callback is None


@dataclass(slots=True, eq=False)
class VirtualThread:
    """One line of execution in virtual time, with the part of threading.Thread's interface that its users need."""

    clock: VirtualClock
    name: str
    work: Callable[[], object]
    daemon: bool = True
    done: VirtualEvent = field(init=False)
    scopes: list[Scope] = field(default_factory=list)
    _greenlet: greenlet.greenlet | None = None
    _wake: Handle | None = None
    kill_error: BaseException | None = None

    def __post_init__(self) -> None:
        self.done = VirtualEvent(self.clock)

    @property
    def native_id(self) -> int:
        return id(self)

    def start(self) -> None:
        if self._greenlet is not None:
            raise ClockError(f"virtual thread {self.name!r} was started twice")
        self._greenlet = greenlet.greenlet(self._run)
        self.clock._threads[self._greenlet] = self
        self.clock._ready.append(self)

    def join(self, timeout: float | None = None) -> None:
        self.done.wait(timeout)

    def is_alive(self) -> bool:
        return self._greenlet is not None and not self.done.is_set()

    def kill(self, kill_error: BaseException | None = None) -> None:
        """Raises kill_error in the virtual thread at the place where it waits; a finished one stays as it is."""
        if self.is_alive() and self.kill_error is None:
            self.kill_error = kill_error or ThreadKilledError(self.name)
            self.clock._make_ready(self)

    def _run(self) -> None:
        try:
            if self.kill_error is None:
                self.work()
        except ThreadKilledError:
            pass
        except BaseException as error:
            self.clock._failures.append(error)
        finally:
            assert self._greenlet is not None
            del self.clock._threads[self._greenlet]
            self.done.set()


class VirtualEvent:
    """threading.Event in virtual time. Outside any virtual thread, wait() runs the clock until the event is set."""

    __slots__ = ("_clock", "_flag", "_waiters")

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._flag = False
        self._waiters: list[VirtualThread] = []

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        waiters, self._waiters = self._waiters, []
        for thread in waiters:
            self._clock._make_ready(thread)

    def clear(self) -> None:
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._flag or wait_for_any(self._clock, [self], timeout)


def wait_for_any(clock: VirtualClock, events: list[VirtualEvent], timeout: float | None = None) -> bool:
    """True as soon as one of the events is set, False when timeout virtual seconds have passed first."""
    if any(event._flag for event in events):
        return True
    thread = clock.current_thread()
    if thread is None:
        limit = None if timeout is None else clock.now() + timeout
        return clock.run_until(lambda: any(event._flag for event in events), limit=limit)
    for event in events:
        event._waiters.append(thread)
    try:
        clock._park(thread, timeout)
    finally:
        woken = [event for event in events if thread not in event._waiters]
        for event in events:
            if thread in event._waiters:
                event._waiters.remove(thread)
    return bool(woken)


class VirtualClock:
    """now() moves from due time to due time; callbacks with equal due times run in the order of their scheduling."""

    def __init__(self, start: float = DEFAULT_START) -> None:
        self._now = round(float(start), 6)
        self._heap: list[tuple[float, int, Handle]] = []
        self._order = itertools.count()
        self._cancelled = 0
        self._ready: deque[VirtualThread] = deque()
        self._threads: dict[greenlet.greenlet, VirtualThread] = {}
        self._failures: list[BaseException] = []
        self._hub: greenlet.greenlet | None = None
        self._thread = threading.get_ident()
        self._outer_scopes: list[Scope] = []
        self._traveller: Any = None

    def now(self) -> float:
        return self._now

    def at(self, epoch: float, callback: Callable[[], object]) -> Handle:
        """Runs callback at epoch, at the present time if that has passed. A callback may not wait: spawn for that."""
        handle = Handle(due=max(round(float(epoch), 6), self._now), callback=callback)
        heapq.heappush(self._heap, (handle.due, next(self._order), handle))
        return handle

    def every(self, seconds: float, callback: Callable[[], object], *, first: float | None = None) -> Handle:
        """Runs callback every so many seconds, the first time at `first` (default: one period from now)."""
        if seconds <= 0:
            raise ClockError(f"every({seconds!r}): the period must be above 0 seconds")
        handle = self.at(self.now() + seconds if first is None else first, callback)
        handle.every_seconds = seconds
        return handle

    def cancel(self, handle: Handle) -> None:
        """Cancels a callback. Changes nothing when it has run or was cancelled before."""
        if handle.callback is None:
            return
        handle.callback = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def spawn(self, work: Callable[[], object], name: str = "virtual thread") -> VirtualThread:
        """Starts work as a virtual thread; it first runs when the present one waits or the clock is driven."""
        thread = VirtualThread(self, name, work)
        thread.start()
        return thread

    def event(self) -> VirtualEvent:
        return VirtualEvent(self)

    def current_thread(self) -> VirtualThread | None:
        return self._threads.get(greenlet.getcurrent())

    def wait(self, seconds: float) -> None:
        """Lets so many virtual seconds pass: a virtual thread waits, the code that drives the clock advances it."""
        if seconds < 0:
            raise ClockError(f"wait({seconds!r}): a wait cannot be negative")
        thread = self.current_thread()
        if thread is not None:
            self._park(thread, seconds)
        elif self._hub is not None:
            raise ClockError("a callback may not wait: spawn a virtual thread and wait there")
        else:
            self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.advance_to(self.now() + seconds)

    def advance_to(self, epoch: float) -> None:
        """Runs everything due up to and including epoch; then it is epoch."""
        if epoch < self._now:
            raise ClockError(f"advance_to({epoch!r}): it is already {self._now!r}")
        self._drive(lambda: False, epoch)
        self._set_now(epoch)

    def run_until(self, done: Callable[[], bool], *, limit: float | None = None) -> bool:
        """Runs until done() holds (True) or it is limit (False). Without a limit, nothing left to run is an error."""
        finished = self._drive(done, limit)
        if not finished and limit is None:
            waiting = ", ".join(sorted(thread.name for thread in self._threads.values())) or "none"
            raise ClockError(f"nothing is due and the condition does not hold; waiting virtual threads: {waiting}")
        if not finished and limit is not None:
            self._set_now(max(limit, self._now))
        return finished

    @contextlib.contextmanager
    def scope(self, scope: Scope) -> Iterator[None]:
        """Keeps scope entered while the calling virtual thread (or the code that drives the clock) runs."""
        thread = self.current_thread()
        scopes = self._outer_scopes if thread is None else thread.scopes
        scope.enter()
        scopes.append(scope)
        try:
            yield
        finally:
            scopes.remove(scope)
            scope.leave()

    @contextlib.contextmanager
    def driving_time(self) -> Iterator[None]:
        """While open, time.time(), datetime.now(), time.monotonic() and time.sleep() follow this clock."""
        with (
            time_machine.travel(_exact(self._now), tick=False) as traveller,
            mock.patch.object(time, "sleep", self._sleep),
            mock.patch.object(time, "monotonic", self._monotonic),
        ):
            self._traveller = traveller
            try:
                yield
            finally:
                self._traveller = None

    def close(self) -> None:
        """Ends every virtual thread where it waits and drops all callbacks."""
        self._heap.clear()
        self._cancelled = 0
        for _ in range(100):
            if not self._threads:
                break
            for thread in list(self._threads.values()):
                thread.kill()
            self._drive(lambda: False, self._now)
        self._heap.clear()
        self._failures.clear()

    def _sleep(self, seconds: float) -> None:
        if threading.get_ident() == self._thread:
            self.wait(seconds)
        else:
            real_sleep(seconds)

    def _monotonic(self) -> float:
        return self._now if threading.get_ident() == self._thread else real_monotonic()

    def _set_now(self, epoch: float) -> None:
        epoch = round(epoch, 6)
        if epoch != self._now:
            if self._traveller is not None:  # shift leaves the time zone as it is; move_to sets it anew
                self._traveller.shift(_exact(epoch) - _exact(self._now))
            self._now = epoch

    def _drive(self, done: Callable[[], bool], limit: float | None) -> bool:
        if self._hub is not None or self.current_thread() is not None:
            raise ClockError("the clock is already running: only the code outside all virtual threads may drive it")
        self._hub = greenlet.getcurrent()
        for scope in reversed(self._outer_scopes):
            scope.leave()
        try:
            return self._loop(done, limit)
        finally:
            self._hub = None
            for scope in self._outer_scopes:
                scope.enter()

    def _loop(self, done: Callable[[], bool], limit: float | None) -> bool:
        while True:
            while self._ready:
                self._switch_to(self._ready.popleft())
                if done():
                    return True
            if done():
                return True
            handle = self._next_due(limit)
            if handle is None:
                return False
            self._fire(handle)

    def _next_due(self, limit: float | None) -> Handle | None:
        while self._heap:
            due, _, handle = self._heap[0]
            if handle.cancelled:
                heapq.heappop(self._heap)
                self._cancelled = max(0, self._cancelled - 1)
            elif limit is not None and due > limit:
                return None
            else:
                heapq.heappop(self._heap)
                return handle
        return None

    def _fire(self, handle: Handle) -> None:
        self._set_now(max(handle.due, self._now))
        callback = handle.callback
        assert callback is not None
        if handle.every_seconds is None:
            handle.callback = None
        else:
            handle.due += handle.every_seconds
            heapq.heappush(self._heap, (handle.due, next(self._order), handle))
        callback()

    def _switch_to(self, thread: VirtualThread) -> None:
        turn = thread._greenlet
        if turn is None or turn.dead:
            return
        assert self._hub is not None
        turn.parent = self._hub
        for scope in thread.scopes:
            scope.enter()
        turn.switch()
        for scope in reversed(thread.scopes):
            scope.leave()
        if self._failures:
            raise self._failures.pop(0)

    def _park(self, thread: VirtualThread, timeout: float | None) -> None:
        if thread.kill_error is not None:
            raise thread.kill_error
        if timeout is not None:
            due = self.now() + (max(timeout, GRAIN_SECONDS) if timeout > 0 else 0.0)
            thread._wake = self.at(due, lambda: self._make_ready(thread))
        hub = self._hub
        assert hub is not None
        hub.switch()
        if thread._wake is not None:
            self.cancel(thread._wake)
            thread._wake = None
        if thread.kill_error is not None:
            raise thread.kill_error

    def _make_ready(self, thread: VirtualThread) -> None:
        if thread not in self._ready:
            self._ready.append(thread)


def _exact(epoch: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC)
