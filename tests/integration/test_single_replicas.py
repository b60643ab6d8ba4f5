"""The scenario of single replicas: their workers are removed, and none of them is missing for a moment."""

from __future__ import annotations

from collections import Counter

import pytest

from node_fleet.domain.model.run import Alert
from node_fleet.payload import take
from simulator.cluster.objects import condition_is_true
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation
from tests.support.budget_checker import BudgetChecker


def available(simulation: Simulation) -> Counter[str]:
    """The pods of each application that serve."""
    pods = [p for p in simulation.cluster.objects("pods", "shop") if "deletionTimestamp" not in p["metadata"]]
    return Counter(p["metadata"]["labels"]["app"] for p in pods if condition_is_true(p, "Ready"))


@pytest.mark.whole
@pytest.mark.parametrize(("asked", "workers"), [(True, 2), (False, 4)])
def test_workers_with_single_replicas_are_removed_without_downtime_where_asked(asked: bool, workers: int) -> None:
    scenario = load_scenario("single-replicas")
    applications = [one.model_copy(update={"restart_before_drain": asked}) for one in scenario.applications]
    scenario = scenario.model_copy(update={"applications": tuple(applications)})
    with Simulation(scenario) as simulation:
        checker, fewest = BudgetChecker(simulation.cluster), {one.name: 2 for one in applications}
        simulation.deployment.clock.advance(120)
        assert available(simulation) == dict.fromkeys(fewest, 1)

        def watch(_change: object) -> None:
            found = available(simulation)
            fewest.update({name: min(count, found[name]) for name, count in fewest.items()})

        simulation.cluster.on_change(watch)
        simulation.run()
        checker.assert_only_safe_removals()
        assert fewest == dict.fromkeys(fewest, 1)
        assert simulation.points[-1].workers_usable == workers
        assert {e.status for e in simulation.executions} == {"SUCCEEDED"}
        selections = [e.output_of("SelectNodes")["selection"] for e in simulation.executions if "SelectNodes" in e.path]
        kept = [text for selection in selections for text in selection["kept"]]
        assert any("only replica of its Deployment" in text for text in kept) is not asked


@pytest.mark.whole
def test_a_second_pod_that_starts_slowly_fails_the_drain_and_not_the_application() -> None:
    """It serves after the drain was given up; the next drain of that worker finds it elsewhere."""
    scenario = load_scenario("single-replicas")
    slow = [one.model_copy(update={"start_seconds": 400.0}) for one in scenario.applications]
    scenario = scenario.model_copy(update={"applications": tuple(slow), "duration_seconds": 3 * 3600.0})
    with Simulation(scenario) as simulation:
        simulation.deployment.clock.advance(500)
        fewest = 4

        def watch(_change: object) -> None:
            nonlocal fewest
            fewest = min(fewest, len(available(simulation)))

        simulation.cluster.on_change(watch)
        simulation.run()
        assert fewest == 4, "each of the four applications has an available pod at each instant"
        assert simulation.points[-1].workers_usable == 2
        assert [node.name for node in simulation.cluster.nodes() if node.unschedulable] == []
        failed = [e for e in simulation.executions if "UndoDrain" in e.path]
        assert failed and {e.error for e in failed} == {"DrainFailedError"}
        alerts = [alert for e in failed for alert in take(e.output_of("UndoDrain"), "alerts", tuple[Alert, ...])]
        text = "no pod of it was evicted: no second pod of shop/"
        assert all(text in alert.text and "its first pod still runs" in alert.text for alert in alerts)
