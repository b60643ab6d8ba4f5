"""The fit of a worker's pods on the others: which nodes take pods, what the pods that run hold, and which set fits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fit_clusters import judged_fit, removal_fit

READY = {"type": "Ready", "status": "True"}
AMOUNTS = {"cpu": "2", "memory": "2Gi", "pods": "110"}
ZONE = "topology.kubernetes.io/zone"
EMPTY: dict[str, Any] = {"persistentvolumes": [], "persistentvolumeclaims": [], "storageclasses": [], "replicasets": []}


def node(name: str, *, conditions: Any = (READY,), amounts: Any = AMOUNTS, **more: Any) -> dict[str, Any]:
    labels = {ZONE: "a", **more.pop("labels", {})}
    status = {"allocatable": amounts, "conditions": list(conditions)}
    return {"metadata": {"name": name, "labels": labels}, "spec": more, "status": status}


def pod(name: str, on: str, cpu: str = "100m", *, phase: str = "Running", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "shop",
        "labels": {"app": name.partition("-")[0]},
        **more.pop("metadata", {}),
    }
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": metadata,
        "spec": {"nodeName": on, "containers": containers, **more},
        "status": {"phase": phase},
    }


def placed(nodes: list[Any], *pods: Any) -> Any:
    return removal_fit.placed_nodes({"nodes": nodes, "pods": list(pods)})


def judged(nodes: list[Any], *pods: Any) -> Any:
    return judged_fit({"nodes": nodes, "pods": list(pods), **EMPTY})


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, True),
        ({"conditions": ()}, False),
        ({"conditions": ({"type": "Ready", "status": "False"},)}, False),
        ({"conditions": ({"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure", "status": "True"})}, False),
        ({"conditions": ({"type": "DiskPressure", "status": "False"}, READY)}, True),
        ({"unschedulable": True}, False),
        ({"unschedulable": False}, True),
        ({"amounts": {"cpu": "two"}}, False),
    ],
    ids=str,
)
def test_a_node_takes_pods_when_it_is_ready_not_cordoned_and_readable(changes: dict[str, Any], is_open: bool) -> None:
    only = placed([node("n1", **changes)]).nodes[0]
    assert (only.is_open, bool(only.allocatable)) == (is_open, "amounts" not in changes)


@pytest.mark.parametrize("role", ["control-plane", "master", "etcd"])
def test_a_server_is_no_worker(role: str) -> None:
    assert removal_fit.is_server(node("n1", labels={f"node-role.kubernetes.io/{role}": "true"}))
    assert not removal_fit.is_server(node("n1"))
    assert not removal_fit.is_server({"metadata": {"name": "n1"}})


def test_pods_hold_what_they_request_until_they_have_ended() -> None:
    pods = [
        pod("done-1", "n1", phase="Succeeded"),
        pod("done-2", "n1", phase="Failed"),
        pod("away-1", "n9"),
        pod("web-1", "n1", "300m"),
        pod("web-2", "n1", "200m", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ]
    placement = placed([node("n1")], *pods)
    (only,) = placement.nodes
    assert (only.free["cpu"], only.free["pods"]) == (1500, 108)
    assert [(one.name, where.name) for one, where in placement.leaving] == [("shop/web-2", "n1")]


def test_a_pod_that_cannot_be_read_closes_its_node_and_no_other() -> None:
    placement = placed([node("n1"), node("n2")], pod("odd-1", "n1", "much"), pod("web-1", "n2"), pod("web-2", "n1"))
    assert [(one.is_open, one.free["cpu"]) for one in placement.nodes] == [(False, 1900), (True, 1900)]


def test_of_a_running_pod_with_a_demand_that_cannot_be_judged_its_requests_and_namespace_count() -> None:
    chosen = {"namespaceSelector": {"matchLabels": {"team": "a"}}, "topologyKey": ZONE}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [chosen]}
    only = placed([node("n1")], pod("web-1", "n1", affinity={"podAffinity": required})).nodes[0].pods[0]
    assert only.demand == {"requests": {"cpu": 100, "pods": 1}, "namespace": "shop"}


SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}


def test_a_pod_that_is_being_deleted_does_not_count_for_the_spread_of_those_that_move() -> None:
    """Zone b holds a pod that ends: without it the moved pod keeps the skew of 1."""
    nodes = [node("n1"), node("n2", labels={ZONE: "b"}), node("n3", labels={ZONE: "c"}, unschedulable=True)]
    moved, stays = pod("web-1", "n1", **SPREAD), pod("web-2", "n2")
    assert judged(nodes, moved, stays)[0]["n1"].predicate == "spread"
    ends = pod("web-2", "n2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert judged(nodes, moved, ends)[0]["n1"] is None


def test_workers_that_fit_together_start_with_the_fewest_pods_and_are_ten_at_most() -> None:
    nodes = [node(f"n{number:02}") for number in range(13)]
    found, together = judged(nodes, pod("web-1", "n00"))
    assert set(found.values()) == {None}
    assert together == {f"n{number:02}" for number in range(1, 11)}


def test_of_workers_with_as_many_pods_the_one_with_the_fewest_requests_comes_first() -> None:
    """Full workers, and 400m free on the last one: for 100m and 200m, or for 100m and 300m."""
    sizes = {"n1": "300m", "n2": "200m", "n3": "100m"}
    nodes = [*(node(name, amounts={**AMOUNTS, "cpu": size}) for name, size in sizes.items()), node("n4")]
    pods = [pod(f"{name}-1", name, size) for name, size in {**sizes, "n4": "1600m"}.items()]
    found, together = judged(nodes, *pods)
    assert [name for name, misfit in found.items() if misfit] == ["n4"]
    assert together == {"n2", "n3"}


def test_one_worker_alone_is_no_set() -> None:
    found, together = judged([node("n1"), node("n2")], pod("a-1", "n1", "1500m"), pod("b-1", "n2", "400m"))
    assert (found, together) == ({"n1": None, "n2": None}, set())


def test_a_pod_that_must_run_beside_one_of_its_own_worker_fits_only_without_it() -> None:
    """Both move: while they end, the partner still runs on the worker; afterwards it runs nowhere."""
    beside = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2")]
    web = pod("web-1", "n1", affinity={"podAffinity": beside})
    found, _ = judged(nodes, web, pod("db-1", "n1"))
    assert found["n1"] is None
    found, _ = judged(nodes, web, {**pod("db-1", "n1"), "status": {"phase": "Succeeded"}})
    assert found["n1"].predicate == "pod-affinity"


def test_a_judged_worker_keeps_its_pods_while_the_next_one_is_judged() -> None:
    """The pod of the first worker fits only on the third, and that of the second would fit only in its place."""
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
    amounts = {"n1": AMOUNTS, "n2": AMOUNTS, "n3": {**AMOUNTS, "cpu": "1550m"}}
    nodes = [node(name, labels={"kubernetes.io/hostname": name}, amounts=each) for name, each in amounts.items()]
    first = pod("a-1", "n1", "1500m", affinity={"podAntiAffinity": apart})
    found, _ = judged(nodes, first, pod("b-1", "n2", "1600m"))
    assert [found["n1"], found["n2"].predicate, found["n3"]] == [None, "cpu", None]


def test_the_pods_of_a_judged_worker_count_for_the_spread_of_those_of_the_next_one() -> None:
    nodes = [node("n1"), node("n2", labels={ZONE: "b"}), node("n3", labels={ZONE: "c"}, unschedulable=True)]
    found, _ = judged(nodes, pod("web-1", "n1"), pod("web-2", "n2", "200m", **SPREAD))
    assert [list(found), found["n1"], found["n2"].predicate] == [["n3", "n1", "n2"], None, "spread"]


def test_a_pod_must_also_fit_once_the_one_beside_which_it_must_run_has_left_the_worker() -> None:
    """While both end, the small node takes the pod beside the old partner; the new partner fits in zone b only."""
    beside = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
    small, large = ({**AMOUNTS, "cpu": cpu} for cpu in ("500m", "1000m"))
    nodes = [node("n1"), node("n2", amounts=small), node("n3", amounts=large, labels={ZONE: "b"})]
    web = pod("web-1", "n1", "400m", affinity={"podAffinity": beside})
    found, _ = judged(nodes, web, pod("db-1", "n1", "900m"))
    assert found["n1"] is not None and found["n1"].pod == "shop/web-1"
    found, _ = judged(nodes, web, pod("db-1", "n1", "600m"))
    assert found["n1"] is None


def test_a_pod_that_moves_does_not_count_on_its_old_node_for_its_own_spread() -> None:
    nodes = [node("n1"), node("n2"), node("n3", labels={ZONE: "c"}, unschedulable=True)]
    assert judged(nodes, pod("web-1", "n1", **SPREAD))[0]["n1"] is None


@pytest.mark.parametrize(("policy", "fits"), [("Honor", True), ("Ignore", False)])
def test_a_worker_that_leaves_is_cordoned_for_a_spread_that_honors_taints(policy: str, fits: bool) -> None:
    """Zone a has no other node: as a place for pods it would have to get the next one."""
    (constraint,) = SPREAD["topologySpreadConstraints"]
    moved = pod("web-1", "n1", topologySpreadConstraints=[{**constraint, "nodeTaintsPolicy": policy}])
    found, _ = judged([node("n1"), node("n2", labels={ZONE: "b"})], moved, pod("web-2", "n2"), pod("web-3", "n2"))
    assert (found["n1"] is None) is fits


def test_a_pod_must_fit_already_while_the_one_that_it_must_avoid_ends_on_the_worker() -> None:
    """Afterwards the small node of the same zone would take it."""
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
        ]
    }
    small, large = ({**AMOUNTS, "cpu": cpu} for cpu in ("500m", "1000m"))
    nodes = [node("n1"), node("n2", amounts=small), node("n3", amounts=large, labels={ZONE: "b"})]
    web = pod("web-1", "n1", "400m", affinity={"podAntiAffinity": apart})
    found, _ = judged(nodes, web, pod("db-1", "n1", "900m"))
    assert found["n1"] is not None


def test_a_worker_whose_amounts_cannot_be_read_requests_nothing() -> None:
    found, _ = judged([node("n1"), node("n2", amounts={"cpu": "two"})])
    assert list(found) == ["n1", "n2"]
