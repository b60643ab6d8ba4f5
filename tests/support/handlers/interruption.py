"""One worker under notice, as each step of the interruption workflow finds it."""

from __future__ import annotations

from typing import Any

from node_fleet.adapters.launcher import placement_from
from node_fleet.domain.interruption.announcement import Announcement
from node_fleet.domain.interruption.response import Interruption, Times, plan_response, replacement_slot
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.snapshot import Instance
from node_fleet.payload import to_payload
from tests.support.handlers.scale_up import ZONES, Bench

TIMES = Times(
    margin_seconds=15,
    settle_seconds=300,
    rebalance_hold_seconds=1800,
    scheduled_lead_seconds=3600,
    join_limit_seconds=300,
)


def running(made: Bench, number: int = 1) -> Instance:
    """One running Spot worker."""
    zone = ZONES[0]
    slot = LaunchSlot(
        number=number, zone=zone, subnet_id=made.settings.zones[zone], instance_type="t3.small", market="spot"
    )
    answer = made.tools.ec2.launch(slot, operation_id="up-before", token=f"before-{number}")
    made.clock.advance(60)
    found = made.tools.ec2.find_worker(answer.instance_id)
    assert found is not None
    return found


def noticed(made: Bench, instance: Instance, *, claimed_by: str = "exec") -> Interruption:
    """The claim and the plan for a Spot warning that came now."""
    now = int(made.clock.now())
    announcement = Announcement(instance_ids=(instance.instance_id,), kind="spot", at=now, deadline=now + 120)
    made.tools.state.add_notice(
        Notice(instance_id=instance.instance_id, kind="spot", at=now, deadline=now + 120, claimed_by=claimed_by)
    )
    slot = replacement_slot(instance, made.instances(), made.state(), placement_from(made.settings), now=now)
    return plan_response(announcement, instance, claimed_by=claimed_by, now=now, times=TIMES).with_slot(slot)


def event(interruption: Interruption, **more: Any) -> dict[str, Any]:
    return {"interruption": to_payload(interruption), **more}
