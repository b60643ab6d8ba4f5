"""TellResponse: one record, one message, no change of the payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.tell_response import handler
from tests.unit.handlers.fakes_interruption import event, noticed, running
from tests.unit.handlers.fakes_scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def response(drain: str, replacement: str) -> dict[str, Any]:
    return {
        "drain": {"status": drain, "detail": "d", "node_name": "n", "command_id": "c", "started_at": 0, "until": 0},
        "replacement": {"status": replacement, "detail": "r", "instance_id": ""},
    }


@pytest.mark.parametrize(
    ("drain", "replacement", "level"), [("drained", "launched", "info"), ("failed", "failed", "warning")]
)
def test_people_hear_what_was_done(fleet: Bench, drain: str, replacement: str, level: str) -> None:
    payload = event(noticed(fleet, running(fleet)), response=response(drain, replacement))
    assert handler(payload, None) == payload
    ((subject, message),) = fleet.publisher.messages
    assert "AWS takes this Spot instance back" in subject
    assert message["level"] == level and f"drain {drain}" in message["what"]
    assert [kind for kind, _ in fleet.records.events] == ["interruption"]
