"""LaunchNodes killed before and after the effect of every AWS call it makes, then repeated or resumed.

The points are generated from an unkilled run, so a new call brings its own two points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handlers.launch_nodes import handler
from handlers.launch_replacement import handler as launch_replacement
from simulator.aws.recorder import AwsCall
from tests.support.handlers.bench import ZONES, Bench, bench

pytestmark = pytest.mark.sampled(4)  # with --all, every one

WANTED = 3
Step = Callable[[dict[str, Any], object], object]
LEASE_OVER_SECONDS = 400


class Killed(BaseException):
    """The sandbox died here."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[Bench]:
    with bench(max_workers=WANTED, zones=2) as made:
        made.cloud.ec2.delays.invisible_seconds = 3.0
        yield made


def calls_of_an_unkilled_run(fleet: Bench) -> list[str]:
    fleet.clear()
    event = fleet.event(fleet.begin("unkilled"), WANTED)
    return calls_of(fleet, lambda: handler(event, None))


def calls_of(fleet: Bench, act: Callable[[], object]) -> list[str]:
    seen: list[str] = []

    def note(call: AwsCall) -> None:
        seen.append(call.operation)

    fleet.cloud.recorder.before_effect.append(note)
    act()
    fleet.cloud.recorder.before_effect.remove(note)
    return seen


def die_at(fleet: Bench, index: int, side: str, event: dict[str, Any], step: Step = handler) -> None:
    count = iter(range(10_000))

    def strike(call: AwsCall) -> None:
        if next(count) == index:
            raise Killed(f"{side} call {index}, {call.operation}")

    hooks = fleet.cloud.recorder.before_effect if side == "before" else fleet.cloud.recorder.after_effect
    hooks.append(strike)
    try:
        with pytest.raises(Killed):
            step(event, None)
    finally:
        hooks.remove(strike)


def assert_exactly_the_plan(fleet: Bench, where: str) -> None:
    fleet.clock.advance(5)
    found = fleet.instances()
    operation = fleet.state().operation
    assert operation is not None, where
    assert len(found) == WANTED, f"{where}: {len(found)} instances"
    assert set(operation.instance_ids) == {i.instance_id for i in found}, where
    assert all(i.operation_id == operation.operation_id for i in found), where
    assert Counter(s.outcome for s in operation.slots) == {"launched": WANTED}, where
    held = {r.instance_id for r in fleet.state().reservations}
    assert held == set(operation.instance_ids), where


def test_a_run_without_a_kill_makes_the_calls_that_the_points_come_from(fleet: Bench) -> None:
    calls = Counter(calls_of_an_unkilled_run(fleet))
    assert calls["CreateFleet"] == 2, "one for two workers of a zone, one for the worker of the other zone"
    assert calls["UpdateItem"] >= 3 * WANTED


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_same_execution_repeats_the_step(fleet: Bench, side: str) -> None:
    for index, operation in enumerate(calls_of_an_unkilled_run(fleet)):
        where = f"killed {side} call {index} ({operation}), repeated"
        fleet.clear()
        run = fleet.begin(where)
        event = fleet.event(run, WANTED)
        die_at(fleet, index, side, event)
        handler(event, None)
        assert_exactly_the_plan(fleet, where)


@pytest.mark.parametrize("side", ["before", "after"])
def test_another_execution_resumes_after_the_lease(fleet: Bench, side: str) -> None:
    for index, operation in enumerate(calls_of_an_unkilled_run(fleet)):
        where = f"killed {side} call {index} ({operation}), resumed"
        fleet.clear()
        die_at(fleet, index, side, fleet.event(fleet.begin(where), WANTED))
        fleet.clock.advance(LEASE_OVER_SECONDS)
        handler(fleet.event(fleet.begin(f"{where} by another"), WANTED), None)
        assert_exactly_the_plan(fleet, where)


def test_two_deaths_in_a_row_change_nothing(fleet: Bench) -> None:
    calls = calls_of_an_unkilled_run(fleet)
    for index in [i for i, name in enumerate(calls) if name == "CreateFleet"]:
        where = f"killed twice around call {index}"
        fleet.clear()
        event = fleet.event(fleet.begin(where), WANTED)
        die_at(fleet, index, "after", event)
        die_at(fleet, 1, "before", event)
        handler(event, None)
        assert_exactly_the_plan(fleet, where)


def test_a_launch_that_fell_back_to_other_pools_is_repeated_in_the_pool_it_had_reached(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(az=ZONES[0], market="spot")
    calls = calls_of_an_unkilled_run(fleet)
    for index, operation in enumerate(calls):
        if "CreateFleet" in calls[index - 1 : index + 2]:
            where = f"killed before call {index} ({operation}) with a pool without capacity"
            fleet.clear()
            event = fleet.event(fleet.begin(where), WANTED)
            die_at(fleet, index, "before", event)
            handler(event, None)
            assert_exactly_the_plan(fleet, where)
    fleet.cloud.faults.remove(rule)


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_replacement_is_launched_once_wherever_it_dies(fleet: Bench, side: str) -> None:
    def prepared() -> dict[str, Any]:
        fleet.clear()
        return fleet.interrupted(fleet.running(int(fleet.clock.now())))

    event = prepared()
    for index, operation in enumerate(calls_of(fleet, lambda: launch_replacement(event, None))):
        where = f"replacement killed {side} call {index} ({operation})"
        payload = prepared()
        die_at(fleet, index, side, payload, launch_replacement)
        answer = launch_replacement(payload, None)["replacement"]
        fleet.clock.advance(5)
        found = [i.instance_id for i in fleet.instances() if i.operation_id.startswith("int-")]
        assert found == [answer["instance_id"]], where
