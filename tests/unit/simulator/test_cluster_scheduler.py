"""The scheduler of the simulated cluster: what fits where, and the words for what does not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.clock import VirtualClock
from simulator.cluster.control.scheduler import room_of, why_not
from simulator.cluster.model import ClusterSettings, SimulatedCluster
from simulator.cluster.objects import is_unschedulable
from simulator.cluster.workloads import pod_object


def a_world(workers: int = 2, **world_settings: object) -> tuple[VirtualClock, SimulatedCluster]:
    clock = VirtualClock()
    world = SimulatedCluster(clock, settings=ClusterSettings(**world_settings), add_ons=False)  # type: ignore[arg-type]
    world.add_server("i-server", "eu-west-1a")
    for number in range(workers):
        world.add_worker(f"i-w{number}", az=f"eu-west-1{'ab'[number % 2]}")
    return clock, world


def pod_named(world: SimulatedCluster, name: str):  # type: ignore[no-untyped-def]
    return next(pod for pod in world.pods() if pod.name == name)


def test_a_pod_goes_to_the_least_allocated_node() -> None:
    _, world = a_world()
    world.create("pods", pod_object("first", cpu_milli=500))
    world.create("pods", pod_object("second", cpu_milli=500))
    assert {pod_named(world, "first").node, pod_named(world, "second").node} == {"i-w0", "i-w1"}


def test_an_unschedulable_pod_says_why_in_the_schedulers_words() -> None:
    _, world = a_world(workers=3, server_is_tainted=False)
    world.create("pods", pod_object("big", cpu_milli=1901, memory_mib=64))
    pod = pod_named(world, "big")
    assert pod.unschedulable
    assert pod.message == "0/4 nodes are available: 4 Insufficient cpu."


def test_the_servers_taint_keeps_ordinary_pods_away() -> None:
    _, world = a_world(workers=1)
    world.create("pods", pod_object("big", cpu_milli=1900))
    world.create("pods", pod_object("bigger", cpu_milli=1901))
    assert pod_named(world, "big").node == "i-w0"
    assert pod_named(world, "bigger").message == (
        "0/2 nodes are available: 1 Insufficient cpu, "
        "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: true}."
    )


def test_a_pod_fits_exactly_and_one_unit_more_does_not() -> None:
    _, world = a_world(workers=1)
    allocatable = next(node for node in world.nodes() if node.role == "worker").allocatable_memory_mib
    world.create("pods", pod_object("exact", cpu_milli=1900, memory_mib=allocatable))
    assert pod_named(world, "exact").node == "i-w0"
    world.create("pods", pod_object("one-more", cpu_milli=1, memory_mib=1))
    assert pod_named(world, "one-more").message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient"
    )


def test_a_cordoned_node_takes_nothing_until_it_is_uncordoned() -> None:
    _, world = a_world(workers=1)
    world.cordon("i-w0")
    world.create("pods", pod_object("late"))
    assert "1 node(s) were unschedulable" in pod_named(world, "late").message
    world.uncordon("i-w0")
    assert pod_named(world, "late").node == "i-w0"


def test_a_gated_pod_is_not_unschedulable() -> None:
    _, world = a_world()
    pod = world.create("pods", pod_object("gated", schedulingGates=[{"name": "example.com/wait"}]))
    assert pod["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert pod_named(world, "gated").gated
    assert world.truth().unschedulable_pods == 0
    assert world.truth().pending_pods == 1


def test_a_pod_selects_its_zone_by_affinity() -> None:
    _, world = a_world(workers=2)
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["eu-west-1b"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    world.create("pods", pod_object("zonal", affinity=affinity))
    assert pod_named(world, "zonal").node == "i-w1"


def test_a_claim_binds_its_pod_to_the_node_of_the_first_start() -> None:
    _, world = a_world(workers=2)
    from simulator.cluster.control.volumes import local_claim

    world.create("persistentvolumeclaims", local_claim("shop", "data"))
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    world.create("pods", pod_object("writer", volumes=volumes))
    first = pod_named(world, "writer").node
    world.delete("pods", "shop", "writer", grace_seconds=0)
    world.cordon(first)
    world.create("pods", pod_object("writer", volumes=volumes))
    assert "didn't match PersistentVolume's node affinity" in pod_named(world, "writer").message


def test_no_more_pods_than_the_node_takes() -> None:
    _, world = a_world(workers=1)
    with world.changing():
        for number in range(112):
            world.create("pods", pod_object(f"small-{number:03}", cpu_milli=1, memory_mib=1))
    assert sum(1 for pod in world.pods() if pod.node == "i-w0") == 110
    assert pod_named(world, "small-111").message.startswith("0/2 nodes are available: 1 Too many pods")


@st.composite
def pods(draw: st.DrawFn) -> list[tuple[str, int, int, bool]]:
    sizes = st.tuples(st.integers(1, 2500), st.integers(1, 2500), st.booleans())
    return [(f"pod-{number}", *size) for number, size in enumerate(draw(st.lists(sizes, max_size=25)))]


@settings(max_examples=60, deadline=None)
@given(pods(), st.integers(1, 4), st.integers(0, 3))
def test_no_node_is_over_committed_and_only_what_fits_nowhere_waits(
    wanted: list[tuple[str, int, int, bool]], workers: int, cordoned: int
) -> None:
    clock, world = a_world(workers=workers)
    for number in range(min(cordoned, workers)):
        world.cordon(f"i-w{number}")
    for name, cpu, memory, zonal in wanted:
        spec = {"nodeSelector": {"topology.kubernetes.io/zone": "eu-west-1a"}} if zonal else {}
        world.create("pods", pod_object(name, cpu_milli=cpu, memory_mib=memory, **spec))
    clock.advance(10)
    for name, *_ in wanted[::3]:
        world.delete("pods", "shop", name, grace_seconds=0)
    clock.advance(10)
    rooms = [room_of(world.cluster, node) for node in world.objects("nodes")]
    for room in rooms:
        assert room.used_cpu_milli <= room.cpu_milli
        assert room.used_memory_mib <= room.memory_mib
        assert room.used_pods <= room.max_pods
    for pod in world.objects("pods"):
        if not pod["spec"].get("nodeName"):
            assert is_unschedulable(pod)
            assert all(why_not(pod, world.cluster.pod_facts(pod), room) for room in rooms)
