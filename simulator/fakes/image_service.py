"""Runs the server's service for the images of new workers (cluster/server/images.py) on the simulated cluster.

The service is the shipped code; kubectl and the clock are simulated.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from cdk_app.workflow import ROOT
from simulator.clock import VirtualClock
from simulator.cluster.kubectl.fake import FakeKubectl
from simulator.cluster.model import SimulatedCluster

SOURCE = ROOT / "cluster/server/images.py"


def start_image_service(cluster: SimulatedCluster, clock: VirtualClock) -> None:
    """Let it look for workers that start, at its own interval, from now on."""
    service, kubectl = _shipped(), FakeKubectl(cluster, clock.advance)

    def run(*words: str) -> str:
        ended = kubectl.run(list(words))
        if ended.exit_code:
            raise OSError(ended.stderr)
        return ended.stdout

    def look() -> None:
        if any(node["spec"].get("taints") for node in cluster.objects("nodes")):  # kubectl would find none either
            service.open_workers(run, clock.now())

    clock.every(service.PAUSE_SECONDS, look)


def _shipped() -> Any:
    spec = importlib.util.spec_from_file_location("node_fleet_images", SOURCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
