"""Launches planned slots: reserves capacity, asks EC2, tries the next pool, and records each step before the next.

Both workflows launch through this class. What a refusal of EC2 means stands in domain/scale_up/refusals.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from node_fleet.adapters.ec2 import Ec2Fleet, LaunchResult
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_up.join import NodeList, update_slots
from node_fleet.domain.scale_up.launch import (
    client_token,
    count_workers,
    merge_pool_back_offs,
    next_attempt,
    pool_of,
    record_ends,
    record_launched,
    retry_pause_seconds,
    slot_key,
)
from node_fleet.domain.scale_up.placement import Placement, distribution_of, pools_in_back_off, zone_order
from node_fleet.domain.scale_up.refusals import Refusal, class_of, pools_closed_by
from node_fleet.settings import Settings

SEARCH_PAUSES_SECONDS = (0, 2, 4)
Record = Callable[[Operation], None]


def placement_from(settings: Settings) -> Placement:
    """The settings of zones, instance types and markets."""
    return Placement(
        zones=settings.zones,
        instance_types=settings.instance_types,
        spot_percent=settings.spot_percent,
        on_demand_minimum=settings.on_demand_minimum,
        order="round-robin" if settings.placement == "round-robin" else "fewest",
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


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def reserved(self) -> None:
        """The reservation exists: after a count this execution wrote it, and the listing is valid for that version."""
        if self._counted_version is not None:
            self._valid_version = self._counted_version + 1


class Launcher:
    """Launches the planned slots of one operation; `refusals` holds the refusals of EC2 afterwards.

    guard is called with the operation before each request to EC2: it records the pool of that request, and raises
    when nothing may change. record is called after each answer. zones: the order in which other zones are tried, by
    default the one with the fewest workers first.
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
    ) -> None:
        self.refusals: list[Refusal] = []
        self._ec2 = ec2
        self._state = state
        self._clock = clock
        self._settings = settings
        self._placement = placement_from(settings)
        self._zones = tuple(zones)
        self._guard = guard
        self._record = record
        self._retry_until = clock.now() + settings.launch_time_seconds
        self._final_refusal: Refusal | None = None

    def reserve(self, operation: Operation, listing: InstanceListing | None = None) -> Operation:
        """Reserve capacity for each planned slot; a slot without capacity fails."""
        count = WorkerCounter(self._ec2, self._clock, listing)
        until = self._clock.now() + self._settings.operation_limit_seconds
        for slot in operation.slots:
            if slot.outcome != "planned":
                continue
            key = slot_key(operation.operation_id, slot.number)
            pool = pool_of(slot).name
            if self._state.reserve(key, count, maximum=self._settings.max_workers, until=until, pool=pool):
                count.reserved()
            else:
                operation = operation.with_slot(_failed(slot, "the fleet is at its maximum size"))
        return operation

    def launch(self, operation: Operation) -> Operation:
        """Launch every planned slot, each recorded as soon as it has its instance. A partial success is kept."""
        for number in [slot.number for slot in operation.slots if slot.outcome == "planned"]:
            operation = self._launch_slot(operation, number)
            self._record(operation)
        self._confirm(operation)
        return operation

    def _launch_slot(self, operation: Operation, number: int) -> Operation:
        while True:
            slot = next(s for s in operation.slots if s.number == number)
            if slot.outcome != "planned":
                return operation
            if self._final_refusal is not None:
                return operation.with_slot(_failed(slot, self._final_refusal.sentence))
            now = self._clock.now()
            if pool_of(slot) not in pools_in_back_off(operation.dry_pools, now):
                self._guard(operation)
                operation = self._request(operation, slot)
                continue
            following = next_attempt(slot, self._placement, self._zone_order(), back_offs=operation.dry_pools, now=now)
            if following is None:
                return operation.with_slot(_failed(slot, "EC2 refused every pool"))
            operation = operation.with_slot(following)

    def _zone_order(self) -> tuple[str, ...]:
        """Zones, best first; listed only when EC2 refuses the first choice."""
        if not self._zones:
            layout = distribution_of(self._ec2.instances(), tuple(self._placement.zones))
            self._zones = zone_order(layout, self._placement)
        return self._zones

    def _request(self, operation: Operation, slot: LaunchSlot) -> Operation:
        answer = self._request_with_retries(operation.operation_id, slot)
        if answer.instance_id:
            return operation.with_slot(self._launched(slot, answer.instance_id))
        refusal = Refusal(pool=pool_of(slot), code=answer.code, message=answer.message)
        reaction = refusal.refusal_class.reaction
        if reaction == "search by tag":
            return operation.with_slot(self._search_by_tag(operation, slot, refusal))
        self.refusals.append(refusal)
        if reaction != "next pool":
            self._final_refusal = refusal
        now = self._clock.now()
        closed = pools_closed_by(refusal, self._placement, now + self._settings.pool_back_off_seconds)
        return replace(operation, dry_pools=merge_pool_back_offs(operation.dry_pools, closed, now))

    def _request_with_retries(self, operation_id: str, slot: LaunchSlot) -> LaunchResult:
        token = client_token(operation_id, slot)
        for attempt in itertools.count():
            answer = self._ec2.launch(slot, operation_id=operation_id, token=token)
            pause = retry_pause_seconds(token, attempt)
            retries = class_of(answer.code).reaction == "same request again"
            if not retries or self._clock.now() + pause > self._retry_until:
                break
            self._clock.sleep(pause)
        return answer

    def _search_by_tag(self, operation: Operation, slot: LaunchSlot, refusal: Refusal) -> LaunchSlot:
        for pause in SEARCH_PAUSES_SECONDS:
            self._clock.sleep(pause)
            found = recover_by_tag(self._ec2, operation)
            mine = next(s for s in found.slots if s.number == slot.number)
            if mine.outcome != "planned":
                return mine
        self.refusals.append(refusal)
        return _failed(slot, refusal.sentence)

    def _launched(self, slot: LaunchSlot, instance_id: str) -> LaunchSlot:
        return replace(slot, outcome="launched", instance_id=instance_id, launched_at=self._clock.now(), detail="")

    def _confirm(self, operation: Operation) -> None:
        for slot in operation.slots:
            key = slot_key(operation.operation_id, slot.number)
            if slot.outcome == "launched":
                self._state.confirm(key, slot.instance_id, pool=pool_of(slot).name)
            elif slot.outcome == "failed":
                self._state.unreserve([key])


def _failed(slot: LaunchSlot, detail: str) -> LaunchSlot:
    return replace(slot, outcome="failed", detail=detail[:300])
