"""The model of the back-test and the shipped workflow in the simulator: the same actions, the same worker-hours."""

from __future__ import annotations

import pytest

from tests.support.backtest_check import by_model, by_workflow, check_names, check_scenario

WITHIN = 0.03
SECONDS_APART = 60


def test_there_are_five_scenarios() -> None:
    assert len(check_names()) == 5


@pytest.mark.parametrize("name", check_names())
def test_the_model_and_the_full_simulation_agree_on_actions_and_on_worker_hours(name: str) -> None:
    scenario = check_scenario(name)
    model, full = by_model(scenario), by_workflow(scenario)
    assert model.steps == full.steps
    assert model.worker_hours == pytest.approx(full.worker_hours, rel=WITHIN)
    apart = [abs(a - b) for (a, _), (b, _) in zip(model.changes, full.changes, strict=True)]
    assert max(apart) <= SECONDS_APART
