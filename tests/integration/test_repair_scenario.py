"""The scenario of failed status checks: which worker is replaced, which rebooted, and that no capacity is missed."""

from __future__ import annotations

import pytest

from tests.support.scenario_watch import FleetWatch, watched

MINUTE = 60


def usable_between(watch: FleetWatch, first: int, last: int) -> int:
    """The fewest usable workers between two minutes of the scenario."""
    start = watch.sim.scenario.start_at
    return min(p.workers_usable for p in watch.sim.points if first <= (p.at - start) / MINUTE < last)


def called(watch: FleetWatch, operation: str) -> list[str]:
    calls = watch.sim.deployment.cloud.recorder.of(operation)
    return [instance_id for call in calls for instance_id in call.parameters["InstanceIds"]]


@pytest.mark.whole
def test_impaired_workers_are_replaced_or_rebooted_once_and_none_is_missed() -> None:
    with watched("impaired-workers") as watch:
        served, silent = called(watch, "TerminateInstances")
        assert called(watch, "RebootInstances") == [silent]
        assert {served, silent} < set(watch.sim.starting_ids)
        start = watch.sim.scenario.worker_count
        assert usable_between(watch, 0, 90) == start, "the worker that still serves is replaced launch first"
        assert usable_between(watch, 90, 95) == start - 1, "the silent worker stops by itself"
        assert usable_between(watch, 95, 240) == start, "its capacity is launched at once, and its reboot takes none"
        assert len(watch.workers) == start
        watch.checker.assert_only_safe_removals()
