"""inspect_nodes.sh: its output is small and exact, and a cut output is never read as an empty cluster."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.scale_down.inspection import parse_inspection
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.objects import LABEL_HOSTNAME, LABEL_MARKET
from simulator.cluster.workloads import deployment_object
from tests.support.server_site import FIRST, SECOND, SERVER, Site
from tests.support.shipped_scripts import script


def test_each_node_has_its_line_and_the_server_is_marked(site: Site) -> None:
    found = {n.instance_id: n for n in site.inspect().nodes}
    assert set(found) == {SERVER, FIRST, SECOND}
    assert [found[SERVER].server, found[FIRST].server] == [True, False]
    assert (found[SECOND].zone, found[SECOND].ready, found[SECOND].worker, found[SECOND].age_seconds) == (
        "us-east-1b",
        True,
        True,
        60,
    )


@pytest.mark.parametrize(
    ("stated", "shown"),
    [("10.0.1.7", "10.0.1.7"), ("2600:1f18::7", "2600:1f18::7"), ("10.0.1.7\nend 1 00000000", ""), (None, "")],
)
def test_the_internal_address_that_a_node_states_is_shown_or_none(site: Site, stated: Any, shown: str) -> None:
    entries = [{"type": "Hostname", "address": "10.9.9.9"}, {"type": "InternalIP", "address": stated}]
    site.world.update("nodes", "", FIRST, lambda node: node["status"].update(addresses=entries))
    assert site.node(FIRST).address == shown


def test_it_changes_nothing(site: Site) -> None:
    version = site.world.store.version
    site.inspect()
    assert site.world.store.version == version


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
def test_blockers_are_named_and_the_rest_is_counted(site: Site, kind: Any) -> None:
    for name in ("a", "b", "c", "d"):
        site.world.add_application(
            ApplicationSpec(name=name, kind=kind, replicas=1, node_selector={"kubernetes.io/hostname": FIRST})
        )
    site.clock.advance(30)
    node = site.node(FIRST)
    assert [b.letter for b in node.blockers] == ["s" if kind == "StatefulSet" else "d"] * 2
    assert node.more_blockers == 2


@pytest.mark.parametrize("names", [("haproxy-w1",), ("a", "b"), ("kube-proxy", "static", "etcd")])
def test_mirror_and_daemonset_pods_do_not_block_and_are_not_load(site: Site, names: tuple[str, ...]) -> None:
    for name in names:
        site.pod(name, namespace="kube-system", annotations={"kubernetes.io/config.mirror": "x"})
    node = site.node(FIRST)
    assert (node.blockers, node.pods_to_move, node.mirror_pods, node.daemon_pods) == ((), 0, len(names), 1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("owner", [None, "Job", "StatefulSet"])
def test_finished_pods_never_block_and_are_not_load(site: Site, phase: str, owner: str | None) -> None:
    owners = [{"apiVersion": "batch/v1", "kind": owner, "name": "x", "uid": "u", "controller": True}] if owner else []
    site.pod("migrate-once", phase=phase, ownerReferences=owners)
    node = site.node(FIRST)
    assert (node.blockers, node.pods_to_move, node.finished_pods) == ((), 0, 1)


@pytest.mark.parametrize(("name", "minimum"), [("web", 2), ("api", "100%"), ("cart", 1)])
def test_an_exhausted_budget_is_reported_before_a_worker_is_selected(site: Site, name: str, minimum: Any) -> None:
    replicas = 1 if minimum == 1 else 2
    site.world.add_application(
        ApplicationSpec(
            name=name,
            replicas=replicas,
            min_available=minimum,
            annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
        )
    )
    site.clock.advance(60)
    nodes = [n for n in site.inspect().nodes if n.blockers and not n.server]
    assert nodes
    assert {(b.letter, b.detail) for n in nodes for b in n.blockers} == {("p", name)}
    assert all(n.disruptions_allowed == 0 for n in nodes)


def test_a_volume_of_this_node_blocks_whatever_its_source_type(site: Site) -> None:
    site.world.add_application(
        ApplicationSpec(
            name="files", volume="local-path", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
        )
    )
    site.clock.advance(60)
    assert [b.letter for n in site.inspect().nodes for b in n.blockers if not n.server] == ["v"]


@pytest.mark.parametrize(
    ("key", "label", "phase", "keeps"),
    [
        (LABEL_HOSTNAME, FIRST, "Bound", True),
        ("topology.hostpath.csi/node", FIRST, "Bound", True),
        ("topology.kubernetes.io/zone", "us-east-1a", "Bound", False),
        (LABEL_HOSTNAME, FIRST, "Released", False),
        (LABEL_HOSTNAME, SECOND, "Bound", False),
        (LABEL_HOSTNAME, "i-0dead", "Bound", False),
    ],
)
def test_a_claim_bound_to_a_volume_of_one_worker_keeps_it_without_a_running_pod(
    site: Site, key: str, label: str, phase: str, keeps: bool
) -> None:
    site.world.update("nodes", "", FIRST, lambda node: node["metadata"]["labels"].setdefault(key, label))
    site.claim("data", label, key=key, phase=phase)
    found = [(b.pod, b.letter, b.detail) for b in site.node(FIRST).blockers]
    assert found == ([("shop/data", "b", "pv-data")] if keeps else [])


@pytest.mark.parametrize(("phase", "letters"), [("Running", ["v"]), ("Succeeded", ["b"])])
def test_a_claim_is_named_when_no_running_pod_names_it(site: Site, phase: str, letters: list[str]) -> None:
    site.claim("data", FIRST)
    site.pod("job-1", phase=phase)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    site.world.update("pods", "shop", "job-1", lambda pod: pod["spec"].update(volumes=[volume]))
    assert [b.letter for b in site.node(FIRST).blockers] == letters


def test_a_claim_counts_among_what_keeps_a_worker_that_is_not_ready(site: Site) -> None:
    for name in ("a", "b", "c", "d"):
        site.claim(name, FIRST)
    node = site.node(FIRST)
    assert (len(node.blockers), node.more_blockers, node.more_lasting) == (2, 2, 2)


@pytest.mark.parametrize(("owner", "reported"), [("", "?"), ("down-7-1", "down-7-1"), ("x y\nend 1 00000000", "?")])
def test_a_cordon_of_an_operation_differs_from_one_of_another_user(site: Site, owner: str, reported: str) -> None:
    site.world.cordon(FIRST)
    if owner:
        site.annotate(FIRST, cordoned_by=owner)
    assert site.node(FIRST).cordoned_by == reported


@pytest.mark.parametrize(
    ("name", "value", "reported"),
    [
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true", True),
        ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "false", False),
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "10m", True),
        ("karpenter.sh/do-not-disrupt", "59s", False),
    ],
)
def test_annotations_that_protect_a_node_are_reported(site: Site, name: str, value: str, reported: bool) -> None:
    site.world.update("nodes", "", FIRST, lambda n: n["metadata"].setdefault("annotations", {}).update({name: value}))
    assert site.node(FIRST).protected_by == (name if reported else "")


@pytest.mark.parametrize("names", [("gone-1",), ("gone-1", "gone-2"), ("i-0aaaaaaaaaaaaaaaa",)])
def test_password_secrets_without_a_node_are_reported(site: Site, names: tuple[str, ...]) -> None:
    for name in names:
        site.world.create(
            "secrets", {"metadata": {"name": f"{name}.node-password.k3s", "namespace": "kube-system"}, "type": "Opaque"}
        )
    assert site.inspect().orphans == names


def test_an_api_that_does_not_answer_gives_no_inspection(site: Site) -> None:
    site.shell.double.reachable = False
    result = site.run("inspect_nodes")
    assert result.exit_code != 0
    assert not parse_inspection(result.stdout).known
    assert "cannot read" in result.stderr


def crowded(site: Site, **changed: Any) -> None:
    """Two pods of 1000m on two workers that can each hold one."""
    given = {"cpu_request_milli": 1000, "replicas": 2, **changed}
    site.world.add_application(ApplicationSpec(name="big", **given))
    site.clock.advance(60)


def test_a_worker_whose_pod_fits_nowhere_else_is_kept_with_the_amounts(site: Site) -> None:
    crowded(site)
    [blocker] = site.node(FIRST).blockers
    assert (blocker.pod[:9], blocker.letter, blocker.detail) == ("shop/big-", "f", "1000m/880m/alone/cpu")


@pytest.mark.parametrize(
    ("selector", "detail"),
    [
        ({"topology.kubernetes.io/zone": "us-east-1a"}, "-/-/alone/affinity"),
        ({"node-fleet.io/market": "on-demand"}, "-/-/alone/affinity"),
        ({"node-fleet.io/role": "worker"}, ""),
    ],
)
def test_a_worker_that_alone_meets_a_node_selector_is_kept(site: Site, selector: dict[str, str], detail: str) -> None:
    crowded(site, cpu_request_milli=100, node_selector=selector)
    assert [b.detail for b in site.node(FIRST).blockers] == ([detail] if detail else [])


@pytest.mark.parametrize(("market", "detail"), [("on-demand", "-/-/alone/market"), ("spot", "1000m/880m/alone/cpu")])
def test_a_pod_that_selects_on_demand_among_full_workers_waits_for_no_spot_worker(
    site: Site, market: str, detail: str
) -> None:
    """The second worker would accept it, but is full."""
    for name in (FIRST, SECOND):
        site.world.update("nodes", "", name, lambda n: n["metadata"]["labels"].update({LABEL_MARKET: market}))
    crowded(site, node_selector={LABEL_MARKET: market})
    assert [b.detail for b in site.node(FIRST).blockers] == [detail]


def test_the_last_worker_in_the_zone_of_a_volume_is_kept(site: Site) -> None:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
    terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}
    site.world.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": {"nodeAffinity": terms}})
    claim = {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "disk"}}
    site.world.create("persistentvolumeclaims", claim)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    spec = deployment_object("files", namespace="shop", replicas=2, cpu_milli=100, memory_mib=64, volumes=[volume])
    site.world.create("deployments", spec)
    site.clock.advance(60)
    assert [(b.letter, b.detail) for b in site.node(FIRST).blockers] == [("f", "-/-/alone/volume")]


def test_a_claim_that_cannot_be_found_keeps_the_worker(site: Site) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    crowded(site, cpu_request_milli=100)
    [pod] = [p for p in site.world.pods_on(FIRST) if p["metadata"]["namespace"] == "shop"]
    site.world.update("pods", "shop", pod["metadata"]["name"], lambda fresh: fresh["spec"].update(volumes=[volume]))
    assert [b.letter for b in site.node(FIRST).blockers] == ["u"]


def test_what_is_not_judged_within_its_time_keeps_the_worker(site: Site) -> None:
    crowded(site, cpu_request_milli=100)
    assert site.node(FIRST).blockers == ()
    late = script("inspect_nodes").replace("FIT_SECONDS = 1.0", "FIT_SECONDS = -1.0")
    found = parse_inspection(site.shell.run(late).stdout)
    assert {b.detail for n in found.nodes if not n.server for b in n.blockers} == {"-/-/alone/time"}


@pytest.mark.parametrize(("cpu", "together"), [(100, True), (1000, False)])
def test_workers_are_marked_whose_pods_fit_elsewhere_together(site: Site, cpu: int, together: bool) -> None:
    site.world.add_worker("i-00000000000000003", az="us-east-1b")
    crowded(site, cpu_request_milli=cpu, replicas=2)
    assert sum(n.fits_together for n in site.inspect().nodes) == (2 if together else 0)


def test_what_a_node_offers_is_rounded_down_and_what_its_pods_request_up(site: Site) -> None:
    empty = site.node(FIRST)
    offered = {"cpu": "1900m", "memory": f"{1698 * 1024 + 1023}Ki", "pods": "29"}
    site.world.update("nodes", "", FIRST, lambda node: node["status"].update(allocatable=offered))
    crowded(site, cpu_request_milli=100, memory_request_mib=60, replicas=1, node_selector={LABEL_HOSTNAME: FIRST})
    site.world.create(
        "pods",
        {
            "metadata": {"name": "odd", "namespace": "shop"},
            "spec": {"nodeName": FIRST, "containers": [{"name": "main", "resources": {"requests": {"memory": "1Ki"}}}]},
        },
    )
    node = site.node(FIRST)
    assert (node.cpu_allocatable_milli, node.memory_allocatable_mib, node.pods_allocatable) == (1900, 1698, 29)
    more = (node.cpu_requested_milli, node.memory_requested_mib)
    assert more == (empty.cpu_requested_milli + 100, empty.memory_requested_mib + 60 + 1)


@pytest.mark.parametrize("stated", ["lots", "-5", None, "9" * 40])
def test_a_figure_of_a_node_that_cannot_be_read_ends_no_inspection(site: Site, stated: Any) -> None:
    offered = {"cpu": stated, "memory": stated, "pods": stated}
    site.world.update("nodes", "", FIRST, lambda node: node["status"].update(allocatable=offered))
    node = site.node(FIRST)
    assert (node.cpu_allocatable_milli, node.memory_allocatable_mib, node.pods_allocatable) == (0, 0, 0)
    assert site.node(SECOND).pods_allocatable == 110
