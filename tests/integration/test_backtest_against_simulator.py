"""The model of the back-test and the shipped workflow in the simulator: the same actions, the same worker-hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation
from tests.support.backtest_check import assert_model_agrees

SCENARIOS = sorted((Path(__file__).parents[1] / "fixtures" / "backtest_scenarios").glob("*.yaml"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_the_model_and_the_full_simulation_agree_on_actions_and_on_worker_hours(file: Path) -> None:
    with Simulation(load_scenario(str(file))) as simulation:
        simulation.run()
        assert_model_agrees(simulation)
