"""The two clusters that tests run in unchanged: the simulated cluster, and a cluster on a real control plane.

`AnyCluster` has what a test needs to set a cluster up, to run kubectl or a script in it, and to read it afterwards.
"""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from simulator.clock import VirtualClock
from simulator.cluster.kubectl.fake import CommandResult, FakeKubectl
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import Obj, controller_of, is_terminating, node_of
from simulator.fakes.shell import ServerShell
from tests.support.kube_api import kubernetes_api

T = TypeVar("T")
HttpAnswer = Callable[[str, str, str, str], tuple[int, Obj]]
"""Method, path, body and content type -> HTTP status and object."""
SETTLE_SECONDS = 60.0
SET_BY_KUBERNETES = ("node.alpha.kubernetes.io/ttl",)
"""Annotations of nodes that a controller sets and nothing of node-fleet reads."""


class AnyCluster(Protocol):
    """A cluster with a server, workers and pods."""

    def add_server(self, instance_id: str, az: str, instance_type: str = ...) -> None: ...

    def add_worker(self, instance_id: str, *, instance_type: str = ..., az: str = ..., market: str = ...) -> None: ...

    def instance_ended(self, instance_id: str, *, voluntary: bool = ...) -> None: ...

    def fail_node(self, instance_id: str) -> None: ...

    def recover_node(self, instance_id: str) -> None: ...

    def ensure_namespace(self, name: str) -> None: ...

    def create(self, resource: str, obj: Obj) -> Obj: ...

    def create_owned_pod(self, pod: Obj, owners: dict[str, list[Obj]]) -> None:
        """A pod, and the controllers by kind that its owner references name."""

    def add_application(self, spec: ApplicationSpec) -> None: ...

    def add_budget(self, name: str, **spec: Any) -> None: ...

    def update(self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None]) -> Obj: ...

    def cordon(self, node_name: str) -> None: ...

    def uncordon(self, node_name: str) -> None: ...

    def delete(self, resource: str, namespace: str, name: str, *, grace_seconds: float | None = ...) -> Obj: ...

    def evict(self, namespace: str, name: str) -> None: ...

    def find(self, resource: str, namespace: str, name: str) -> Obj | None: ...

    def objects(self, resource: str, namespace: str = ...) -> list[Obj]: ...

    def pods_on(self, node_name: str) -> list[Obj]: ...

    def now(self) -> float: ...

    def wait(self, seconds: float) -> None:
        """Let this much time pass."""

    def settle(self) -> None:
        """Let controllers, scheduler and kubelets finish what they have to do."""

    def kubectl(self, *words: str, reachable: bool = ...) -> CommandResult:
        """Run one kubectl command as node-fleet."""

    def script(self, text: str, variables: dict[str, str]) -> CommandResult:
        """Run a shell script on the server as node-fleet."""


class VirtualCluster(SimulatedCluster):
    """The simulated cluster with a clock, a kubectl and a shell of its own."""

    def __init__(self, now: float, *, add_ons: bool = True) -> None:
        self.clock = VirtualClock(now)
        super().__init__(self.clock, add_ons=add_ons)
        self._shell: ServerShell | None = None

    def create_owned_pod(self, pod: Obj, owners: dict[str, list[Obj]]) -> None:
        for kind, items in owners.items():
            for item in items:
                self.create(kind, item)
        self.create("pods", pod)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def settle(self) -> None:
        self.clock.advance(SETTLE_SECONDS)

    def kubectl(self, *words: str, reachable: bool = True) -> CommandResult:
        fake = FakeKubectl(self, self.clock.advance)
        fake.reachable = reachable
        return fake.run(list(words))

    def script(self, text: str, variables: dict[str, str]) -> CommandResult:
        self._shell = self._shell or ServerShell(self, self.clock.advance)
        ended = self._shell.run(text, variables, limit_seconds=360)
        return CommandResult(exit_code=ended.exit_code, stdout=ended.stdout, stderr=ended.stderr)

    def answers(self, *requests: Callable[[HttpAnswer], T]) -> list[T]:
        """Run these functions with the API server of the tests behind them, over HTTP."""
        with kubernetes_api(self) as api:

            def answer(method: str, path: str, body: str, kind: str) -> tuple[int, Obj]:
                connection = http.client.HTTPConnection("127.0.0.1", api.server_port, timeout=10)
                connection.request(method, path, body, {"Content-Type": kind})
                reply = connection.getresponse()
                found = reply.status, json.loads(reply.read())
                connection.close()
                return found

            return [request(answer) for request in requests]

    def close(self) -> None:
        if self._shell:
            self._shell.close()
        self.clock.close()


def nodes_of(cluster: AnyCluster) -> list[list[Any]]:
    """Each node: name, whether it is cordoned, its taints and its annotations, those of the control plane left out."""
    return sorted(
        [
            node["metadata"]["name"],
            bool(node["spec"].get("unschedulable")),
            sorted(taint["key"] for taint in node["spec"].get("taints", ())),
            sorted(
                list(one) for one in node["metadata"].get("annotations", {}).items() if one[0] not in SET_BY_KUBERNETES
            ),
        ]
        for node in cluster.objects("nodes")
    )


def pods_of(cluster: AnyCluster) -> list[list[Any]]:
    """How many pods there are of each namespace, owner, node and state; a pod without an owner counts by its name."""
    counted = Counter(
        (
            pod["metadata"]["namespace"],
            (controller_of(pod) or pod["metadata"]).get("kind", pod["metadata"]["name"]),
            node_of(pod),
            "terminating" if is_terminating(pod) else pod["status"].get("phase", ""),
        )
        for pod in cluster.objects("pods")
    )
    return [[*key, count] for key, count in sorted(counted.items())]


def secrets_of(cluster: AnyCluster) -> list[str]:
    return sorted(secret["metadata"]["name"] for secret in cluster.objects("secrets"))
