"""Runs without a scaling operation: quiet ticks, a held lock, a pause, wrong input, missing metrics, faults."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.timed_minimum import TimedMinimum
from tests.support.workflow_harness import BUSY, Stage, stage
from tests.support.workflow_paths import QUIET, nothing_left_behind

pytestmark = pytest.mark.sampled(7)  # with --all, every one


def test_a_quiet_tick_takes_six_transitions_and_four_invocations(fleet: Stage) -> None:
    before = len(fleet.cloud.lambdas.invocations)
    run = fleet.tick()
    assert run.path == QUIET
    assert len(fleet.cloud.lambdas.invocations) - before == 4
    assert run.status == "SUCCEEDED"
    assert run.output["released"] is True
    assert run.output["sentence"]
    nothing_left_behind(fleet)


EVERYTHING: dict[str, Any] = {
    "max_workers": 8,
    "hibernate": "Sun 00:00-06:00",
    "standby_workers": 1,
    "spot_percent": 50,
    "on_demand_minimum": 1,
    "spot_learning": "return",
    "max_usd_per_hour": 1.0,
    "max_vcpu": 40,
    "image_wait_seconds": 120,
}
"""Each setting that a quiet tick must not pay for."""


def stopped(fleet: Stage) -> int:
    return sum(one.state == "stopped" for one in fleet.cloud.ec2.instances())


def test_a_quiet_tick_costs_no_more_with_time_off_standby_workers_learning_limits_and_an_order() -> None:
    with stage(workers=2, market="spot", **EVERYTHING) as fleet:
        now = fleet.deployment.clock.now()
        order = TimedMinimum(name="a1", workers=2, since=int(now), until=int(now) + 36_000, by="ana", reason="a sale")
        fleet.store.change_timed_minimums(lambda state: (order,))
        refilled = fleet.tick_until(lambda run: run.path == QUIET and stopped(fleet) == 1, limit=40)
        assert refilled.status == "SUCCEEDED"
        before = len(fleet.cloud.lambdas.invocations)
        assert fleet.tick().path == QUIET
        assert len(fleet.cloud.lambdas.invocations) - before == 4
        nothing_left_behind(fleet)


def test_a_held_lock_ends_early_and_green(fleet: Stage) -> None:
    first, second = fleet.start(), fleet.start()
    fleet.deployment.settle()
    assert (first.path, second.path) == (QUIET, ["AcquireLock", "LockStatus", "AlreadyScaling"])
    assert second.status == "SUCCEEDED"
    assert f"held by {first.name} " in second.output["detail"]
    nothing_left_behind(fleet)


def test_a_pause_ends_a_run_before_it_takes_the_lock(fleet: Stage) -> None:
    fence = fleet.state().fence
    fleet.store.set_pause(Pause(reason="moving house", by="mira", since=fleet.now(), until=fleet.now() + 300))
    run = fleet.tick()
    assert run.path == ["AcquireLock", "LockStatus", "Paused"]
    assert "moving house" in run.output["detail"]
    assert (run.status, fleet.state().lease, fleet.state().fence) == ("SUCCEEDED", None, fence)


def test_the_same_tick_delivered_twice_does_its_work_once(fleet: Stage) -> None:
    fleet.tick()
    tick = fleet.deployment.ticks[-1]
    fleet.deployment.tick(scheduled_at=tick)
    fleet.deployment.settle()
    assert fleet.sim.executions[-1].path == ["AcquireLock", "LockStatus", "StaleTrigger"]
    assert fleet.sim.executions[-1].status == "SUCCEEDED"
    nothing_left_behind(fleet)


@pytest.mark.parametrize(
    ("given", "part"),
    [({}, "trigger is None"), ({"trigger": "cron"}, "'cron'"), ({"trigger": "manual", "x": 1}, "unknown field 'x'")],
)
def test_a_malformed_input_ends_in_one_sentence_and_leaves_the_state_item_alone(
    fleet: Stage, given: dict[str, Any], part: str
) -> None:
    before = fleet.state()
    run = fleet.deployment.start_workflow(given)
    fleet.deployment.settle()
    assert run.path == ["AcquireLock", "ReadFailure", "NotStarted"]
    assert (run.status, run.error) == ("FAILED", "InvalidInputError")
    assert run.cause is not None
    assert part in run.cause
    assert "stackTrace" not in run.cause
    assert fleet.state() == before


def test_an_unknown_fault_before_the_lock_ends_red_at_once(fleet: Stage) -> None:
    struck = fleet.break_state("AcquireLock", RuntimeError("out of memory"))
    run = fleet.run()
    assert struck
    assert run.path == ["AcquireLock", "RunFailed"]
    assert run.error == "RuntimeError"


# metrics ----------------------------------------------------------------------------------------------------------


def test_a_young_cached_reading_serves_when_prometheus_is_gone(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "down"
    run = fleet.tick()
    assert run.path[:5] == QUIET[:5]
    assert run.output_of("CollectMetrics")["snapshot"]["source"] == "cached"
    assert run.status == "SUCCEEDED"
    nothing_left_behind(fleet)


def test_without_any_reading_the_minimum_is_still_enforced_and_the_run_ends_in_an_error(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "down"
    fleet.ticks(3)
    fleet.cloud.ec2.reclaim(fleet.workers()[0])
    run = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert run.path[-6:] == [
        "CompleteScaleUp", "MoreDemand", "MetricsUnavailable", "Notify", "ReleaseLock", "RunFailed",
    ]  # fmt: skip
    assert run.error == "MetricsUnavailableError"
    assert "Prometheus" in (run.cause or "")
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)
    quiet = fleet.tick()
    assert quiet.path == [*QUIET[:5], "MetricsUnavailable", "Notify", "ReleaseLock", "RunFailed"]
    nothing_left_behind(fleet)


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("down", "30090"),
        ("unauthorized", "prometheus-auth"),
        ("html", "expected JSON"),
        ("query_error", "parse error"),
    ],
)
def test_each_way_prometheus_can_fail_is_one_clear_error_with_the_lock_released(
    fleet: Stage, fault: str, part: str
) -> None:
    fleet.deployment.transport.fault = fault  # type: ignore[assignment]
    run = fleet.tick_until(lambda e: e.status == "FAILED")
    assert run.error == "MetricsUnavailableError"
    assert part in (run.cause or "")
    assert "stackTrace" not in (run.cause or "")
    nothing_left_behind(fleet)


def test_an_empty_answer_is_missing_and_changes_nothing(fleet: Stage) -> None:
    fleet.deployment.transport.fault = "empty"
    run = fleet.tick()
    assert "LaunchNodes" not in run.path
    assert run.output_of("CollectMetrics")["snapshot"]["cpu_percent"] is None
    assert len(fleet.workers()) == 2
    nothing_left_behind(fleet)


# faults of single states ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["CollectMetrics", "Decide"])
def test_a_fault_before_any_change_is_reported_and_releases_the_lock(fleet: Stage, state: str) -> None:
    struck = fleet.break_state(state, RuntimeError("it broke"))
    run = fleet.tick()
    assert struck
    assert run.path[-4:] == [state, "Notify", "ReleaseLock", "RunFailed"]
    assert (run.error, run.cause) == ("RuntimeError", "it broke")
    nothing_left_behind(fleet)


def test_a_message_that_cannot_be_sent_changes_nothing(fleet: Stage) -> None:
    fleet.break_state("Notify", RuntimeError("no topic"))
    run = fleet.run(dry_run=True)
    fleet.load(BUSY)
    grown = fleet.tick_until(lambda e: "LaunchNodes" in e.path)
    assert (run.status, grown.status) == ("SUCCEEDED", "SUCCEEDED")
    assert grown.path[-2:] == ["Notify", "ReleaseLock"]
    nothing_left_behind(fleet)


def test_a_lock_that_cannot_be_released_is_named_and_expires(fleet: Stage) -> None:
    struck = fleet.break_state("ReleaseLock", StateStoreError("table gone"))
    run = fleet.tick()
    assert struck
    assert run.path[-3:] == ["ReleaseLock", "FirstFailure", "ReleaseFailed"]
    assert run.error == "StateStoreError"
    fleet.clear_faults()
    assert fleet.tick_until(lambda e: e.path == QUIET)
    nothing_left_behind(fleet)


def test_when_both_the_work_and_the_release_fail_the_first_fault_is_shown(fleet: Stage) -> None:
    fleet.break_state("Decide", RuntimeError("the first"))
    fleet.break_state("ReleaseLock", StateStoreError("the second"))
    run = fleet.tick()
    assert run.path[-3:] == ["ReleaseLock", "FirstFailure", "RunFailed"]
    assert (run.error, run.cause) == ("RuntimeError", "the first")


def test_a_function_whose_network_is_recreated_is_retried_for_90_seconds(fleet: Stage) -> None:
    not_ready = type("Lambda.ENINotReadyException", (Exception,), {})
    struck = fleet.break_state("CollectMetrics", not_ready("the network interfaces are not ready"), times=6)
    begun = fleet.now()
    run = fleet.run()
    assert len(struck) == 6
    assert (run.status, run.path) == ("SUCCEEDED", QUIET)
    assert fleet.now() - begun >= 90
    nothing_left_behind(fleet)
