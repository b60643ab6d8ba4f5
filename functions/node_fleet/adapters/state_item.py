"""The state item as DynamoDB keeps it: which attribute holds what, and the expressions that set several of them.

A damaged order to be on or off counts as none, and a damaged record of the fleet's being off as off. Of the memory each
field counts on its own: an older version, which runs on in long executions and after an update is undone, reads it too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.fleet_state import (
    FleetState,
    Notice,
    Pause,
    Protection,
    Reservation,
    readable_lease,
)
from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.spot_pools import count_losses
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.payload import from_payload, to_payload

NOTICE = "notice#"
SET_ASIDE = "set_aside#"
PROTECTED = "protected#"
TIMED = "timed_minimums"
_SPOT_LOST = "spot_lost#"


def fleet_state(cluster_id: str, item: Mapping[str, Any], now: int) -> FleetState:
    """The item as the domain sees it; an empty state when there is none."""
    lease, problems = readable_lease(item)
    memory, unread = _memory(item.get("memory"))
    return FleetState(
        cluster_id=cluster_id,
        fence=lease.fence if lease else int(item.get("lock_fence", 0)),
        lease=lease,
        last_tick=int(item.get("last_tick", 0)),
        pause=_record(Pause, item.get("pause")),
        operation=_record(Operation, item.get("operation")),
        memory=count_losses(memory, _spot_lost(item), now),
        reservations=from_payload(tuple[Reservation, ...], item.get("reservations", [])),
        slots_version=int(item.get("slots_version", 0)),
        notices=_records(Notice, item, NOTICE),
        set_aside=_records(SetAside, item, SET_ASIDE),
        protections=_records(Protection, item, PROTECTED),
        timed_minimums=_timed_minimums(item),
        node_count=int(item.get("node_count", 0)),
        problems=(*problems, *unread),
        hibernation=_hibernation(item.get("hibernation")),
        hibernate_order=_readable(Order, item.get("hibernate_order")),
    )


def _record(cls: Any, data: Any) -> Any:
    return None if data is None else from_payload(cls, data)


def _readable(cls: Any, data: Any) -> Any:
    """As _record; a damaged one is as none."""
    try:
        return _record(cls, data)
    except InvalidInputError:
        return None


def _hibernation(data: Any) -> Hibernation:
    """A damaged one counts as off: the next run checks the server, and starts it at the end of the time off."""
    found: Hibernation | None = _readable(Hibernation, data)
    return found or Hibernation(phase="on" if data is None else "off")


def _records(cls: Any, item: Mapping[str, Any], prefix: str) -> tuple[Any, ...]:
    return tuple(from_payload(cls, value) for name, value in sorted(item.items()) if name.startswith(prefix))


def notice_sets(notice: Notice, lost_pool: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """The expression that stores a notice and counts the interruption of its pool, with its values and names."""
    values: dict[str, Any] = {":notice": to_payload(notice)}
    names = {"#notice": NOTICE + notice.instance_id}
    if not lost_pool:
        return "SET #notice = :notice", values, names
    return "SET #notice = :notice ADD #lost :one", values | {":one": 1}, names | {"#lost": _SPOT_LOST + lost_pool}


def _spot_lost(item: Mapping[str, Any]) -> dict[str, int]:
    """The interruptions of each pool, by its name."""
    return {name.removeprefix(_SPOT_LOST): int(count) for name, count in item.items() if name.startswith(_SPOT_LOST)}


def set_aside_sets(removal: SetAside | None) -> tuple[str, dict[str, Any], dict[str, str]]:
    """What a SET expression needs more to store the record: a part of it, values and names."""
    if removal is None:
        return "", {}, {}
    names = {"#set_aside": SET_ASIDE + removal.instance_id}
    return ", #set_aside = :set_aside", {":set_aside": to_payload(removal)}, names


def _timed_minimums(item: Mapping[str, Any]) -> tuple[TimedMinimum, ...]:
    """Stored as JSON text, so that one condition compares all of them."""
    found: tuple[TimedMinimum, ...] = from_payload(tuple[TimedMinimum, ...], json.loads(item.get(TIMED, "[]")))
    return found


def _memory(text: Any) -> tuple[Memory, tuple[str, ...]]:
    """The memory, and a sentence for each field that another version stored and that this one cannot read.

    Stored as JSON text: no query reads inside it, and text is half the size of an attribute map.
    """
    found, unread = dict[str, Any](), list[str]()
    for name, value in json.loads(text or "{}").items():
        try:
            found[name] = getattr(from_payload(Memory, {name: value}), name)
        except InvalidInputError:
            unread.append(f"the memory has the field {name}, which this version cannot read and leaves out")
    return Memory(**found), tuple(unread)


def memory_sets(
    memory: Memory | None, node_count: int | None, exposition: str | None = None
) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    if memory is not None:
        values[":memory"] = json.dumps(to_payload(memory), check_circular=False)
    if node_count is not None:
        values[":node_count"] = node_count
    if exposition is not None:
        values[":exposition"] = exposition
    sets = ", ".join(f"{name[1:]} = {name}" for name in values)
    return (f"SET {sets}" if sets else ""), values
