"""The names, counts and sentences of a launch. Asks EC2 nothing; the launcher does."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from node_fleet.domain.model.back_off import JOIN, active
from node_fleet.domain.model.fleet_state import FleetState, Notice, Reservation
from node_fleet.domain.model.memory import Memory, PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.standby import PREFIX
from node_fleet.domain.model.weight import LIMIT_TEXT, NO_WEIGHT, Weight
from node_fleet.domain.scale_up.placement import Placement, Pool
from node_fleet.domain.scale_up.refusals import ALERT_OF_ERROR, UNKNOWN_REFUSAL, Refusal, pools_closed_by

if TYPE_CHECKING:
    from node_fleet.domain.cost.limits import Limits

RUNNING_STATES = ("pending", "running")
"""States of an instance that counts as a worker."""
EC2_LISTING_DELAY_SECONDS = 120
"""How long EC2 may fail to list an instance that it has just launched: until then a missing id means nothing."""
ERRORS_WITHOUT_BACK_OFF = ("PausedError", "LeaseLostError")
"""Ends that show nothing about whether launching works: no back-off follows."""


def slot_key(operation_id: str, number: int) -> str:
    """Name of the slot's capacity reservation."""
    return f"{operation_id}:{number}"


def operation_id_of(execution_id: str, round_number: int, *, for_standby: bool = False) -> str:
    """Name of the scale-up that this round of this execution makes: the same however often the step is repeated."""
    prefix = PREFIX if for_standby else "up-"
    return prefix + hashlib.sha256(f"{execution_id}\n{round_number}".encode()).hexdigest()[:12]


def mark_under_notice(instances: Iterable[Instance], notices: Iterable[Notice]) -> tuple[Instance, ...]:
    """The instances, with those under interruption notice marked."""
    noticed = {notice.instance_id for notice in notices}
    return tuple(replace(i, under_notice=True) if i.instance_id in noticed else i for i in instances)


def count_workers(instances: Sequence[Instance], state: FleetState, now: int) -> int:
    """How many workers count against the maximum: instances that EC2 lists, and reservations that it does not list yet.

    A reservation counts until its instance is listed (matched by id, or by the tags Operation and Slot before a
    reservation names the id). Instances under notice do not count.
    """
    listed = {i.instance_id for i in instances}
    return len(listed - state.ids_under_notice) + len(_unlisted(instances, state, now))


def fleet_weight(instances: Sequence[Instance], state: FleetState, limits: Limits, now: int) -> Weight:
    """What the same workers take of the limits in money and vCPUs. A reservation takes the most that it may become."""
    total = NO_WEIGHT
    for instance in instances:
        if instance.instance_id not in state.ids_under_notice:
            total = total.plus(limits.weight(instance.instance_type, instance.market))
    for reservation in _unlisted(instances, state, now):
        total = total.plus(_reserved_weight(reservation, limits))
    return total


def _reserved_weight(reservation: Reservation, limits: Limits) -> Weight:
    """The most that it may become, or what its pool takes once that is known."""
    if reservation.weight != NO_WEIGHT:
        return reservation.weight
    _, instance_type, market = (reservation.pool or "//").split("/")
    return limits.weight(instance_type, market)


def with_promised(instances: Sequence[Instance], state: FleetState, now: int) -> tuple[Instance, ...]:
    """The instances, with those that a launch has promised and that EC2 does not list yet.

    They count for the minimum as they do for the maximum, but only while EC2 may fail to list them: an instance that
    ended meanwhile is missing, and a worker must replace it.
    """
    recent = [r for r in _unlisted(instances, state, now) if r.pool and now - r.at < EC2_LISTING_DELAY_SECONDS]
    return (*instances, *map(_promised, recent))


def _unlisted(instances: Iterable[Instance], state: FleetState, now: int) -> list[Reservation]:
    """The reservations of which EC2 lists no instance yet, without those of instances that do not count.

    A listed instance that no reservation names yet stands for the first reservation of its slots that has no instance.
    """
    listed = sorted(instances, key=lambda instance: instance.instance_id)
    ids = {instance.instance_id for instance in listed}
    excluded = ids | state.ids_under_notice | state.ids_set_aside
    waiting = {r.key: r for r in state.reservations if r.until > now and r.instance_id not in excluded}
    named = {reservation.instance_id for reservation in state.reservations if reservation.instance_id}
    for instance in (each for each in listed if each.instance_id not in named):
        keys = (slot_key(instance.operation_id, number) for number in instance.slot_numbers)
        first = next((key for key in keys if key in waiting and not waiting[key].instance_id), None)
        waiting.pop(first or "", None)
    return list(waiting.values())


def _promised(reservation: Reservation) -> Instance:
    zone, instance_type, market = reservation.pool.split("/")
    return Instance(
        instance_id=reservation.instance_id or reservation.key,
        zone=zone,
        instance_type=instance_type,
        market="spot" if market == "spot" else "on-demand",
        state="pending",
        launched_at=reservation.at,
    )


def record_launched(operation: Operation, instances: Iterable[Instance]) -> Operation:
    """The operation with the instances that an interrupted step launched, as EC2 lists them with its tag.

    An instance belongs to the first slot of its request that is still planned; those that run come first.
    """
    known = set(operation.instance_ids)
    order = sorted(instances, key=lambda i: (i.state not in RUNNING_STATES, i.instance_id))
    for instance in (each for each in order if each.instance_id not in known):
        waiting = (s for s in operation.slots if s.number in instance.slot_numbers and s.outcome == "planned")
        slot = next(waiting, None)
        if slot is None:
            continue
        launched = replace(
            slot,
            outcome="launched",
            instance_id=instance.instance_id,
            instance_type=instance.instance_type,
            launched_at=instance.launched_at,
        )
        ended = replace(launched, outcome="failed", detail="the instance was terminated before it joined")
        operation = operation.with_slot(launched if instance.state in RUNNING_STATES else ended)
    return operation


def pool_of(slot: LaunchSlot) -> Pool:
    """The pool in which the slot is launched."""
    return Pool(slot.zone, slot.instance_type, slot.market)


def ended_launches(operation: Operation) -> tuple[Refusal, ...]:
    """The instances that EC2 ended before they joined, for a reason that the table of refusals holds."""
    ended = (
        Refusal(pool=pool_of(s), code=s.end_code, message=s.end_message, instance_id=s.instance_id)
        for s in operation.slots
        if s.end_code
    )
    return tuple(refusal for refusal in ended if refusal.refusal_class is not UNKNOWN_REFUSAL)


def record_ends(
    operation: Operation, reasons: Mapping[str, tuple[str, str]], placement: Placement, *, now: int, until: int
) -> Operation:
    """The operation with the state reason of each ended instance, and the pools that it closes in back-off."""
    for slot in operation.slots:
        if slot.instance_id in reasons:
            code, message = reasons[slot.instance_id]
            detail = f"{slot.detail}: {message or code}"[:300]
            operation = operation.with_slot(replace(slot, end_code=code, end_message=message[:300], detail=detail))
    closed = [pool for r in ended_launches(operation) for pool in pools_closed_by(r, placement, until)]
    return replace(operation, dry_pools=merge_pool_back_offs(operation.dry_pools, closed, now))


def merge_pool_back_offs(known: Iterable[PoolBackOff], new: Iterable[PoolBackOff], now: int) -> tuple[PoolBackOff, ...]:
    """Both lists without back-offs that have ended; of two for one pool the later counts."""
    latest: dict[Pool, PoolBackOff] = {}
    for entry in (*known, *new):
        pool = Pool(entry.zone, entry.instance_type, entry.market)
        if entry.until > now and (pool not in latest or latest[pool].until < entry.until):
            latest[pool] = entry
    return tuple(latest[pool] for pool in sorted(latest))


def retry_pause_seconds(operation_id: str, attempt: int, *, cap: float = 8.0) -> float:
    """Pause before the same request is sent again: doubling, capped, spread by the operation."""
    spread = int(hashlib.sha256(operation_id.encode()).hexdigest()[:4], 16) / 0xFFFF
    return float(min(cap, 2.0**attempt)) * (0.5 + 0.5 * spread)


def launch_sentence(operation: Operation) -> str:
    """The launched instances, for the console and the log."""
    launched = [s for s in operation.slots if s.instance_id]
    listed = ", ".join(
        f"{s.instance_id} ({s.instance_type} {s.market} in {s.zone}{', standby worker started' * s.is_started})"
        for s in launched
    )
    return f"{len(launched)} of {operation.requested} launched{': ' if listed else ''}{listed}"


def dry_run_sentence(slots: Iterable[LaunchSlot]) -> str:
    """What a dry run would have launched."""
    listed = [f"{s.instance_type} {s.market} in {s.zone}" for s in slots]
    return f"dry run: would launch {len(listed)}: {', '.join(listed)}"


def launch_notes(operation: Operation, refusals: Iterable[Refusal]) -> tuple[str, ...]:
    """What an operator reads beside the outcome: each refusal once, and each slot without an instance."""
    missing = [f"slot {s.number} was not launched: {s.detail}" for s in operation.slots if s.outcome == "failed"]
    return tuple(dict.fromkeys([r.sentence for r in refusals] + missing))


def reservations_to_release(operation: Operation, now: int) -> tuple[str, ...]:
    """Reservations that a closed operation releases: all but those of instances that EC2 may not list yet."""
    return tuple(
        slot_key(operation.operation_id, s.number)
        for s in operation.slots
        if s.outcome != "launched" or now - s.launched_at >= EC2_LISTING_DELAY_SECONDS
    )


def unlaunched_reason(operation: Operation | None) -> str:
    """Why no worker of it was launched although EC2 refused nothing."""
    reasons = [slot.detail for slot in operation.slots if slot.detail] if operation else []
    return reasons[0] if reasons else "the fleet is at its maximum size"


def report_limit(
    memory: Memory, operation: Operation | None, policy: Policy, now: int
) -> tuple[Memory, tuple[Alert, ...]]:
    """The alert of a scale-up that a limit in money or vCPUs kept from launching anything, unless it is known."""
    why = unlaunched_reason(operation)
    if operation is None or not why.startswith(LIMIT_TEXT):
        return memory, ()
    text = f"{why}: {operation.reason}, and no worker was launched; raise the limit, or lower the requests of the pods"
    kind = "at_maximum:limits"
    is_known = now - memory.alerted.get(kind, -policy.alert_quiet_seconds) < policy.alert_quiet_seconds
    memory = replace(memory, alerted={**memory.alerted, kind: now})
    return memory, () if is_known else (Alert(kind=kind, text=text),)


def failure_alert(error: str, cause: str) -> Alert | None:
    """The alert of a failed launch.

    None when an operator or another run stopped it, and when AbandonUnjoined has reported each instance already.
    """
    if error in (*ERRORS_WITHOUT_BACK_OFF, "NothingJoinedError"):
        return None
    return Alert(kind=ALERT_OF_ERROR.get(error, "scale_up_failed"), text=cause)


def circuit_breaker_alert(memory: Memory, key: str, policy: Policy, now: int) -> Alert | None:
    """The one critical alert of an open circuit breaker."""
    entry = active(memory.back_offs, key, now)
    if key != JOIN or entry is None or entry.failures < policy.join_failures_to_open:
        return None
    text = (
        f"circuit breaker open: {entry.failures} scale-ups in a row launched workers and none joined; node-fleet "
        f"launches no worker for {(entry.until - now) // 60} minutes. Read a worker's console output and its tag "
        "BootstrapError, fix the cause, then run: node-fleet resume --breaker"
    )
    return Alert(kind="circuit_breaker", text=text)
