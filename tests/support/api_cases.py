"""Requests and budgets that are compared between the simulated API server and a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.cluster.api.errors import ApiError
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.objects import RUN_SECONDS, controller_of
from simulator.cluster.workloads import pod_object
from tests.support.clusters import AnyCluster, HttpAnswer

MERGE = "application/merge-patch+json"
NODE = "/api/v1/nodes/i-w0"
BUDGET = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web"


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to the API server, to a cluster with a worker, three pods `web` and their budget."""

    name: str
    method: str = "PATCH"
    path: str = NODE
    body: Any = None
    kind: str = MERGE


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


REQUESTS = (
    Request(name="annotation", body=metadata(annotations={"node-fleet.io/cordoned-by": "op-1"})),
    Request(name="annotation that is a number", body=metadata(annotations={"node-fleet.io/cordoned-at": 5})),
    Request(name="annotation with a bad key", body=metadata(annotations={"node fleet/undone": "op-1"})),
    Request(name="cordon as text", body={"spec": {"unschedulable": "true"}}),
    Request(name="another provider id", body={"spec": {"providerID": "aws:///eu-west-1a/i-other"}}),
    Request(name="the same provider id", body={"spec": {"providerID": "aws:///eu-west-1a/i-w0"}}),
    Request(name="version 0", body=metadata(resourceVersion="0", annotations={"a": "b"})),
    Request(name="stale version", body=metadata(resourceVersion="1", annotations={"a": "b"})),
    Request(name="version that is no number", body=metadata(resourceVersion="new", annotations={"a": "b"})),
    Request(name="patch that is a list", body=[]),
    Request(name="patch that is no JSON", body="{"),
    Request(name="patch of a missing node", path="/api/v1/nodes/missing", body=metadata(annotations={"a": "b"})),
    Request(name="budget with both bounds", path=BUDGET, body={"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
    Request(name="budget with a malformed share", path=BUDGET, body={"spec": {"maxUnavailable": "half"}}),
    Request(name="budget with more than all", path=BUDGET, body={"spec": {"maxUnavailable": "101%"}}),
    Request(name="budget with a share", path=BUDGET, body={"spec": {"maxUnavailable": "50%"}}),
    Request(name="missing pod", method="GET", path="/api/v1/namespaces/shop/pods/missing"),
    Request(name="unknown kind", method="GET", path="/api/v1/gadgets"),
    Request(name="unknown field", method="GET", path="/api/v1/pods?fieldSelector=spec.color%3Dred"),
    Request(name="field of nodes", method="GET", path="/api/v1/nodes?fieldSelector=metadata.name%3Di-w0"),
    Request(name="delete a missing node", method="DELETE", path="/api/v1/nodes/missing"),
    Request(
        name="evict a missing pod",
        method="POST",
        path="/api/v1/namespaces/shop/pods/missing/eviction",
        body={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "missing", "namespace": "shop"}},
        kind="application/json",
    ),
)


def prepare_requests(cluster: AnyCluster) -> None:
    cluster.add_server("i-server", "eu-west-1a")
    cluster.add_worker("i-w0", az="eu-west-1a")
    app(cluster, replicas=3, max_unavailable=1)
    cluster.settle()


def request_record(request: Request, answer: HttpAnswer) -> list[Any]:
    """Status and reason; of an answer that is no refusal, its kind. Each server has its own words for a mistake."""
    body = (
        request.body if isinstance(request.body, str) else json.dumps(request.body) if request.body is not None else ""
    )
    status, reply = answer(request.method, request.path, body, request.kind)
    if status < 400:
        return [status, reply["kind"], len(reply.get("items", ()))]
    return [status, reply.get("reason")]


def app(cluster: AnyCluster, name: str = "web", **fields: Any) -> None:
    small = {"cpu_request_milli": 10, "memory_request_mib": 16, "start_seconds": 0.2, "shutdown_seconds": 0.2}
    cluster.add_application(ApplicationSpec(name=name, **{**small, **fields}))


def job(cluster: AnyCluster, labels: dict[str, str], run_seconds: int) -> None:
    pod = pod_object("job", labels=labels, annotations={RUN_SECONDS: str(run_seconds)}, restartPolicy="Never")
    template = {"metadata": {k: pod["metadata"][k] for k in ("labels", "annotations")}, "spec": pod["spec"]}
    cluster.create("jobs", {"metadata": {"name": "report", "namespace": "shop"}, "spec": {"template": template}})


WEB = {"app": "web"}


def with_budget(**spec: Any) -> Callable[[AnyCluster], None]:
    """An application of three replicas, and a budget of its own for it."""

    def setup(cluster: AnyCluster) -> None:
        app(cluster, replicas=3)
        cluster.settle()
        cluster.add_budget("web", namespace="shop", labels=WEB, **spec)

    return setup


def with_job(run_seconds: int, **spec: Any) -> Callable[[AnyCluster], None]:
    """The budget also selects the pod of a Job."""

    def setup(cluster: AnyCluster) -> None:
        with_budget(**spec)(cluster)
        job(cluster, WEB, run_seconds)
        cluster.settle()
        cluster.wait(2)

    return setup


def with_bare_pod(**spec: Any) -> Callable[[AnyCluster], None]:
    def setup(cluster: AnyCluster) -> None:
        with_budget(**spec)(cluster)
        cluster.create("pods", pod_object("bare", labels=WEB))

    return setup


def two_budgets(cluster: AnyCluster) -> None:
    with_budget(max_unavailable=1)(cluster)
    cluster.add_budget("web-2", namespace="shop", labels=WEB, max_unavailable=1)


def empty_selector(cluster: AnyCluster) -> None:
    app(cluster, replicas=2)
    cluster.settle()
    cluster.add_budget("all", namespace="shop", labels={}, max_unavailable=1)


BUDGETS: dict[str, Callable[[AnyCluster], None]] = {
    "at most one away": with_budget(max_unavailable=1),
    "half away": with_budget(max_unavailable="50%"),
    "none away": with_budget(max_unavailable=0),
    "two stay": with_budget(min_available=2),
    "a third stays": with_budget(min_available="34%"),
    "more stay than there are": with_budget(min_available=5),
    "two budgets": two_budgets,
    "every pod of the namespace": empty_selector,
    "at most one away, with a running Job": with_job(600, max_unavailable=1),
    "at most one away, with a finished Job": with_job(1, max_unavailable=1),
    "half stay, with a finished Job": with_job(1, min_available="50%"),
    "two stay, with a finished Job": with_job(1, min_available=2),
    "at most one away, with a bare pod": with_bare_pod(max_unavailable=1),
    "two stay, with a bare pod": with_bare_pod(min_available=2),
}
"""Situations of budgets by name: what they allow is compared, and the answer to the eviction of one pod."""


def budget_record(name: str, cluster: AnyCluster) -> dict[str, Any]:
    cluster.add_server("i-server", "eu-west-1a")
    cluster.add_worker("i-w0", az="eu-west-1a")
    BUDGETS[name](cluster)
    cluster.settle()
    found = {}
    for budget in cluster.objects("poddisruptionbudgets", "shop"):
        status = budget["status"]
        reasons = [c["reason"] for c in status["conditions"] if c["type"] == "DisruptionAllowed"]
        counts = [status.get(k) for k in ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")]
        found[budget["metadata"]["name"]] = [*counts, *reasons]
    owned = [p for p in cluster.objects("pods", "shop") if (controller_of(p) or {}).get("kind") == "ReplicaSet"]
    victim = min(pod["metadata"]["name"] for pod in owned)
    return {"budgets": found, "eviction": eviction_answer(cluster, "shop", victim)}


def eviction_answer(cluster: AnyCluster, namespace: str, name: str) -> list[Any]:
    """Empty when the pod is evicted, else status, reason and causes of the refusal."""
    try:
        cluster.evict(namespace, name)
    except ApiError as error:
        return [error.code, error.reason, [cause["reason"] for cause in error.causes]]
    return []
