"""Sets every machine's meter to the use of its pods, from one change to the next.

A refresh has two halves: applications give the demand of their pods, machines give the share that is met.
"""

from __future__ import annotations

from simulator.cluster.api.store import Change
from simulator.cluster.load.applications import Applications
from simulator.cluster.load.meters import NodeMeter
from simulator.cluster.objects import USAGE_CPU_MILLI, USAGE_MEMORY_MIB, Obj, annotation, key_of
from simulator.cluster.state import ClusterState, Machine

IDLE_SHARE_OF_REQUEST = 0.2
MEMORY_SHARE_OF_REQUEST = 0.7


class Usage:
    """The meters of all nodes, refreshed when pods or loads change."""

    def __init__(self, state: ClusterState, applications: Applications) -> None:
        self._state = state
        self._applications = applications
        self.meters: dict[str, NodeMeter] = {}
        state.refreshers.append(self.refresh)
        state.store.listeners.append(self._forget_pod)

    def start_meter(self, machine: Machine) -> None:
        """Counters start when the machine boots, before its node joins."""
        meter = NodeMeter.start(self._state.now(), machine.type.vcpus, float(machine.type.memory_mib))
        self.meters[machine.node_name] = meter
        self._state.work.usage[machine.node_name] = None

    def refresh(self) -> None:
        work = self._state.work
        if work.members:
            work.members, work.applications = False, True
            self._applications.refresh_members()
        if work.applications:
            self._applications.spread_load()
        nodes, work.usage = work.usage, {}
        for name in nodes:
            self._refresh_node(name)
        if work.applications or nodes:
            work.applications = False
            slowdown = {name: meter.slowdown for name, meter in self.meters.items()}
            self._applications.account(slowdown)

    def _refresh_node(self, name: str) -> None:
        meter, machine = self.meters.get(name), self._state.machine_of_node.get(name)
        if meter is None:
            return
        settings, now = self._state.settings, self._state.now()
        if machine is None or not machine.serves:
            idle = machine is not None and not machine.powered
            meter.set_load(now, 0.0 if idle else settings.system_cpu_milli / 1000, float(settings.system_memory_mib))
            return
        cpu, memory = float(settings.system_cpu_milli), float(settings.system_memory_mib)
        for pod in self._state.pods_of_node(name):
            if pod["status"].get("phase") == "Running":
                pod_cpu, pod_memory = self.of_pod(pod)
                cpu, memory = cpu + pod_cpu, memory + pod_memory
        meter.set_load(now, cpu / 1000, memory)

    def of_pod(self, pod: Obj) -> tuple[float, float]:
        """(CPU milli, memory MiB) that a running pod uses on a machine without overload."""
        known = self._applications.usage.get(key_of(pod))
        if known is not None:
            return known
        facts = self._state.pod_facts(pod)
        cpu, memory = annotation(pod, USAGE_CPU_MILLI), annotation(pod, USAGE_MEMORY_MIB)
        return (
            facts.cpu_milli * IDLE_SHARE_OF_REQUEST if cpu is None else float(cpu),
            facts.memory_mib * MEMORY_SHARE_OF_REQUEST if memory is None else float(memory),
        )

    def _forget_pod(self, change: Change) -> None:
        if change.resource == "pods" and change.after is None:
            self._applications.forget(key_of(change.subject))
