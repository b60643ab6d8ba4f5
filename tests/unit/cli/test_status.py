"""The rows of status that name what waits."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from cli.status import ClusterStatus, status_rows
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.settings import Settings
from tests.support.decisions import START
from tests.support.handlers.fakes import NOW, A, B, C, aside, instance


@pytest.mark.parametrize("kind", ["termination", "rollback"])
def test_status_names_each_removal_that_is_set_aside_its_age_and_its_cause(
    kind: Literal["termination", "rollback"],
) -> None:
    state = FleetState(cluster_id="c", set_aside=(aside(A, kind=kind, detail="EC2 state shutting-down"),))
    found = ClusterStatus(place="here", now=NOW, state=state, instances=(), last=None, settings=Settings())
    rows = [text for name, text in status_rows(found) if name == "set aside"]
    assert rows == [f"{A}: {kind}, 10 min ago: EC2 state shutting-down"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "none"),
        ({"disruption_budgets": [{"nodes": "1"}]}, "1 idle worker may be removed now: at most 1 worker"),
        ({"disruption_budgets": [{"nodes": "0", "reasons": ["drifted"]}]}, "3 idle workers may be removed now"),
        ({"disruption_budgets": [{"nodes": "0"}]}, "no idle worker is removed: at most 0 workers"),
        (
            {"removal_windows": "never: 2026-09-21 00:00-24:00"},
            "no idle worker is removed: removal windows 'never: 2026-09-21 00:00-24:00' (UTC), "
            "next opening Tue 2026-09-22 00:00 UTC",
        ),
    ],
)
def test_status_names_the_budget_that_holds_idle_workers(settings: dict[str, Any], expected: str) -> None:
    state = FleetState(cluster_id="c")
    found = ClusterStatus(
        place="here",
        now=START,
        state=state,
        instances=tuple(instance(one) for one in (A, B, C)),
        last=None,
        settings=Settings.from_mapping(settings),
    )
    assert dict(status_rows(found))["budgets"] == expected
