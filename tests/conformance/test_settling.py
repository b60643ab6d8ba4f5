"""`settle` of the real cluster returns only when the scheduler and the stand-in for kubelets have answered."""

from __future__ import annotations

import time

import pytest

from simulator.cluster.control.volumes import local_claim
from simulator.cluster.objects import Obj, condition_is_true, node_of, set_condition
from simulator.cluster.workloads import pod_object
from tests.support.real_plane.cluster import RealCluster, be_lost

pytestmark = pytest.mark.whole


def be_unready(pod: Obj) -> None:
    """What the node lifecycle controller does with the pods of a node that it gives up."""
    set_condition(pod, time.time(), "Ready", "False", "NodeNotReady")


def placed(cluster: RealCluster, name: str) -> str:
    pod = cluster.find("pods", "shop", name)
    assert pod is not None
    return node_of(pod)


def test_a_pod_that_was_refused_for_its_missing_claim_is_placed_however_late_the_volume_comes(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    provide = cluster.kubelets._provide

    def provide_late(claim: Obj, node: str) -> None:
        time.sleep(4)
        provide(claim, node)

    monkeypatch.setattr(cluster.kubelets, "_provide", provide_late)
    cluster.add_worker("i-only", az="eu-west-1a")
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "late"}}
    cluster.create("pods", pod_object("waiting", volumes=[volume]))
    cluster.settle()
    assert placed(cluster, "waiting") == ""
    cluster.create("persistentvolumeclaims", local_claim("shop", "late"))
    cluster.settle()
    assert placed(cluster, "waiting") == "i-only"


def test_a_pod_that_was_refused_for_a_cordon_is_placed_when_the_cordon_ends(cluster: RealCluster) -> None:
    cluster.add_worker("i-only", az="eu-west-1a")
    cluster.cordon("i-only")
    cluster.create("pods", pod_object("waiting"))
    cluster.settle()
    assert placed(cluster, "waiting") == ""
    cluster.uncordon("i-only")
    cluster.settle()
    assert placed(cluster, "waiting") == "i-only"


def test_a_node_that_the_control_plane_gave_up_is_ready_again_with_its_pods(cluster: RealCluster) -> None:
    cluster.add_worker("i-only", az="eu-west-1a")
    cluster.create("pods", pod_object("served"))
    cluster.settle()
    cluster.api.set_status("nodes", {"metadata": {"name": "i-only"}}, be_lost)
    cluster.api.set_status("pods", {"metadata": {"namespace": "shop", "name": "served"}}, be_unready)
    cluster.settle()
    pod, node = cluster.find("pods", "shop", "served"), cluster.find("nodes", "", "i-only")
    assert pod and node and condition_is_true(pod, "Ready") and condition_is_true(node, "Ready")
