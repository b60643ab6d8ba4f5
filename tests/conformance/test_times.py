"""How long a real control plane takes to see that a node is lost, and to collect the pods of a deleted node.

The simulated cluster has these times as settings; the bounds here are those of the controllers of Kubernetes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from simulator.cluster.objects import condition
from simulator.cluster.state import ClusterSettings
from simulator.cluster.workloads import pod_object
from tests.support.real_plane.cluster import RealCluster

pytestmark = pytest.mark.whole
LIMIT_SECONDS = 120
MONITOR_SECONDS = 5.0
"""How often the node lifecycle controller looks."""


def seconds_until(holds: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < LIMIT_SECONDS
        time.sleep(0.5)
    return time.monotonic() - begun


def test_a_silent_node_and_a_deleted_node_are_noticed_in_the_times_that_the_simulator_assumes(
    cluster: RealCluster,
) -> None:
    for name in ("i-silent", "i-deleted"):
        cluster.add_worker(name, az="eu-west-1a")
        cluster.create("pods", pod_object(f"on-{name}", nodeName=name))
    cluster.settle()
    found: dict[str, float] = {}

    def is_not_ready() -> bool:
        node = cluster.find("nodes", "", "i-silent")
        ready = condition(node, "Ready") if node else None
        return ready is not None and ready["status"] == "Unknown"

    def is_collected() -> bool:
        return cluster.find("pods", "shop", "on-i-deleted") is None

    def measure(name: str, holds: Callable[[], bool]) -> None:
        found[name] = seconds_until(holds)

    cluster.fail_node("i-silent")
    cluster.fail_node("i-deleted")
    cluster.delete("nodes", "", "i-deleted")
    threads = [
        threading.Thread(target=measure, args=one) for one in (("not ready", is_not_ready), ("collected", is_collected))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(found)
    simulated = ClusterSettings()
    # The last sign of life was up to one renewal before the silence, and the controllers look every few seconds.
    assert simulated.node_not_ready_seconds - 10 <= found["not ready"]
    assert found["not ready"] <= simulated.node_not_ready_seconds + 4 * MONITOR_SECONDS
    assert simulated.orphan_quarantine_seconds <= found["collected"]
    assert found["collected"] <= simulated.orphan_quarantine_seconds + 2 * simulated.orphan_cycle_seconds + 10
