"""A small simulated cluster whose server runs the shipped scripts: what the tests of the commands stand on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from node_fleet.domain.scale_down.inspection import (
    InspectedNode,
    Inspection,
    NodeCheck,
    parse_inspection,
    parse_node_check,
)
from simulator.clock import VirtualClock
from simulator.cluster.control.volumes import local_volume
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import LABEL_HOSTNAME
from simulator.fakes.shell import ServerShell, ShellResult
from tests.support.shipped_scripts import script

SERVER, FIRST, SECOND = "i-0000000000000000f", "i-00000000000000001", "i-00000000000000002"


@dataclass(frozen=True)
class Site:
    clock: VirtualClock
    world: SimulatedCluster
    shell: ServerShell

    def run(self, name: str, **environment: str) -> ShellResult:
        return self.shell.run(script(name), environment)

    def inspect(self) -> Inspection:
        return parse_inspection(self.run("inspect_nodes").stdout)

    def node(self, instance_id: str) -> InspectedNode:
        return next(n for n in self.inspect().nodes if n.instance_id == instance_id)

    def drain(self, node: str = FIRST, operation: str = "down-1-100", **changed: str) -> ShellResult:
        now = int(self.clock.now())
        given = {
            "NODE_NAME": node,
            "OPERATION_ID": operation,
            "NOT_AFTER": str(now + 60),
            "DRAIN_TIMEOUT_SECONDS": "300",
            "DRAIN_MODE": "voluntary",
            **changed,
        }
        return self.shell.run(script("drain_node"), given)

    def look(self, node: str = FIRST) -> NodeCheck:
        return parse_node_check(self.run("check_node", NODE_NAME=node).stdout, node)

    def annotate(self, node: str, **marks: str) -> None:
        named = {f"node-fleet.io/{name.replace('_', '-')}": value for name, value in marks.items()}
        self.world.update("nodes", "", node, lambda n: n["metadata"].setdefault("annotations", {}).update(named))

    def mark(self, node: str) -> dict[str, str]:
        found = self.world.find("nodes", "", node)
        assert found is not None
        marks: dict[str, str] = found["metadata"].get("annotations", {})
        return {name.partition("/")[2]: value for name, value in marks.items() if name.startswith("node-fleet.io/")}

    def claim(self, name: str, node_name: str, *, key: str = LABEL_HOSTNAME, phase: str = "Bound") -> None:
        """A claim in the namespace shop, bound to the volume pv-NAME, which accepts nodes with that label only."""
        volume = local_volume(f"pv-{name}", node_name, "shop", name)
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["key"] = key
        self.world.create("persistentvolumes", {**volume, "status": {"phase": phase}})
        spec = {"volumeName": f"pv-{name}", "storageClassName": "local-path"}
        self.world.create("persistentvolumeclaims", {"metadata": {"namespace": "shop", "name": name}, "spec": spec})

    def pod(self, name: str, node: str = FIRST, phase: str = "Running", **metadata: Any) -> None:
        self.world.create(
            "pods",
            {
                "metadata": {"name": name, "namespace": metadata.pop("namespace", "shop"), **metadata},
                "spec": {"nodeName": node, "containers": [{"name": "main"}]},
                "status": {"phase": phase},
            },
        )


@contextlib.contextmanager
def server_site() -> Iterator[Site]:
    """A server and two workers in two zones, a minute after they joined."""
    clock = VirtualClock()
    world = SimulatedCluster(clock)
    world.add_server(SERVER, "us-east-1a")
    world.add_worker(FIRST, az="us-east-1a")
    world.add_worker(SECOND, az="us-east-1b", market="spot")
    clock.advance(60)
    shell = ServerShell(world, clock.advance)
    yield Site(clock, world, shell)
    shell.close()
    clock.close()
