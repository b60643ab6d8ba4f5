"""Reads the state and load of the workers and the pending pods from Prometheus into domain values.

It removes duplicates and leaves missing values missing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from node_fleet.adapters.prometheus import queries
from node_fleet.adapters.prometheus.http import PrometheusClient, QueryRefusedError, Series
from node_fleet.domain.model.assembly import blocking, total_load
from node_fleet.domain.model.bounds import (
    MAX_CORES,
    MAX_LABEL_CHARACTERS,
    MAX_MEMORY_BYTES,
    MAX_METRIC,
    MAX_PODS,
    MAX_SECONDS,
    MAX_TAINTS,
    Bounds,
)
from node_fleet.domain.model.custom_metric import BUILT_IN_PROMQL, CustomMetric, built_in_name
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.domain.model.k3s_version import lowest_version
from node_fleet.domain.model.snapshot import CustomReading, NodeReading, PodShape, Reading
from node_fleet.settings import Settings

MAX_SHAPES = 20
_MIB = 1024 * 1024
_READY_GAP_SECONDS = 600
BAD_CONDITIONS = {"NetworkUnavailable", "DiskPressure", "MemoryPressure", "PIDPressure"}

PodKey = tuple[str, str, str]
Figures = dict[str, list[Series]]
Resources = dict[str, dict[str, float]]


class PrometheusReader:
    """The reader of one cluster's Prometheus. `now` is the time at which Prometheus evaluates the queries."""

    def __init__(self, client: PrometheusClient, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    def read(self, now: int) -> Reading:
        """The metrics of one decision, in at most seven requests and one more for each custom query of the settings.

        Raises:
            MetricsUnavailableError: Prometheus gives no usable answer. Single missing values do not raise.
        """
        deadline, bounds = self._client.deadline(), Bounds()
        nodes, missing, server_version = self._nodes(now, deadline, bounds, with_load=True)
        pending = self._pending(now, deadline)
        custom, custom_missing = self._custom(now, deadline, bounds)
        load = total_load(node for node in nodes if node.usable or not node.node_name)
        missing += [name for name in ("cpu_percent", "memory_percent") if getattr(load, name) is None]
        missing += ["pending"] if pending is None else []
        return Reading(
            at=now,
            cpu_percent=load.cpu_percent,
            cpu_max_percent=load.cpu_max_percent,
            memory_percent=load.memory_percent,
            memory_max_percent=load.memory_max_percent,
            pending=pending,
            nodes=tuple(node for node in nodes if node.node_name),
            custom=custom,
            missing=tuple(missing + custom_missing),
            refused=tuple(bounds.refused),
            server_version=server_version,
        )

    def nodes(self, now: int) -> tuple[NodeReading, ...]:
        """The workers' nodes without their load, in one request.

        Raises:
            MetricsUnavailableError: also when kube-state-metrics lists no node at all.
        """
        nodes, missing, _ = self._nodes(now, self._client.deadline(), Bounds(), with_load=False)
        if missing:
            absent = ", ".join(name for name in missing if name in queries.NODE_SERIES) or "no node is known"
            raise MetricsUnavailableError(f"Prometheus has no data of kube-state-metrics: {absent}")
        return nodes

    def pending(self, now: int) -> tuple[PodShape, ...] | None:
        """Unschedulable pods, grouped by their requests; () means none, None means unknown."""
        return self._pending(now, self._client.deadline())

    def values(self, name: str, query: str, now: int) -> tuple[float, ...]:
        """The values of one query; () when no series matches. Raises MetricsUnavailableError."""
        return tuple(one.value for one in self._client.query(name, query, now, self._client.deadline()))

    def _nodes(
        self, now: int, deadline: float, bounds: Bounds, *, with_load: bool
    ) -> tuple[tuple[NodeReading, ...], list[str], str]:
        """Nodes, missing values, and the server's version.

        Live workers that kube-state-metrics does not list have an empty name.

        A series that no node has, the server included, is not exported: then the nodes are unknown. A default value
        would make every worker unusable, and node-fleet would launch a second fleet.
        """
        shown = self._ask(queries.NODES, now, deadline)
        pods = self._ask(queries.PODS, now, deadline) if with_load else {}
        workers = self._ask(queries.WORKERS, now, deadline) if with_load else {}
        loads = _by(workers, "instance_id")
        absent = [name for name, part in queries.NODE_SERIES.items() if not shown.get(part)]
        if absent:
            unnamed = (
                NodeReading(node_name="", provider_id="", ready=True, **_with_equal_weight(_load(name, load, bounds)))
                for name, load in loads.items()
            )
            series = absent if shown.get("nodes_known") else []
            missing = ["nodes", *series, *([] if pods.get("pods_known") or not with_load else ["requested"])]
            return tuple(unnamed), missing, ""
        cpu = self._cadvisor(now, deadline) if with_load and self._settings.cpu_source == "cadvisor" else {}
        versions = _versions(shown.get("version", ()))
        nodes = _node_readings(shown, pods, loads, bounds, cpu=cpu, versions=versions)
        missing = [] if pods.get("pods_known") or not with_load else ["requested"]
        server = lowest_version([versions[name] for name in versions.keys() - {node["node_name"] for node in nodes}])
        return self._with_not_ready(nodes, now, deadline), missing, server

    def _cadvisor(self, now: int, deadline: float) -> dict[str, float]:
        """CPU in percent by node name."""
        series = self._client.query("node_cpu_cadvisor", queries.NODE_CPU_CADVISOR, now, deadline)
        return {one.labels.get("node", ""): _percent(one.value) for one in series}

    def _with_not_ready(self, nodes: list[dict[str, Any]], now: int, deadline: float) -> tuple[NodeReading, ...]:
        if not all(node["ready"] for node in nodes):
            window = self._settings.not_ready_replace_seconds + _READY_GAP_SECONDS
            series = self._client.query("not_ready_seconds", queries.not_ready_seconds(window), now, deadline)
            seconds = {one.labels.get("node", ""): one.value for one in series}
            for node in nodes:
                if not node["ready"]:
                    node["not_ready_seconds"] = int(min(window, max(0, seconds.get(node["node_name"], 0))))
        return tuple(NodeReading(**node) for node in nodes)

    def _pending(self, now: int, deadline: float) -> tuple[PodShape, ...] | None:
        answer = self._ask(queries.PENDING, now, deadline)
        if not answer.get("pods_known"):
            return None
        ages: dict[PodKey, float] = {}
        for one in answer.get("age", ()):
            ages[_pod(one)] = max(min(one.value, MAX_SECONDS), ages.get(_pod(one), 0.0))
        if not ages:
            return ()
        requests: dict[PodKey, dict[str, float]] = defaultdict(dict)
        for one in self._client.query("pending_requests", queries.PENDING_REQUESTS, now, deadline):
            requests[_pod(one)][one.labels.get("resource", "")] = min(one.value, MAX_MEMORY_BYTES)
        return pod_shapes(ages, requests)

    def _custom(self, now: int, deadline: float, bounds: Bounds) -> tuple[tuple[CustomReading, ...], list[str]]:
        """The custom metrics, and the missing ones: absent ones that hold a scale-down, and refused queries."""
        metrics = self._settings.custom_metrics
        names = [built_in_name(query) for metric in metrics for query in (metric.query, metric.traffic_query)]
        built_in = self._ask(queries.CUSTOM, now, deadline) if any(names) else {}
        found, missing = [], []
        for metric in metrics:
            reading, problem = self._custom_one(metric, built_in, now, deadline)
            checked = bounds.checked(f"metric {metric.name}", reading.value, MAX_METRIC, low=-MAX_METRIC)
            reading = replace(reading, value=checked)
            found.append(reading)
            absent = reading.value is None and not metric.has_low_traffic(reading.traffic)
            if problem or (absent and metric.when_absent == "hold"):
                missing.append(f"custom:{metric.name}{problem}")
        return tuple(found), missing

    def _custom_one(
        self, metric: CustomMetric, built_in: Figures, now: int, deadline: float
    ) -> tuple[CustomReading, str]:
        """A query that Prometheus refuses makes only this metric missing, with the reason."""
        try:
            value = self._largest(metric.name, metric.query, built_in, now, deadline)
            traffic = None
            if metric.traffic_query:
                traffic = self._largest(f"{metric.name} traffic", metric.traffic_query, built_in, now, deadline)
        except QueryRefusedError as error:
            return CustomReading(name=metric.name, value=None), f" ({error})"
        return CustomReading(name=metric.name, value=value, traffic=traffic), ""

    def _largest(self, name: str, query: str, built_in: Figures, now: int, deadline: float) -> float | None:
        """The value of a custom query; of several series the largest."""
        known = built_in_name(query)
        if known and known not in BUILT_IN_PROMQL:
            raise QueryRefusedError(f"{query} is not built in, expected one of {', '.join(BUILT_IN_PROMQL)}")
        series = built_in.get(known, []) if known else self._client.query(name, query, now, deadline)
        return max((one.value for one in series), default=None)

    def _ask(self, batch: queries.Batch, now: int, deadline: float) -> Figures:
        """The answer by figure. A refused batch is sent again part by part, so that the error names the part."""
        figures: Figures = defaultdict(list)
        try:
            for one in self._client.query(batch.name, batch.text, now, deadline):
                figures[one.labels.get("figure", "")].append(one)
        except QueryRefusedError:
            for name, text in batch.parts.items():
                figures[name] = self._client.query(f"{batch.name}.{name}", text, now, deadline)
        return figures


def pod_shapes(ages: dict[PodKey, float], requests: dict[PodKey, dict[str, float]]) -> tuple[PodShape, ...]:
    """Pods grouped by equal requests and owner, the largest first; beyond 20 groups the others form one group."""
    groups: dict[tuple[int, int, str], list[PodKey]] = defaultdict(list)
    for pod in ages:
        asked = requests.get(pod, {})
        size = math.ceil(asked.get("cpu", 0.0) * 1000 - 1e-6), math.ceil(asked.get("memory", 0.0) / _MIB - 1e-6)
        groups[(*size, f"{pod[0]}/{pod[1].rpartition('-')[0]}")].append(pod)
    ranked = sorted(groups.items(), key=lambda group: (-len(group[1]), -group[0][0], -group[0][1]))
    kept = ranked if len(ranked) <= MAX_SHAPES else ranked[: MAX_SHAPES - 1]
    shapes = [_shape(size[:2], pods, ages) for size, pods in kept]
    if rest := ranked[len(kept) :]:
        size = max(cpu for (cpu, _, _), _ in rest), max(memory for (_, memory, _), _ in rest)
        merged = _shape(size, [pod for _, pods in rest for pod in pods], ages, f" and others of {len(rest)} sizes")
        shapes.append(merged)
    return tuple(shapes)


def _shape(size: tuple[int, int], pods: list[PodKey], ages: dict[PodKey, float], note: str = "") -> PodShape:
    oldest = max(pods, key=lambda pod: (ages[pod], pod))
    return PodShape(
        cpu_milli=size[0],
        memory_mib=size[1],
        count=len(pods),
        oldest_seconds=max(0, int(ages[oldest])),
        example=f"{oldest[0]}/{oldest[1]}{note}",
    )


def _pod(one: Series) -> PodKey:
    labels = one.labels
    namespace, pod, uid = (labels.get(name, "")[:MAX_LABEL_CHARACTERS] for name in ("namespace", "pod", "uid"))
    return namespace, pod, uid


def _by(figures: Figures, label: str) -> Resources:
    """One dictionary of figures for each value of the label; of two equal series the larger counts."""
    found: Resources = defaultdict(dict)
    for figure, series in figures.items():
        for one in series:
            if key := one.labels.get(label, ""):
                found[key][figure] = max(one.value, found[key].get(figure, one.value))
    return found


def _node_readings(
    shown: Figures,
    pods: Figures,
    loads: Resources,
    bounds: Bounds,
    *,
    cpu: dict[str, float],
    versions: dict[str, str],
) -> list[dict[str, Any]]:
    """The fields of a NodeReading for each worker's node. `cpu` by node name takes precedence over `loads`."""
    flags = _by({name: shown.get(name, []) for name in ("ready", "unschedulable")}, "node")
    allocatable, requested = _resources(shown.get("allocatable", ())), _resources(pods.get("requested", ()))
    counts, taints = _by({"pods": pods.get("pods", [])}, "node"), _taints(shown.get("taint", ()), bounds)
    conditions = _conditions(shown.get("condition", ()))
    pods_known = bool(pods.get("pods_known"))
    nodes: dict[str, dict[str, Any]] = {}
    for one in shown.get("node", ()):
        name, provider_id = one.labels.get("node", "")[:MAX_LABEL_CHARACTERS], one.labels.get("provider_id", "")
        known = nodes.get(name)
        if known is not None and (known["provider_id"] or not provider_id):
            continue
        held = requested.get(name, {}) if pods_known else None
        nodes[name] = {
            "node_name": name,
            "provider_id": provider_id,
            "address": one.labels.get("internal_ip", ""),
            "ready": flags[name].get("ready", 0) == 1,
            "unschedulable": flags[name].get("unschedulable", 1) == 1,
            "taints": taints[name],
            "conditions": conditions.get(name, ()),
            "kubelet_version": versions.get(name, ""),
            "blocking_taints": blocking(taints[name]),
            **_sizes(name, allocatable.get(name, {}), held, bounds),
            "pods": _pod_count(name, counts[name].get("pods", 0) if pods_known else None, bounds),
            **_load(name, loads.get(provider_id.rsplit("/", 1)[-1], {}), bounds),
            **({"cpu_percent": cpu[name]} if name in cpu else {}),
        }
    return [nodes[name] for name in sorted(nodes)]


def _conditions(series: Iterable[Series]) -> dict[str, tuple[str, ...]]:
    """The bad conditions of each node; only those that node-fleet asks for."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in series:
        found[one.labels.get("node", "")].add(one.labels.get("condition", ""))
    return {node: tuple(sorted(names & BAD_CONDITIONS)) for node, names in found.items()}


def _versions(series: Iterable[Series]) -> dict[str, str]:
    """The version of each node's kubelet; of two, as after a restart, the older. What is no version is unknown."""
    found: dict[str, list[str]] = defaultdict(list)
    for one in series:
        found[one.labels.get("node", "")[:MAX_LABEL_CHARACTERS]].append(one.labels.get("kubelet_version", ""))
    return {node: lowest_version(versions) for node, versions in found.items()}


def _resources(series: Iterable[Series]) -> Resources:
    found: Resources = defaultdict(dict)
    for one in series:
        found[one.labels.get("node", "")][one.labels.get("resource", "")] = one.value
    return found


def _taints(series: Iterable[Series], bounds: Bounds) -> dict[str, tuple[str, ...]]:
    """The taints of each node. Of a node with more than a real node has, those that keep pods away come first."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in series:
        key, value, effect = (one.labels.get(name, "")[:MAX_LABEL_CHARACTERS] for name in ("key", "value", "effect"))
        found[one.labels.get("node", "")].add(f"{key}={value}:{effect}" if value else f"{key}:{effect}")
    kept: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for node, taints in found.items():
        first = blocking(sorted(taints))
        kept[node] = tuple(sorted({*first, *sorted(taints)[: max(0, MAX_TAINTS - len(first))]}))[:MAX_TAINTS]
        if len(taints) > MAX_TAINTS:
            bounds.refuse(f"node {node:.80} has {len(taints)} taints, expected at most {MAX_TAINTS}")
    return kept


def _sizes(
    node: str, allocatable: dict[str, float], requested: dict[str, float] | None, bounds: Bounds
) -> dict[str, int | None]:
    """In millicores, MiB and pods; what exceeds its bound is missing."""
    limits = {"cpu": (MAX_CORES, 1000.0), "memory": (MAX_MEMORY_BYTES, 1 / _MIB), "pods": (MAX_PODS, 1.0)}

    def whole(kind: str, resource: str, value: float | None) -> int | None:
        high, factor = limits[resource]
        checked = bounds.checked(f"{kind} {resource} of {node}", value, high)
        return None if checked is None else round(checked * factor)

    held = {name: None if requested is None else requested.get(name, 0.0) for name in ("cpu", "memory")}
    return {
        "cpu_allocatable_milli": whole("allocatable", "cpu", allocatable.get("cpu")),
        "memory_allocatable_mib": whole("allocatable", "memory", allocatable.get("memory")),
        "pods_allocatable": whole("allocatable", "pods", allocatable.get("pods")),
        "cpu_requested_milli": whole("requested", "cpu", held["cpu"]),
        "memory_requested_mib": whole("requested", "memory", held["memory"]),
    }


def _pod_count(node: str, value: float | None, bounds: Bounds) -> int | None:
    checked = bounds.checked(f"the number of pods on {node}", value, MAX_PODS)
    return None if checked is None else int(checked)


def _load(node: str, figures: dict[str, float], bounds: Bounds) -> dict[str, Any]:
    total = bounds.checked(f"the memory of {node}", figures.get("memory_total"), MAX_MEMORY_BYTES)
    available = figures.get("memory_available")
    if total is not None:
        available = bounds.checked(f"the available memory of {node}", available, total)
    known = total is not None and available is not None
    return {
        "cores": bounds.checked(f"the cores of {node}", figures.get("cores"), MAX_CORES),
        "cpu_percent": _percent(figures["cpu"]) if "cpu" in figures else None,
        "memory_total_mib": round(total / _MIB) if known and total is not None else None,
        "memory_used_mib": round((total - available) / _MIB) if total is not None and available is not None else None,
    }


def _with_equal_weight(load: dict[str, Any]) -> dict[str, Any]:
    """The load of a worker whose instance type is not known here: no worker outweighs another by the size it states."""
    total, used = load["memory_total_mib"], load["memory_used_mib"]
    memory = {"memory_total_mib": _MIB, "memory_used_mib": round(_MIB * used / total)} if total else {}
    return {**load, "cores": 1.0 if load["cores"] else None, **memory}


def _percent(value: float) -> float:
    return min(100.0, max(0.0, value))
