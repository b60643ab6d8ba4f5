"""Builds the typed views from the cluster's objects and meters. It changes nothing."""

from __future__ import annotations

from simulator.cluster.load.applications import Applications
from simulator.cluster.load.usage import Usage
from simulator.cluster.objects import (
    LABEL_MARKET,
    LABEL_ROLE,
    LABEL_TYPE,
    LABEL_ZONE,
    Obj,
    condition,
    condition_is_true,
    cpu_milli,
    epoch_of,
    is_gated,
    is_terminating,
    is_unschedulable,
    memory_mib,
    node_of,
)
from simulator.cluster.state import ClusterState, Machine
from simulator.cluster.views import (
    NodeTruth,
    NodeView,
    PodView,
    SnapshotLine,
    TaintView,
    Truth,
)


class Reader:
    """Builds views; the caller holds the lock of the cluster state."""

    def __init__(self, state: ClusterState, usage: Usage, load: Applications) -> None:
        self._state = state
        self._usage = usage
        self._load = load

    def nodes(self) -> list[NodeView]:
        return [self._node(node) for node in self._state.store.all("nodes")]

    def _node(self, node: Obj) -> NodeView:
        metadata, labels = node["metadata"], node["metadata"].get("labels", {})
        name = metadata["name"]
        machine = self._state.machine_of_node.get(name)
        ready = condition(node, "Ready") or {"status": "Unknown", "lastTransitionTime": metadata["creationTimestamp"]}
        allocatable, capacity = node["status"]["allocatable"], node["status"]["capacity"]
        return NodeView(
            name=name,
            instance_id=node["spec"].get("providerID", "").rsplit("/", 1)[-1],
            provider_id=node["spec"].get("providerID", ""),
            instance_type=labels.get(LABEL_TYPE, ""),
            az=labels.get(LABEL_ZONE, ""),
            market=labels.get(LABEL_MARKET, ""),
            role=labels.get(LABEL_ROLE, ""),
            address=machine.address if machine else "",
            created_at=epoch_of(metadata["creationTimestamp"]),
            ready=ready["status"] == "True",
            ready_status=ready["status"],
            ready_since=epoch_of(ready["lastTransitionTime"]),
            unschedulable=bool(node["spec"].get("unschedulable")),
            taints=tuple(
                TaintView(key=taint["key"], value=taint.get("value", ""), effect=taint["effect"])
                for taint in node["spec"].get("taints", ())
            ),
            labels=dict(labels),
            annotations=dict(metadata.get("annotations", {})),
            machine_up=machine is not None and machine.serves,
            exporter_up=machine is not None and machine.powered and machine.exporter_up,
            cores=cpu_milli(capacity["cpu"]) // 1000,
            memory_mib=int(memory_mib(capacity["memory"])),
            allocatable_cpu_milli=cpu_milli(allocatable["cpu"]),
            allocatable_memory_mib=int(memory_mib(allocatable["memory"])),
            pods=self._state.requested_on(name)[2],
        )

    def pods(self) -> list[PodView]:
        return [self._pod(pod) for pod in self._state.store.all("pods")]

    def _pod(self, pod: Obj) -> PodView:
        metadata, facts = pod["metadata"], self._state.pod_facts(pod)
        running = pod["status"].get("phase") == "Running" and self._state.machine_serves(node_of(pod))
        started = pod["status"].get("startTime")
        scheduled = condition(pod, "PodScheduled") or {}
        return PodView(
            namespace=metadata["namespace"],
            name=metadata["name"],
            node=node_of(pod),
            phase=pod["status"].get("phase", "Pending"),
            ready=condition_is_true(pod, "Ready"),
            unschedulable=is_unschedulable(pod),
            gated=is_gated(pod),
            terminating=is_terminating(pod),
            created_at=epoch_of(metadata["creationTimestamp"]),
            started_at=epoch_of(started) if started else None,
            owner_kind=facts.owner_kind,
            cpu_request_milli=facts.cpu_milli,
            memory_request_mib=facts.memory_mib,
            memory_usage_mib=self._usage.of_pod(pod)[1] if running else 0.0,
            labels=dict(metadata.get("labels", {})),
            message=str(scheduled.get("message", "")),
        )

    def truth(self) -> Truth:
        return self._truth(self.nodes())

    def _truth(self, nodes: list[NodeView]) -> Truth:
        truths = tuple(self._node_truth(node) for node in nodes)
        workers = [node for node in truths if node.role == "worker" and node.usable and node.alive]
        meters = [self._usage.meters[node.name] for node in workers]
        cores = sum(meter.cores for meter in meters)
        total = sum(meter.memory_total_mib for meter in meters)
        pods = self._state.store.all("pods")
        phases = [pod["status"].get("phase") for pod in pods]
        return Truth(
            at=self._state.now(),
            cpu_percent=100 * sum(meter.busy_cores for meter in meters) / cores if cores else None,
            cpu_max_percent=max((node.cpu_percent for node in workers), default=None),
            memory_percent=100 * sum(meter.memory_used_mib for meter in meters) / total if total else None,
            memory_max_percent=max((node.memory_percent for node in workers), default=None),
            unschedulable_pods=sum(1 for pod in pods if is_unschedulable(pod)),
            pending_pods=phases.count("Pending"),
            running_pods=phases.count("Running"),
            usable_workers=sum(1 for node in nodes if node.role == "worker" and node.usable),
            nodes=truths,
        )

    def _node_truth(self, node: NodeView) -> NodeTruth:
        meter = self._usage.meters.get(node.name)
        busy = meter.busy_cores if meter else 0.0
        return NodeTruth(
            name=node.name,
            instance_id=node.instance_id,
            role=node.role,
            usable=node.usable,
            alive=node.machine_up,
            cpu_percent=100 * busy / node.cores if node.cores else 0.0,
            memory_percent=100 * meter.memory_used_mib / meter.memory_total_mib if meter else 0.0,
            busy_cores=busy,
            cores=node.cores,
            pods=node.pods,
        )

    def snapshot_line(self) -> SnapshotLine:
        everything = self.nodes()
        truth, nodes = self._truth(everything), [node for node in everything if node.role == "worker"]
        return SnapshotLine(
            at=truth.at,
            load_per_second=sum(application.rate for application in self._load.running.values()),
            cpu_percent=truth.cpu_percent,
            pending_pods=truth.pending_pods,
            unschedulable_pods=truth.unschedulable_pods,
            running_pods=truth.running_pods,
            workers_booting=sum(1 for machine in self._state.machines.values() if _boots(machine)),
            workers_usable=sum(1 for node in nodes if node.usable),
            workers_cordoned=sum(1 for node in nodes if node.ready and node.unschedulable),
        )


def _boots(machine: Machine) -> bool:
    return machine.role == "worker" and machine.powered and machine.joined_at is None
