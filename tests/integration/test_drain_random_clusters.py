"""Random clusters: node-fleet breaks no budget and deletes no pod that must stay on its node.

The checker is independent of the budget sums of the API; it finds two mutants.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from simulator.clock import VirtualClock
from simulator.cluster.control.disruption import Disruption
from simulator.cluster.model import SimulatedCluster
from simulator.fakes.shell import ServerShell
from tests.integration.test_kubectl_conformance import KUBECTL, needs_kubectl
from tests.support.budget_checker import BudgetChecker
from tests.support.drain_clusters import (
    Mutation,
    Plan,
    as_shipped,
    build,
    deleting,
    plans,
    remove_one,
    terminating_early,
)
from tests.support.kube_api import kubernetes_api, realtime_pump
from tests.support.tiers import Tier

CHUNKS = 4


def remove_workers(plan: Plan, mutation: Mutation = as_shipped, removals: int = 1) -> tuple[BudgetChecker, list[str]]:
    """Build the cluster and remove workers in virtual time, the shipped scripts with the fake kubectl."""
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    checker = BudgetChecker(cluster)
    fleet = build(plan, cluster)
    clock.advance(120)
    shell = ServerShell(cluster, clock.advance)

    def run(text: str, environment: dict[str, str]) -> tuple[int, str, str]:
        ended = shell.run(text, environment, limit_seconds=360)
        return ended.exit_code, ended.stdout, ended.stderr

    try:
        ended = [remove_one(cluster, fleet, run, clock.advance, mutation) for _ in range(removals)]
    finally:
        shell.close()
    clock.advance(300)
    return checker, ended


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_budgets_hold_in_random_clusters(chunk: int, tier: Tier) -> None:
    @seed(tier.seed * CHUNKS + chunk + 1)
    @settings(
        max_examples=tier.clusters // CHUNKS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(plan=plans())
    def remove_a_worker(plan: Plan) -> None:
        checker, ended = remove_workers(plan)
        checker.assert_only_safe_removals()
        assert {e.partition(" ")[0] for e in ended} <= {"removed", "no", "failed", "blocked"}

    remove_a_worker()


def found_by_the_checker(mutation: Mutation, clusters: int = 25) -> bool:
    """Whether one of some random clusters shows what the mutant does."""
    seen: list[bool] = []

    @seed(7)
    @settings(
        max_examples=clusters,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(plan=plans())
    def search(plan: Plan) -> None:
        if not any(seen):
            checker, _ = remove_workers(plan, mutation)
            seen.append(bool(checker.violations))

    search()
    return any(seen)


def test_the_checker_finds_the_mutant_that_deletes_instead_of_evicting() -> None:
    assert found_by_the_checker(deleting)


def test_the_checker_finds_the_mutant_that_terminates_before_the_node_is_empty() -> None:
    assert found_by_the_checker(terminating_early)


def test_the_checker_finds_an_api_that_grants_every_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disruption, "check_eviction", lambda _self, _pod: None)
    assert found_by_the_checker(as_shipped)


@needs_kubectl
def test_budgets_hold_when_the_real_kubectl_drains(tier: Tier, tmp_path: Path) -> None:
    wanted = tier.clusters // 20
    drained: list[str] = []

    @seed(11)
    @settings(
        max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    @given(plan=plans(quick=True))
    def drain_for_real(plan: Plan) -> None:
        if sum(e.startswith("removed") for e in drained) < wanted:
            checker, ended = remove_with_kubectl(plan, tmp_path)
            drained.extend(ended)
            checker.assert_only_safe_removals()

    drain_for_real()
    assert sum(e.startswith("removed") for e in drained) == wanted, drained


def remove_with_kubectl(plan: Plan, home: Path) -> tuple[BudgetChecker, list[str]]:
    now = float(int(time.time()))
    clock = VirtualClock(now - 120)
    cluster = SimulatedCluster(clock)
    checker = BudgetChecker(cluster)
    fleet = build(plan, cluster)
    clock.advance_to(now)
    with kubernetes_api(cluster) as api, realtime_pump(cluster, clock):
        environment = {
            "PATH": f"{Path(str(KUBECTL)).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": str(api.kubeconfig),
            "NODE_FLEET_LOCK_DIRECTORY": str(home),
        }

        def run(text: str, given_variables: dict[str, str]) -> tuple[int, str, str]:
            quick = {"DRAIN_TIMEOUT_SECONDS": "25"} if "DRAIN_TIMEOUT_SECONDS" in given_variables else {}
            done = subprocess.run(
                ["sh", "-c", text],
                env={**environment, **given_variables, **quick},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            return done.returncode, done.stdout, done.stderr

        def settle(seconds: float) -> None:
            with cluster.state.lock:
                cluster.state.clock.advance(0)

        ended = [remove_one(cluster, fleet, run, settle, as_shipped)]
    return checker, [e if not e.startswith("not forgotten") else "removed" for e in ended]
