"""Every PromQL query of node-fleet, with its result, its unit and the meaning of an empty answer.

Text only: http.py sends the queries, reader.py interprets the answers. node-fleet configures the targets: the job
"node-exporter" covers workers only and carries instance_id. kube-state-metrics may have several replicas, so every
query removes duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from node_fleet.domain.model.custom_metric import BUILT_IN_PROMQL

RATE_WINDOW_SECONDS: Final = 300
FRESH_SECONDS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Several queries in one request: each series of the answer carries the name of its query as label `figure`."""

    name: str
    parts: dict[str, str]

    @cached_property
    def text(self) -> str:
        """The union of the queries. The label `figure` keeps their series apart."""
        return " or ".join(label_figure(text, name) for name, text in self.parts.items())


def label_figure(text: str, figure: str) -> str:
    """The same vector with the label figure="..." on every series."""
    return f'label_replace(({text}), "figure", "{figure}", "", "")'


# --- fragments --------------------------------------------------------------------------------------------------

_WORKERS = 'job="node-exporter",instance_id!=""'
# Targets scraped well, and just now. A dead node that is still a target has up = 0; one that left has no series.
_LIVE = f"(up{{{_WORKERS}}} == 1 and time() - timestamp(up{{{_WORKERS}}}) <= {FRESH_SECONDS})"
_POD = "namespace, pod, uid"


def _exported(metric: str, matchers: str = "") -> str:
    """The series of one metric that kube-state-metrics exports. The same name from another target is not believed."""
    return f'{metric}{{job="kube-state-metrics"{matchers and ","}{matchers}}}'


# Pods that are not finished: these hold what they requested.
_PHASE, _LIVE_PHASE = "kube_pod_status_phase", 'phase=~"Pending|Running"'
_UNFINISHED = f"max by ({_POD}) ({_exported(_PHASE, _LIVE_PHASE)} == 1)"
# The exporter marks every pod with PodScheduled=False, those held by a scheduling gate included: those are taken out.
_GATED = _exported("kube_pod_status_reason", 'reason="SchedulingGated"')
_UNSCHEDULABLE = (
    f"((max by ({_POD}) ({_exported('kube_pod_status_unschedulable')}) == 1) unless on ({_POD}) ({_GATED} == 1))"
)


def _pod_requests(labels: str, selector: str) -> str:
    """Requests of one pod: the sum of its containers, or its largest init container where that is more."""
    matchers = f'resource=~"cpu|memory"{selector}'
    container = _exported("kube_pod_container_resource_requests", matchers)
    init = _exported("kube_pod_init_container_resource_requests", matchers)
    once = f"max by ({labels}, container, resource) ({container})"
    return (
        f"max by ({labels}, resource) (sum by ({labels}, resource) ({once})"
        f' or label_replace(max by ({labels}, resource) ({init}), "init", "1", "", ""))'
    )


# --- nodes, from kube-state-metrics -------------------------------------------------------------------------------

# Returns: one series for the whole cluster. Unit: nodes, the server included.
# Empty: kube-state-metrics is gone (a cluster has at least its server); nothing is known of any node.
NODES_KNOWN = f"count(max by (node) ({_exported('kube_node_info')}))"

# Returns: 1 for each node but the server, with labels node, provider_id and internal_ip. Unit: none.
# Empty: no worker has registered, provided that NODES_KNOWN answers.
_SERVER = _exported("kube_node_role", 'role=~"control-plane|master"')
NODE = f"max by (node, provider_id, internal_ip) ({_exported('kube_node_info')}) unless on (node) ({_SERVER})"

# Returns: 1 for each node, the server included, with labels node and kubelet_version. Unit: none.
# Empty for a node: its version is not known.
NODE_VERSION = f"max by (node, kubelet_version) ({_exported('kube_node_info')})"

# Returns: 1 or 0 for each node. Unit: none. Empty for a node: its readiness is not known, it counts as not ready.
_READY = _exported("kube_node_status_condition", 'condition="Ready",status="true"')
NODE_READY = f"max by (node) ({_READY})"

# Returns: 1 for a cordoned node, else 0. Unit: none. Empty for a node: not known, counts as cordoned.
NODE_UNSCHEDULABLE = f"max by (node) ({_exported('kube_node_spec_unschedulable')})"

# Returns: 1 for each taint, with labels node, key, value, effect. Unit: none. Empty: no node has a taint.
NODE_TAINT = f"max by (node, key, value, effect) ({_exported('kube_node_spec_taint')})"

# Returns: 1 for each condition that is bad and holds, with labels node and condition. Unit: none.
# Empty: no node has one.
_BAD = 'condition=~"NetworkUnavailable|DiskPressure|MemoryPressure|PIDPressure",status="true"'
NODE_CONDITION = f"max by (node, condition) ({_exported('kube_node_status_condition', _BAD)} == 1)"

# Returns: what pods may request of each node, with label resource. Unit: cores, bytes, pods. Empty: missing.
_ALLOCATABLE = _exported("kube_node_status_allocatable", 'resource=~"cpu|memory|pods"')
NODE_ALLOCATABLE = f"max by (node, resource) ({_ALLOCATABLE})"


def not_ready_seconds(window_seconds: int) -> str:
    """Since when each node has not been Ready; asked only when some node is not.

    Returns: seconds since the last minute at which the node was Ready or, when it never was within the window, since
    the first minute at which it was seen. Unit: seconds, up to a minute too long. Empty for a node: not known, 0.
    """
    window = f"[{window_seconds}s:1m]"
    last = f"max by (node) (max_over_time(timestamp({_READY} == 1){window}))"
    first = f"min by (node) (min_over_time(timestamp({_READY}){window}))"
    return f"time() - ({last} or {first})"


# --- what pods hold, from kube-state-metrics ----------------------------------------------------------------------

# Returns: one series for the whole cluster. Unit: pods, finished ones included.
# Empty: kube-state-metrics shows no pod at all: it is gone or may not list pods; nothing about pods is known.
PODS_KNOWN = f"count(max by ({_POD}) ({_exported(_PHASE)}))"

# Returns: the requests of each node's unfinished pods, with label resource. Unit: cores, bytes.
# Empty for a node: its pods request nothing (0), provided that PODS_KNOWN answers.
NODE_REQUESTED = (
    "sum by (node, resource) (" + _pod_requests(f"{_POD}, node", ',node!=""') + f" and on ({_POD}) {_UNFINISHED})"
)

# Returns: the unfinished pods bound to each node, daemons included. Unit: pods.
# Empty for a node: it has none (0), provided that PODS_KNOWN answers.
_BOUND = _exported("kube_pod_info", 'node!=""')
NODE_PODS = f"count by (node) (max by ({_POD}, node) ({_BOUND}) and on ({_POD}) {_UNFINISHED})"

# --- pods that no node can take, from kube-state-metrics ----------------------------------------------------------

# Returns: one series for each unschedulable, ungated pod, whatever the number of exporter replicas. Unit: seconds since
# the pod was created. Empty: no pod waits (0), provided that PODS_KNOWN answers; else missing.
PENDING_AGE = (
    f"(time() - max by ({_POD}) ({_exported('kube_pod_created')}) and on ({_POD}) {_UNSCHEDULABLE})"
    f" or on ({_POD}) 0 * {_UNSCHEDULABLE}"
)

# Returns: what each of these pods requests, with label resource; asked only when there are such pods. Unit: cores,
# bytes. Empty for a pod: it requests nothing.
PENDING_REQUESTS = f"{_pod_requests(_POD, '')} and on ({_POD}) {_UNSCHEDULABLE}"

# --- workers' load, from node-exporter ----------------------------------------------------------------------------

_CPU = "node_cpu_seconds_total"

# Returns: the busy share of each live worker over five minutes: 1 - idle time / time in all modes, so that a worker
# which joined inside the window shows its own load, and iowait and steal count as busy. Unit: percent, 0 to 100.
# Empty for a worker: not scraped at all, not scraped well, or only once so far: missing.
WORKER_CPU = (
    f'100 * (1 - sum by (instance_id) (rate({_CPU}{{{_WORKERS},mode="idle"}}[5m]))'
    f" / sum by (instance_id) (rate({_CPU}{{{_WORKERS}}}[5m])))"
    f" and on (instance_id) {_LIVE}"
)

# Returns: the cores of each live worker, the weights of the mean. Unit: cores. Empty for a worker: missing.
WORKER_CORES = (
    f'count by (instance_id) (max by (instance_id, cpu) ({_CPU}{{{_WORKERS},mode="idle"}}))'
    f" and on (instance_id) {_LIVE}"
)

# Returns: the memory of each live worker. Unit: bytes. Empty for a worker: missing.
WORKER_MEMORY_TOTAL = f"max by (instance_id) (node_memory_MemTotal_bytes{{{_WORKERS}}}) and on (instance_id) {_LIVE}"

# Returns: what each live worker could still give without swapping, caches included. Unit: bytes. Empty: missing.
WORKER_MEMORY_AVAILABLE = (
    f"max by (instance_id) (node_memory_MemAvailable_bytes{{{_WORKERS}}}) and on (instance_id) {_LIVE}"
)

# --- CPU as cAdvisor sees it, asked only where the settings say so ------------------------------------------------

# Returns: the CPU time that everything on a node used over five minutes, by its cores. Waiting for disk or for the
# hypervisor does not count. A node that is not scraped has no machine_cpu_cores and so no answer. Unit: percent.
# Empty for a node: cAdvisor is not scraped with a label `node` in a job of these names; node-exporter's figure stands.
_CADVISOR = 'job=~"(kubernetes-)?(nodes-)?(cadvisor|kubelet)"'
NODE_CPU_CADVISOR = (
    f'100 * max by (node) (rate(container_cpu_usage_seconds_total{{{_CADVISOR},id="/",node!=""}}[5m]))'
    f" / max by (node) (machine_cpu_cores{{{_CADVISOR}}})"
)

# --- the requests of one reading ----------------------------------------------------------------------------------

NODES: Final = Batch(
    name="nodes",
    parts={
        "nodes_known": NODES_KNOWN,
        "node": NODE,
        "version": NODE_VERSION,
        "ready": NODE_READY,
        "unschedulable": NODE_UNSCHEDULABLE,
        "taint": NODE_TAINT,
        "condition": NODE_CONDITION,
        "allocatable": NODE_ALLOCATABLE,
    },
)
# The series that every node has, the server included, and the part of NODES that asks for each.
NODE_SERIES: Final = {
    "kube_node_info": "nodes_known",
    "kube_node_status_condition": "ready",
    "kube_node_spec_unschedulable": "unschedulable",
}
PODS: Final = Batch(name="pods", parts={"pods_known": PODS_KNOWN, "requested": NODE_REQUESTED, "pods": NODE_PODS})
PENDING: Final = Batch(name="pending", parts={"pods_known": PODS_KNOWN, "age": PENDING_AGE})
WORKERS: Final = Batch(
    name="workers",
    parts={
        "cpu": WORKER_CPU,
        "cores": WORKER_CORES,
        "memory_total": WORKER_MEMORY_TOTAL,
        "memory_available": WORKER_MEMORY_AVAILABLE,
    },
)

CUSTOM: Final = Batch(name="custom", parts=BUILT_IN_PROMQL)
