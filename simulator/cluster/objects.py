"""Reading and building Kubernetes-shaped objects: quantities, times, conditions, owners, taints.

Pure functions over plain dictionaries; an object handed in is never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from node_fleet.domain.model.value_class import value_class

Obj = dict[str, Any]

LABEL_ROLE: Final = "node-fleet.io/role"
LABEL_MARKET: Final = "node-fleet.io/market"
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
LABEL_REGION: Final = "topology.kubernetes.io/region"
LABEL_TYPE: Final = "node.kubernetes.io/instance-type"
LABEL_HOSTNAME: Final = "kubernetes.io/hostname"
K3S_VERSION: Final = "v1.35.5+k3s1"
"""What machines run that state no other version."""
TAINT_STARTING: Final = "node-fleet.io/starting"
LABEL_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

# Pod annotations that set how a simulated pod behaves.
START_SECONDS: Final = "simulator.node-fleet.io/start-seconds"
SHUTDOWN_SECONDS: Final = "simulator.node-fleet.io/shutdown-seconds"
RUN_SECONDS: Final = "simulator.node-fleet.io/run-seconds"
USAGE_CPU_MILLI: Final = "simulator.node-fleet.io/usage-cpu-milli"
USAGE_MEMORY_MIB: Final = "simulator.node-fleet.io/usage-memory-mib"

TAINT_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
TAINT_NOT_READY: Final = "node.kubernetes.io/not-ready"
TAINT_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
TAINT_UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"

_MEMORY_UNITS: Final = {
    "Ki": 1 / 1024,
    "Mi": 1.0,
    "Gi": 1024.0,
    "Ti": 1024.0 * 1024,
    "k": 1000 / 1024**2,
    "M": 1000**2 / 1024**2,
    "G": 1000**3 / 1024**2,
    "T": 1000**4 / 1024**2,
}


def iso(epoch: float) -> str:
    """Kubernetes' time format: UTC, whole seconds."""
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=65_536)
def epoch_of(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()


def cpu_milli(quantity: str | int | float) -> int:
    """'250m' -> 250, '2' -> 2000, 0.5 -> 500."""
    text = str(quantity)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def memory_mib(quantity: str | int | float) -> float:
    """'512Mi' -> 512.0, '1Gi' -> 1024.0, plain numbers are bytes."""
    text = str(quantity)
    for suffix, factor in _MEMORY_UNITS.items():
        if text.endswith(suffix):
            return float(text[: -len(suffix)]) * factor
    return float(text) / 1024**2


def key_of(obj: Obj) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def annotation(obj: Obj, name: str) -> str | None:
    value = obj["metadata"].get("annotations", {}).get(name)
    return None if value is None else str(value)


def number_annotation(obj: Obj, name: str, default: float) -> float:
    value = annotation(obj, name)
    return default if value is None else float(value)


def controller_of(obj: Obj) -> Obj | None:
    """The owner reference marked as the controller."""
    for reference in obj["metadata"].get("ownerReferences", ()):
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def condition(obj: Obj, kind: str) -> Obj | None:
    for entry in obj.get("status", {}).get("conditions", ()):
        if entry.get("type") == kind:
            found: Obj = entry
            return found
    return None


def condition_is_true(obj: Obj, kind: str) -> bool:
    entry = condition(obj, kind)
    return entry is not None and entry.get("status") == "True"


def internal_address(node: Obj) -> str:
    """The internal address that a Node states; the last one, which kube-state-metrics shows."""
    stated = [one["address"] for one in node["status"].get("addresses", ()) if one["type"] == "InternalIP"]
    return str(stated[-1]) if stated else ""


def kubelet_version(node: Obj) -> str:
    """The version that a Node states."""
    return str(node["status"].get("nodeInfo", {}).get("kubeletVersion", ""))


def set_condition(obj: Obj, now: float, kind: str, status: str, *why: str) -> None:
    """Set one condition in place, `why` being reason and message; lastTransitionTime moves with the status."""
    entries = obj.setdefault("status", {}).setdefault("conditions", [])
    fresh = {"type": kind, "status": status, "lastTransitionTime": iso(now)}
    fresh.update(zip(("reason", "message"), why, strict=False))
    for place, entry in enumerate(entries):
        if entry["type"] == kind:
            if entry["status"] == status:
                fresh["lastTransitionTime"] = entry.get("lastTransitionTime", fresh["lastTransitionTime"])
            entries[place] = fresh
            return
    entries.append(fresh)


def is_terminating(obj: Obj) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_finished(pod: Obj) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_mirror(pod: Obj) -> bool:
    return annotation(pod, MIRROR_ANNOTATION) is not None


def is_active(pod: Obj) -> bool:
    """Whether the pod counts for its controller: neither finished nor terminating."""
    return not is_terminating(pod) and not is_finished(pod)


def is_unschedulable(pod: Obj) -> bool:
    entry = condition(pod, "PodScheduled")
    return entry is not None and entry["status"] == "False" and entry.get("reason") == "Unschedulable"


def is_gated(pod: Obj) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def node_of(pod: Obj) -> str:
    return str(pod["spec"].get("nodeName", ""))


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(_toleration_matches(toleration, taint) for toleration in tolerations)


def _toleration_matches(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


@value_class
class PodFacts:
    """The fixed properties of a pod, read once: its size and its controller."""

    cpu_milli: int
    memory_mib: float
    owner_uid: str
    owner_kind: str
    owner_name: str

    @property
    def is_daemon(self) -> bool:
        return self.owner_kind == "DaemonSet"


def pod_facts(pod: Obj) -> PodFacts:
    owner = controller_of(pod) or {}
    cpu, memory = pod_requests(pod)
    return PodFacts(
        cpu_milli=cpu,
        memory_mib=memory,
        owner_uid=owner.get("uid", ""),
        owner_kind=owner.get("kind", ""),
        owner_name=owner.get("name", ""),
    )


def pod_requests(pod: Obj) -> tuple[int, float]:
    """(CPU milli, memory MiB): containers and sidecars, or the largest init step if that is more, plus the overhead.

    kube-scheduler 1.33 counts the same.
    """
    spec = pod["spec"]
    cpu = memory = beside_cpu = beside_memory = first_cpu = first_memory = 0.0
    for container in spec.get("initContainers", ()):
        one_cpu, one_memory = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            beside_cpu, beside_memory, one_cpu, one_memory = beside_cpu + one_cpu, beside_memory + one_memory, 0, 0
        first_cpu, first_memory = max(first_cpu, beside_cpu + one_cpu), max(first_memory, beside_memory + one_memory)
    for container in spec.get("containers", ()):
        one_cpu, one_memory = _container_requests(container)
        cpu, memory = cpu + one_cpu, memory + one_memory
    overhead = spec.get("overhead", {})
    return (
        int(max(cpu + beside_cpu, first_cpu)) + cpu_milli(overhead.get("cpu", 0)),
        max(memory + beside_memory, first_memory) + memory_mib(overhead.get("memory", 0)),
    )


def _container_requests(container: Obj) -> tuple[int, float]:
    resources = container.get("resources", {})
    requests = {**resources.get("limits", {}), **resources.get("requests", {})}
    return cpu_milli(requests.get("cpu", 0)), memory_mib(requests.get("memory", 0))
