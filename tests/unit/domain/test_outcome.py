"""What an operation's end leaves: cooldown stamps, back-offs, the circuit breaker."""

from __future__ import annotations

import pytest

from node_fleet.domain.model.back_off import active, fail, node_key, succeed
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.memory_update import record_failure, record_success, reset_breaker

AT = 1_790_000_000
POLICY = Policy()


def back_off_times(key: str, times: int, policy: Policy = POLICY) -> list[int]:
    """Seconds of rest after each of so many failures in a row."""
    found: tuple[BackOff, ...] = ()
    seconds = []
    for _ in range(times):
        found = fail(found, key, AT, policy)
        seconds.append(max(0, found[-1].until - AT))
    return seconds


@pytest.mark.parametrize(
    ("key", "seconds"),
    [
        ("join", [0, 0, 900, 1800, 3600, 3600, 3600]),
        (node_key("i-1"), [600, 1200, 2400, 4800, 9600, 19200, 38400, 76800, 86400, 86400]),
        ("scale_up", [120, 240, 480, 960, 1800, 1800]),
        ("removal", [3600, 7200, 14400, 28800, 57600, 86400, 86400]),
    ],
    ids=[
        "the third scale-up without a join opens the breaker",
        "a failed drain",
        "a scale-up that launched nothing",
        "a termination that EC2 refuses",
    ],
)
def test_back_offs_double_up_to_their_limit(key: str, seconds: list[int]) -> None:
    assert back_off_times(key, len(seconds)) == seconds


@pytest.mark.parametrize(("opens", "expected"), [(1, [900, 1800]), (2, [0, 900]), (5, [0, 0])])
def test_how_many_open_it_is_a_setting(opens: int, expected: list[int]) -> None:
    assert back_off_times("join", 2, Policy(join_failures_to_open=opens)) == expected


def test_a_thousand_failures_are_no_number_too_large() -> None:
    assert back_off_times("scale_up", 1000)[-1] == 1800


@pytest.mark.parametrize(("now", "found"), [(AT + 119, True), (AT + 120, False)])
def test_a_back_off_ends_to_the_second(now: int, found: bool) -> None:
    assert (active(fail((), "scale_up", AT, POLICY), "scale_up", now) is not None) == found


def test_success_stamps_the_cooldown_and_closes_the_breaker() -> None:
    memory = Memory(back_offs=fail(fail((), "join", AT, POLICY), node_key("i-1"), AT, POLICY))
    after = record_success(memory, "scale_up", "pending 3", AT + 90, joined={"i-9": AT + 70})
    assert (after.last_action, after.last_action_at, after.last_reason) == ("scale_up", AT + 90, "pending 3")
    assert [b.key for b in after.back_offs] == ["node:i-1"]
    assert after.fresh == {"i-9": AT + 70}


def test_a_scale_down_says_nothing_about_joins() -> None:
    memory = Memory(back_offs=fail((), "join", AT, POLICY))
    assert record_success(memory, "scale_down", "idle", AT).back_offs == memory.back_offs


def test_a_failure_leaves_the_cooldown_alone() -> None:
    memory = Memory(last_action="scale_up", last_action_at=AT - 10)
    after = record_failure(memory, "scale_up", AT, POLICY)
    assert (after.last_action_at, after.back_offs[0].failures) == (AT - 10, 1)


def test_a_person_may_reset_the_breaker() -> None:
    memory = Memory()
    for _ in range(4):
        memory = record_failure(memory, "join", AT, POLICY)
    assert active(reset_breaker(memory).back_offs, "join", AT) is None


def test_success_forgets_only_its_own_keys() -> None:
    offs = fail(fail((), "a", AT, POLICY), "b", AT, POLICY)
    assert [b.key for b in succeed(offs, "a")] == ["b"]
