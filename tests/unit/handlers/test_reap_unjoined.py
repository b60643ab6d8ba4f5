"""ReapUnjoined: terminates one orphan a run, past its limit, missing in kubectl in two runs in a row; none in doubt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.reap_unjoined import handler
from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Reading, Snapshot
from node_fleet.domain.scale_up.join import NO_NODE_LIST, NodeList
from node_fleet.domain.scale_up.orphans import check_orphans
from node_fleet.payload import take, to_payload
from simulator.aws import FaultRule
from tests.support.handlers.bench import START, Bench, node_of
from tests.support.handlers.fakes import LOST_VOLUME, A, answer, worker

SERVER = "i-0aaaaaaaaaaaaaaaa"


def lost(made: Bench, number: int = 1, *, minutes: int = 10) -> str:
    """An instance of ours that no record knows and that never joined."""
    instance_id = made.running(number, operation_id="up-dead").instance_id
    made.clock.advance(60 * minutes)
    return instance_id


def tick(made: Bench, run: Any, **more: Any) -> dict[str, Any]:
    """One run: the snapshot as CollectMetrics makes it, the memory as the last run left it; two minutes pass."""
    now = int(made.clock.now())
    figures = dict.fromkeys(("cpu_percent", "cpu_max_percent", "memory_percent", "memory_max_percent"), 10.0)
    reading = Reading(at=now, **figures, pending=(), nodes=made.prometheus.known_nodes)
    snapshot = assemble(made.instances(), reading, (), Policy(), now)
    payload = handler({**made.event(run, 0), "snapshot": to_payload(snapshot), **more}, None)
    made.clock.advance(120)
    return payload


def ticks(made: Bench, times: int) -> list[tuple[str, set[str]]]:
    """That many runs, of which kubectl lists only the server: the status of each and the instances it leaves."""
    run, memory, seen = made.begin(), {}, []
    for _ in range(times):
        made.listed({SERVER: "RS"})
        after = tick(made, run, **memory)
        memory = {"memory": after["memory"]}
        seen.append((after["reap"]["status"], made.ids()))
    return seen


@pytest.mark.parametrize("minutes", [6, 70, 600])
def test_an_orphan_is_terminated_by_the_second_run_that_misses_it(fleet: Bench, minutes: int) -> None:
    orphan = lost(fleet, minutes=minutes)
    run = fleet.begin()
    fleet.listed({SERVER: "RS"})
    first = tick(fleet, run)
    assert first["reap"]["status"] == "watching" and fleet.ids() == {orphan}
    second = tick(fleet, run, memory=first["memory"])
    assert second["reap"]["status"] == "reaped" and not fleet.ids()
    assert orphan in second["alerts"]["rows"][0][1]


def test_one_orphan_is_terminated_in_each_run_the_oldest_first(fleet: Bench) -> None:
    older, newer = lost(fleet, 1, minutes=0), lost(fleet, 2)
    assert [left for _, left in ticks(fleet, 4)] == [{older, newer}, {newer}, set(), set()]


def test_an_instance_within_its_join_limit_is_only_counted(fleet: Bench) -> None:
    orphan = lost(fleet, minutes=0)
    fleet.listed({SERVER: "RS"})
    assert tick(fleet, fleet.begin())["memory"]["suspects"] == {} and fleet.ids() == {orphan}


def dead_node(made: Bench, *, seconds: int = 120) -> str:
    """The NotReady node of a worker that has ended, as Prometheus and the server show it."""
    ended = made.running(9).instance_id
    made.tools.ec2.terminate([ended])
    made.prometheus.known_nodes = (replace(node_of(ended, ready=False), not_ready_seconds=seconds),)
    made.listed({SERVER: "RS", ended: "W"})
    made.server.answers["ForgetNode"] = answer(f"result: forgotten {ended}")
    return ended


def test_the_node_of_an_ended_instance_is_deleted_in_a_tick_that_removes_no_worker(fleet: Bench) -> None:
    ended = dead_node(fleet)
    fleet.clock.advance(600)
    assert tick(fleet, fleet.begin())["reap"]["status"] == "watching"
    forget = ("ForgetNode", {"NodeName": ended, "InstanceId": ended})
    assert fleet.server.commands == [("InspectNodes", {}), forget]


@pytest.mark.parametrize("reported", [False, True])
def test_volumes_that_ended_with_a_dead_node_are_reported_unless_a_message_named_them(
    fleet: Bench, reported: bool
) -> None:
    ended = dead_node(fleet)
    fleet.clock.advance(600)
    fleet.server.says("ForgetNode", f"{LOST_VOLUME}result: forgotten {ended}")
    if reported:
        fleet.tools.state.add_notice(Notice(instance_id=ended, kind="spot", at=0))
        fleet.tools.state.record_lost_volumes(ended)
    payload = tick(fleet, fleet.begin())
    alerts = [alert.kind for alert in take(payload, "alerts", tuple[Alert, ...])]
    assert alerts == ([] if reported else [f"volumes_lost:{ended}"])
    assert payload.get("notify", False) is not reported


@pytest.mark.parametrize("case", ["shutting down", "just NotReady", "dry run", "not a worker of ours"])
def test_a_node_whose_end_is_not_certain_or_that_is_not_ours_stays(fleet: Bench, case: str) -> None:
    fleet.cloud.ec2.delays.shutting_down_seconds = 3600 if case == "shutting down" else 30
    ended = dead_node(fleet, seconds=119 if case == "just NotReady" else 120)
    fleet.clock.advance(600)
    if case == "not a worker of ours":
        fleet.listed({SERVER: "RS", ended: "-"})
    tick(fleet, fleet.begin(dry_run=case == "dry run"))
    assert fleet.server.commands == [("InspectNodes", {})]


@pytest.mark.parametrize(
    ("cordon", "noticed", "removed"), [("down-3-1", False, True), ("?", False, False), ("down-3-1", True, False)]
)
def test_a_cordon_of_an_ended_operation_is_removed_in_a_tick_that_removes_no_worker(
    fleet: Bench, cordon: str, noticed: bool, removed: bool
) -> None:
    worker = fleet.running()
    node = node_of(worker.instance_id, zone=worker.zone)
    fleet.prometheus.known_nodes = (replace(node, unschedulable=True),)
    fleet.inspected(fleet.line(SERVER, "RS"), fleet.line(worker.instance_id, "RCW", cordon))
    fleet.server.says("UncordonNode", f"result: uncordoned {worker.instance_id}")
    if noticed:
        fleet.noticed(worker)
    tick(fleet, fleet.begin())
    uncordon = ("UncordonNode", {"NodeName": worker.instance_id, "OperationId": cordon})
    assert fleet.server.commands == [("InspectNodes", {}), *([uncordon] if removed else [])]


@pytest.mark.parametrize("apart", [241, 3600])
def test_two_checks_far_apart_are_not_two_runs_in_a_row(fleet: Bench, apart: int) -> None:
    lost(fleet)
    run = fleet.begin()
    fleet.listed({SERVER: "RS"})
    first = tick(fleet, run)
    fleet.clock.advance(apart - 120)
    fleet.tools.state.release(run)
    assert tick(fleet, fleet.begin("later"), memory=first["memory"])["reap"]["status"] == "watching"


def test_a_dry_run_terminates_no_orphan(fleet: Bench) -> None:
    orphan = lost(fleet)
    run = fleet.begin(dry_run=True)
    fleet.listed({SERVER: "RS"})
    first = tick(fleet, run)
    assert tick(fleet, run, memory=first["memory"])["reap"]["status"] == "dry_run"
    assert fleet.ids() == {orphan}


@pytest.mark.parametrize("emptied", ["prometheus", "kubectl", "both", "unreachable"])
def test_an_exporter_restart_that_empties_the_node_list_terminates_no_orphan(fleet: Bench, emptied: str) -> None:
    orphan = lost(fleet)
    fleet.ready(*([] if emptied in ("prometheus", "both") else [SERVER]))
    run = fleet.begin()
    memory = fleet.event(run, 0)["memory"]
    for _ in range(3):
        if emptied != "unreachable":
            fleet.listed({SERVER: "RS", orphan: "R"} if emptied == "prometheus" else {})
        memory = tick(fleet, run, memory=memory)["memory"]
    assert fleet.ids() == {orphan}


def test_an_orphan_that_ec2_refuses_to_terminate_is_reported_once_and_the_runs_go_on(fleet: Bench) -> None:
    orphan = lost(fleet)
    fleet.cloud.faults.inject(FaultRule(operation="TerminateInstances", code="OperationNotPermitted"))
    run, alerts = fleet.begin(), []
    memory = fleet.event(run, 0)["memory"]
    for _ in range(6):
        fleet.listed({SERVER: "RS"})
        after = tick(fleet, run, memory=memory)
        memory = after["memory"]
        alerts += [(alert.kind, after["notify"]) for alert in take(after, "alerts", tuple[Alert, ...])]
    assert alerts == [(f"unjoined_kept:{orphan}", True)]
    assert fleet.ids() == {orphan}


@pytest.mark.settings(keep_unjoined=True)
def test_an_orphan_that_is_kept_for_inspection_is_reported_once(fleet: Bench) -> None:
    orphan = lost(fleet)
    assert ticks(fleet, 6) == [(status, {orphan}) for status in ("watching", "reaped", *["watching"] * 4)]


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ("cached", {}),
        ("none", {}),
        ("live", {"under_notice": True}),
        *(("live", {"phase": phase}) for phase in ("usable", "joining", "cordoned", "not_ready", "unknown")),
    ],
)
def test_only_a_worker_without_a_node_in_live_data_and_without_a_notice_is_an_orphan(
    source: Any, changes: dict[str, Any]
) -> None:
    one = worker(A, **{"phase": "unjoined", **changes})
    assert Snapshot(at=0, source=source, workers=(one,)).unjoined == ()


ORPHAN = worker(A, phase="unjoined", launched_at=START)


@pytest.mark.parametrize(
    ("node_list", "still_suspected"),
    [
        (NO_NODE_LIST, True),
        (NodeList(nodes=(), source="server"), True),
        (NodeList(nodes=(node_of(SERVER),), source="prometheus"), True),
        (NodeList(nodes=(node_of(SERVER), node_of(A, ready=False)), source="server"), False),
    ],
    ids=["no list", "an empty list", "a list of prometheus", "a list with its node, not ready"],
)
def test_only_a_list_of_the_server_without_its_node_terminates_an_orphan(
    node_list: NodeList, still_suspected: bool
) -> None:
    suspects = {A: START + 10}
    found = check_orphans([ORPHAN], node_list, suspects, now=START + 20, run_seconds=240)
    assert found.terminate == "" and found.suspects == (suspects if still_suspected else {})


@pytest.mark.parametrize(("seconds_ago", "terminated"), [(0, ""), (1, A), (240, A), (241, "")])
def test_only_an_earlier_run_that_is_not_long_ago_confirms_that_an_orphan_has_no_node(
    seconds_ago: int, terminated: str
) -> None:
    listed = NodeList(nodes=(node_of(SERVER),), source="server")
    found = check_orphans([ORPHAN], listed, {A: START - seconds_ago}, now=START, run_seconds=240)
    assert (found.terminate, found.suspects) == (terminated, {} if terminated else {A: START})
