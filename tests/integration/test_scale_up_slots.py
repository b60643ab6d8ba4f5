"""Both workflows race for the last room: one conditional write keeps the fleet at its maximum in every order of calls.

The orders are generated: each call to AWS takes a random time, so the contenders interleave differently for each seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from handlers.launch_nodes import handler as launch_nodes
from handlers.launch_replacement import handler as launch_replacement
from node_fleet.adapters.launcher import placement_from
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.interruption.response import Interruption, operation_of, replacement_slot
from node_fleet.domain.model.fleet_state import FleetState, Notice, Reservation
from node_fleet.payload import to_payload
from simulator.aws.recorder import AwsCall
from tests.support.handlers.bench import ZONES, Bench, bench
from tests.support.launches import request

MAXIMUM = 4
SEEDS = range(8)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Bench]:
    with bench(max_workers=MAXIMUM, spot_percent=100) as made:
        made.cloud.ec2.delays.invisible_seconds = 0.0
        yield made


def reset(fleet: Bench) -> list[str]:
    """Four workers, two of them under notice: room for two more."""
    fleet.clear()
    found = []
    for number in range(1, MAXIMUM + 1):
        zone = ZONES[number % 3]
        wanted = request(number, zone=zone, subnet_id=fleet.settings.zones[zone], attempt=int(fleet.clock.now()))
        found += fleet.tools.ec2.launch(wanted, operation_id="up-before").launched
    fleet.clock.advance(60)
    return found


def contenders(fleet: Bench, ids: list[str], seed: int) -> list[Callable[[], object]]:
    """The autoscaler wants two, each of two interruptions wants one: four for two places."""
    now = int(fleet.clock.now())
    for instance_id in ids[:2]:
        fleet.tools.state.add_notice(Notice(instance_id=instance_id, kind="spot", at=now, claimed_by="storm"))
    run = fleet.begin(f"exec-{seed}")
    found: list[Callable[[], object]] = [lambda: launch_nodes(fleet.event(run, 2), None)]
    for instance_id in ids[:2]:
        found.append(replacing(fleet, instance_id, now))
    return found


def replacing(fleet: Bench, instance_id: str, now: int) -> Callable[[], object]:
    instance = fleet.tools.ec2.find_worker(instance_id)
    assert instance is not None
    slot = replacement_slot(instance, fleet.instances(), fleet.state(), placement_from(fleet.settings), now=now)
    interruption = Interruption(
        instance_id=instance_id,
        kind="spot",
        path="respond",
        operation_id=operation_of(instance_id),
        claimed_by="storm",
        why="AWS takes it",
        at=now,
        slot=slot,
    )
    return lambda: launch_replacement({"interruption": to_payload(interruption)}, None)


def race(fleet: Bench, seed: int) -> int:
    """Workers that count after all contenders have run, their calls interleaved by the seed."""
    ids = reset(fleet)
    work = contenders(fleet, ids, seed)
    chance = random.Random(seed)

    def dawdle(_: AwsCall) -> None:
        if fleet.clock.current_thread() is not None:
            fleet.clock.wait(chance.choice((0.0, 0.01, 0.05, 0.2)))

    fleet.cloud.recorder.before_effect.append(dawdle)
    try:
        threads = [fleet.clock.spawn(each, f"contender-{n}") for n, each in enumerate(work)]
        limit = fleet.clock.now() + 300
        assert fleet.clock.run_until(lambda: not any(s.is_alive() for s in threads), limit=limit)
    finally:
        fleet.cloud.recorder.before_effect.remove(dawdle)
    noticed = {n.instance_id for n in fleet.state().notices}
    return len([i for i in fleet.instances() if i.instance_id not in noticed])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fleet_is_filled_and_never_passed(fleet: Bench, seed: int) -> None:
    assert race(fleet, seed) == MAXIMUM


def read_then_write(
    self: StateStore, key: str, count_now: Callable[[FleetState], int], *, maximum: int, until: int, **_: Any
) -> Reservation | None:
    """The mutant: it looks, then writes whatever has changed meanwhile."""
    state = self.load()
    if count_now(state) >= maximum:
        return None
    added = Reservation(key=key, until=until)
    held: Any = to_payload((*state.reservations, added))
    self._update("SET reservations = :held", "", {":held": held}, action="reserve")
    return added


def test_reading_and_then_writing_would_pass_the_maximum(fleet: Bench) -> None:
    with mock.patch.object(StateStore, "reserve", read_then_write):
        assert any(race(fleet, seed) > MAXIMUM for seed in SEEDS)


def test_a_launch_lists_instances_once_unless_others_reserved(fleet: Bench) -> None:
    ids = reset(fleet)
    work = contenders(fleet, ids, 99)
    fleet.cloud.recorder.forget()
    work[0]()
    assert len(fleet.cloud.recorder.of("DescribeInstances")) == 1
