"""CheckJoin waits for the workers of a scale-up; AbandonUnjoined removes what certainly did not join, nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from handlers.abandon_unjoined import handler as abandon_unjoined
from handlers.check_join import handler as check_join
from handlers.complete_scale_up import handler as complete_scale_up
from handlers.fail_scale_up import handler as fail_scale_up
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import PodShape
from node_fleet.payload import take
from simulator.aws import FaultRule
from tests.support.handlers.bench import Bench, node_of

SERVER = "i-0aaaaaaaaaaaaaaaa"
TAINT = "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"


def test_not_yet_is_an_answer_and_renews_the_lease(fleet: Bench) -> None:
    payload, _ = fleet.launched()
    before = fleet.state().lease
    fleet.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=4),)
    writes = len(fleet.cloud.recorder.of("UpdateItem"))
    join = check_join(payload, None)["join"]
    after = fleet.state().lease
    assert (join["status"], join["pods_waiting"]) == ("waiting", None)
    assert before and after and after.expires_at == before.expires_at + 60
    assert len(fleet.cloud.recorder.of("UpdateItem")) == writes + 1, "the operation has not changed and is not written"


def test_usable_workers_have_joined_and_pods_that_still_wait_are_counted(fleet: Bench) -> None:
    payload, ids = fleet.launched()
    fleet.ready(*ids)
    fleet.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=4),)
    joined = check_join(payload, None)
    assert [joined["join"][name] for name in ("status", "pods_waiting", "seconds")] == ["joined", 4, 60]
    operation = fleet.state().operation
    assert operation is not None and len(operation.joined) == 2
    fleet.prometheus.known_nodes = ()
    fleet.prometheus.down = True
    assert check_join(joined, None)["join"]["status"] == "joined", "a worker that has joined is not checked again"
    assert fleet.server.commands == []


def test_a_tainted_worker_is_waited_for_until_the_limit(fleet: Bench) -> None:
    payload, ids = fleet.launched(1)
    fleet.ready(*ids, taints=(TAINT,))
    assert check_join(payload, None)["join"]["status"] == "waiting"
    fleet.clock.advance(240)
    assert check_join(payload, None)["join"]["status"] == "timeout"


@pytest.mark.parametrize("flags", ["R", "RC", "RT", "-"])
def test_when_prometheus_is_down_the_server_is_asked(fleet: Bench, flags: str) -> None:
    payload, ids = fleet.launched(1)
    fleet.prometheus.down = True
    fleet.listed({ids[0]: flags})
    assert check_join(payload, None)["join"]["status"] == ("joined" if flags == "R" else "waiting")
    assert fleet.server.commands == [("InspectNodes", {})]


@pytest.mark.parametrize("text", [None, "", "nf1 1 a\nw", "kubectl: connection refused"])
def test_without_a_whole_answer_of_either_it_waits(fleet: Bench, text: str | None) -> None:
    payload, _ = fleet.launched(1)
    fleet.prometheus.down = True
    if text is not None:
        fleet.server.says("InspectNodes", text)
    assert check_join(payload, None)["join"]["status"] == "waiting"


def test_an_instance_reclaimed_while_it_joins_is_reported(fleet: Bench) -> None:
    payload, ids = fleet.launched()
    fleet.ready(ids[1])
    fleet.cloud.ec2.reclaim(ids[0])
    join = check_join(payload, None)["join"]
    assert (join["status"], join["joined"]) == ("joined", 1)
    assert "shutting-down" in join["detail"]


def test_an_instance_that_ec2_ends_for_lack_of_capacity_closes_its_pool_and_the_next_round_uses_another(
    fleet: Bench,
) -> None:
    payload, (ended,) = fleet.launched(1)
    pool = {(i.zone, i.market) for i in fleet.instances()}
    fleet.cloud.ec2.reclaim(ended, reason="Server.InsufficientInstanceCapacity")
    fleet.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=4),)
    answer = abandon_unjoined(check_join(payload, None), None)
    assert answer["join"]["status"] == "partial"
    again = complete_scale_up(answer, None)
    assert again["next"] == "again" and "Server.InsufficientInstanceCapacity" in again["outcome"]["text"]
    assert fleet.state().memory.back_offs == ()
    second = fleet.operation(launch_nodes(again, None))
    assert second.instance_ids and not pool & {(s.zone, s.market) for s in second.slots}


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("Client.InternalError", "LaunchConfigurationError"),
        ("Client.InvalidSnapshot.NotFound", "LaunchConfigurationError"),
        ("Client.VolumeLimitExceeded", "QuotaExceededError"),
        ("Client.UserInitiatedShutdown", "NothingJoinedError"),
    ],
)
def test_an_instance_that_ec2_ends_for_another_reason_fails_the_scale_up_with_ec2s_own_words(
    fleet: Bench, reason: str, error: str
) -> None:
    payload, (ended,) = fleet.launched(1)
    fleet.cloud.ec2.reclaim(ended, reason=reason)
    answer = abandon_unjoined(check_join(payload, None), None)
    assert answer["join"]["status"] == "timeout"
    failure = fail_scale_up(answer, None)["failure"]
    assert failure["Error"] == error and ended in failure["Cause"] and reason in failure["Cause"]
    keys = {"NothingJoinedError": "join"}
    assert [b.key for b in fleet.state().memory.back_offs] == [keys.get(error, "scale_up")]


def test_a_fresh_id_that_ec2_does_not_list_yet_is_waited_for_and_a_pause_does_not_stop_that(fleet: Bench) -> None:
    fleet.cloud.ec2.delays.invisible_seconds = 30
    payload, ids = fleet.launched(1, seconds=0)
    assert check_join(payload, None)["join"]["status"] == "waiting"
    fleet.clock.advance(60)
    fleet.pause()
    fleet.ready(*ids)
    assert check_join(payload, None)["join"]["status"] == "joined"


def test_instances_that_did_not_join_are_tagged_terminated_and_reported(fleet: Bench) -> None:
    payload, ids = fleet.launched(seconds=300)
    fleet.listed({SERVER: "RS"})
    answer = abandon_unjoined(payload, None)
    assert answer["join"]["status"] == "timeout"
    assert not fleet.ids() and not fleet.state().reservations
    tagged = fleet.cloud.recorder.of("CreateTags")
    assert {c.parameters["Resources"][0] for c in tagged} == set(ids)
    assert answer["alerts"]["rows"][0][0] == "join_failed"
    assert abandon_unjoined(payload, None)["operation"] == answer["operation"], "a repeated step finds it done"


@pytest.mark.parametrize("stale", [False, True])
def test_a_worker_that_the_server_lists_is_kept_whatever_prometheus_says(fleet: Bench, stale: bool) -> None:
    payload, ids = fleet.launched(seconds=300)
    fleet.prometheus.known_nodes = (node_of(SERVER),) if stale else ()
    fleet.listed({SERVER: "RS", ids[0]: "R"})
    assert abandon_unjoined(payload, None)["join"]["status"] == "partial"
    assert fleet.ids() == {ids[0]}


def test_instances_of_unknown_status_are_kept(fleet: Bench) -> None:
    payload, ids = fleet.launched(seconds=900)
    fleet.prometheus.down = True
    answer = abandon_unjoined(payload, None)
    assert answer["join"]["status"] == "partial" and fleet.ids() == set(ids)
    assert answer["alerts"]["rows"][0][0] == "join_unknown"


def test_prometheus_alone_is_enough_to_abandon(fleet: Bench) -> None:
    payload, _ = fleet.launched(1, seconds=300)
    fleet.prometheus.known_nodes = (node_of(SERVER),)
    assert abandon_unjoined(payload, None)["join"]["status"] == "timeout"
    assert not fleet.ids()


def test_an_instance_that_ec2_refuses_to_terminate_is_reported_and_the_scale_up_ends(fleet: Bench) -> None:
    payload, ids = fleet.launched(seconds=300)
    fleet.listed({SERVER: "RS"})
    fleet.cloud.faults.inject(FaultRule(operation="TerminateInstances", code="OperationNotPermitted", count=1))
    answer = abandon_unjoined(payload, None)
    alerts = [alert.kind for alert in take(answer, "alerts", tuple[Alert, ...])]
    assert alerts == ["join_failed", f"unjoined_kept:{ids[0]}"]
    assert fleet.ids() == {ids[0]} and not fleet.state().reservations


@pytest.mark.settings(keep_unjoined=True)
def test_the_setting_keeps_an_unjoined_instance_for_inspection(fleet: Bench) -> None:
    payload, ids = fleet.launched(1, seconds=300)
    fleet.listed({SERVER: "RS"})
    answer = abandon_unjoined(payload, None)
    assert fleet.ids() == set(ids) and "kept for inspection" in answer["alerts"]["rows"][0][1]
    assert fleet.instances()[0].join_failed


def test_an_operation_that_ended_while_launching_is_completed_from_ec2_before_it_is_closed(fleet: Bench) -> None:
    payload, ids = fleet.launched(seconds=1000)
    operation = fleet.state().operation
    assert operation is not None
    unrecorded = replace(operation.slots[1], outcome="planned", instance_id="", launched_at=0)
    fleet.tools.state.save_operation(take(payload, "run", Run), operation.with_slot(unrecorded))
    fleet.listed({SERVER: "RS", ids[1]: "R"})
    answer = abandon_unjoined(payload, None)
    assert [s.outcome for s in fleet.operation(answer).slots] == ["unjoined", "joined"]
