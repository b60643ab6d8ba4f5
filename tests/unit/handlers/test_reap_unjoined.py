"""ReapUnjoined: terminates one orphan a run, past the limit, missing in kubectl in two runs in a row; none in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.reap_unjoined import handler
from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Reading, Snapshot, Worker
from node_fleet.domain.scale_up.join import NO_NODE_LIST, NodeList
from node_fleet.domain.scale_up.orphans import check_orphans
from node_fleet.payload import to_payload
from tests.support.handlers.scale_up import START, ZONES, Bench, bench, inspected, node_of

SERVER = "i-0aaaaaaaaaaaaaaaa"


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def lost(made: Bench, number: int = 1) -> str:
    """An instance of ours that no record knows and that never joined."""
    zone = ZONES[0]
    slot = LaunchSlot(
        number=number, zone=zone, subnet_id=made.settings.zones[zone], instance_type="t3.small", market="spot"
    )
    answer = made.tools.ec2.launch(slot, operation_id="up-dead", token=f"dead-{number}")
    made.clock.advance(70)
    return answer.instance_id


def tick(made: Bench, run: Any, **more: Any) -> dict[str, Any]:
    """One run's look: the snapshot as CollectMetrics would make it, the memory as the last run left it."""
    now = int(made.clock.now())
    reading = Reading(
        at=now,
        cpu_percent=10.0,
        cpu_max_percent=10.0,
        memory_percent=10.0,
        memory_max_percent=10.0,
        pending=(),
        nodes=made.prometheus.known_nodes,
    )
    snapshot = assemble(made.instances(), reading, (), Policy(), now)
    return handler({**made.event(run, 0), "snapshot": to_payload(snapshot), **more}, None)


def listed(made: Bench, *instance_ids: str) -> None:
    made.server.says(
        "InspectNodes", inspected(int(made.clock.now()), {SERVER: "RS", **dict.fromkeys(instance_ids, "R")})
    )


def live(made: Bench) -> set[str]:
    return {i.instance_id for i in made.instances()}


@pytest.mark.parametrize("age_minutes", [6, 70, 600])
def test_40_a_lost_machine_goes_on_the_second_run_that_misses_it(fleet: Bench, age_minutes: int) -> None:
    machine = lost(fleet)
    fleet.clock.advance(60 * age_minutes)
    run = fleet.begin()
    listed(fleet)
    first = tick(fleet, run)
    assert first["reap"]["status"] == "watching" and live(fleet) == {machine}
    fleet.clock.advance(120)
    listed(fleet)
    second = tick(fleet, run, memory=first["memory"])
    assert second["reap"]["status"] == "reaped" and live(fleet) == set()
    assert machine in second["alerts"]["rows"][0][1]


def test_one_goes_per_run_the_oldest_first(fleet: Bench) -> None:
    older, newer = lost(fleet, 1), lost(fleet, 2)
    fleet.clock.advance(600)
    run = fleet.begin()
    memory = fleet.event(run, 0)["memory"]
    seen = []
    for _ in range(4):
        listed(fleet)
        memory = tick(fleet, run, memory=memory)["memory"]
        seen.append(live(fleet))
        fleet.clock.advance(120)
    assert seen == [{older, newer}, {newer}, set(), set()]


def test_a_machine_within_its_join_limit_is_only_counted(fleet: Bench) -> None:
    lost(fleet)
    run = fleet.begin()
    listed(fleet)
    answer = tick(fleet, run)
    assert answer["memory"]["suspects"] == {} and len(live(fleet)) == 1


@pytest.mark.parametrize("apart", [241, 3600])
def test_two_looks_far_apart_are_not_two_runs_in_a_row(fleet: Bench, apart: int) -> None:
    lost(fleet)
    fleet.clock.advance(600)
    run = fleet.begin()
    listed(fleet)
    first = tick(fleet, run)
    fleet.clock.advance(apart)
    fleet.tools.state.release(run)
    run = fleet.begin("later")
    listed(fleet)
    assert tick(fleet, run, memory=first["memory"])["reap"]["status"] == "watching"


def test_a_dry_run_reaps_nobody(fleet: Bench) -> None:
    machine = lost(fleet)
    fleet.clock.advance(600)
    run = fleet.begin(dry_run=True)
    listed(fleet)
    first = tick(fleet, run)
    listed(fleet)
    fleet.clock.advance(60)
    assert tick(fleet, run, memory=first["memory"])["reap"]["status"] == "dry_run"
    assert live(fleet) == {machine}


@pytest.mark.parametrize("emptied", ["prometheus", "kubectl", "both", "unreachable"])
def test_an_exporter_restart_that_empties_the_node_list_reaps_nobody(fleet: Bench, emptied: str) -> None:
    machine = lost(fleet)
    fleet.clock.advance(600)
    fleet.ready(*([] if emptied in ("prometheus", "both") else [SERVER]))
    run = fleet.begin()
    memory = fleet.event(run, 0)["memory"]
    for _ in range(3):
        if emptied in ("kubectl", "both"):
            fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {}))
        elif emptied == "prometheus":
            listed(fleet, machine)
        memory = tick(fleet, run, memory=memory)["memory"]
        fleet.clock.advance(120)
    assert live(fleet) == {machine}


def test_a_machine_that_is_kept_for_inspection_is_told_of_once() -> None:
    with bench(keep_unjoined="true") as fleet:
        machine = lost(fleet)
        fleet.clock.advance(600)
        run = fleet.begin()
        memory, seen = fleet.event(run, 0)["memory"], []
        for _ in range(6):
            listed(fleet)
            answer = tick(fleet, run, memory=memory)
            memory = answer["memory"]
            seen.append(answer["reap"]["status"])
            fleet.clock.advance(120)
        assert seen == ["watching", "reaped", "watching", "watching", "watching", "watching"]
        assert live(fleet) == {machine} and memory["suspects"] == {}


def worker(number: int = 1, **more: Any) -> Worker:
    fields: dict[str, Any] = {"phase": "unjoined", "launched_at": START, **more}
    return Worker(instance_id=f"i-{number:017x}", zone="a", market="spot", instance_type="t3.small", **fields)


@pytest.mark.parametrize("source", ["cached", "none"])
def test_only_live_data_makes_a_candidate(source: str) -> None:
    assert Snapshot(at=0, source=source, workers=(worker(),)).unjoined == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["usable", "joining", "cordoned", "not_ready", "unknown"])
def test_only_a_worker_without_a_node_is_a_candidate(phase: str) -> None:
    assert Snapshot(at=0, source="live", workers=(worker(phase=phase),)).unjoined == ()


def test_a_worker_under_notice_is_no_candidate() -> None:
    assert Snapshot(at=0, source="live", workers=(worker(under_notice=True),)).unjoined == ()


@pytest.mark.parametrize(
    "node_list",
    [
        NO_NODE_LIST,
        NodeList(nodes=(), source="server"),
        NodeList(nodes=(node_of(SERVER),), source="prometheus"),
    ],
)
def test_only_a_non_empty_list_of_the_server_counts(node_list: NodeList) -> None:
    suspects = {worker().instance_id: START + 10}
    found = check_orphans([worker()], node_list, suspects, now=START + 20, run_seconds=240)
    assert found.terminate == "" and found.suspects == suspects


def test_6_a_node_that_is_listed_in_whatever_state_is_not_missing() -> None:
    node_list = NodeList(nodes=(node_of(SERVER), node_of(worker().instance_id, ready=False)), source="server")
    found = check_orphans([worker()], node_list, {worker().instance_id: START + 10}, now=START + 20, run_seconds=240)
    assert found.terminate == "" and found.suspects == {}
