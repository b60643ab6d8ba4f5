"""The API verbs of the simulated cluster: paths, lists, merge patches and their preconditions."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.verbs import ApiVerbs, merge_patch, parse_target
from simulator.cluster.model import SimulatedCluster

NODE = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": [{"key": "a"}]}}


@pytest.fixture
def cluster() -> SimulatedCluster:
    cluster = SimulatedCluster(VirtualClock())
    cluster.add_server("i-server", "eu-west-1a")
    cluster.add_worker("i-w0")
    return cluster


def test_a_change_names_its_actor(cluster: SimulatedCluster) -> None:
    actors: list[str] = []
    cluster.on_change(lambda change: actors.append(change.actor))
    for actor in ("node-fleet", "person"):
        ApiVerbs(cluster, actor).patch("nodes", "", "i-w0", {"metadata": {"annotations": {"by": actor}}})
    assert actors == ["node-fleet", "person"]


def test_a_patch_of_a_stale_version_is_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(ApiError, match="the object has been modified") as caught:
        ApiVerbs(cluster, "person").patch("nodes", "", "i-w0", {"metadata": {"resourceVersion": "1"}})
    assert caught.value.code == 409


def test_a_patch_leaves_identity_and_creation_time_as_they_are(cluster: SimulatedCluster) -> None:
    before = ApiVerbs(cluster, "person").get("nodes", "", "i-w0")["metadata"]
    changed = {"creationTimestamp": "2000-01-01T00:00:00Z", "name": "other", "uid": "other"}
    after = ApiVerbs(cluster, "person").patch("nodes", "", "i-w0", {"metadata": changed})["metadata"]
    assert {key: after[key] for key in changed} == {key: before[key] for key in changed}


@pytest.mark.parametrize(
    ("patch", "patched"),
    [
        ({"spec": {"taints": [{"key": "b"}]}}, {**NODE, "spec": {"taints": [{"key": "b"}]}}),
        ({"spec": {"taints": None, "unschedulable": True}}, {**NODE, "spec": {"unschedulable": True}}),
        ({"spec": {"new": {"deep": 1, "absent": None}}}, {**NODE, "spec": {**NODE["spec"], "new": {"deep": 1}}}),
        ({"metadata": {"labels": "text"}}, {**NODE, "metadata": {"name": "n", "labels": "text"}}),
    ],
)
def test_a_merge_patch_replaces_lists_and_removes_what_is_null(patch: Any, patched: Any) -> None:
    assert merge_patch(NODE, patch) == patched
    assert NODE["spec"] == {"taints": [{"key": "a"}]}


def test_a_patch_that_is_no_object_is_refused(cluster: SimulatedCluster) -> None:
    with pytest.raises(ApiError, match="must be a JSON object"):
        ApiVerbs(cluster, "person").patch("nodes", "", "i-w0", ["spec"])


def test_a_list_is_narrowed_by_namespace_and_by_field(cluster: SimulatedCluster) -> None:
    verbs = ApiVerbs(cluster, "person")
    on_worker = verbs.read("/api/v1/pods?fieldSelector=spec.nodeName%3Di-w0")
    assert on_worker["kind"] == "PodList"
    assert [pod["spec"]["nodeName"] for pod in on_worker["items"]] == ["i-w0"]
    system = verbs.read("/api/v1/namespaces/kube-system/pods")["items"]
    assert {pod["metadata"]["namespace"] for pod in system} == {"kube-system"}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/namespaces/shop/pods/web/eviction", ("pods", "shop", "web", "eviction")),
        ("/apis/policy/v1/poddisruptionbudgets", ("poddisruptionbudgets", "", "", "")),
        ("/apis/apps/v1/namespaces/shop/deployments/web", ("deployments", "shop", "web", "")),
    ],
)
def test_a_path_names_a_resource_and_an_object(path: str, found: tuple[str, str, str, str]) -> None:
    target = parse_target(path)
    assert (target.resource, target.namespace, target.name, target.subresource) == found


@pytest.mark.parametrize("path", ["/apis/apps/v1/nodes", "/api/v1/gadgets", "/readyz"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(ApiError, match="could not find the requested resource"):
        parse_target(path)


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"metadata": {"annotations": {"node-fleet.io/cordoned-at": 5}}}, 422),
        ({"metadata": {"annotations": {"node fleet/undone": "op-1"}}}, 422),
        ({"spec": {"unschedulable": "true"}}, 422),
        ({"spec": {"providerID": "aws:///us-east-1a/i-other"}}, 422),
        ({"spec": {"providerID": None}}, 422),
    ],
)
def test_a_patch_that_kubernetes_refuses_is_refused_and_changes_nothing(
    cluster: SimulatedCluster, patch: Any, code: int
) -> None:
    verbs = ApiVerbs(cluster, "person")
    before = verbs.get("nodes", "", "i-w0")
    with pytest.raises(ApiError) as caught:
        verbs.patch("nodes", "", "i-w0", patch)
    assert (caught.value.code, verbs.get("nodes", "", "i-w0")) == (code, before)


def test_version_zero_in_a_patch_is_no_precondition(cluster: SimulatedCluster) -> None:
    verbs = ApiVerbs(cluster, "person")
    patched = verbs.patch("nodes", "", "i-w0", {"metadata": {"resourceVersion": "0", "annotations": {"a": "b"}}})
    assert patched["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("bounds", [{"minAvailable": 1, "maxUnavailable": 1}, {"maxUnavailable": "half"}])
def test_a_budget_that_kubernetes_refuses_is_refused(cluster: SimulatedCluster, bounds: dict[str, Any]) -> None:
    cluster.add_budget("web", namespace="shop", labels={"app": "web"})
    with pytest.raises(ApiError) as caught:
        ApiVerbs(cluster, "person").patch("poddisruptionbudgets", "shop", "web", {"spec": bounds})
    assert caught.value.code == 422


def test_a_list_cannot_be_narrowed_by_any_field(cluster: SimulatedCluster) -> None:
    with pytest.raises(ApiError, match=r"field label not supported: spec\.color"):
        ApiVerbs(cluster, "person").read("/api/v1/pods?fieldSelector=spec.color%3Dred")
