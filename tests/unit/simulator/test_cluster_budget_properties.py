"""Random clusters drained by the fake kubectl: no budget is broken, and the checker catches mutants."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock import VirtualClock
from simulator.cluster.control.disruption import Disruption
from simulator.cluster.kubectl.fake import FakeKubectl
from simulator.cluster.model import ApplicationSpec, SimulatedCluster
from simulator.cluster.workloads import pod_object
from tests.support.budget_checker import BudgetChecker

DRAIN = ["drain", "i-w0", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"]
Remove = Callable[[VirtualClock, SimulatedCluster, FakeKubectl], None]


def random_cluster(seed: int) -> tuple[VirtualClock, SimulatedCluster, BudgetChecker]:
    """Two to five workers and one to five applications with budgets of every kind."""
    dice = random.Random(seed)
    clock = VirtualClock()
    cluster = SimulatedCluster(clock)
    checker = BudgetChecker(cluster)
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(dice.randint(2, 5)):
        cluster.add_worker(f"i-w{number}", az=dice.choice(("eu-west-1a", "eu-west-1b")))
    for number in range(dice.randint(1, 5)):
        cluster.add_application(random_application(dice, f"app-{number}"))
    if dice.random() < 0.3:
        cluster.create("pods", pod_object("bare"))
    clock.advance(120)
    return clock, cluster, checker


def random_application(dice: random.Random, name: str) -> ApplicationSpec:
    budget = dice.choice(
        (
            {},
            {"min_available": dice.randint(0, 3)},
            {"min_available": f"{dice.choice((25, 50, 90))}%"},
            {"max_unavailable": dice.randint(0, 2)},
            {"max_unavailable": f"{dice.choice((10, 25, 50))}%"},
        )
    )
    kind = "StatefulSet" if dice.random() < 0.2 else "Deployment"
    return ApplicationSpec(
        name=name,
        kind=kind,
        replicas=dice.randint(1, 6),
        cpu_request_milli=dice.choice((50, 200, 600)),
        shutdown_seconds=dice.choice((1.0, 15.0, 90.0)),
        grace_seconds=dice.choice((10, 60)),
        start_seconds=dice.choice((1.0, 20.0)),
        volume="local-path" if kind == "StatefulSet" and dice.random() < 0.5 else "none",
        **budget,  # type: ignore[arg-type]
    )


def properly(clock: VirtualClock, cluster: SimulatedCluster, fake: FakeKubectl) -> None:
    """Drain; end the machine only when kubectl prints drained; then delete the node."""
    done = fake.run(DRAIN)
    if done.exit_code == 0 and "node/i-w0 drained" in done.stdout.splitlines():
        cluster.instance_ended("i-w0", voluntary=True)
        clock.advance(30)
        fake.run(["delete", "node", "i-w0", "--wait=false"])


def by_deleting(_clock: VirtualClock, _cluster: SimulatedCluster, fake: FakeKubectl) -> None:
    fake.run([*DRAIN, "--force", "--disable-eviction"])


def before_it_is_empty(_clock: VirtualClock, cluster: SimulatedCluster, _fake: FakeKubectl) -> None:
    cluster.cordon("i-w0")
    cluster.instance_ended("i-w0", voluntary=True)


def after_removing(seed: int, remove: Remove) -> BudgetChecker:
    clock, cluster, checker = random_cluster(seed)
    remove(clock, cluster, FakeKubectl(cluster, clock.advance))
    clock.advance(600)
    return checker


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6))
def test_a_drain_never_breaks_a_budget(seed: int) -> None:
    assert after_removing(seed, properly).violations == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_a_drain_without_force_removes_no_bare_pod(seed: int) -> None:
    assert all(removal.owner_kind for removal in after_removing(seed, properly).removals)


def test_the_checker_catches_the_mutant_that_deletes_instead_of_evicting() -> None:
    assert any(after_removing(seed, by_deleting).violations for seed in range(20))


def test_the_checker_catches_an_api_that_grants_every_eviction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disruption, "check_eviction", lambda _self, _pod: None)
    assert any(after_removing(seed, properly).violations for seed in range(20))


def test_the_checker_catches_the_mutant_that_terminates_before_the_node_is_empty() -> None:
    assert any(after_removing(seed, before_it_is_empty).violations for seed in range(20))
