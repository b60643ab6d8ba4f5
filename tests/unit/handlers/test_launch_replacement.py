"""LaunchReplacement: one worker, within the maximum, however often it is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handlers.launch_replacement import handler
from node_fleet.domain.model.errors import PausedError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.operation import Target
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_down import operation
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


def test_without_a_pool_outside_back_off_no_replacement_is_launched(fleet: Bench) -> None:
    interruption = replace(noticed(fleet, running(fleet)), slot=None)
    answer = handler(event(interruption), None)["replacement"]
    assert answer["status"] == "failed" and "back-off" in answer["detail"]
    assert len(fleet.instances()) == 1


def test_a_worker_that_a_scale_down_removes_gets_no_replacement(fleet: Bench) -> None:
    interruption = noticed(fleet, running(fleet))
    target = Target(instance_id=interruption.instance_id, node_name=interruption.instance_id, phase="draining")
    fleet.tools.state.save_operation(fleet.begin(), replace(operation("draining"), targets=(target,)))
    answer = handler(event(interruption), None)["replacement"]
    assert (answer["status"], answer["detail"]) == ("none", "a scale-down already removes this worker")
    assert len(fleet.instances()) == 1


def test_a_pause_is_checked_before_the_launch(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)))
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + 60))
    with pytest.raises(PausedError, match="ann"):
        handler(payload, None)
    assert len(fleet.instances()) == 1 and not fleet.state().reservations
