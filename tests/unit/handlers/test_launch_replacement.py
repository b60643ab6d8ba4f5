"""LaunchReplacement: one worker, within the maximum, however often it is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.launch_replacement import handler
from node_fleet.domain.model.errors import PausedError
from node_fleet.domain.model.fleet_state import Pause
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def test_repeated_it_answers_the_same_instance(fleet: Bench) -> None:
    payload: dict[str, Any] = event(noticed(fleet, running(fleet)))
    first, second = handler(payload, None), handler(payload, None)
    assert first["replacement"] == second["replacement"] and first["replacement"]["status"] == "launched"
    assert len(fleet.instances()) == 2


def test_a_full_fleet_gets_no_replacement(fleet: Bench) -> None:
    taken = running(fleet, 1)
    running(fleet, 2)
    running(fleet, 3)
    answer = handler(event(noticed(fleet, taken)), None)["replacement"]
    assert answer["status"] == "failed" and "maximum" in answer["detail"]


def test_a_pause_is_checked_before_the_launch(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)))
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + 60))
    with pytest.raises(PausedError, match="ann"):
        handler(payload, None)
    assert len(fleet.instances()) == 1 and not fleet.state().reservations
