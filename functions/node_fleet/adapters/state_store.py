"""The state item in DynamoDB: lease with fence, operation record, capacity reservations, notices, pause.

Each change is one conditional UpdateItem. The domain interprets the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from node_fleet.adapters.dynamodb import ConditionFailed, from_attributes, table_errors, to_attributes
from node_fleet.adapters.state_item import (
    NOTICE,
    PROTECTED,
    SET_ASIDE,
    TIMED,
    fleet_state,
    memory_sets,
    notice_sets,
    set_aside_sets,
)
from node_fleet.domain.model.errors import LeaseLostError, PausedError, StateStoreError
from node_fleet.domain.model.fleet_state import (
    CORRUPT_AHEAD_SECONDS,
    FleetState,
    Lease,
    Notice,
    Pause,
    Protection,
    Reservation,
    describe_takeover,
)
from node_fleet.domain.model.hibernation import Hibernation, Order, utc_minute
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import CLOCK_DIFFERENCE_SECONDS, Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.text import utc
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

AcquireStatus = Literal["acquired", "held", "paused", "off", "stale"]

_LOCK_ATTRIBUTES = "lock_owner, lock_acquired_at, lock_expires_at"
_OURS = "lock_owner = :me AND lock_fence = :fence"
_TAKEABLE = (
    "(attribute_not_exists(lock_owner) OR lock_owner = :me OR attribute_not_exists(lock_expires_at)"
    " OR NOT attribute_type(lock_expires_at, :number) OR lock_expires_at < :expired OR lock_expires_at > :corrupt)"
)
_NOT_PAUSED = "(attribute_not_exists(pause) OR pause.#until <= :now)"
_NOT_IDLE = (
    "(NOT attribute_type(hibernation.idle_until, :number) OR hibernation.idle_until <= :now"
    " OR hibernation.idle_until > :corrupt"
    " OR (attribute_exists(hibernate_order) AND hibernate_order.since <> hibernation.order_seen))"
)
"""While the fleet is off there is nothing to do before idle_until, unless a person has given another order since."""
_NEWER = "(attribute_not_exists(last_tick) OR last_tick < :tick OR last_tick > :ahead OR lock_owner = :me)"
_RESERVE_TRIES = 10


@value_class
class Acquired:
    """The result of trying to take the lock; `state` is the item after it."""

    status: AcquireStatus
    state: FleetState
    detail: str = ""


class StateStore:
    """One cluster's state item. `client` is a low-level DynamoDB client, `clock` gives epoch seconds."""

    def __init__(self, client: Any, settings: Settings, clock: Any) -> None:
        self._client = client
        self._table = settings.state_table
        self._settings = settings
        self._clock = clock
        self._key = {"cluster_id": {"S": settings.cluster_id}}

    def acquire(self, run: Run) -> Acquired:
        """Take the lock by one conditional write if it is free, expired, corrupt or already this execution's own.

        A scheduled run is refused when its scheduled_at is not newer than that of the last tick. A last tick in the
        future is corrupt and refuses no run. A dry run neither compares nor stores its scheduled_at.
        """
        now = self._clock.now()
        values: dict[str, Any] = {
            ":me": run.execution_id,
            ":now": now,
            ":expires": now + self._settings.lease_seconds,
            ":expired": now - self._settings.lease_skew_seconds,
            ":corrupt": now + CORRUPT_AHEAD_SECONDS,
            ":number": "N",
            ":zero": 0,
            ":one": 1,
        }
        sets = "lock_owner = :me, lock_acquired_at = :now, lock_expires_at = :expires"
        sets += ", lock_fence = if_not_exists(lock_fence, :zero) + :one"
        condition = f"{_TAKEABLE} AND {_NOT_PAUSED} AND {_NOT_IDLE}"
        if run.scheduled_at and not run.dry_run:
            values |= {":tick": run.scheduled_at, ":ahead": now + CLOCK_DIFFERENCE_SECONDS}
            sets += ", last_tick = :tick"
            condition += f" AND {_NEWER}"
        try:
            old = self._update(f"SET {sets}", condition, values, {"#until": "until"}, returned="ALL_OLD", action="lock")
        except ConditionFailed as refused:
            return self._refusal(from_attributes(refused.item), run, now)
        return self._taken(old, run, now)

    def _taken(self, old: dict[str, Any], run: Run, now: int) -> Acquired:
        detail = describe_takeover(old, run.execution_id, now)
        lease = Lease(
            owner=run.execution_id,
            fence=int(old.get("lock_fence", 0)) + 1,
            acquired_at=now,
            expires_at=now + self._settings.lease_seconds,
        )
        state = replace(self._state(old), lease=lease, fence=lease.fence)
        return Acquired(status="acquired", state=state, detail=detail)

    def _refusal(self, item: dict[str, Any], run: Run, now: int) -> Acquired:
        state = self._state(item)
        lease = state.lease
        if lease and lease.owner != run.execution_id and lease.expires_at >= now - self._settings.lease_skew_seconds:
            holder = lease.owner.rpartition(":")[2]
            text = f"the lock is held by {holder} (fence {lease.fence}) until {utc(lease.expires_at)}"
            return Acquired(status="held", state=state, detail=text)
        if pause := state.active_pause(now):
            text = f"paused by {pause.by} until {utc(pause.until)}: {pause.reason}"
            return Acquired(status="paused", state=state, detail=text)
        if state.hibernation.idle_until > now:
            until = utc_minute(state.hibernation.idle_until)
            text = f"the fleet is off; {state.hibernation.detail}; next check at {until}"
            return Acquired(status="off", state=state, detail=text)
        text = f"the tick of {utc(run.scheduled_at)} is not newer than the last one ({utc(state.last_tick)})"
        return Acquired(status="stale", state=state, detail=text)

    def renew(self, run: Run, *, even_paused: bool = False) -> FleetState:
        """Extend the lease and return the item: the guard before every change.

        Raises:
            LeaseLostError: another run has the lock; this run must change nothing more.
            PausedError: an operator paused the fleet (unless even_paused, for a rollback).
        """
        now = self._clock.now()
        values = {":expires": now + self._settings.lease_seconds}
        sets = "SET lock_expires_at = :expires"
        state = self._state(self._owned(run, sets, values, action="renew the lease", returned="ALL_NEW"))
        if not even_paused and (pause := state.active_pause(now)):
            raise PausedError(pause.sentence)
        return state

    def release(
        self, run: Run, memory: Memory | None = None, *, node_count: int | None = None, exposition: str | None = None
    ) -> bool:
        """Free the lock and store the memory; False when the lock is another run's.

        exposition: the metrics of the run, which the server gives to Prometheus.
        """
        sets, values = memory_sets(memory, node_count, exposition)
        expression = f"{sets} REMOVE {_LOCK_ATTRIBUTES}"
        try:
            self._owned(run, expression, values, action="release the lock")
        except LeaseLostError:
            return False
        return True

    def take_over(self, dead_execution_id: str, new_owner: str) -> Run | None:
        """Take the lock from an execution that has ended; None when the lock is not that execution's."""
        now = self._clock.now()
        values = {":me": new_owner, ":dead": dead_execution_id, ":now": now, ":one": 1}
        values[":expires"] = now + self._settings.lease_seconds
        sets = "lock_owner = :me, lock_acquired_at = :now, lock_expires_at = :expires, lock_fence = lock_fence + :one"
        try:
            condition = "lock_owner = :dead OR lock_owner = :me"
            item = self._update(f"SET {sets}", condition, values, action="take over", returned="ALL_NEW")
        except ConditionFailed:
            return None
        return Run(
            execution_id=new_owner, trigger="manual", scheduled_at=0, started_at=now, fence=int(item["lock_fence"])
        )

    def force_unlock(self, lease: Lease) -> bool:
        """Free exactly this lease on an operator's order; False when the lease has changed."""
        values = {":me": lease.owner, ":fence": lease.fence}
        return self._try_update(f"REMOVE {_LOCK_ATTRIBUTES}", _OURS, values, action="unlock")

    def save_operation(self, run: Run, operation: Operation, set_aside: SetAside | None = None) -> None:
        """Record the operation's plan or progress, and in the same write a removal that is set aside.

        Raises LeaseLostError when the lock is not this run's, or when another operation is open.
        """
        sets, values, names = set_aside_sets(set_aside)
        values |= {":operation": to_payload(operation), ":id": operation.operation_id}
        condition = "(attribute_not_exists(operation) OR operation.operation_id = :id)"
        expression = f"SET operation = :operation{sets}"
        self._owned(run, expression, values, names, condition=condition, action="record the operation")

    def begin_termination(self, run: Run, operation: Operation, instance_id: str) -> None:
        """Record that this worker's termination or reboot begins, unless an operator protects it: one write decides.

        Raises:
            PausedError: the worker is protected; nothing was recorded.
            LeaseLostError: as save_operation.
        """
        now = self._clock.now()
        values = {":operation": to_payload(operation), ":id": operation.operation_id, ":now": now}
        names = {"#protected": PROTECTED + instance_id, "#until": "until"}
        open_for_it = "operation.operation_id = :id AND (attribute_not_exists(#protected) OR #protected.#until <= :now)"

        def protected(item: dict[str, Any]) -> Exception | None:
            found = self._state(item).active_protections(now).get(instance_id)
            if found and (item.get("lock_owner"), item.get("lock_fence")) == (run.execution_id, run.fence):
                act = "rebooted" if operation.reboot else "terminated"
                return PausedError(f"worker {instance_id} was not {act}: {found.sentence}")
            return None

        self._owned(
            run,
            "SET operation = :operation",
            values,
            names,
            action="record the termination",
            condition=open_for_it,
            other_reason=protected,
        )

    def close_operation(
        self, run: Run, memory: Memory, *, node_count: int | None = None, set_aside: SetAside | None = None
    ) -> None:
        """Remove the operation and store the memory and what is set aside, in one write. Raises LeaseLostError."""
        sets, values = memory_sets(memory, node_count)
        more, more_values, names = set_aside_sets(set_aside)
        self._owned(run, f"{sets}{more} REMOVE operation", values | more_values, names, action="close the operation")

    def update_set_aside(self, run: Run, removal: SetAside) -> None:
        """Store a later state of a removal that is set aside. Raises LeaseLostError."""
        _, values, names = set_aside_sets(removal)
        self._owned(run, "SET #set_aside = :set_aside", values, names, action="record a removal that is set aside")

    def drop_set_aside(self, run: Run, instance_id: str) -> None:
        """Remove the record of a removal that is settled. Safe twice. Raises LeaseLostError."""
        names = {"#set_aside": SET_ASIDE + instance_id}
        self._owned(run, "REMOVE #set_aside", {}, names, action="settle a removal that was set aside")

    def reserve(
        self,
        key: str,
        count_now: Callable[[FleetState], int],
        *,
        maximum: int,
        until: int,
        pool: str = "",
        weigh: Callable[[FleetState], Weight | None] = lambda state: NO_WEIGHT,
    ) -> Reservation | None:
        """Reserve capacity for one more worker under `key`; None when the fleet is at its maximum or at a limit.

        count_now gets the item as read and returns how many workers count against the maximum: the instances that EC2
        shows and the reservations that it does not show yet. It must query EC2 after the item was read. weigh is called
        after it with the same item: what the worker takes of the limits in money and vCPUs, None when it does not fit.
        The write succeeds only if no reservation changed in between, so two workflows together never exceed the maximum
        or a limit. Reserving the same key again succeeds and reserves nothing more.
        """
        for _ in range(_RESERVE_TRIES):
            state = self.load()
            if known := next((r for r in state.reservations if r.key == key), None):
                return known
            if count_now(state) >= maximum or (weight := weigh(state)) is None:
                return None
            now = self._clock.now()
            current = (r for r in state.reservations if r.until > now)
            added = Reservation(key=key, until=until, pool=pool, at=now, weight=weight)
            if self._write_reservations(state.slots_version, (*current, added)):
                return added
        raise self._contended()

    def confirm(self, key: str, instance_id: str, *, pool: str = "") -> None:
        """Record which instance a reservation became, so that it is not counted twice, and in which pool.

        Of the limits in money and vCPUs it takes from then on what its pool takes, which may be less than was reserved.
        """
        became = {"instance_id": instance_id, "pool": pool, "at": self._clock.now(), "weight": NO_WEIGHT}
        self._change_reservations(lambda held: tuple(replace(r, **became) if r.key == key else r for r in held))

    def unreserve(self, keys: Iterable[str]) -> None:
        """Remove reservations; unknown keys are no error."""
        removed = set(keys)
        self._change_reservations(lambda held: tuple(r for r in held if r.key not in removed))

    def _change_reservations(self, change: Callable[[tuple[Reservation, ...]], tuple[Reservation, ...]]) -> None:
        for _ in range(_RESERVE_TRIES):
            state = self.load()
            wanted = change(state.reservations)
            if wanted == state.reservations or self._write_reservations(state.slots_version, wanted):
                return
        raise self._contended()

    def _contended(self, what: str = "reservations") -> StateStoreError:
        text = f"other writers changed the {what} during each of {_RESERVE_TRIES} tries"
        return StateStoreError(f"DynamoDB table {self._table}: {text}; the next run tries again")

    def _write_reservations(self, version: int, reservations: tuple[Reservation, ...]) -> bool:
        values = {":held": to_payload(reservations), ":next": version + 1}
        condition = "attribute_not_exists(slots_version)"
        if version:
            condition = "slots_version = :version"
            values[":version"] = version
        expression = "SET reservations = :held, slots_version = :next"
        return self._try_update(expression, condition, values, action="reserve capacity")

    def add_notice(self, notice: Notice, lost_pool: str = "") -> bool:
        """Claim a notice once per instance id; False when it was claimed before.

        lost_pool: "zone/type" of an interrupted Spot worker, counted in the same write.
        """
        expression, values, names = notice_sets(notice, lost_pool)
        return self._try_update(expression, "attribute_not_exists(#notice)", values, names, action="claim the notice")

    def replace_notice(self, notice: Notice, lost_pool: str = "") -> None:
        """Store a notice over an earlier one for the same instance. lost_pool: as in add_notice."""
        expression, values, names = notice_sets(notice, lost_pool)
        self._update(expression, "", values, names, action="store the notice")

    def begin_response(self, instance_id: str, *, claimed_by: str) -> bool:
        """Stop counting the worker, because the response to its notice begins; False when the notice is another's."""
        values, names = {":me": claimed_by, ":yes": True}, {"#notice": NOTICE + instance_id}
        expression, condition = "SET #notice.is_due = :yes", "#notice.claimed_by = :me"
        return self._try_update(expression, condition, values, names, action="begin the response")

    def record_lost_volumes(self, instance_id: str) -> None:
        """Record in the notice, if it is open, that a message named the volumes that end with the worker."""
        name = {"#notice": NOTICE + instance_id}
        expression, condition = "SET #notice.reported_volumes = :yes", "attribute_exists(#notice)"
        self._try_update(expression, condition, {":yes": True}, name, action="record the lost volumes")

    def remove_notice(self, instance_id: str, *, claimed_by: str) -> bool:
        """Remove that execution's notice, if there is one; False when the notice is another execution's."""
        values, names = {":me": claimed_by}, {"#notice": NOTICE + instance_id}
        condition = "attribute_not_exists(#notice) OR #notice.claimed_by = :me"
        return self._try_update("REMOVE #notice", condition, values, names, action="remove the notice")

    def drop_notice(self, instance_id: str) -> None:
        """Remove the notice of an instance that has ended, whichever execution responds to it."""
        self._update("REMOVE #notice", "", {}, {"#notice": NOTICE + instance_id}, action="remove the notice")

    def set_pause(self, pause: Pause) -> None:
        """Pause the fleet until pause.until."""
        self._update("SET pause = :pause", "", {":pause": to_payload(pause)}, action="pause")

    def clear_pause(self) -> None:
        """Resume; no error when the fleet is not paused."""
        self._update("REMOVE pause", "", {}, action="resume")

    def protect(self, protection: Protection) -> FleetState:
        """Protect a worker, drop protections that have ended, and return the item after the write.

        When the item shows that the termination of the worker has begun, the protection came too late.
        """
        now = self._clock.now()
        ended = [p.instance_id for p in self.load().protections if p.until <= now]
        ended = [instance_id for instance_id in ended if instance_id != protection.instance_id]
        names = {f"#ended{number}": PROTECTED + instance_id for number, instance_id in enumerate(ended)}
        expression = "SET #protected = :protection" + (f" REMOVE {', '.join(names)}" if names else "")
        names["#protected"] = PROTECTED + protection.instance_id
        values = {":protection": to_payload(protection)}
        return self._state(self._update(expression, "", values, names, action="protect a worker", returned="ALL_NEW"))

    def end_protection(self, instance_id: str) -> None:
        """End the protection of that worker; no error without one."""
        self._update("REMOVE #protected", "", {}, {"#protected": PROTECTED + instance_id}, action="end a protection")

    def change_timed_minimums(
        self, change: Callable[[FleetState], tuple[TimedMinimum, ...]]
    ) -> tuple[TimedMinimum, ...]:
        """Store what `change` makes of the orders in the item, and return it.

        `change` is called again with the newest item when another writer changed the orders in between; what it raises
        leaves them as they are.
        """
        for _ in range(_RESERVE_TRIES):
            item = self._item()
            wanted, before = change(self._state(item)), item.get(TIMED)
            values: dict[str, Any] = {":wanted": json.dumps(to_payload(wanted))}
            condition = f"attribute_not_exists({TIMED})"
            if before is not None:
                values[":before"] = before
                condition = f"{TIMED} = :before"
            if self._try_update(f"SET {TIMED} = :wanted", condition, values, action="order capacity for a time"):
                return wanted
        raise self._contended("orders for a time")

    def save_hibernation(self, run: Run, hibernation: Hibernation, order: Order | None = None) -> None:
        """Record how far the fleet is on its way off or on, and in the same write an order. Raises LeaseLostError."""
        values: dict[str, Any] = {":hibernation": to_payload(hibernation)}
        sets = "SET hibernation = :hibernation"
        if order is not None:
            values[":order"], sets = to_payload(order), f"{sets}, hibernate_order = :order"
        self._owned(run, sets, values, action="record that the fleet is off or on")

    def set_hibernate_order(self, order: Order) -> FleetState:
        """Order that the fleet is on or off until order.until; returns the item after the write."""
        sets, values = "SET hibernate_order = :order", {":order": to_payload(order)}
        return self._state(self._update(sets, "", values, action="order the fleet on or off", returned="ALL_NEW"))

    def load(self, *, with_memory: bool = True) -> FleetState:
        """The item as it is, read consistently; an empty state when there is none.

        with_memory: False leaves the memory empty; reading it takes longer than the rest of the item.
        """
        item = self._item()
        return self._state(item if with_memory else {**item, "memory": ""})

    def _item(self) -> dict[str, Any]:
        with table_errors(self._table, "read the state"):
            answer = self._client.get_item(TableName=self._table, Key=self._key, ConsistentRead=True)
        return from_attributes(answer.get("Item", {}))

    def _state(self, item: Mapping[str, Any]) -> FleetState:
        return fleet_state(self._settings.cluster_id, item, self._clock.now())

    def _owned(
        self,
        run: Run,
        expression: str,
        values: dict[str, Any],
        names: dict[str, str] | None = None,
        *,
        action: str,
        condition: str = "",
        other_reason: Callable[[dict[str, Any]], Exception | None] = lambda item: None,
        returned: str = "NONE",
    ) -> dict[str, Any]:
        """A write of the run that holds the lock. other_reason: of a refused item, when the lease is not the reason."""
        guard = f"{_OURS} AND {condition}" if condition else _OURS
        values = {**values, ":me": run.execution_id, ":fence": run.fence}
        try:
            return self._update(expression, guard, values, names, action=action, returned=returned)
        except ConditionFailed as refused:
            item = from_attributes(refused.item)
            raise other_reason(item) or LeaseLostError(_lost(run, item, action)) from None

    def _try_update(
        self,
        expression: str,
        condition: str,
        values: dict[str, Any],
        names: dict[str, str] | None = None,
        *,
        action: str,
    ) -> bool:
        """False when the condition does not hold."""
        try:
            self._update(expression, condition, values, names, action=action)
        except ConditionFailed:
            return False
        return True

    def _update(
        self,
        expression: str,
        condition: str,
        values: dict[str, Any],
        names: dict[str, str] | None = None,
        *,
        action: str,
        returned: str = "NONE",
    ) -> dict[str, Any]:
        """The attributes that the write returns: none, or by `returned` the whole item before or after it."""
        request: dict[str, Any] = {
            "TableName": self._table,
            "Key": self._key,
            "UpdateExpression": expression,
            "ReturnValues": returned,
        }
        if condition:
            request |= {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        if values:
            request["ExpressionAttributeValues"] = to_attributes(values)
        if names:
            request["ExpressionAttributeNames"] = names
        with table_errors(self._table, action):
            answer = self._client.update_item(**request)
        return from_attributes(answer.get("Attributes", {}))


def _lost(run: Run, item: dict[str, Any], action: str) -> str:
    owner, fence = item.get("lock_owner", "no execution"), item.get("lock_fence", 0)
    if owner == run.execution_id and fence == run.fence:
        found = item.get("operation", {}).get("operation_id", "unknown")
        return f"cannot {action}: operation {found} is still open"
    return f"cannot {action}: {owner} holds the lock (fence {fence}), not {run.execution_id} (fence {run.fence})"
