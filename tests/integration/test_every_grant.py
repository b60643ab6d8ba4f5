"""What functions may do and seldom need, each needed here once in the simulator with the deployed template.

tests/support/recorded_calls.py fails a whole run in which a grant was not used; these stories use the rare ones.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from node_fleet.domain.model.fleet_state import Pause
from simulator.cluster.control.volumes import local_volume
from simulator.runner import Execution
from tests.support.workflow_harness import Stage, stage

pytestmark = pytest.mark.sampled(5)  # with --all, every one

SOON_IDLE: dict[str, Any] = {"idle_seconds": 240, "cooldown_down_seconds": 0}
SLOW: dict[str, Any] = {"shutdown": 200, "drain_timeout_seconds": 280}
OPERATION, SINCE = "node-fleet.io/cordoned-by", "node-fleet.io/cordoned-at"


def documents(fleet: Stage, function: str) -> set[str]:
    """The documents that a function had run on the server."""
    prefix = fleet.settings.document_prefix
    calls = fleet.cloud.recorder.of("SendCommand", function=_full_name(fleet, function))
    return {call.parameters["DocumentName"].removeprefix(prefix) for call in calls}


def calls(fleet: Stage, function: str, operation: str) -> int:
    return len(fleet.cloud.recorder.of(operation, function=_full_name(fleet, function)))


def _full_name(fleet: Stage, function: str) -> str:
    return next(key for key in fleet.cloud.lambdas.functions if key.endswith(f"-{function}"))


def messages(fleet: Stage) -> str:
    return "\n".join(record["Message"] for record in fleet.deployment.messages)


def answered(fleet: Stage, state: str) -> Execution | None:
    """The finished execution of the interruption workflow that went through a state."""
    return next(
        (e for e in fleet.sim.executions if state in e.path and "CloseNotice" in e.path and not e.running), None
    )


def cordon_of_a_dead_operation(fleet: Stage, node_name: str) -> None:
    def edit(node: dict[str, Any]) -> None:
        node["spec"]["unschedulable"] = True
        node["metadata"].setdefault("annotations", {}).update({OPERATION: "down-1-1", SINCE: str(fleet.now())})

    fleet.sim.cluster.update("nodes", "", node_name, edit)


def test_a_scale_down_first_tidies_a_stray_cordon_and_what_a_dead_worker_left() -> None:
    with stage(workers=5, warm_up=2, **SOON_IDLE) as fleet:
        stray, dead = fleet.workers()[:2]
        fleet.break_state("ForgetInterrupted", RuntimeError("out of memory"))
        fleet.cloud.ec2.reclaim(dead)
        cordon_of_a_dead_operation(fleet, stray)
        fleet.tick_until(lambda run: "SelectNodes" in run.path)
        assert {"UncordonNode", "ForgetNode"} <= documents(fleet, "SelectNodes")
        assert fleet.cordoned() == []
        assert dead not in {node.instance_id for node in fleet.sim.cluster.nodes()}


def test_a_prediction_reads_the_history_and_a_run_without_prometheus_the_record_of_the_last_run() -> None:
    with stage(workers=3, warm_up=2, predictive=True, predictive_minute=0) as fleet:
        fleet.deployment.transport.fault = "down"
        run = fleet.tick()
        asked = fleet.cloud.recorder.of("Query", function=_full_name(fleet, "CollectMetrics"))
        tables = {fleet.settings.history_table, fleet.settings.events_table}
        assert {call.parameters["TableName"] for call in asked} == tables
        assert run.output_of("CollectMetrics")["snapshot"]["source"] == "cached"


def test_a_spot_warning_stops_the_drain_of_a_scale_down_and_drains_to_its_own_deadline() -> None:
    with stage(workers=3, warm_up=1, market="spot", **SLOW, **SOON_IDLE) as fleet:
        assert fleet.deployment.run_until(lambda: fleet.cordoned() != [], limit_seconds=3600)
        (taken,) = fleet.cordoned()
        fleet.cloud.ec2.warn_spot(taken)
        fleet.deployment.clock.advance(300)
        fleet.deployment.settle()
        assert calls(fleet, "StartDeadlineDrain", "CancelCommand") == 1
        assert taken not in fleet.workers()
        assert fleet.cordoned() == []


def test_a_pause_cancels_the_drain_that_runs_before_the_worker_serves_again() -> None:
    with stage(workers=3, warm_up=1, **SLOW, **SOON_IDLE) as fleet:
        assert fleet.deployment.run_until(lambda: fleet.cordoned() != [], limit_seconds=3600)
        fleet.store.set_pause(Pause(reason="moving house", by="mira", since=fleet.now(), until=fleet.now() + 3600))
        fleet.deployment.settle()
        assert calls(fleet, "UndoDrain", "CancelCommand") == 1
        assert documents(fleet, "UndoDrain") == {"UncordonNode"}
        assert (fleet.cordoned(), len(fleet.workers())) == ([], 3)


def test_an_aborted_run_has_its_running_drain_cancelled_by_the_clean_up() -> None:
    with stage(workers=3, warm_up=1, **SLOW, **SOON_IDLE) as fleet:
        assert fleet.deployment.run_until(lambda: fleet.cordoned() != [], limit_seconds=3600)
        run = next(e for e in fleet.sim.executions if e.running and e.machine.endswith("autoscaler"))
        fleet.cloud.client("stepfunctions").stop_execution(executionArn=run.arn)
        fleet.deployment.clock.advance(90)
        assert calls(fleet, "CleanUp", "CancelCommand") == 1
        assert documents(fleet, "CleanUp") == {"UncordonNode"}
        assert (fleet.cordoned(), fleet.state().lease, fleet.state().operation) == ([], None, None)


def warn_without_reclaim(fleet: Stage) -> str:
    """AWS announces to take a Spot worker and does not; its id once that is settled."""
    not_reclaimed = next(i.id for i in fleet.cloud.ec2.instances() if i.state == "running" and i.lifecycle == "spot")
    fleet.cloud.ec2.warn_spot(not_reclaimed, reclaim=False)
    assert fleet.deployment.run_until(lambda: answered(fleet, "ReinstateWorker") is not None, limit_seconds=3600)
    return not_reclaimed


def test_a_spared_worker_serves_again() -> None:
    with stage(workers=3, market="spot", max_workers=4) as fleet:
        not_reclaimed = warn_without_reclaim(fleet)
        assert documents(fleet, "ReinstateWorker") == {"UncordonNode"}
        assert fleet.cordoned() == []
        assert not_reclaimed in fleet.workers()


def test_a_spared_worker_goes_when_its_replacement_has_filled_the_fleet() -> None:
    with stage(workers=3, market="spot", min_workers=3, max_workers=3) as fleet:
        not_reclaimed = warn_without_reclaim(fleet)
        assert documents(fleet, "ReinstateWorker") == {"CheckNode"}
        assert calls(fleet, "ReinstateWorker", "TerminateInstances") == 1
        assert not_reclaimed not in fleet.workers()
        assert len(fleet.workers()) == 3


@pytest.mark.parametrize("loss", ["Spot warning", "terminated", "its notice cannot be claimed"])
def test_the_loss_of_a_worker_with_a_volume_of_its_own_sends_one_critical_message(loss: str) -> None:
    with stage(workers=3, market="spot", max_workers=4) as fleet:
        lost = fleet.workers()[0]
        fleet.sim.cluster.create("persistentvolumes", local_volume("pv-data", lost, "shop", "data"))
        if loss == "its notice cannot be claimed":
            fleet.break_state("ClaimNotices", RuntimeError("out of memory"))
        fleet.cloud.ec2.warn_spot(lost) if loss == "Spot warning" else fleet.cloud.ec2.reclaim(lost)
        fleet.deployment.clock.advance(900)
        fleet.deployment.settle()
        assert lost not in {node.instance_id for node in fleet.sim.cluster.nodes()}
        found = [json.loads(record["Message"]) for record in fleet.deployment.messages]
        critical = [message for message in found if f"volumes_lost:{lost}" in json.dumps(message)]
        assert [message["level"] for message in critical] == ["error"]
        assert "claim shop/data (volume pv-data, last pod unknown)" in json.dumps(critical)


def test_a_worker_whose_retirement_is_announced_counts_until_its_replacement_is_due() -> None:
    times = {"join_limit_seconds": 120, "scheduled_drain_lead_seconds": 300, "interruption_settle_seconds": 60}
    with stage(workers=3, min_workers=3, max_workers=4, **times) as fleet:
        retired, when = fleet.workers()[0], fleet.now() + 900
        fleet.cloud.ec2.schedule_change(retired, not_before=when)
        fleet.deployment.clock.at(when, lambda: fleet.cloud.ec2.reclaim(retired))
        fleet.deployment.clock.advance(400)
        assert (len(fleet.workers()), fleet.state().ids_under_notice) == (3, frozenset())
        assert calls(fleet, "ClaimNotices", "Publish") == 1
        fleet.deployment.clock.advance(900)
        fleet.deployment.settle()
        assert calls(fleet, "BeginResponse", "UpdateItem") == 1
        assert (len(fleet.workers()), retired in fleet.workers()) == (3, False)


def test_a_worker_that_somebody_stopped_is_told_of() -> None:
    with stage(workers=3) as fleet:
        stopped = fleet.workers()[0]
        fleet.cloud.client("ec2").stop_instances(InstanceIds=[stopped])
        detail = {"instance-id": stopped, "state": "stopped"}
        fleet.deployment.put_event("aws.ec2", "EC2 Instance State-change Notification", detail, [])
        fleet.deployment.run_until(lambda: calls(fleet, "CloseNotice", "Publish") > 0, limit_seconds=600)
        assert calls(fleet, "CloseNotice", "Publish") == 1
        assert f"worker_stopped:{stopped}" in messages(fleet)


def test_the_weekly_report_comes_by_its_rule_with_what_the_week_cost() -> None:
    with stage(workers=3) as fleet:
        target = _full_name(fleet, "WeeklyReport")
        (rule,) = (r for r in fleet.deployment.resources.rules if any(target in t["Arn"] for t in r.targets))
        fleet.deployment._fire(rule, fleet.now())
        fleet.deployment.clock.advance(1)
        (report,) = (
            json.loads(m["Message"]) for m in fleet.deployment.messages if "weekly cost report" in m["Subject"]
        )
        assert report["trigger"] == "weekly"
        assert report["workers_after"] == 3
        assert calls(fleet, "WeeklyReport", "DescribeVolumes") == 1
