"""Standby workers in a scale-up: which of them serves which slot, and what follows when EC2 does not start one.

A standby worker only replaces a launch. Whatever is wrong with it, the slot is launched as planned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from node_fleet.domain.model.back_off import seconds_left
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance, NewWorker
from node_fleet.domain.model.standby import FAILED, READY, STANDBY, STARTED
from node_fleet.domain.model.text import span
from node_fleet.domain.scale_up.placement import Placement, Pool
from node_fleet.domain.scale_up.refusals import Refusal


def with_standby(
    slots: Iterable[LaunchSlot],
    standby: Iterable[Instance],
    placement: Placement,
    *,
    closed: Collection[Pool],
    avoid: Collection[str] = (),
) -> tuple[LaunchSlot, ...]:
    """The slots, with a stopped standby worker for each slot that one suits: slots of On-Demand workers come first.

    closed: pools in back-off. avoid: instances that may not be started now. The newest worker is taken first, since it
    differs least from a worker that would be launched.
    """
    ready = [
        i
        for i in standby
        if i.state == "stopped"
        and i.standby == READY
        and i.zone in placement.zones
        and _pool(i) not in closed
        and i.instance_id not in avoid
    ]
    ready.sort(key=lambda i: (-i.launched_at, i.instance_id))
    served: dict[int, LaunchSlot] = {}
    slots = tuple(slots)
    for slot in sorted(slots, key=lambda s: (s.market != "on-demand", s.number)):
        worker = next((i for i in ready if _suits(i, slot, placement)), None)
        if worker is not None:
            ready.remove(worker)
            served[slot.number] = replace(
                slot,
                standby=worker.instance_id,
                planned=Pool(slot.zone, slot.instance_type, slot.market).name,
                zone=worker.zone,
                subnet_id=worker.subnet_id or placement.zones[worker.zone],
                instance_type=worker.instance_type,
                market="on-demand",
            )
    return tuple(served.get(slot.number, slot) for slot in slots)


def _pool(instance: Instance) -> Pool:
    return Pool(instance.zone, instance.instance_type, "on-demand")


def _suits(worker: Instance, slot: LaunchSlot, placement: Placement) -> bool:
    types = slot.types or placement.instance_types
    return worker.instance_type in types and (not slot.pools or _pool(worker).name in slot.pools)


def started(slot: LaunchSlot, now: int) -> LaunchSlot:
    """The slot after EC2 has accepted the start."""
    return replace(slot, outcome="launched", instance_id=slot.standby, launched_at=now)


def not_started(slot: LaunchSlot, placement: Placement) -> LaunchSlot:
    """The slot after EC2 has refused the start: it is launched where it was planned."""
    zone, instance_type, market = slot.planned.split("/")
    return replace(
        slot,
        standby="",
        planned="",
        zone=zone,
        subnet_id=placement.zones.get(zone, slot.subnet_id),
        instance_type=instance_type,
        market="spot" if market == "spot" else "on-demand",
    )


def refused_start(slot: LaunchSlot, code: str, message: str) -> Refusal:
    """EC2's refusal to start the standby worker of the slot."""
    return Refusal(pool=Pool(slot.zone, slot.instance_type, slot.market), code=code, message=message)


def refused_note(worker: str, refusal: Refusal) -> str:
    """What a message says about a standby worker that was not started."""
    return (
        f"standby worker {worker} was not started: EC2 returned {refusal.code} ({refusal.message[:160]}); a worker is "
        "launched instead"
    )


def refused_refill(failure: Mapping[str, str], memory: Memory, key: str, now: int) -> Alert | None:
    """The alert when EC2 had no capacity for a new standby worker; None for every other failure.

    memory: with the back-off of that key.
    """
    if key != STANDBY or failure["error"] not in ("NoCapacityError", "QuotaExceededError"):
        return None
    text = f"no standby worker was launched, next try in {span(seconds_left(memory.back_offs, key, now))}: "
    return Alert(kind="standby_refused", text=text + failure["cause"])


def not_stopped_alert(instance_id: str, problem: str, seconds: int) -> Alert:
    """The alert of a worker that EC2 does not stop. seconds: until another may be launched to become one."""
    text = (
        f"worker {instance_id} was to become a standby worker, is not stopped, and is terminated: {problem}. No other "
        f"is launched for it for {span(seconds)}; a scale-up launches workers as without standby workers"
    )
    return Alert(kind="standby_refused", text=text)


def kept_standby_alert(instance_id: str, refusal: str) -> Alert:
    """The alert of a standby worker that is to be renewed and that EC2 refuses to terminate."""
    text = (
        f"standby worker {instance_id} is to be renewed and stays: {refusal}. It costs its volume, and node-fleet "
        "tries again in quiet time. What you can do: remove what the message names, or terminate it yourself"
    )
    return Alert(kind=f"standby_kept:{instance_id}", text=text)


def tags_after(operation: Operation) -> dict[str, str]:
    """The tag Standby of each started worker after its scale-up: it is a usual worker, or it is to be renewed."""
    words = {"joined": STARTED, "unjoined": FAILED, "failed": FAILED}
    return {s.instance_id: words[s.outcome] for s in operation.slots if s.is_started and s.outcome in words}


def failed_starts(operation: Operation) -> tuple[LaunchSlot, ...]:
    """The slots whose standby worker stopped again before it joined."""
    return tuple(s for s in operation.slots if s.is_started and s.outcome == "failed")


def refill_pools(placement: Placement, standby: Sequence[str]) -> NewWorker:
    """Where a standby worker is launched: On-Demand, in the zones with the fewest. standby: the zone of each other."""
    fewest = min((standby.count(zone) for zone in placement.zones), default=0)
    zones = [zone for zone in placement.zones if standby.count(zone) == fewest]
    pools = (Pool(zone, kind, "on-demand").name for zone in zones for kind in placement.instance_types)
    return NewWorker(pools=tuple(pools))
