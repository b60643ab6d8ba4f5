"""The rows of status that name what waits."""

from __future__ import annotations

from typing import Literal

import pytest

from cli.status import ClusterStatus, status_rows
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.settings import Settings
from tests.support.handlers.fakes import NOW, A, aside


@pytest.mark.parametrize("kind", ["termination", "rollback"])
def test_status_names_each_removal_that_is_set_aside_its_age_and_its_cause(
    kind: Literal["termination", "rollback"],
) -> None:
    state = FleetState(cluster_id="c", set_aside=(aside(A, kind=kind, detail="EC2 state shutting-down"),))
    found = ClusterStatus(place="here", now=NOW, state=state, instances=(), last=None, settings=Settings())
    rows = [text for name, text in status_rows(found) if name == "set aside"]
    assert rows == [f"{A}: {kind}, 10 min ago: EC2 state shutting-down"]
