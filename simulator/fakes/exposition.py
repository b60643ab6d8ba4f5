"""The cluster as its exporters expose it: node-exporter on each worker, kube-state-metrics, the demo app.

Samples are the truth of the moment at which they are asked for. Who scrapes them, and when, is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.cluster.load.applications import Application
from simulator.cluster.load.meters import CPU_MODES, LATENCY_BUCKETS_SECONDS
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    LABEL_MARKET,
    LABEL_ROLE,
    LABEL_TYPE,
    LABEL_ZONE,
    Obj,
    condition,
    cpu_milli,
    epoch_of,
    internal_address,
    is_gated,
    kubelet_version,
    memory_mib,
    node_of,
)
from simulator.cluster.state import Machine

MIB: Final = 1024 * 1024
SCRAPE_SECONDS: Final = 15
REFRESH_SECONDS: Final = 30
PHASES: Final = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
_IO: Final = {
    "network_receive_bytes": ("node_network_receive_bytes_total", "ens5"),
    "network_transmit_bytes": ("node_network_transmit_bytes_total", "ens5"),
    "disk_read_bytes": ("node_disk_read_bytes_total", "nvme0n1"),
    "disk_written_bytes": ("node_disk_written_bytes_total", "nvme0n1"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One series at one moment: metric name, labels, value."""

    name: str
    labels: Mapping[str, str]
    value: float


def text(samples: Iterable[Sample]) -> str:
    """The Prometheus text format."""
    lines = []
    for sample in samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in sample.labels.items())
        lines.append(f"{sample.name}{{{labels}}} {sample.value!r}" if labels else f"{sample.name} {sample.value!r}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def target_labels(machine: Machine) -> dict[str, str]:
    """What EC2 discovery and relabelling put on every series of a worker's node-exporter."""
    return {
        "job": "node-exporter",
        "instance": f"{machine.address}:9100",
        "instance_id": machine.instance_id,
        "zone": machine.az,
        "market": machine.market,
        "instance_type": machine.type.name,
    }


def exporter_answers(machine: Machine) -> bool:
    """Whether a scrape of this worker's node-exporter succeeds now: it runs as a daemon of the joined node."""
    return machine.powered and machine.exporter_up and machine.joined_at is not None


def node_exporter(cluster: SimulatedCluster, machine: Machine) -> Iterator[Sample]:
    """CPU seconds by core and mode, memory, network and disk of one worker."""
    meter = cluster.node_meter(machine.node_name)
    seconds = cluster.node_cpu_seconds(machine.node_name)
    for core in range(meter.cores):
        for mode in CPU_MODES:
            yield Sample("node_cpu_seconds_total", {"cpu": str(core), "mode": mode}, seconds[mode] / meter.cores)
    total, available = cluster.node_memory_mib(machine.node_name)
    yield Sample("node_memory_MemTotal_bytes", {}, total * MIB)
    yield Sample("node_memory_MemAvailable_bytes", {}, available * MIB)
    for counter, value in cluster.node_io_bytes(machine.node_name).items():
        name, device = _IO[counter]
        yield Sample(name, {"device": device}, value)


def used_cpu_seconds(totals: Mapping[str, float]) -> float:
    """What cAdvisor counts for a whole machine: time in which instructions ran."""
    return sum(totals[mode] for mode in CPU_MODES if mode not in ("idle", "iowait", "steal"))


def cadvisor(cluster: SimulatedCluster, machine: Machine) -> Iterator[Sample]:
    """The metrics of one node's kubelet about the whole machine."""
    used = used_cpu_seconds(cluster.node_cpu_seconds(machine.node_name))
    yield Sample("container_cpu_usage_seconds_total", {"id": "/"}, used)
    yield Sample("machine_cpu_cores", {}, float(cluster.node_meter(machine.node_name).cores))


def kube_state_metrics(cluster: SimulatedCluster) -> Iterator[Sample]:
    """The metrics of one replica of kube-state-metrics about nodes and pods."""
    for node in cluster.objects("nodes"):
        yield from _node_samples(node)
    for pod in cluster.objects("pods"):
        yield from _pod_samples(pod)


def _node_samples(node: Obj) -> Iterator[Sample]:
    metadata, spec = node["metadata"], node["spec"]
    name, labels = metadata["name"], metadata.get("labels", {})
    identity = {
        "provider_id": spec.get("providerID", ""),
        "internal_ip": internal_address(node),
        "kubelet_version": kubelet_version(node),
    }
    yield Sample("kube_node_info", {"node": name, **identity}, 1.0)
    yield Sample("kube_node_created", {"node": name}, epoch_of(metadata["creationTimestamp"]))
    if LABEL_CONTROL_PLANE in labels:
        yield Sample("kube_node_role", {"node": name, "role": "control-plane"}, 1.0)
    shown = {
        "label_" + "".join(letter if letter.isalnum() else "_" for letter in key): labels[key]
        for key in (LABEL_ZONE, LABEL_TYPE, LABEL_MARKET, LABEL_ROLE)
        if key in labels
    }
    yield Sample("kube_node_labels", {"node": name, **shown}, 1.0)
    for entry in node["status"]["conditions"]:
        for status in ("true", "false", "unknown"):
            found = {"node": name, "condition": entry["type"], "status": status}
            yield Sample("kube_node_status_condition", found, float(entry["status"].lower() == status))
    yield Sample("kube_node_spec_unschedulable", {"node": name}, float(bool(spec.get("unschedulable"))))
    for taint in spec.get("taints", ()):
        found = {"node": name, "key": taint["key"], "value": taint.get("value", ""), "effect": taint["effect"]}
        yield Sample("kube_node_spec_taint", found, 1.0)
    for kind in ("allocatable", "capacity"):
        for resource, unit, value in _amounts(node["status"][kind]):
            yield Sample(f"kube_node_status_{kind}", {"node": name, "resource": resource, "unit": unit}, value)


def _amounts(quantities: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    if "cpu" in quantities:
        yield "cpu", "core", cpu_milli(quantities["cpu"]) / 1000
    if "memory" in quantities:
        yield "memory", "byte", memory_mib(quantities["memory"]) * MIB
    if "pods" in quantities:
        yield "pods", "integer", float(quantities["pods"])


def _pod_samples(pod: Obj) -> Iterator[Sample]:
    metadata, node = pod["metadata"], node_of(pod)
    ids = {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}
    yield Sample("kube_pod_info", {**ids, "node": node}, 1.0)
    yield Sample("kube_pod_created", ids, epoch_of(metadata["creationTimestamp"]))
    phase = pod["status"].get("phase", "Pending")
    for one in PHASES:
        yield Sample("kube_pod_status_phase", {**ids, "phase": one}, float(one == phase))
    if not_scheduled(pod):
        yield Sample("kube_pod_status_unschedulable", ids, 1.0)
    yield Sample("kube_pod_status_reason", {**ids, "reason": "SchedulingGated"}, float(gated(pod)))
    for kind, field in (("", "containers"), ("init_", "initContainers")):
        for container in pod["spec"].get(field, ()):
            found = {**ids, "container": container["name"], "node": node}
            for resource, unit, value in _amounts(_requests(container)):
                if resource != "pods":
                    sample = {**found, "resource": resource, "unit": unit}
                    yield Sample(f"kube_pod_{kind}container_resource_requests", sample, value)


def not_scheduled(pod: Obj) -> bool:
    """True for a pod that the scheduler or a scheduling gate keeps unscheduled."""
    return (condition(pod, "PodScheduled") or {}).get("status") == "False"


def gated(pod: Obj) -> bool:
    return is_gated(pod) and (condition(pod, "PodScheduled") or {}).get("reason") == "SchedulingGated"


def _requests(container: Obj) -> dict[str, Any]:
    """The API server takes a limit for the request that was not given."""
    resources = container.get("resources", {})
    return {**resources.get("limits", {}), **resources.get("requests", {})}


def app_labels(application: Application) -> dict[str, str]:
    spec = application.spec
    return {"job": "demo-app", "instance": f"{spec.name}.{spec.namespace}:8080"}


def demo_app(application: Application, now: float) -> Iterator[Sample]:
    """Queue, latency histogram and answers by status of one application, all its replicas together."""
    totals = application.counters.read(now)
    if application.spec.queues:
        yield Sample("app_queue_depth", {"queue": "default"}, application.queue_depth(now))
    served = totals.get("served", 0.0)
    for bound in LATENCY_BUCKETS_SECONDS:
        found = totals.get(f"latency_le_{bound}", 0.0)
        yield Sample("http_request_duration_seconds_bucket", {"le": str(bound)}, found)
    yield Sample("http_request_duration_seconds_bucket", {"le": "+Inf"}, served)
    yield Sample("http_request_duration_seconds_count", {}, served)
    yield Sample("http_request_duration_seconds_sum", {}, totals.get("latency_seconds_sum", 0.0))
    yield Sample("http_requests_total", {"status": "200"}, served)
    yield Sample("http_requests_total", {"status": "503"}, totals.get("errors", 0.0))


class Targets:
    """The workers that EC2 discovery names as targets: from power on until the first refresh after power off."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._gone: dict[str, float] = {}

    def current(self) -> list[Machine]:
        now, found = self._cluster.now(), []
        for machine in self._cluster.state.machines.values():
            if machine.role == "worker":
                lost_at = now if machine.powered else self._gone.setdefault(machine.instance_id, now)
                if machine.powered or now - lost_at < REFRESH_SECONDS:
                    found.append(machine)
        return found


def scrape(cluster: SimulatedCluster, targets: Targets, *, replicas: int = 1) -> list[Sample]:
    """One scrape of every target with its labels, as Prometheus stores it; `replicas` of kube-state-metrics answer."""
    found: list[Sample] = []
    for machine in targets.current():
        labels, answers = target_labels(machine), exporter_answers(machine)
        found.append(Sample("up", labels, float(answers)))
        found += _with(labels, node_exporter(cluster, machine)) if answers else []
        kubelet = {"job": "cadvisor", "instance": machine.node_name, "node": machine.node_name}
        found.append(Sample("up", kubelet, float(machine.serves)))
        found += _with(kubelet, cadvisor(cluster, machine)) if machine.serves else []
    state = list(kube_state_metrics(cluster)) if replicas else []
    for replica in range(replicas):
        labels = {"job": "kube-state-metrics", "instance": f"10.42.{replica}.5:8080"}
        found.append(Sample("up", labels, 1.0))
        found += _with(labels, state)
    for application in cluster.load.running.values():
        labels = app_labels(application)
        found.append(Sample("up", labels, 1.0))
        found += _with(labels, demo_app(application, cluster.now()))
    return found


def _with(labels: Mapping[str, str], samples: Iterable[Sample]) -> list[Sample]:
    return [Sample(sample.name, {**labels, **sample.labels}, sample.value) for sample in samples]
