"""Builders of workload objects: applications, budgets, add-ons, and pods for tests.

Only shapes; `SimulatedCluster` stores them.
"""

from __future__ import annotations

from typing import Any

from simulator.cluster.control.volumes import local_claim
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    SHUTDOWN_SECONDS,
    START_SECONDS,
    USAGE_CPU_MILLI,
    USAGE_MEMORY_MIB,
    Obj,
)

EVERYWHERE: list[Obj] = [{"operator": "Exists"}]


def resources(cpu_milli: int, memory_mib: int, cpu_limit_milli: int | None = None) -> Obj:
    found: Obj = {"requests": {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}}
    if cpu_limit_milli is not None:
        found["limits"] = {"cpu": f"{cpu_limit_milli}m"}
    return found


def pod_object(
    name: str,
    *,
    namespace: str = "shop",
    cpu_milli: int = 100,
    memory_mib: int = 64,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Obj:
    """A bare pod; further pod spec fields by keyword (nodeSelector=..., tolerations=...)."""
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources(cpu_milli, memory_mib)}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {"containers": [container], **spec},
    }


def application_objects(spec: ApplicationSpec) -> list[tuple[str, Obj]]:
    """(resource, object) pairs for the workload and its budget."""
    resource = "deployments" if spec.kind == "Deployment" else "statefulsets"
    found = [(resource, _workload(spec))]
    if spec.min_available is not None or spec.max_unavailable is not None:
        budget = budget_object(
            spec.name,
            namespace=spec.namespace,
            labels={"app": spec.name},
            min_available=spec.min_available,
            max_unavailable=spec.max_unavailable,
        )
        found.append(("poddisruptionbudgets", budget))
    return found


def _workload(spec: ApplicationSpec) -> Obj:
    replicas = spec.replicas
    if spec.autoscale:
        replicas = min(max(replicas, spec.autoscale.min_replicas), spec.autoscale.max_replicas)
    workload: Obj = {
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": {"app": spec.name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": spec.name}},
            "template": _template(spec),
        },
        "status": {},
    }
    if spec.restart_before_drain:
        workload["metadata"]["annotations"] = {"node-fleet.io/restart-before-drain": "true"}
    if spec.kind == "StatefulSet" and spec.volume == "local-path":
        claim = local_claim(spec.namespace, "data")["spec"]
        workload["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    return workload


def _template(spec: ApplicationSpec) -> Obj:
    annotations = dict(spec.annotations)
    if spec.shutdown_seconds is not None:
        annotations[SHUTDOWN_SECONDS] = str(spec.shutdown_seconds)
    if spec.start_seconds is not None:
        annotations[START_SECONDS] = str(spec.start_seconds)
    container = {
        "name": spec.name,
        "image": f"registry.example/{spec.name}:1",
        "resources": resources(spec.cpu_request_milli, spec.memory_request_mib, spec.cpu_limit_milli),
    }
    pod_spec: Obj = {"containers": [container], "terminationGracePeriodSeconds": spec.grace_seconds}
    if spec.node_selector:
        pod_spec["nodeSelector"] = dict(spec.node_selector)
    if spec.volume == "emptyDir":
        pod_spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    elif spec.volume == "local-path" and spec.kind == "Deployment":
        pod_spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"{spec.name}-data"}}]
    return {"metadata": {"labels": {"app": spec.name}, "annotations": annotations}, "spec": pod_spec}


def budget_object(
    name: str,
    *,
    namespace: str,
    labels: dict[str, str],
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> Obj:
    spec: Obj = {"selector": {"matchLabels": dict(labels)}}
    if min_available is not None:
        spec["minAvailable"] = min_available
    if max_unavailable is not None:
        spec["maxUnavailable"] = max_unavailable
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {}}


def deployment_object(
    name: str, *, namespace: str, replicas: int, cpu_milli: int, memory_mib: int, **pod_spec: Any
) -> Obj:
    """A Deployment with no load of its own."""
    container = {"name": name, "image": f"registry.example/{name}:1", "resources": resources(cpu_milli, memory_mib)}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **pod_spec}}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        "status": {},
    }


def daemon_set_object(name: str, *, namespace: str, cpu_milli: int, memory_mib: int) -> Obj:
    """A DaemonSet on every node, the server included."""
    found = deployment_object(name, namespace=namespace, replicas=1, cpu_milli=cpu_milli, memory_mib=memory_mib)
    del found["spec"]["replicas"]
    template = found["spec"]["template"]
    template["spec"]["tolerations"] = EVERYWHERE
    template["metadata"]["annotations"] = {USAGE_CPU_MILLI: "8", USAGE_MEMORY_MIB: "20"}
    return found


SERVER_ADD_ONS = (
    ("coredns", "kube-system", 100, 70),
    ("local-path-provisioner", "kube-system", 10, 20),
    ("metrics-server", "kube-system", 100, 70),
    ("traefik", "kube-system", 50, 60),
    ("prometheus", "monitoring", 200, 512),
    ("kube-state-metrics", "monitoring", 20, 64),
    ("grafana", "monitoring", 50, 128),
)


def server_add_ons() -> list[tuple[str, Obj]]:
    """The add-ons that the bootstrap runs on the server, and the node exporter on every node."""
    found: list[tuple[str, Obj]] = [
        (
            "deployments",
            deployment_object(
                name,
                namespace=namespace,
                replicas=1,
                cpu_milli=cpu,
                memory_mib=memory,
                nodeSelector={LABEL_CONTROL_PLANE: "true"},
                tolerations=EVERYWHERE,
            ),
        )
        for name, namespace, cpu, memory in SERVER_ADD_ONS
    ]
    found.append(
        ("daemonsets", daemon_set_object("node-exporter", namespace="monitoring", cpu_milli=20, memory_mib=32))
    )
    return found
