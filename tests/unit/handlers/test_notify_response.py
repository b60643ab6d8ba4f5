"""NotifyResponse: one record, one message, no change of the payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.close_notice import handler as close_notice
from handlers.notify_response import handler
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


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
    assert "AWS reclaims this Spot instance" in subject
    assert message["level"] == level and f"drain {drain}" in message["what"]
    assert [kind for kind, _ in fleet.records.events] == ["interruption"]


def test_two_executions_about_one_worker_in_the_same_second_leave_two_events(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[str] = []
    monkeypatch.setattr(fleet.records, "put_event", lambda kind, at, data, *, key: keys.append(f"{at}#{kind}#{key}"))
    taken = running(fleet)
    for execution in ("rebalance-1", "spot-2", "spot-2"):
        payload = event(noticed(fleet, taken, claimed_by=f"arn:aws:states:r:1:execution:m:{execution}"))
        handler({**payload, "response": response("drained", "launched")}, None)
        close_notice({**payload, "settle": {"status": "uncordoned", "detail": "d"}}, None)
    assert len(set(keys)) == 4, "one of each kind for each execution; a retry overwrites"
    assert all(key.endswith(("#rebalance-1", "#spot-2")) for key in keys)
