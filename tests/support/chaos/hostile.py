"""What hostile workers state: Nodes of others, absurd figures of themselves, series of another job.

Each may state what its own credentials allow: the join token registers any Node whose name is free, a kubelet writes
its own Node, an exporter writes its own figures, and a target of any job states series of any name.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from simulator.cluster.objects import LABEL_CONTROL_PLANE, LABEL_ZONE, Obj
from simulator.fakes.prometheus import ForgedSeries
from tests.support.chaos.fleet import Fleet

Edit = Callable[[Obj], None]
HOSTILE: Final = "hostile.example/" + "x" * 40
FIGURES: Final = ("cpu", "cores", "memory_total", "memory_available", "queue_depth", "error_rate")
VALUES: Final = (0.0, -1.0, 1.0, 100.0, 2000.0, 1e18, 1e300, 1.7e308, math.nan, math.inf)
OF_APPLICATIONS: Final = ("queue_depth", "error_rate")
FORGERS: Final = ("node-exporter", "cadvisor", "demo-app", "unknown")
SERIES: Final[dict[str, Callable[[str], dict[str, str]]]] = {
    "node": lambda victim: {"node": f"z-{victim}", "provider_id": f"aws:///us-east-1a/{victim}"},
    "ready": lambda victim: {"node": victim},
    "unschedulable": lambda victim: {"node": victim},
    "taint": lambda victim: {"node": victim, "key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    "allocatable": lambda victim: {"node": victim, "resource": "cpu"},
    "not_ready": lambda victim: {"node": victim},
    "requested": lambda victim: {"node": victim, "resource": "cpu"},
    "pods": lambda victim: {"node": victim},
    "age": lambda victim: {"namespace": "shop", "pod": f"forged-{victim}", "uid": "forged"},
}
"""The figures that only kube-state-metrics may state, with the labels of a forged series about one worker."""


def false_name(victim: Obj) -> str:
    return f"a-{victim['metadata']['name']}"


def false_node(victim: Obj) -> Obj:
    """An empty, Ready Node that states the provider id and the addresses of the victim."""
    return {
        "metadata": {"name": false_name(victim), "labels": dict(victim["metadata"]["labels"]), "annotations": {}},
        "spec": {"providerID": victim["spec"]["providerID"]},
        "status": copy.deepcopy(victim["status"]),
    }


def _taints(node: Obj) -> None:
    node["spec"].setdefault("taints", []).extend({"key": f"{HOSTILE}{n}", "effect": "NoSchedule"} for n in range(300))


def _is_not_ready(node: Obj) -> None:
    for entry in node["status"]["conditions"]:
        if entry["type"] == "Ready":
            entry.update(status="False", reason="KubeletNotReady")


def _allocatable(**amounts: str) -> Edit:
    return lambda node: node["status"]["allocatable"].update(amounts)


def _address(node: Obj) -> None:
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.9.9"}]


DISGUISES: Final[dict[str, Edit]] = {
    "ready": lambda node: None,
    "not ready": _is_not_ready,
    "cordoned": lambda node: node["spec"].update(unschedulable=True),
    "server": lambda node: node["metadata"]["labels"].update({LABEL_CONTROL_PLANE: "true"}),
    "another zone": lambda node: node["metadata"]["labels"].update({LABEL_ZONE: "us-east-1z"}),
    "another address": _address,
    "many taints": _taints,
    "no amounts": _allocatable(cpu="0", memory="0", pods="0"),
}
"""How a false Node differs from the true one."""
LIES: Final[dict[str, Edit]] = {
    "not ready": _is_not_ready,
    "many taints": _taints,
    "another address": _address,
    "no amounts": _allocatable(cpu="0", memory="0", pods="0"),
    "huge amounts": _allocatable(cpu="9223372036854775807", memory="9223372036854775807", pods="9223372036854775807"),
}


@dataclass(slots=True)
class HostileWorkers:
    """What was stated, and how it ends."""

    fleet: Fleet
    speak_of_themselves: set[str] = field(default_factory=set)
    _false_nodes: set[str] = field(default_factory=set)
    _true_nodes: dict[str, Obj] = field(default_factory=dict)

    @property
    def _forged(self) -> list[ForgedSeries]:
        prometheus: Any = self.fleet.deployment.transport.prometheus
        forged: list[ForgedSeries] = prometheus.forged
        return forged

    def register_false_node(self, victim_id: str, disguise: str) -> None:
        cluster = self.fleet.sim.cluster
        victim = self._true_nodes.get(victim_id) or cluster.find("nodes", "", victim_id)
        if victim is None or cluster.find("nodes", "", false_name(victim)) is not None:
            return
        node = false_node(victim)
        DISGUISES[disguise](node)
        cluster.create("nodes", node)
        self._false_nodes.add(false_name(victim))

    def state_figure(self, instance_id: str, figure: str, value: float) -> None:
        is_application = figure in OF_APPLICATIONS
        if not is_application:
            self.speak_of_themselves.add(instance_id)
        self._forged.append(
            ForgedSeries(
                job="demo-app" if is_application else "node-exporter",
                figure=figure,
                labels={} if is_application else {"instance_id": instance_id},
                value=value,
            )
        )

    def state_node(self, instance_id: str, lie: str) -> None:
        node = self.fleet.sim.cluster.find("nodes", "", instance_id)
        if node is not None:
            self.speak_of_themselves.add(instance_id)
            self._true_nodes.setdefault(instance_id, copy.deepcopy(node))
            self.fleet.sim.cluster.update("nodes", "", instance_id, LIES[lie])

    def forge_series(self, victim_id: str, job: str, figure: str, value: float) -> None:
        self._forged.append(ForgedSeries(job=job, figure=figure, labels=SERIES[figure](victim_id), value=value))

    def end(self) -> None:
        """The false Nodes are deleted; every kubelet and exporter states the truth again."""
        cluster = self.fleet.sim.cluster
        self._forged.clear()
        names = {node.name for node in cluster.nodes()}
        with cluster.changing():
            for name in sorted(self._false_nodes & names):
                cluster.store.remove("nodes", "", name)
            for name in sorted(self._true_nodes.keys() & names):
                true = self._true_nodes[name]
                cluster.update("nodes", "", name, partial(_restore, true=true))
                cluster.kubelets.make_ready(name)


def _restore(node: Obj, true: Obj) -> None:
    """The amounts, the addresses and the taints as they were; conditions belong to the kubelet."""
    node["status"].update({kind: copy.deepcopy(true["status"][kind]) for kind in ("allocatable", "addresses")})
    taints = [taint for taint in node["spec"].pop("taints", ()) if not taint["key"].startswith(HOSTILE)]
    if taints:
        node["spec"]["taints"] = taints
