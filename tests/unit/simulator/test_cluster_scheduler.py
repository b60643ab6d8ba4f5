"""The scheduler of the simulated cluster: what fits where, and the words for what does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simulator.clock import VirtualClock
from simulator.cluster.control.scheduler import capacity_of_node, find_refusals
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.objects import is_unschedulable
from simulator.cluster.state import ClusterSettings
from simulator.cluster.workloads import pod_object
from tests.support.tiers import examples


def a_cluster(workers: int = 2, **cluster_settings: object) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    cluster = SimulatedCluster(clock, settings=ClusterSettings(**cluster_settings), add_ons=False)  # type: ignore[arg-type]
    cluster.add_server("i-server", "eu-west-1a")
    for number in range(workers):
        cluster.add_worker(f"i-w{number}", az=f"eu-west-1{'ab'[number % 2]}")
    return clock, cluster


def pod_named(cluster: SimulatedCluster, name: str):  # type: ignore[no-untyped-def]
    return next(pod for pod in cluster.pods() if pod.name == name)


def test_a_pod_is_bound_to_the_least_allocated_node() -> None:
    _, cluster = a_cluster()
    cluster.create("pods", pod_object("first", cpu_milli=500))
    cluster.create("pods", pod_object("second", cpu_milli=500))
    assert {pod_named(cluster, "first").node, pod_named(cluster, "second").node} == {"i-w0", "i-w1"}


def test_an_unschedulable_pod_carries_the_message_of_the_scheduler() -> None:
    _, cluster = a_cluster(workers=3, server_is_tainted=False)
    cluster.create("pods", pod_object("big", cpu_milli=1901, memory_mib=64))
    pod = pod_named(cluster, "big")
    assert pod.unschedulable
    assert pod.message == "0/4 nodes are available: 4 Insufficient cpu."


def test_the_servers_taint_keeps_ordinary_pods_away() -> None:
    _, cluster = a_cluster(workers=1)
    cluster.create("pods", pod_object("big", cpu_milli=1900))
    cluster.create("pods", pod_object("bigger", cpu_milli=1901))
    assert pod_named(cluster, "big").node == "i-w0"
    assert pod_named(cluster, "bigger").message == (
        "0/2 nodes are available: 1 Insufficient cpu, "
        "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: true}."
    )


def test_a_pod_fits_exactly_and_one_unit_more_does_not() -> None:
    _, cluster = a_cluster(workers=1)
    allocatable = next(node for node in cluster.nodes() if node.role == "worker").allocatable_memory_mib
    cluster.create("pods", pod_object("exact", cpu_milli=1900, memory_mib=allocatable))
    assert pod_named(cluster, "exact").node == "i-w0"
    cluster.create("pods", pod_object("one-more", cpu_milli=1, memory_mib=1))
    assert pod_named(cluster, "one-more").message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient"
    )


def test_a_cordoned_node_gets_no_pod_until_it_is_uncordoned() -> None:
    _, cluster = a_cluster(workers=1)
    cluster.cordon("i-w0")
    cluster.create("pods", pod_object("late"))
    assert "1 node(s) were unschedulable" in pod_named(cluster, "late").message
    cluster.uncordon("i-w0")
    assert pod_named(cluster, "late").node == "i-w0"


def test_a_gated_pod_is_not_unschedulable() -> None:
    _, cluster = a_cluster()
    pod = cluster.create("pods", pod_object("gated", schedulingGates=[{"name": "example.com/wait"}]))
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert pod_named(cluster, "gated").gated
    assert cluster.truth().unschedulable_pods == 0
    assert cluster.truth().pending_pods == 1


def test_a_pod_selects_its_zone_by_affinity() -> None:
    _, cluster = a_cluster(workers=2)
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1b"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    cluster.create("pods", pod_object("zonal", affinity=affinity))
    assert pod_named(cluster, "zonal").node == "i-w1"


def test_a_claim_binds_its_pod_to_the_node_of_the_first_start() -> None:
    _, cluster = a_cluster(workers=2)
    from simulator.cluster.control.volumes import local_claim

    cluster.create("persistentvolumeclaims", local_claim("shop", "data"))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create("pods", pod_object("writer", volumes=volumes))
    first = pod_named(cluster, "writer").node
    cluster.delete("pods", "shop", "writer", grace_seconds=0)
    cluster.cordon(first)
    cluster.create("pods", pod_object("writer", volumes=volumes))
    assert "didn't match PersistentVolume's node affinity" in pod_named(cluster, "writer").message


def test_a_node_gets_no_more_pods_than_its_limit() -> None:
    _, cluster = a_cluster(workers=1)
    with cluster.changing():
        for number in range(112):
            cluster.create("pods", pod_object(f"small-{number:03}", cpu_milli=1, memory_mib=1))
    assert sum(1 for pod in cluster.pods() if pod.node == "i-w0") == 110
    assert pod_named(cluster, "small-111").message.startswith("0/2 nodes are available: 1 Too many pods")


@st.composite
def pods(draw: st.DrawFn) -> list[tuple[str, int, int, bool]]:
    sizes = st.tuples(st.integers(1, 2500), st.integers(1, 2500), st.booleans())
    return [(f"pod-{number}", *size) for number, size in enumerate(draw(st.lists(sizes, max_size=25)))]


@examples(60)
@given(pods(), st.integers(1, 4), st.integers(0, 3))
def test_no_node_is_over_committed_and_only_what_fits_nowhere_waits(
    wanted: list[tuple[str, int, int, bool]], workers: int, cordoned: int
) -> None:
    clock, cluster = a_cluster(workers=workers)
    for number in range(min(cordoned, workers)):
        cluster.cordon(f"i-w{number}")
    for name, cpu, memory, zonal in wanted:
        spec = {"nodeSelector": {"topology.kubernetes.io/zone": "eu-west-1a"}} if zonal else {}
        cluster.create("pods", pod_object(name, cpu_milli=cpu, memory_mib=memory, **spec))
    clock.advance(10)
    for name, *_ in wanted[::3]:
        cluster.delete("pods", "shop", name, grace_seconds=0)
    clock.advance(10)
    capacities = [capacity_of_node(cluster.state, node) for node in cluster.objects("nodes")]
    for capacity in capacities:
        assert capacity.used_cpu_milli <= capacity.cpu_milli
        assert capacity.used_memory_mib <= capacity.memory_mib
        assert capacity.used_pods <= capacity.max_pods
    for pod in cluster.objects("pods"):
        if not pod["spec"].get("nodeName"):
            assert is_unschedulable(pod)
            assert all(find_refusals(pod, cluster.state.pod_facts(pod), capacity) for capacity in capacities)


def test_a_pod_waits_for_a_claim_that_does_not_exist() -> None:
    _, cluster = a_cluster()
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create("pods", pod_object("writer", volumes=volumes))
    found = pod_named(cluster, "writer")
    assert (found.unschedulable, found.node) == (True, "")
    assert 'persistentvolumeclaim "data" not found' in found.message
