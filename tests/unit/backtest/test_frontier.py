"""The frontier: the grid around a configuration, and the recommendation with its effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backtest.compare import Assumptions, Study, study
from backtest.frontier import CHANGE_COSTS, WAIT_COSTS, frontier_settings, recommendation, recommended
from backtest.measures import Action
from backtest.page import cost_and_waiting, render
from node_fleet.settings import Settings
from tests.support.backtest_loads import BY_WORKERS, trace_of

ADAPTIVE = Settings.from_mapping({"preset": "adaptive", "max_workers": 7, "wait_cost": 2})
LOAD = trace_of([2.0, 5.0, 5.0, 1.0, 1.0, 1.0] * 2)


def judged(*, waiting: float, changes: int, hours: float) -> tuple[Study, dict[str, Settings]]:
    """A configuration with 10 pod-minutes and 4 changes in a day, and one setting of the grid beside it."""
    whole = study(LOAD, ADAPTIVE, Assumptions(scaling=BY_WORKERS))
    now = replace(
        whole.configured, days=1.0, avoidable_pod_minutes=10.0, worker_hours=50.0, usage=(), actions=_actions(whole, 4)
    )
    other = replace(
        now, policy="wait_cost=1", avoidable_pod_minutes=waiting, worker_hours=hours, actions=_actions(whole, changes)
    )
    return replace(whole, results=(now, other)), {"wait_cost=1": ADAPTIVE}


def _actions(whole: Study, changes: int) -> tuple[Action, ...]:
    one = whole.bound.actions[0]
    return tuple(replace(one, change=1 - 2 * (n % 2)) for n in range(changes + 1))


def test_the_grid_keeps_the_rest_of_an_adaptive_configuration() -> None:
    grid = frontier_settings(ADAPTIVE)
    assert len(grid) == len(WAIT_COSTS) * len(CHANGE_COSTS)
    one = grid["wait_cost=8 change_cost=10"]
    assert one == replace(ADAPTIVE, wait_cost=8.0, change_cost=10.0)


def test_the_grid_leaves_out_the_configuration_itself() -> None:
    shipped = Settings.from_mapping({"preset": "adaptive", "wait_cost": WAIT_COSTS[0], "change_cost": CHANGE_COSTS[0]})
    assert len(frontier_settings(shipped)) == len(WAIT_COSTS) * len(CHANGE_COSTS) - 1


def test_beside_thresholds_the_grid_is_the_preset_with_the_same_bounds() -> None:
    grid = frontier_settings(Settings(min_workers=3, max_workers=6))
    name, one = next(iter(grid.items()))
    assert name == "preset=adaptive wait_cost=1 change_cost=10"
    assert (one.strategy, one.min_workers, one.max_workers, one.wait_cost) == ("adaptive", 3, 6, 1.0)


@pytest.mark.parametrize(
    ("waiting", "changes", "hours", "is_better"),
    [
        (10.0, 4, 49.0, True),
        (10.1, 4, 49.0, False),
        (10.0, 5, 49.0, False),
        (10.0, 4, 50.0, False),
        (0.0, 0, 51.0, False),
    ],
    ids=["cheaper", "waits longer", "changes more", "costs the same", "dearer"],
)
def test_a_setting_is_recommended_when_it_is_cheaper_without_more_waiting_and_changes(
    waiting: float, changes: int, hours: float, is_better: bool
) -> None:
    found, grid = judged(waiting=waiting, changes=changes, hours=hours)
    assert (recommended(found, grid) is not None) is is_better
    assert recommendation(found, grid).startswith("set wait_cost=1: " if is_better else "keep these settings: ")


def test_the_recommendation_names_the_effect() -> None:
    found, grid = judged(waiting=7.0, changes=2, hours=40.0)
    assert recommendation(found, grid).endswith(
        "% lower, avoidable pending pod-minutes a day 10.0 -> 7.0, changes of direction a day 4.0 -> 2.0"
    )


def test_the_page_leads_with_the_recommendation_and_marks_the_configuration() -> None:
    found, grid = judged(waiting=7.0, changes=2, hours=40.0)
    assert "set wait_cost=1: the bill is" in render(found, recommendation(found, grid))
    configured, *others = [point["marker"]["symbol"] for point in cost_and_waiting(found)["data"] if "marker" in point]
    assert configured == "star" and others and "star" not in others
