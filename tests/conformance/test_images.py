"""The start-up taint against a real API server: who may report images, and who may remove the taint."""

from __future__ import annotations

import pytest

from tests.support.real_plane.cluster import RealCluster
from tests.support.shipped_scripts import load_server

pytestmark = pytest.mark.whole
WORKER, OTHER = "i-0a1b2c3d4e5f60718", "i-0bbbbbbbbbbbbbbbb"
service = load_server("images")


def test_a_kubelet_reports_its_own_images_and_only_the_server_removes_the_taint(cluster: RealCluster) -> None:
    cluster.add_server("i-0aaaaaaaaaaaaaaaa", "eu-west-1a")
    taint = {"key": service.TAINT, "value": "600", "effect": "NoSchedule"}
    for name in (WORKER, OTHER):
        cluster.add_worker(name, az="eu-west-1a")
        cluster.update("nodes", "", name, lambda node: node["spec"].update(taints=[taint]))
    kubelet = (f"--as=system:node:{WORKER}", "--as-group=system:nodes", "--as-group=system:authenticated")

    def annotate(name: str) -> int:
        return cluster.kubectl("annotate", "--overwrite", "node", name, f"{service.REPORT}=4/4/45", *kubelet).exit_code

    def run(*words: str) -> str:
        ended = cluster.kubectl(*words)
        assert ended.exit_code == 0, ended.stderr
        return ended.stdout

    assert service.open_workers(run, cluster.now()) is True
    refused = cluster.kubectl("taint", "node", WORKER, f"{service.TAINT}-", *kubelet)
    assert refused.exit_code != 0 and "not allowed to modify taints" in refused.stderr
    assert (annotate(WORKER), annotate(OTHER) != 0) == (0, True)
    assert service.open_workers(run, cluster.now()) is True, "the other one has not reported"
    taints = {
        node["metadata"]["name"]: [taint["key"] for taint in node["spec"].get("taints", ())]
        for node in cluster.objects("nodes")
    }
    assert (service.TAINT in taints[WORKER], service.TAINT in taints[OTHER]) == (False, True)
