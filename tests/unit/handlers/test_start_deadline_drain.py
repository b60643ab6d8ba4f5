"""StartDeadlineDrain: sends one drain with the deadline, and nothing when it can do no good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handlers.start_deadline_drain import handler
from node_fleet.domain.model.operation import Target
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_down import operation
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def test_the_drain_has_exactly_the_time_that_is_left(fleet: Bench) -> None:
    interruption = noticed(fleet, running(fleet))
    fleet.server.says("DrainNode", "")
    fleet.clock.advance(20)
    answer: dict[str, Any] = handler(event(interruption), None)["drain"]
    (sent,) = [p for d, p in fleet.server.commands if d == "DrainNode"]
    assert (sent["DrainTimeoutSeconds"], sent["DrainMode"]) == ("85", "deadline")
    assert sent["OperationId"] == interruption.operation_id and answer["status"] == "waiting"


def test_a_drain_that_cannot_end_before_the_deadline_is_skipped(fleet: Bench) -> None:
    interruption = noticed(fleet, running(fleet))
    fleet.server.says("DrainNode", "")
    fleet.clock.advance(96)
    assert handler(event(interruption), None)["drain"]["status"] == "skipped"
    assert fleet.server.commands == []


@pytest.mark.parametrize("same_worker", [True, False])
def test_the_drain_of_a_scale_down_is_cancelled_only_on_the_same_worker(fleet: Bench, same_worker: bool) -> None:
    interruption = noticed(fleet, running(fleet))
    instance_id = interruption.instance_id if same_worker else "i-other"
    target = Target(instance_id=instance_id, node_name=instance_id, phase="draining", command_id="c-9")
    fleet.tools.state.save_operation(fleet.begin(), replace(operation("draining"), targets=(target,)))
    fleet.server.says("DrainNode", "")
    handler(event(interruption), None)
    cancelled = [parameters for document, parameters in fleet.server.commands if document == "cancel"]
    assert cancelled == ([{"CommandId": "c-9"}] if same_worker else [])
