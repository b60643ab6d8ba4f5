"""The scenario of noisy Spot pools: where each worker is launched, when it returns to Spot, and the price of it."""

from __future__ import annotations

import pytest

from tests.support.scenario_watch import FleetWatch, watched
from tests.support.workflow_paths import QUIET

HOUR = 3600


def launches(watch: FleetWatch) -> list[tuple[str, str]]:
    """Zone and market of each request to launch a worker, in order."""
    subnets = watch.sim.deployment.resources.setting("SUBNETS").split(",")
    zones = {subnet: zone[-1] for zone, _, subnet in (entry.partition("=") for entry in subnets)}
    found = []
    for call in watch.sim.deployment.cloud.recorder.of("CreateFleet"):
        override = call.parameters["LaunchTemplateConfigs"][0]["Overrides"][0]
        market = call.parameters["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        found.append((zones[override["SubnetId"]], market))
    return found


@pytest.mark.whole
def test_the_fleet_leaves_noisy_pools_and_returns_to_spot_one_worker_at_a_time() -> None:
    with watched("noisy-pool") as watch:
        found = launches(watch)
        assert found[:2] == [("b", "spot")] * 2, "the first noisy pool is left for a quieter one"
        assert sorted(found[2:4]) == [("a", "on-demand"), ("b", "on-demand")], "then every Spot pool is noisy"
        assert sorted(found[4:]) == [("a", "spot"), ("b", "spot")], "each returns in its own zone"
        times = sorted(watch.launched.values())
        last_notice = max(watch.notices_at.values())
        assert times[4] - last_notice >= HOUR
        assert len(watch.workers) == watch.sim.scenario.worker_count
        removed = {i for i in watch.ended_at if i in watch.launched}
        assert len(removed) == 2 and not watch.never_joined and not watch.over_maximum
        later = [p for p in watch.sim.points if p.at > last_notice + 600]
        assert min(p.workers_usable for p in later) == 4, "a return launches first"
        assert sum(run.path == QUIET for run in watch.runs()) >= 95, "a quiet tick makes no further call"
        reasons = [text for text in decisions(watch) if "on-demand:" in text]
        assert reasons and all("Spot costs 0.0177 USD an hour less" in text for text in reasons)


def decisions(watch: FleetWatch) -> list[str]:
    """The sentence of each decision that acted."""
    runs = [e for e in watch.sim.executions if "LaunchNodes" in e.path or "TerminateNodes" in e.path]
    return [run.output_of("Decide")["decision"]["sentence"] for run in runs]
