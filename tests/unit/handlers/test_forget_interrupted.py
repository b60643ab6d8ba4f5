"""ForgetInterrupted: deletes the Node of a machine that is gone, once it is no longer ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.forget_interrupted import handler
from node_fleet.domain.model.errors import ServerUnreachableError
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


@pytest.mark.parametrize("word", ["forgotten", "other-instance"])
def test_done_or_already_somebody_else_s_is_done(fleet: Bench, word: str) -> None:
    taken = running(fleet)
    fleet.server.says("ForgetNode", f"result: {word} x")
    answer: dict[str, Any] = handler(event(noticed(fleet, taken)), None)
    assert answer["settle"]["status"] == "gone"
    assert fleet.server.commands == [("ForgetNode", {"NodeName": taken.instance_id, "InstanceId": taken.instance_id})]


def test_an_unreachable_server_is_asked_again_later(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)))
    with pytest.raises(ServerUnreachableError):
        handler(payload, None)
