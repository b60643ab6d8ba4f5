"""UncordonSurvivor: room first, then the uncordon, then the notice; never above the maximum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.uncordon_survivor import handler
from node_fleet.domain.errors import ServerUnreachableError
from tests.unit.handlers.fakes_interruption import event, noticed, running
from tests.unit.handlers.fakes_scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def drained(status: str) -> dict[str, Any]:
    return {"drain": {"status": status, "node_name": ""}}


@pytest.mark.parametrize("word", ["uncordoned", "not-cordoned", "foreign-cordon", "no-node"])
def test_with_room_it_works_again(fleet: Bench, word: str) -> None:
    payload = event(noticed(fleet, running(fleet)), response=drained("drained"))
    fleet.server.says("UncordonNode", f"result: {word} x")
    assert handler(payload, None)["settle"]["status"] == "uncordoned"
    assert not fleet.state().notices and not fleet.state().reservations


def test_a_cordon_that_may_still_stand_keeps_the_notice(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)), response=drained("drained"))
    fleet.server.says("UncordonNode", "result: unreadable x")
    with pytest.raises(ServerUnreachableError):
        handler(payload, None)
    assert len(fleet.state().notices) == 1


@pytest.mark.parametrize(("drain", "status", "left"), [("drained", "removed", 2), ("failed", "kept", 3)])
def test_without_room_an_empty_one_goes_and_a_full_one_waits_for_a_person(
    fleet: Bench, drain: str, status: str, left: int
) -> None:
    taken = running(fleet, 1)
    running(fleet, 2)
    running(fleet, 3)
    assert handler(event(noticed(fleet, taken), response=drained(drain)), None)["settle"]["status"] == status
    assert len(fleet.instances()) == left
