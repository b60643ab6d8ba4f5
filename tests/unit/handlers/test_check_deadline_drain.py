"""CheckDeadlineDrain: waits until the deadline and not longer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.check_deadline_drain import handler
from handlers.start_deadline_drain import handler as start
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


@pytest.mark.parametrize(
    ("takes", "looked_after", "status"),
    [(60, 59, "waiting"), (60, 61, "drained"), (600, 110, "waiting"), (600, 111, "failed")],
)
def test_it_ends_with_the_drain_or_with_the_deadline(fleet: Bench, takes: int, looked_after: int, status: str) -> None:
    taken = running(fleet)
    fleet.server.says("DrainNode", f"node/{taken.instance_id} drained")
    fleet.server.drain_seconds = takes
    payload: dict[str, Any] = start(event(noticed(fleet, taken)), None)
    fleet.clock.advance(looked_after)
    assert handler(payload, None)["drain"]["status"] == status


@pytest.mark.parametrize("output", ["", "node/i-0other drained", "evicting pod a/b"])
def test_an_answer_without_the_exact_line_is_not_success(fleet: Bench, output: str) -> None:
    taken = running(fleet)
    fleet.server.says("DrainNode", output)
    payload = start(event(noticed(fleet, taken)), None)
    fleet.clock.advance(5)
    assert handler(payload, None)["drain"]["status"] == "failed"
