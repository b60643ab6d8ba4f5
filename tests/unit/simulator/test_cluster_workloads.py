"""Controllers, budgets and evictions of the simulated cluster, with the checker that watches over them."""

from __future__ import annotations

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.api.errors import ApiError
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster
from simulator.cluster.objects import RUN_SECONDS
from simulator.cluster.workloads import daemon_set_object, pod_object
from tests.support.budget_checker import BudgetChecker


def a_cluster(workers: int = 2) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, add_ons=False)
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(workers):
        cluster.add_worker(f"i-w{number}")
    return clock, cluster


def shop(cluster: SimulatedCluster) -> list[str]:
    return sorted(pod.name for pod in cluster.pods() if pod.namespace == "shop")


def refusal(cluster: SimulatedCluster, name: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        cluster.evict("shop", name, actor=OUR_ACTOR)
    return caught.value


@pytest.mark.parametrize(("shutdown", "gone_after"), [(20, 20), (500, 30)])
def test_an_evicted_pod_is_replaced_at_once_and_stops_in_its_time_or_is_killed_when_its_grace_ends(
    shutdown: int, gone_after: int
) -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", shutdown_seconds=shutdown, grace_seconds=30))
    clock.advance(10)
    (name,) = shop(cluster)
    cluster.evict("shop", name)
    assert len(shop(cluster)) == 2
    clock.advance(gone_after - 1)
    assert name in shop(cluster)
    clock.advance(1)
    assert len(shop(cluster)) == 1
    assert name not in shop(cluster)


def test_a_bare_pod_is_not_replaced() -> None:
    clock, cluster = a_cluster()
    cluster.create("pods", pod_object("bare"))
    clock.advance(10)
    cluster.delete("pods", "shop", "bare")
    clock.advance(10)
    assert shop(cluster) == []


def test_a_stateful_set_starts_in_order_and_keeps_its_volume_on_its_node() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="db", kind="StatefulSet", replicas=2, volume="local-path"))
    clock.advance(4)
    assert shop(cluster) == ["db-0"]
    clock.advance(10)
    assert shop(cluster) == ["db-0", "db-1"]
    node = next(pod.node for pod in cluster.pods() if pod.name == "db-0")
    cluster.cordon(node)
    cluster.delete("pods", "shop", "db-0")
    clock.advance(10)
    again = next(pod for pod in cluster.pods() if pod.name == "db-0")
    assert again.unschedulable


def test_a_daemon_set_covers_every_node_cordoned_ones_too() -> None:
    clock, cluster = a_cluster()
    cluster.cordon("i-w0")
    cluster.create("daemonsets", daemon_set_object("agent", namespace="shop", cpu_milli=10, memory_mib=10))
    assert {pod.node for pod in cluster.pods()} == {"i-server", "i-w0", "i-w1"}
    cluster.add_worker("i-w2")
    assert len(cluster.pods()) == 4
    cluster.instance_ended("i-w2")
    cluster.delete("nodes", "", "i-w2")
    assert len(cluster.pods()) == 4
    clock.advance(60)
    assert len(cluster.pods()) == 3


def test_a_scale_down_removes_pods_without_a_node_first() -> None:
    clock, cluster = a_cluster(workers=1)
    cluster.add_application(ApplicationSpec(name="web", replicas=9))
    clock.advance(10)
    cluster.scale("shop/web", 7)
    clock.advance(10)
    assert [pod.phase for pod in cluster.pods()] == ["Running"] * 7


def test_an_exhausted_budget_refuses_with_429_and_its_counts() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=2, min_available=2))
    clock.advance(10)
    error = refusal(cluster, shop(cluster)[0])
    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.causes == [
        {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"}
    ]


def test_two_budgets_on_one_pod_refuse_with_500() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=2, max_unavailable=1))
    cluster.add_budget("other", namespace="shop", labels={"app": "web"}, min_available=0)
    clock.advance(10)
    assert refusal(cluster, shop(cluster)[0]).code == 500


def test_a_pod_of_an_ending_namespace_refuses_with_403_and_its_cause() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", shutdown_seconds=20))
    clock.advance(10)
    cluster.delete("namespaces", "", "shop")
    error = refusal(cluster, shop(cluster)[0])
    assert error.code == 403
    assert error.has_cause("NamespaceTerminating")
    clock.advance(30)
    assert shop(cluster) == []
    assert cluster.find("namespaces", "", "shop") is None


@pytest.mark.parametrize(
    ("replicas", "budget", "healthy", "desired", "allowed"),
    [
        (3, {"min_available": 2}, 3, 2, 1),
        (3, {"min_available": "50%"}, 3, 2, 1),
        (4, {"max_unavailable": 1}, 4, 3, 1),
        (4, {"max_unavailable": "25%"}, 4, 3, 1),
        (5, {"max_unavailable": "25%"}, 5, 3, 2),
        (1, {"max_unavailable": 0}, 1, 1, 0),
        (2, {"min_available": 5}, 2, 5, 0),
    ],
)
def test_budget_status(replicas: int, budget: dict[str, int | str], healthy: int, desired: int, allowed: int) -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=replicas, cpu_request_milli=10, **budget))  # type: ignore[arg-type]
    clock.advance(10)
    status = cluster.objects("poddisruptionbudgets")[0]["status"]
    assert (status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]) == (
        healthy,
        desired,
        allowed,
    )


def test_an_unready_pod_may_be_evicted_while_the_budget_is_met() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=3, min_available=2, cpu_request_milli=10))
    clock.advance(10)
    cluster.update("pods", "shop", shop(cluster)[0], lambda pod: pod["status"]["conditions"][-1].update(status="False"))
    cluster.evict("shop", shop(cluster)[0])
    assert refusal(cluster, shop(cluster)[1]).code == 429


def test_the_checker_is_silent_while_evictions_obey() -> None:
    clock, cluster = a_cluster()
    checker = BudgetChecker(cluster)
    cluster.add_application(ApplicationSpec(name="web", replicas=3, min_available=2, cpu_request_milli=10))
    clock.advance(10)
    for name in shop(cluster):
        try:
            cluster.evict("shop", name, actor=OUR_ACTOR)
        except ApiError as error:
            assert error.code == 429
        clock.advance(7)
    assert checker.violations == []
    assert len(checker.removals) == 3


def test_the_checker_sees_a_delete_past_the_budget() -> None:
    clock, cluster = a_cluster()
    checker = BudgetChecker(cluster)
    cluster.add_application(ApplicationSpec(name="web", replicas=2, min_available=2))
    clock.advance(10)
    cluster.delete("pods", "shop", shop(cluster)[0], actor=OUR_ACTOR)
    (violation,) = checker.violations
    assert (violation.budget, violation.healthy, violation.promised) == ("shop/web", 1, 2)


@pytest.mark.parametrize("ours", [True, False])
def test_the_checker_distinguishes_a_machine_that_we_end_before_it_is_empty_from_one_that_aws_takes(ours: bool) -> None:
    clock, cluster = a_cluster(workers=1)
    checker = BudgetChecker(cluster)
    cluster.add_application(ApplicationSpec(name="web", replicas=2, min_available=1))
    clock.advance(10)
    cluster.instance_ended("i-w0", voluntary=ours)
    assert (bool(checker.violations), bool(checker.involuntary_drops)) == (ours, not ours)
    assert {removal.act for removal in checker.removals} == ({"terminated with its machine"} if ours else set())


def test_the_checker_names_what_must_never_be_deleted() -> None:
    clock, cluster = a_cluster()
    checker = BudgetChecker(cluster)
    cluster.add_application(ApplicationSpec(name="db", kind="StatefulSet", volume="local-path"))
    cluster.create("pods", pod_object("bare"))
    clock.advance(10)
    cluster.evict("shop", "db-0", actor=OUR_ACTOR)
    cluster.evict("shop", "bare", actor=OUR_ACTOR)
    cluster.evict("shop", "bare", actor="person")
    found = [(removal.owner_kind, removal.is_node_bound) for removal in checker.removals]
    assert found == [("StatefulSet", True), ("", False)]


def status_of(cluster: SimulatedCluster, budget: str) -> dict[str, object]:
    found = cluster.find("poddisruptionbudgets", "shop", budget)
    assert found is not None
    return {**found["status"], "reason": found["status"]["conditions"][0]["reason"]}


@pytest.mark.parametrize("run_seconds", [5, 900])
def test_a_budget_that_counts_replicas_and_selects_a_jobs_pod_allows_nothing(run_seconds: int) -> None:
    """Also when the Job has finished: its pod stays."""
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=3, max_unavailable=1))
    pod = pod_object("job", labels={"app": "web"}, annotations={RUN_SECONDS: str(run_seconds)})
    template = {"metadata": pod["metadata"], "spec": {**pod["spec"], "restartPolicy": "Never"}}
    cluster.create("jobs", {"metadata": {"name": "report", "namespace": "shop"}, "spec": {"template": template}})
    clock.advance(60)
    status = status_of(cluster, "web")
    assert (status["disruptionsAllowed"], status["reason"]) == (0, "SyncFailed")
    assert refusal(cluster, next(name for name in shop(cluster) if name.startswith("web"))).code == 429


def test_of_two_budgets_that_share_a_pod_one_is_not_refreshed() -> None:
    clock, cluster = a_cluster()
    cluster.add_application(ApplicationSpec(name="web", replicas=3))
    clock.advance(30)
    for name in ("a", "b"):
        cluster.add_budget(name, namespace="shop", labels={"app": "web"}, max_unavailable=1)
    cluster.delete("pods", "shop", shop(cluster)[0])
    assert [status_of(cluster, name)["currentHealthy"] for name in ("a", "b")] == [2, 3]
