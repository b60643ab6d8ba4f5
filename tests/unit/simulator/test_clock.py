"""The virtual clock: order, ties, cancelling, waiting virtual threads, and the same order twice."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.clock import ClockError, ThreadKilledError, VirtualClock, wait_for_any


class Flag:
    """A scope that says whether it holds."""

    def __init__(self) -> None:
        self.held = False

    def enter(self) -> None:
        self.held = True

    def leave(self) -> None:
        self.held = False


@given(st.lists(st.integers(0, 20), max_size=40))
def test_callbacks_run_in_time_order_and_ties_in_the_order_they_were_asked_for(delays: list[int]) -> None:
    clock = VirtualClock(1000.0)
    ran: list[tuple[float, int]] = []
    for index, delay in enumerate(delays):
        clock.at(1000.0 + delay, lambda index=index: ran.append((clock.now(), index)))
    clock.advance(20)
    assert ran == sorted((1000.0 + delay, index) for index, delay in enumerate(delays))
    assert clock.now() == 1020.0


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=200))
def test_a_cancelled_callback_never_runs_and_the_others_all_do(entries: list[tuple[int, bool]]) -> None:
    clock = VirtualClock(0.0)
    ran: list[int] = []
    handles = [clock.at(float(due), lambda index=index: ran.append(index)) for index, (due, _) in enumerate(entries)]
    for handle, (_, cancelled) in zip(handles, entries, strict=True):
        if cancelled:
            clock.cancel(handle)
            clock.cancel(handle)
    clock.advance(10)
    assert sorted(ran) == [index for index, (_, cancelled) in enumerate(entries) if not cancelled]


@given(
    st.lists(st.lists(st.floats(0, 5, allow_nan=False), max_size=6), min_size=1, max_size=5),
)
def test_interleaved_virtual_threads_give_the_same_order_of_events_every_time(plans: list[list[float]]) -> None:
    def run() -> list[tuple[int, float]]:
        clock = VirtualClock(0.0)
        seen: list[tuple[int, float]] = []

        def work(index: int, plan: list[float]) -> None:
            for delay in plan:
                clock.wait(delay)
                seen.append((index, clock.now()))

        for index, plan in enumerate(plans):
            clock.spawn(lambda index=index, plan=plan: work(index, plan))
        clock.advance(50)
        return seen

    first = run()
    assert first == run()
    assert [at for _, at in first] == sorted(at for _, at in first)


def test_a_callback_may_ask_for_more_and_sees_its_own_due_time(clock: VirtualClock) -> None:
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.now())
        if len(seen) < 3:
            clock.at(clock.now() + 2, again)

    clock.at(1, again)
    clock.advance(10)
    assert seen == [1, 3, 5]


def test_a_time_in_the_past_runs_now() -> None:
    clock = VirtualClock(100.0)
    seen: list[float] = []
    clock.at(5.0, lambda: seen.append(clock.now()))
    clock.advance(0)
    assert seen == [100.0]


def test_every_repeats_until_it_is_cancelled(clock: VirtualClock) -> None:
    seen: list[float] = []
    handle = clock.every(10, lambda: seen.append(clock.now()), first=5)
    clock.advance(30)
    clock.cancel(handle)
    clock.advance(30)
    assert seen == [5, 15, 25]


def test_a_repeating_callback_may_cancel_itself(clock: VirtualClock) -> None:
    seen: list[float] = []
    handle = clock.every(1, lambda: (seen.append(clock.now()), clock.cancel(handle)))
    clock.advance(5)
    assert seen == [1]


def test_waiting_outside_all_virtual_threads_advances_the_clock(clock: VirtualClock) -> None:
    seen: list[float] = []
    clock.at(3, lambda: seen.append(clock.now()))
    clock.wait(4)
    assert (seen, clock.now()) == ([3], 4)


def test_a_callback_that_waits_is_told_to_spawn(clock: VirtualClock) -> None:
    clock.at(1, lambda: clock.wait(1))
    with pytest.raises(ClockError, match="spawn a virtual thread"):
        clock.advance(2)


def test_a_virtual_thread_joins_others_without_stopping_time(clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []

    def parent() -> None:
        children = [clock.spawn(lambda seconds=seconds: clock.wait(seconds)) for seconds in (5, 2)]
        for child in children:
            child.join()
        seen.append(("joined", clock.now()))

    clock.spawn(parent)
    clock.advance(10)
    assert seen == [("joined", 5)]


def test_a_join_with_a_timeout_leaves_the_other_running(clock: VirtualClock) -> None:
    seen: list[object] = []

    def parent() -> None:
        child = clock.spawn(lambda: (clock.wait(9), seen.append(clock.now())))
        child.join(timeout=4)
        seen.append((clock.now(), child.is_alive()))

    clock.spawn(parent)
    clock.advance(10)
    assert seen == [(4, True), 9]


def test_an_event_wakes_all_its_waiters_even_when_cleared_at_once(clock: VirtualClock) -> None:
    event = clock.event()
    seen: list[tuple[bool, float]] = []
    for _ in range(2):
        clock.spawn(lambda: seen.append((event.wait(60), clock.now())))
    clock.at(7, lambda: (event.set(), event.clear()))
    clock.advance(100)
    assert seen == [(True, 7), (True, 7)]


def test_an_event_that_is_never_set_times_out(clock: VirtualClock) -> None:
    seen: list[tuple[bool, float]] = []
    clock.spawn(lambda: seen.append((clock.event().wait(3), clock.now())))
    clock.advance(5)
    assert seen == [(False, 3)]


def test_waiting_for_any_of_two_events_ends_with_the_first(clock: VirtualClock) -> None:
    one, two = clock.event(), clock.event()
    seen: list[tuple[bool, float]] = []
    clock.spawn(lambda: seen.append((wait_for_any(clock, [one, two]), clock.now())))
    clock.at(2, two.set)
    clock.advance(5)
    assert seen == [(True, 2)]


def test_a_wait_shorter_than_the_grain_of_the_clock_still_lets_time_pass() -> None:
    clock = VirtualClock(1_780_300_800.0)
    seen: list[float] = []

    def work() -> None:
        limit = clock.now() + 1e-6
        while clock.now() < limit:
            clock.wait(1e-7)
        seen.append(clock.now())

    clock.spawn(work)
    clock.advance(1)
    assert seen == [1_780_300_800.000001]


def test_a_killed_virtual_thread_ends_where_it_waits_and_cannot_wait_again(clock: VirtualClock) -> None:
    seen: list[str] = []

    def stubborn() -> None:
        try:
            clock.wait(100)
        except BaseException as error:
            seen.append(type(error).__name__)
        clock.wait(1)
        seen.append("went on")

    thread = clock.spawn(stubborn)
    clock.at(5, thread.kill)
    clock.advance(200)
    assert seen == [ThreadKilledError.__name__]
    assert not thread.is_alive()


def test_the_error_of_a_virtual_thread_reaches_the_code_that_drives_the_clock(clock: VirtualClock) -> None:

    def fail() -> None:
        raise ValueError("broken virtual thread")

    clock.spawn(fail)
    with pytest.raises(ValueError, match="broken virtual thread"):
        clock.advance(1)


def test_run_until_stops_at_the_condition_or_at_its_limit(clock: VirtualClock) -> None:
    seen: list[float] = []
    clock.every(10, lambda: seen.append(clock.now()))
    assert clock.run_until(lambda: len(seen) == 3)
    assert clock.now() == 30
    assert not clock.run_until(lambda: len(seen) == 30, limit=45)
    assert clock.now() == 45


def test_run_until_names_the_waiting_virtual_threads_when_nothing_is_due(clock: VirtualClock) -> None:
    clock.spawn(lambda: clock.event().wait(), name="stuck")
    with pytest.raises(ClockError, match="stuck"):
        clock.run_until(lambda: False)


def test_a_scope_holds_only_while_its_virtual_thread_runs(clock: VirtualClock) -> None:
    flag = Flag()
    seen: list[tuple[str, bool]] = []

    def work() -> None:
        with clock.scope(flag):
            seen.append(("before", flag.held))
            clock.wait(10)
            seen.append(("after", flag.held))

    clock.spawn(work)
    clock.at(5, lambda: seen.append(("meanwhile", flag.held)))
    clock.advance(20)
    assert seen == [("before", True), ("meanwhile", False), ("after", True)]
    assert not flag.held


def test_time_and_sleep_follow_the_clock_while_it_drives_them() -> None:
    clock = VirtualClock(1_780_300_800.25)
    with clock.driving_time():
        clock.spawn(lambda: time.sleep(30))
        clock.advance(60)
        assert time.time() == 1_780_300_860.25
        assert dt.datetime.now(tz=dt.UTC).isoformat() == "2026-06-01T08:01:00.250000+00:00"
        before = time.monotonic()
        time.sleep(5)
        assert time.monotonic() - before == 5
    assert time.time() != 1_780_300_865.25


def test_time_follows_the_clock_to_the_microsecond_in_many_uneven_steps() -> None:
    clock = VirtualClock(1_780_300_800.000001)
    with clock.driving_time():
        for number in range(500):
            clock.advance(number * 1.234567 + 0.000001)
            assert dt.datetime.now(tz=dt.UTC) == dt.datetime.fromtimestamp(clock.now(), tz=dt.UTC)


def test_a_virtual_thread_is_started_once_and_closing_ends_every_one(clock: VirtualClock) -> None:
    threads = [clock.spawn(lambda: clock.event().wait()) for _ in range(3)]
    clock.advance(1)
    with pytest.raises(ClockError, match="started twice"):
        threads[0].start()
    clock.close()
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda clock: clock.wait(-1), "cannot be negative"),
        (lambda clock: clock.every(0, lambda: None), "above 0"),
        (lambda clock: clock.advance_to(clock.now() - 1), "already"),
    ],
)
def test_time_cannot_run_backwards(ask, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClockError, match=message):
        ask(VirtualClock(100.0))
