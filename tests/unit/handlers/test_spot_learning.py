"""Spot that learns, in the handlers: interruptions are counted once, noisy pools are left, and a return to Spot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.claim_notices import handler as claim_notices
from handlers.complete_scale_up import handler as complete_scale_up
from handlers.fail_scale_up import handler as fail_scale_up
from handlers.launch_nodes import handler as launch_nodes
from handlers.launch_replacement import handler as launch_replacement
from node_fleet.domain.model.errors import NoCapacityError, QuotaExceededError
from node_fleet.domain.model.memory import Memory, SpotPool
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance
from node_fleet.payload import put, take, to_payload
from tests.support.handlers.bench import START, ZONES, Bench

pytestmark = pytest.mark.settings(spot_learning="return", spot_percent=100, instance_types=["t3.small"])
WARNING = "EC2 Spot Instance Interruption Warning"


def noisy(*zones: str, at: int = START) -> Memory:
    pools = tuple(SpotPool(pool=f"{zone}/t3.small", lost=5.0, lost_at=at, seen=0) for zone in zones)
    return Memory(spot_pools=pools, spot_at=at)


def claim(instance_id: str, execution_id: str = "first", what: str = WARNING) -> dict[str, Any]:
    event = {"detail-type": what, "time": "2026-09-21T14:14:20Z", "detail": {"instance-id": instance_id}}
    return claim_notices({"event": event, "execution_id": execution_id}, None)


def store(fleet: Bench, memory: Memory) -> Run:
    run = fleet.begin("exec-0")
    fleet.tools.state.release(run, memory)
    return run


def counted(fleet: Bench) -> list[tuple[str, float, int]]:
    return [(p.pool, p.lost, p.seen) for p in fleet.state().memory.spot_pools]


def returning(fleet: Bench, old: Instance, memory: Memory | None = None) -> dict[str, Any]:
    """The payload before the launch of a Spot worker for that one."""
    event = fleet.event(fleet.begin(), 1)
    event["decision"] |= {"action": "replace", "rule": "on-demand"}
    event["selection"] = {"status": "replace", "detail": "x", "worker": old.instance_id}
    return put(event, memory=memory or Memory())


def test_an_interruption_is_counted_with_its_claim_and_with_no_repetition(fleet: Bench) -> None:
    worker = fleet.running()
    store(fleet, Memory(spot_pools=(SpotPool(pool=f"{worker.zone}/t3.small", seen=0),), spot_at=START))
    for execution in ("first", "first", "second"):
        claim(worker.instance_id, execution)
    assert counted(fleet) == [(f"{worker.zone}/t3.small", 1.0, 1)]


@pytest.mark.settings(spot_learning="return", spot_percent=100, handle_rebalance=True)
def test_a_recommendation_counts_only_when_a_warning_follows(fleet: Bench) -> None:
    worker = fleet.running()
    store(fleet, Memory(spot_pools=(SpotPool(pool=f"{worker.zone}/t3.small", seen=0),), spot_at=START))
    claim(worker.instance_id, "first", "EC2 Instance Rebalance Recommendation")
    assert [lost for _, lost, _ in counted(fleet)] == [0.0]
    claim(worker.instance_id, "second")
    assert [lost for _, lost, _ in counted(fleet)] == [1.0]


@pytest.mark.settings(spot_learning="off", spot_percent=100)
def test_nothing_is_counted_where_nothing_is_learned(fleet: Bench) -> None:
    worker = fleet.running()
    store(fleet, Memory(spot_pools=(SpotPool(pool=f"{worker.zone}/t3.small", seen=0),)))
    claim(worker.instance_id)
    assert [lost for _, lost, _ in counted(fleet)] == [0.0]


def test_the_replacement_of_an_interrupted_worker_leaves_noisy_pools(fleet: Bench) -> None:
    worker = fleet.running(zone=ZONES[0])
    store(fleet, noisy(ZONES[0], ZONES[1], at=int(fleet.clock.now())))
    (interruption,) = claim(worker.instance_id)["interruptions"]
    assert (interruption["slot"]["zone"], interruption["slot"]["market"]) == (ZONES[2], "spot")
    place = f"t3.small spot in {ZONES[2]}"
    assert interruption["moved"].startswith(
        f"planned 1 worker away from a noisy Spot pool: {place} in place of t3.small spot in"
    )
    fleet.cloud.ec2.dry_pool(az=ZONES[2])
    answer = launch_replacement({"interruption": interruption}, None)
    assert " on-demand in " in answer["replacement"]["detail"]


def test_the_replacement_that_no_noisy_pool_moved_says_nothing(fleet: Bench) -> None:
    worker = fleet.running(zone=ZONES[0])
    store(fleet, noisy(ZONES[0], at=int(fleet.clock.now())))
    (interruption,) = claim(worker.instance_id)["interruptions"]
    assert interruption["moved"] == "", "the replacement leaves the worker's own pool anyway"


def test_a_launch_leaves_noisy_pools_and_its_reason_says_what_that_costs(fleet: Bench) -> None:
    event = put(fleet.event(fleet.begin(), 1), memory=noisy(*ZONES))
    answer = launch_nodes(event, None)
    operation = fleet.operation(answer)
    assert [slot.market for slot in operation.slots] == ["on-demand"]
    moved = (
        f"planned 1 worker away from a noisy Spot pool: t3.small on-demand in {ZONES[0]} in place of t3.small spot in"
    )
    assert operation.reason.startswith(f"pods wait -> +1; {moved}") and operation.reason.endswith("USD an hour more")
    assert answer["notes"][0].startswith(moved)


def test_a_launch_that_no_noisy_pool_changes_says_nothing(fleet: Bench) -> None:
    answer = launch_nodes(put(fleet.event(fleet.begin(), 1), memory=noisy(ZONES[2])), None)
    assert (answer["notes"], fleet.operation(answer).reason) == ([], "pods wait -> +1")


def test_a_return_launches_spot_in_the_zone_of_the_worker(fleet: Bench) -> None:
    old = replace(fleet.running(zone=ZONES[1]), market="on-demand")
    operation = fleet.operation(launch_nodes(returning(fleet, old), None))
    assert [(s.zone, s.market, s.pools) for s in operation.slots] == [
        (ZONES[1], "spot", (f"{ZONES[1]}/t3.small/spot",))
    ]
    assert (operation.replaces, operation.replace_reason) == (old.instance_id, "on-demand")


def test_without_a_quiet_pool_the_worker_stays_and_nothing_has_failed(fleet: Bench) -> None:
    old = fleet.running(zone=ZONES[1])
    event = returning(fleet, old, noisy(ZONES[1], at=int(fleet.clock.now())))
    answer = fail_scale_up(launch_nodes(event, None), None)
    assert "failure" not in answer and answer["outcome"]["kind"] == "none"
    assert answer["outcome"]["text"].endswith("no quiet Spot pool of its zone is left; next try in 10 min")
    assert [b.key for b in fleet.state().memory.back_offs] == ["spot"]
    assert fleet.state().operation is None and len(fleet.ids()) == 1


def test_without_spot_capacity_a_return_waits_and_holds_no_other_launch(fleet: Bench) -> None:
    old = fleet.running(zone=ZONES[1])
    fleet.cloud.ec2.dry_pool(market="spot")
    event = returning(fleet, old)
    with pytest.raises(NoCapacityError):
        launch_nodes(event, None)
    failed = {**event, "failure": {"Error": "NoCapacityError", "Cause": "no capacity"}}
    answer = fail_scale_up(failed, None)
    assert "failure" not in answer and f"{old.instance_id} stays On-Demand: no capacity" in answer["outcome"]["text"]
    memory = take(answer, "memory", Memory)
    assert [b.key for b in memory.back_offs] == ["spot"] and memory.dry_pools[0].zone == ZONES[1]
    again = fail_scale_up(failed, None)
    assert "failure" not in again and [b.key for b in take(again, "memory", Memory).back_offs] == ["spot"]


def test_a_quota_fails_the_run_of_a_return_and_holds_no_other_launch(fleet: Bench) -> None:
    old = fleet.running(zone=ZONES[1])
    fleet.cloud.ec2.dry_pool(market="spot", code="VolumeLimitExceeded")
    event = returning(fleet, old)
    with pytest.raises(QuotaExceededError):
        launch_nodes(event, None)
    answer = fail_scale_up({**event, "failure": {"Error": "QuotaExceededError", "Cause": "quota"}}, None)
    assert answer["failure"]["Error"] == "QuotaExceededError"
    assert [b.key for b in take(answer, "memory", Memory).back_offs] == ["spot"]


def test_a_return_that_joined_ends_its_back_off_and_is_the_step_of_the_roll_out(fleet: Bench) -> None:
    from handlers.check_join import handler as check_join
    from node_fleet.domain.model.memory import BackOff

    old = fleet.running(zone=ZONES[1])
    payload = launch_nodes(returning(fleet, old, Memory(back_offs=(BackOff(key="spot", failures=1, until=0),))), None)
    (new,) = fleet.operation(payload).instance_ids
    fleet.clock.advance(60)
    fleet.ready(new)
    memory = take(complete_scale_up(check_join(payload, None), None), "memory", Memory)
    assert memory.back_offs == () and to_payload(memory.roll_out.current)["reason"] == "on-demand"
