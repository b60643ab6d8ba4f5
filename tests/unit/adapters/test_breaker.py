"""An operator closes the circuit breaker: the next tick may launch; a run at work is not disturbed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cli.operate import close_breaker
from node_fleet.domain.model.memory import BackOff, Memory
from tests.support.handlers.bench import Bench, bench

OPEN = Memory(
    last_action="scale_up",
    back_offs=(
        BackOff(key="join", failures=4, until=9_999_999_999),
        BackOff(key="scale_up", failures=1, until=9_999_999_999),
        BackOff(key="node:i-1", failures=1, until=9_999_999_999),
    ),
)


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        run = made.begin()
        made.tools.state.release(run, OPEN)
        yield made


def test_it_forgets_failed_joins_and_launches_and_nothing_else_and_twice_is_once(fleet: Bench) -> None:
    for _ in range(2):
        assert close_breaker(fleet.tools.state, "ann", int(fleet.clock.now())) == ""
    state = fleet.state()
    assert state.lease is None
    assert state.memory == replace(OPEN, back_offs=OPEN.back_offs[2:])


def test_a_run_at_work_is_named_and_left_alone(fleet: Bench) -> None:
    fleet.begin("scaling")
    assert "scaling" in close_breaker(fleet.tools.state, "ann", int(fleet.clock.now()))
    assert fleet.state().memory == OPEN
