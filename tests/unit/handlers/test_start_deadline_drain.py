"""StartDeadlineDrain: sends one drain with the deadline, and nothing when it can do no good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.start_deadline_drain import handler
from tests.support.handlers.interruption import event, noticed, running
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


def test_too_late_is_an_answer(fleet: Bench) -> None:
    interruption = noticed(fleet, running(fleet))
    fleet.server.says("DrainNode", "")
    fleet.clock.advance(96)
    assert handler(event(interruption), None)["drain"]["status"] == "skipped"
    assert fleet.server.commands == []
