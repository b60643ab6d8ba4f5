"""Launches planned slots: reserves capacity, asks EC2, tries the next pool, and records each step before the next.

Both workflows launch through this class. What a refusal of EC2 means stands in domain/scale_up/refusals.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.domain.disruption.drift import LaunchFacts
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import LaunchRequest, LaunchSlot, Operation
from node_fleet.domain.model.snapshot import Instance, LaunchImage
from node_fleet.domain.model.spot_pools import NoisyPool, noisy_pools
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight, at_limits
from node_fleet.domain.scale_up.join import NodeList, update_slots
from node_fleet.domain.scale_up.launch import (
    count_workers,
    fleet_weight,
    merge_pool_back_offs,
    pool_of,
    record_ends,
    record_launched,
    retry_pause_seconds,
    slot_key,
)
from node_fleet.domain.scale_up.placement import Placement, Pool, distribution_of, pools_in_back_off, zone_order
from node_fleet.domain.scale_up.refusals import Refusal, class_of, pools_closed_by
from node_fleet.domain.scale_up.requests import (
    NOT_FULFILLED,
    LaunchAnswer,
    explains,
    is_first_choice,
    missing_slots,
    open_pools,
    plan_request,
    record_answer,
    refusals_of,
)
from node_fleet.domain.scale_up.standby import not_started, refused_note, refused_start, started
from node_fleet.settings import Settings

if TYPE_CHECKING:
    from node_fleet.domain.cost.limits import Limits

SEARCH_PAUSES_SECONDS = (0, 2, 4)
Record = Callable[[Operation], None]


def placement_from(settings: Settings, memory: Memory | None = None, now: int = 0) -> Placement:
    """The settings of zones, instance types and markets, and the Spot pools that are noisy by that memory."""
    noisy: tuple[NoisyPool, ...] = ()
    if memory is not None and settings.spot_learning != "off":
        noisy = noisy_pools(memory, settings.spot_noisy_per_100_hours, now)
    return Placement(
        zones=settings.zones,
        instance_types=settings.instance_types,
        spot_percent=settings.spot_percent,
        on_demand_minimum=settings.on_demand_minimum,
        order="round-robin" if settings.placement == "round-robin" else "fewest",
        noisy=frozenset(one.pool for one in noisy),
        limits=settings.limits(),
    )


def launch_facts(settings: Settings, image: LaunchImage, version: str) -> LaunchFacts:
    """What a worker would be launched from today; nothing is compared where drift is off or no version may be launched.

    version: of the launch template. What another version than the configured one installs is unknown here.
    """
    if settings.drift == "off" or not version:
        return LaunchFacts()
    is_configured = version == settings.launch_template_version
    return LaunchFacts(
        template_id=settings.launch_template_id,
        template_version=version if settings.launch_template_id else "",
        image_id=image.image_id if image.version == version else "",
        image_at=image.answered_at,
        bootstrap_hash=settings.bootstrap_hash if is_configured else "",
        k3s_version=settings.k3s_version if is_configured else "",
        subnet_ids=tuple(settings.zones.values()),
        instance_types=settings.instance_types,
    )


def recover_by_tag(ec2: Ec2Fleet, operation: Operation) -> Operation:
    """The operation with the instances that an interrupted try of it launched, found by their tags."""
    return record_launched(operation, ec2.launched_by(operation.operation_id))


def check_slots(services: Any, operation: Operation, node_list: NodeList) -> Operation:
    """The operation with the outcome of each launched slot. EC2 gives the state reason of those that ended."""
    now, settings = services.clock.now(), services.settings
    waiting = {slot.number for slot in operation.waiting}
    instances = services.ec2.find(slot.instance_id for slot in operation.waiting)
    operation = update_slots(operation, instances=instances, nodes=node_list.nodes, now=now)
    ended = [s.instance_id for s in operation.slots if s.number in waiting and s.outcome == "failed"]
    if not ended:
        return operation
    until = now + settings.pool_back_off_seconds
    return record_ends(operation, services.ec2.end_reasons(ended), placement_from(settings), now=now, until=until)


@value_class
class InstanceListing:
    """Instances that EC2 listed after the state item was read at that version of its reservations."""

    instances: tuple[Instance, ...]
    version: int


class WorkerCounter:
    """Counts workers against the maximum, with one listing of EC2 while only this execution changes reservations.

    A reservation precedes each launch, so a listing stays valid while the version grows by this execution's writes.
    """

    def __init__(self, ec2: Ec2Fleet, clock: Any, listing: InstanceListing | None = None) -> None:
        self._ec2 = ec2
        self._clock = clock
        self._instances = listing.instances if listing else ()
        self._valid_version = listing.version if listing else None
        self._counted_version: int | None = None

    def __call__(self, state: FleetState) -> int:
        """The number of workers, for the state item that was just read."""
        if state.slots_version != self._valid_version:
            self._instances = self._ec2.instances()
        self._valid_version, self._counted_version = None, state.slots_version
        return count_workers(self._instances, state, self._clock.now())

    def weight(self, state: FleetState, limits: Limits) -> Weight:
        """What the workers that were just counted take of the limits in money and vCPUs."""
        return fleet_weight(self._instances, state, limits, self._clock.now())

    def weight_of(self, instance_id: str, limits: Limits) -> Weight:
        """What that worker takes; nothing when EC2 did not list it."""
        found = (i for i in self._instances if i.instance_id == instance_id)
        return next((limits.weight(i.instance_type, i.market) for i in found), NO_WEIGHT)

    def reserved(self) -> None:
        """The reservation exists: after a count this execution wrote it, and the listing is valid for that version."""
        if self._counted_version is not None:
            self._valid_version = self._counted_version + 1


class _Fit:
    """What a slot takes of the limits in money and vCPUs, for StateStore.reserve; `refusal` is why it does not fit.

    workers: so many slots, this one included, are still to be reserved.
    """

    def __init__(
        self,
        operation: Operation,
        slot: LaunchSlot,
        placement: Placement,
        count: WorkerCounter,
        clock: Any,
        *,
        workers: int,
    ) -> None:
        self.refusal = ""
        self._slot, self._placement = slot, placement
        self._closed = pools_in_back_off(operation.dry_pools, clock.now())
        self._count = count
        self._workers = workers

    def __call__(self, state: FleetState) -> Weight | None:
        """The most that the slot may become; None when no pool fits."""
        limits = self._placement.limits
        if limits is None:
            return NO_WEIGHT
        pools = [(pool.instance_type, pool.market) for pool in self._pools()]
        weight, against = limits.ceiling(pools, self._count.weight(state, limits), self._workers)
        self.refusal = at_limits(against) if weight is None else ""
        return weight

    def _pools(self) -> tuple[Pool, ...]:
        """Those that may serve, also in other zones; those in back-off when no other one may."""
        zones = tuple(self._placement.zones)
        found = open_pools(self._slot, self._placement, zones, self._closed)
        return found or open_pools(self._slot, self._placement, zones, frozenset())


class Launcher:
    """Launches the planned slots of one operation; `refusals` holds the refusals of EC2 afterwards, `notes` other news.

    guard is called with the operation before each request to EC2: it records that request, and raises when nothing may
    change. record is called after each answer. zones: the order in which other zones are tried, by
    default the one with the fewest workers first. placement: by default that of the settings, without noisy pools.
    """

    def __init__(
        self,
        *,
        ec2: Ec2Fleet,
        state: Any,
        clock: Any,
        settings: Settings,
        guard: Record,
        record: Record,
        zones: Iterable[str] = (),
        placement: Placement | None = None,
    ) -> None:
        self.refusals: list[Refusal] = []
        self.notes: list[str] = []
        self._ec2 = ec2
        self._state = state
        self._clock = clock
        self._settings = settings
        self._placement = placement or placement_from(settings)
        self._zones = tuple(zones)
        self._guard = guard
        self._record = record
        self._retry_until = clock.now() + settings.launch_time_seconds
        self._final_refusal: Refusal | None = None

    def reserve(self, operation: Operation, listing: InstanceListing | None = None) -> Operation:
        """Reserve capacity for each planned slot; a slot without capacity fails.

        Which type and market EC2 will choose is not known before: the dearest pool and the most vCPUs are reserved that
        fit into the limits, and no heavier pool is asked.
        """
        count = WorkerCounter(self._ec2, self._clock, listing)
        until = self._clock.now() + self._settings.operation_limit_seconds
        planned = [slot for slot in operation.slots if slot.outcome == "planned"]
        for position, slot in enumerate(planned):
            key, most = slot_key(operation.operation_id, slot.number), self._settings.max_workers
            fit = _Fit(operation, slot, self._placement, count, self._clock, workers=len(planned) - position)
            pool = pool_of(slot).name
            reserved = self._state.reserve(key, count, maximum=most, until=until, pool=pool, weigh=fit)
            if reserved:
                count.reserved()
                operation = operation.with_slot(replace(slot, weight=reserved.weight))
            else:
                operation = operation.with_slot(_failed(slot, fit.refusal or "the fleet is at its maximum size"))
        return operation

    def start(self, operation: Operation) -> Operation:
        """Start the standby worker of each planned slot that names one; a slot that EC2 refuses is launched as planned.

        Safe twice: the plan names the worker before the first request. The reservation names it at once, because its
        tags are those of an earlier launch: it would count twice. Raises Ec2Error when EC2 does not answer.
        """
        for slot in (s for s in operation.slots if s.outcome == "planned" and s.standby):
            operation = self._start(operation, slot)
            self._record(operation)
            self._confirm(operation, (s for s in operation.slots if s.number == slot.number))
        return operation

    def _start(self, operation: Operation, slot: LaunchSlot) -> Operation:
        """The operation after one start. A worker that takes more of the limits than is reserved is not started."""
        limits = self._settings.limits()
        if limits and not limits.weight(slot.instance_type, slot.market).is_within(slot.weight):
            return operation.with_slot(not_started(slot, self._placement))
        self._guard(operation)
        answer = self._ec2.start_worker(slot.standby)
        if not answer.code:
            return operation.with_slot(started(slot, self._clock.now()))
        refusal = refused_start(slot, answer.code, answer.message)
        self.notes.append(refused_note(slot.standby, refusal))
        return self._close_pools(operation.with_slot(not_started(slot, self._placement)), (refusal,))

    def launch(self, operation: Operation) -> Operation:
        """Launch every planned slot; each answer is recorded before the next request. A partial success is kept."""
        if operation.request is not None:
            operation = self._repeat(operation, operation.request)
        while slot := next((s for s in operation.slots if s.outcome == "planned"), None):
            if self._final_refusal is not None:
                operation = operation.with_slot(_failed(slot, self._final_refusal.sentence))
                continue
            closed = pools_in_back_off(operation.dry_pools, self._clock.now())
            own = (slot.zone,)
            is_first = is_first_choice(slot, open_pools(slot, self._placement, own, closed), self._placement)
            zones = own if is_first else self._zone_order()
            if open_pools(slot, self._placement, zones, closed):
                operation = self._send(plan_request(operation, slot, zones, self._placement, closed))
            else:
                limited = "" if slot.weight == NO_WEIGHT else " that fits into the limits in money and vCPUs"
                operation = operation.with_slot(_failed(slot, f"EC2 refused every pool{limited}"))
        self._confirm(operation, operation.slots)
        return operation

    def _repeat(self, operation: Operation, request: LaunchRequest) -> Operation:
        """Send a request again that may have been sent: EC2 returns the same instances for it."""
        return self._send(operation) if missing_slots(operation, request) else replace(operation, request=None)

    def _zone_order(self) -> tuple[str, ...]:
        """Zones, best first; listed only when EC2 refuses the first choice."""
        if not self._zones:
            layout = distribution_of(self._ec2.instances(), tuple(self._placement.zones))
            self._zones = zone_order(layout, self._placement)
        return self._zones

    def _send(self, operation: Operation) -> Operation:
        """Send the request of the operation and record its answer."""
        request = operation.request
        assert request is not None
        self._guard(operation)
        answer = self._send_with_retries(operation, request)
        operation = record_answer(operation, answer.launched, self._clock.now())
        refusals = answer.refusals or (refusals_of(request, answer.code, answer.message) if answer.code else ())
        unclear = not refusals or any(refusal.refusal_class.reaction == "search by tag" for refusal in refusals)
        if unclear and missing_slots(operation, request):
            operation = self._search_by_tag(operation, request)
        if missing := missing_slots(operation, request):
            if not explains(refusals, request):
                refusals += refusals_of(request, NOT_FULFILLED, "EC2 launched fewer instances than requested")
            operation = self._react(operation, missing, refusals, repeated=bool(answer.code))
        elif unclear:
            refusals = ()
        self.refusals += refusals
        operation = self._close_pools(operation, refusals)
        self._record(operation)
        return operation

    def _send_with_retries(self, operation: Operation, request: LaunchRequest) -> LaunchAnswer:
        operation_id, version = operation.operation_id, operation.template_version
        for attempt in itertools.count():
            answer = self._ec2.launch(request, operation_id=operation_id, template_version=version)
            if class_of(answer.code).reaction != "same request again" or not self._pause(operation_id, attempt):
                break
        return answer

    def _pause(self, operation_id: str, attempt: int) -> bool:
        """Wait before the next try; False when the time for repetitions is over."""
        pause = retry_pause_seconds(operation_id, attempt)
        if self._clock.now() + pause > self._retry_until:
            return False
        self._clock.sleep(pause)
        return True

    def _search_by_tag(self, operation: Operation, request: LaunchRequest) -> Operation:
        for pause in SEARCH_PAUSES_SECONDS:
            self._clock.sleep(pause)
            operation = recover_by_tag(self._ec2, operation)
            if not missing_slots(operation, request):
                break
        return operation

    def _react(
        self, operation: Operation, missing: tuple[LaunchSlot, ...], refusals: tuple[Refusal, ...], *, repeated: bool
    ) -> Operation:
        """After an answer without an instance for some slots: whether they are tried again, else why not.

        repeated: EC2 refused the whole request, and it was sent again for as long as that may help.
        """
        reactions = {refusal.refusal_class.reaction: refusal for refusal in refusals}
        throttled = reactions.get("same request again")
        if "stop" in reactions:
            self._final_refusal = reactions["stop"]
        elif "search by tag" in reactions:
            for slot in missing:
                operation = operation.with_slot(_failed(slot, reactions["search by tag"].sentence))
        elif throttled and (repeated or not self._pause(operation.operation_id, missing[0].attempt)):
            self._final_refusal = throttled
        return operation

    def _close_pools(self, operation: Operation, refusals: Iterable[Refusal]) -> Operation:
        now = self._clock.now()
        until = now + self._settings.pool_back_off_seconds
        closed = [pool for refusal in refusals for pool in pools_closed_by(refusal, self._placement, until)]
        return replace(operation, dry_pools=merge_pool_back_offs(operation.dry_pools, closed, now))

    def _confirm(self, operation: Operation, slots: Iterable[LaunchSlot]) -> None:
        for slot in slots:
            key = slot_key(operation.operation_id, slot.number)
            if slot.outcome == "launched":
                self._state.confirm(key, slot.instance_id, pool=pool_of(slot).name)
            elif slot.outcome == "failed":
                self._state.unreserve([key])


def _failed(slot: LaunchSlot, detail: str) -> LaunchSlot:
    return replace(slot, outcome="failed", detail=detail[:300])
