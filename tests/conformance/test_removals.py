"""Random clusters on a real control plane, one removal in each: budgets hold and only movable pods are evicted."""

from __future__ import annotations

import pytest

from tests.support.budget_checker import BudgetChecker
from tests.support.drain_clusters import as_shipped, build, random_plan, remove_one
from tests.support.real_plane.cluster import RealCluster
from tests.support.real_plane.observation import Observation
from tests.support.tiers import Tier

pytestmark = pytest.mark.whole
CLUSTERS = 6


@pytest.mark.parametrize("number", range(CLUSTERS))
def test_a_removal_breaks_no_budget(number: int, cluster: RealCluster, tier: Tier) -> None:
    fleet = build(random_plan(tier.seed * CLUSTERS + number, quick=True), cluster)
    cluster.settle()
    observation = Observation(cluster)
    checker = BudgetChecker(observation)

    def run(text: str, given: dict[str, str]) -> tuple[int, str, str]:
        quick = {"DRAIN_TIMEOUT_SECONDS": "25"} if "DRAIN_TIMEOUT_SECONDS" in given else {}
        ended = cluster.script(text, {**given, **quick})
        return ended.exit_code, ended.stdout, ended.stderr

    ended = remove_one(cluster, fleet, run, cluster.lose, as_shipped)
    observation.close()
    assert ended.partition(" ")[0] in ("removed", "no", "failed", "blocked")
    assert checker.violations == []
    assert [one for one in checker.removals if one.is_node_bound or one.owner_kind in ("StatefulSet", "")] == []
