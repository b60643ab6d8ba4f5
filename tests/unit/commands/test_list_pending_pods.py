"""list_pending_pods.sh: pending pods grouped by owner, with what they demand of a new worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node_fleet.domain.fit.listing import PendingListing, parse_listing
from simulator.cluster.workloads import deployment_object
from tests.support.server_site import FIRST, SECOND, Site
from tests.support.shipped_scripts import script

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pending(site: Site, replicas: int = 3, name: str = "big", cpu: int = 1900, **spec: Any) -> PendingListing:
    """The listing after a Deployment whose pods fit on no worker was created."""
    made = deployment_object(name, namespace="shop", replicas=replicas, cpu_milli=cpu, memory_mib=64, **spec)
    site.world.create("deployments", made)
    site.clock.advance(60)
    found = parse_listing(site.run("list_pending_pods").stdout)
    assert found.known, found.detail
    return found


def test_pods_of_one_owner_are_one_group_with_their_requests_and_age(site: Site) -> None:
    [group] = pending(site).shapes
    assert (group.count, group.cpu_milli, group.memory_mib, group.oldest_seconds) == (3, 1900, 64, 60)
    assert group.example.startswith("shop/big-") and group.is_plain


def test_nothing_pending_is_an_empty_list_and_nothing_is_changed(site: Site) -> None:
    version = site.world.store.version
    found = parse_listing(site.run("list_pending_pods").stdout)
    assert (found.known, found.shapes, site.world.store.version) == (True, (), version)


def test_labels_and_taints_are_those_that_all_workers_share(site: Site) -> None:
    taint = {"key": "team", "value": "data", "effect": "NoSchedule"}
    starting = {"key": "node-fleet.io/starting", "value": "180", "effect": "NoSchedule"}
    for name in (FIRST, "i-00000000000000002"):
        site.world.update("nodes", "", name, lambda node: node["spec"].update(taints=[taint, starting]))
    found = pending(site)
    assert (found.labels["node-fleet.io/role"], found.taints) == ("worker", (taint,))
    assert not {HOST, ZONE, "node-fleet.io/market"} & found.labels.keys()


def test_selector_affinity_tolerations_and_ports_are_part_of_the_demand(site: Site) -> None:
    expression = {"key": "disk", "operator": "In", "values": ["ssd"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}
    [group] = pending(site, affinity=affinity, tolerations=[{"key": "gpu", "operator": "Exists"}]).shapes
    assert group.demand["terms"] == [["affinity", [{"matchExpressions": [expression]}]]]
    assert group.demand["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert not group.is_plain


@pytest.mark.parametrize(
    ("anti", "limit"),
    [(False, {"operator": "In", "values": ["us-east-1a"]}), (True, {"operator": "NotIn", "values": ["us-east-1a"]})],
)
def test_affinity_to_pods_that_run_becomes_a_limit_on_the_zone(site: Site, anti: bool, limit: dict[str, Any]) -> None:
    site.pod("db-0", labels={"app": "db"})
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}
    [group] = pending(site, affinity={"podAntiAffinity" if anti else "podAffinity": {REQUIRED: [term]}}).shapes
    [[predicate, [selector]]] = group.demand["terms"]
    assert predicate == ("anti-affinity" if anti else "pod-affinity")
    assert selector == {"matchExpressions": [{"key": ZONE, **limit}]}


def test_a_pod_that_must_run_on_the_node_of_another_pod_is_a_problem_and_no_demand(site: Site) -> None:
    site.pod("db-0", labels={"app": "db"})
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}
    [group] = pending(site, affinity={"podAffinity": {REQUIRED: [term]}}).shapes
    assert group.problem == "no new worker would satisfy its pod-affinity"


def test_a_claim_that_is_not_bound_is_a_problem_and_no_demand(site: Site) -> None:
    site.world.create("storageclasses", {"metadata": {"name": "now"}, "volumeBindingMode": "Immediate"})
    claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"storageClassName": "now"}}
    site.world.create("persistentvolumeclaims", claim)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    [group] = pending(site, cpu=100, volumes=[volume]).shapes
    assert group.problem == "its claim data is not bound"


def test_the_zone_of_a_volume_is_part_of_the_demand(site: Site) -> None:
    expression = {"key": ZONE, "operator": "In", "values": ["us-east-1b"]}
    terms = [{"matchExpressions": [expression]}]
    disk = {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    site.world.create("persistentvolumes", disk)
    claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "disk"}}
    site.world.create("persistentvolumeclaims", claim)
    [group] = pending(site, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]).shapes
    assert group.demand["terms"] == [["volume", terms]]


@pytest.mark.parametrize(
    ("key", "node_name", "problem", "lasts"),
    [
        (HOST, FIRST, f"node {FIRST}, and no other node can attach it", False),
        (HOST, "i-0dead", "node i-0dead, and no such node exists", True),
        ("topology.hostpath.csi/node", "i-0dead", "nodes with the label topology.hostpath.csi/node, and no such", True),
    ],
)
def test_a_pod_whose_volume_no_new_worker_can_attach_is_no_demand(
    site: Site, key: str, node_name: str, problem: str, lasts: bool
) -> None:
    site.claim("data", node_name, key=key)
    [group] = pending(site, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]).shapes
    assert f"its volume pv-data (claim data) is bound to {problem}" in group.problem
    assert (group.lasting, group.demand) == (lasts, {"requests": {"pods": 1}})


def test_a_label_that_names_the_only_worker_is_no_label_of_a_new_one(site: Site) -> None:
    site.world.update("nodes", "", SECOND, lambda node: node["metadata"]["labels"].pop("node-fleet.io/role"))
    site.world.update("nodes", "", FIRST, lambda node: node["metadata"]["labels"].update({"csi/node": FIRST, "a": "b"}))
    labels = pending(site).labels
    assert ("csi/node" in labels, labels["a"]) == (False, "b")


def test_a_daemon_pod_that_waits_for_its_node_is_left_out(site: Site) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": True}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod = {
        "metadata": {"name": "agent-1", "namespace": "shop", "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "9"}}}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }
    site.world.create("pods", pod)
    assert parse_listing(site.run("list_pending_pods").stdout).shapes == ()


def test_what_does_not_fit_into_the_answer_is_counted(site: Site) -> None:
    pending(site, 4, "one")
    site.world.create(
        "deployments", deployment_object("two", namespace="shop", replicas=2, cpu_milli=1900, memory_mib=64)
    )
    site.clock.advance(60)
    short = script("list_pending_pods").replace("LIMIT = 19900", "LIMIT = 560")
    found = parse_listing(site.shell.run(short).stdout)
    assert ([g.count for g in found.shapes], found.more) == ([4], 2)
    assert found.others[0].problem == "they did not fit into the answer of the server"


def test_an_api_that_does_not_answer_gives_no_list(site: Site) -> None:
    site.shell.double.reachable = False
    result = site.run("list_pending_pods")
    assert (result.exit_code != 0, parse_listing(result.stdout).known) == (True, False)
    assert json.dumps(result.stdout) == '""'
