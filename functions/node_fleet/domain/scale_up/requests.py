"""What one request asks EC2 for: planned slots of one zone and market, with every type that suits them.

EC2 chooses among the types, so a request offers only types that suit each of its slots equally. Asks EC2 nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from node_fleet.domain.model.operation import LaunchRequest, LaunchSlot, Operation
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.placement import Placement, Pool, pools_in_order
from node_fleet.domain.scale_up.refusals import Refusal, class_of

MOST_SLOTS = 40
"""Their numbers must fit into one tag of 256 characters."""
NOT_FULFILLED = "UnfulfillableCapacity"
"""EC2's code for instances that it did not launch and that no other refusal explains."""


@value_class
class LaunchAnswer:
    """EC2's answer to one request. launched: instance id -> type. refusals: of the types that EC2 tried.

    code, message: the refusal of the whole request, after which nothing was launched.
    """

    launched: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    code: str = ""
    message: str = ""


def client_token(operation_id: str, request: LaunchRequest) -> str:
    """Same request: same token, so that a repetition launches nothing twice. 64 characters.

    The types are not part of it: a repetition that would offer others must not launch again, and EC2 refuses it.
    """
    parts = (operation_id, slots_tag(request), request.zone, request.market, str(request.attempt))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def slots_tag(request: LaunchRequest) -> str:
    """The numbers of the slots, for the tag of the instances: EC2 gives all instances of a request the same tags."""
    return " ".join(map(str, request.slots))


def open_pools(
    slot: LaunchSlot, placement: Placement, zones: Sequence[str], closed: frozenset[Pool]
) -> tuple[Pool, ...]:
    """The pools of these zones that may serve the slot and are not closed, best first; its own zone comes first.

    A zone that a deployment has removed has none. None takes more of the limits than is reserved for the slot.
    """
    order = pools_in_order(
        slot.market,
        placement,
        sorted((zone for zone in zones if zone in placement.zones), key=lambda zone: zone != slot.zone),
        avoid=slot.avoid,
        types=slot.types,
        smaller_types=slot.smaller_types,
    )
    return tuple(
        pool
        for pool in order
        if pool not in closed and (not slot.pools or pool.name in slot.pools) and placement.allows(pool, slot.weight)
    )


def is_first_choice(slot: LaunchSlot, pools: Sequence[Pool], placement: Placement) -> bool:
    """Whether the best of these pools is of the slot's own zone and market, and none that is tried last."""
    return bool(pools) and _rank(slot, pools[0], placement) == (slot.zone, slot.market, False, False, False)


def plan_request(
    operation: Operation, slot: LaunchSlot, zones: Sequence[str], placement: Placement, closed: frozenset[Pool]
) -> Operation:
    """The operation with its next request: for the slot, in the best pool of these zones that is open.

    It offers every pool that is as good, and takes along the planned slots of these zones for which it would offer the
    same. One pool must be open.
    """
    pools = open_pools(slot, placement, zones, closed)
    offered = _offered(slot, pools, placement)
    zone, market = offered[0].zone, offered[0].market
    planned = [slot]
    for other in (s for s in operation.slots if s.outcome == "planned" and s.number != slot.number):
        others = open_pools(other, placement, zones, closed) if other.zone in zones else ()
        if others and _offered(other, others, placement) == offered:
            planned.append(other)
    planned = sorted(planned, key=lambda each: each.number)[:MOST_SLOTS]
    request = LaunchRequest(
        slots=tuple(each.number for each in planned),
        zone=zone,
        subnet_id=placement.zones[zone],
        market=market,
        types=tuple(pool.instance_type for pool in offered),
        attempt=planned[0].attempt,
    )
    for each in planned:
        operation = operation.with_slot(
            replace(each, zone=zone, subnet_id=request.subnet_id, market=market, instance_type=request.types[0])
        )
    return replace(operation, request=request)


def record_answer(operation: Operation, launched: Mapping[str, str], now: int) -> Operation:
    """The operation with the instances of its request, given as id -> type, in the order of ids and slots.

    Slots without an instance stay planned, with one attempt more.
    """
    request = operation.request
    assert request is not None
    known = set(operation.instance_ids)
    new = iter(sorted(instance_id for instance_id in launched if instance_id not in known))
    for slot in [s for s in operation.slots if s.number in request.slots and not s.instance_id]:
        answered = replace(slot, attempt=slot.attempt + 1)
        if instance_id := next(new, ""):
            answered = replace(
                answered,
                outcome="launched",
                instance_id=instance_id,
                instance_type=launched[instance_id],
                launched_at=now,
                detail="",
            )
        operation = operation.with_slot(answered)
    return replace(operation, request=None)


def missing_slots(operation: Operation, request: LaunchRequest) -> tuple[LaunchSlot, ...]:
    """The slots of the request that have no instance yet."""
    return tuple(s for s in operation.slots if s.number in request.slots and s.outcome == "planned")


def refusals_of(request: LaunchRequest, code: str, message: str) -> tuple[Refusal, ...]:
    """A refusal of the whole request: of each offered pool when it closes pools, else one."""
    types = request.types if class_of(code).puts_in_back_off == "the pool" else request.types[:1]
    return tuple(Refusal(pool=Pool(request.zone, kind, request.market), code=code, message=message) for kind in types)


def explains(refusals: Sequence[Refusal], request: LaunchRequest) -> bool:
    """Whether another request may follow: a refusal is final, asks for a repetition, or closes an offered pool."""
    return any(
        refusal.refusal_class.reaction != "next pool"
        or refusal.refusal_class.puts_in_back_off != "the pool"
        or refusal.pool.instance_type in request.types
        for refusal in refusals
    )


def _offered(slot: LaunchSlot, pools: Sequence[Pool], placement: Placement) -> tuple[Pool, ...]:
    return tuple(pool for pool in pools if _rank(slot, pool, placement) == _rank(slot, pools[0], placement))


def _rank(slot: LaunchSlot, pool: Pool, placement: Placement) -> tuple[str, str, bool, bool, bool]:
    is_last = pool.name in slot.avoid, pool.instance_type in slot.smaller_types, placement.is_noisy(pool)
    return pool.zone, pool.market, *is_last
