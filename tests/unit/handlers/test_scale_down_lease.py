"""No state of a removal changes anything after its lease is lost."""

from __future__ import annotations

import importlib

import pytest

from node_fleet.domain.model.errors import LeaseLostError
from tests.support.handlers.scale_down import ALL_FREE, event, inspected, wired

STATES = ("select_nodes", "start_drain", "check_drain", "undo_drain", "terminate_nodes", "confirm_termination")
STATES += ("forget_nodes", "complete_scale_down", "fail_scale_down")


@pytest.mark.parametrize("state", STATES)
def test_no_state_changes_anything_after_the_lease_is_lost(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    module = importlib.import_module(f"handlers.{state}")
    tools = wired(monkeypatch, module)
    tools.begun("drained")
    tools.state.lost = True
    with pytest.raises(LeaseLostError):
        module.handler(event(tools, inspection=inspected(ALL_FREE)), None)
    assert (tools.server.sent, tools.ec2.terminated, tools.state.closed) == ([], [], [])
