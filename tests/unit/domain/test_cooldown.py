"""When the next action is allowed: the cooldown after each action, back-offs, and removals that are set aside."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.cooldown import (
    evaluate_cooldown,
    evaluate_launch_back_off,
    evaluate_removal_back_off,
    evaluate_set_aside,
)
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.tick import Tick, make_tick
from tests.support.decisions import START, snapshot


def tick(memory: Memory | None = None, policy: Policy | None = None, **seen: Any) -> Tick:
    return make_tick(snapshot(**seen), memory or Memory(), policy or Policy(), START)


def acted(action: str, ago: int) -> Memory:
    return Memory(last_action=action, last_action_at=START - ago)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cooldown_by", "last", "following", "seconds"),
    [
        ("next", "scale_down", "scale_up", 300),
        ("next", "scale_up", "scale_down", 600),
        ("last", "scale_down", "scale_up", 600),
        ("last", "scale_up", "scale_down", 300),
    ],
)
def test_the_cooldown_is_that_of_the_next_or_of_the_last_action_and_ends_to_the_second(
    cooldown_by: Any, last: str, following: Any, seconds: int
) -> None:
    policy = Policy(cooldown_by=cooldown_by)
    setting = "cooldown_up_seconds" if seconds == 300 else "cooldown_down_seconds"
    more = {"name": "cooldown", "threshold": seconds, "setting": setting}
    assert evaluate_cooldown(tick(acted(last, seconds - 1), policy), following) == Check(
        verdict="blocked", text=f"cooldown 1 s left of {seconds} s", value=seconds - 1, **more
    )
    assert evaluate_cooldown(tick(acted(last, seconds), policy), following) == Check(
        verdict="ok", text="cooldown over for 0 s", value=seconds, **more
    )


def test_an_action_of_a_clock_that_was_ahead_holds_the_fleet_for_one_cooldown() -> None:
    ahead = acted("scale_up", -86_400)
    assert evaluate_cooldown(tick(ahead), "scale_down").text == "cooldown 600 s left of 600 s"
    remembered = decide(snapshot(), ahead, Policy(), START).memory
    assert evaluate_cooldown(make_tick(snapshot(), remembered, Policy(), START + 600), "scale_down").verdict == "ok"


@pytest.mark.parametrize(
    ("action", "setting"), [("scale_up", "cooldown_up_seconds"), ("scale_down", "cooldown_down_seconds")]
)
def test_without_an_earlier_action_there_is_no_cooldown(action: Any, setting: str) -> None:
    found = evaluate_cooldown(tick(), action)
    assert (found.verdict, found.text, found.setting) == ("ok", "no earlier action", setting)


def back_offs(*keys: str, left: int = 90, failures: int = 3) -> Memory:
    return Memory(back_offs=tuple(BackOff(key=key, failures=failures, until=START + left) for key in keys))


def test_the_circuit_breaker_forbids_a_launch_before_a_failed_scale_up_does() -> None:
    breaker = Check(
        name="circuit_breaker",
        verdict="blocked",
        text="circuit breaker open: 3 scale-ups in a row without a join, next launch in 90 s",
        value=3,
        setting="join_failures_to_open",
    )
    failed = Check(
        name="back_off",
        verdict="blocked",
        text="scale-up failed 3 times in a row, next try in 90 s",
        value=3,
        setting="scale_up_back_off_seconds",
    )
    assert evaluate_launch_back_off(tick(back_offs("scale_up", "join"))) == breaker
    assert evaluate_launch_back_off(tick(back_offs("scale_up"))) == failed
    assert evaluate_launch_back_off(tick(back_offs("removal", "node:i-0001"))) is None


def test_a_refused_termination_forbids_removals_and_no_launch() -> None:
    assert evaluate_removal_back_off(tick(back_offs("removal"))) == Check(
        name="removal_back_off",
        verdict="blocked",
        text="EC2 refuses to terminate workers, next removal in 90 s",
        value=3,
        setting="drain_back_off_seconds",
    )
    assert evaluate_removal_back_off(tick(back_offs("join", "scale_up", "node:i-0001"))) is None


@pytest.mark.parametrize("left", [0, -1])
def test_a_back_off_that_has_ended_forbids_nothing(left: int) -> None:
    ended = tick(back_offs("join", "scale_up", "removal", left=left))
    assert (evaluate_launch_back_off(ended), evaluate_removal_back_off(ended)) == (None, None)


@pytest.mark.parametrize(
    ("count", "verdict", "text"),
    [(1, "ok", "1 removal set aside"), (2, "hold", "2 removals set aside, removals pause")],
)
def test_removals_pause_from_so_many_that_are_set_aside(count: int, verdict: Any, text: str) -> None:
    removals = tuple(
        SetAside(instance_id=f"i-{n}", node_name="n", kind="rollback", operation_id="down-1", since=1, detail="d")
        for n in range(count)
    )
    assert evaluate_set_aside(tick(set_aside=removals)) == Check(
        name="set_aside", verdict=verdict, text=text, value=count, threshold=2, setting="set_aside_limit", aside=True
    )
    assert evaluate_set_aside(tick()) is None
