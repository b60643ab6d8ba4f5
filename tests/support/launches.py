"""Small builders for tests of placement, launches and joins."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.operation import LaunchRequest, LaunchSlot, Operation
from node_fleet.domain.model.snapshot import Instance, Market, NodeReading
from node_fleet.domain.scale_up.placement import Placement
from node_fleet.domain.scale_up.refusals import REFUSALS

NOW = 1_790_000_000
ZONES = {"a": "subnet-a", "b": "subnet-b", "c": "subnet-c"}


def codes_that_close(scope: str) -> list[str]:
    """EC2's codes that put these pools in back-off."""
    return sorted(code for row in REFUSALS if row.puts_in_back_off == scope for code in row.codes.split())


def instance(number: int, *, zone: str = "a", market: Market = "spot", **more: Any) -> Instance:
    fields: dict[str, Any] = {"state": "running", "launched_at": NOW - 3600, "instance_type": "t3.small", **more}
    return Instance(instance_id=f"i-{number:017x}", zone=zone, market=market, **fields)


def placement(**more: Any) -> Placement:
    fields: dict[str, Any] = {"zones": ZONES, "instance_types": ("t3.small", "t3a.small"), **more}
    return Placement(**fields)


def slot(number: int = 1, *, outcome: str = "launched", **more: Any) -> LaunchSlot:
    fields: dict[str, Any] = {
        "zone": "a",
        "subnet_id": "subnet-a",
        "instance_type": "t3.small",
        "market": "spot",
        "instance_id": "" if outcome == "planned" else f"i-{number:017x}",
        "launched_at": 0 if outcome == "planned" else NOW,
        **more,
    }
    return LaunchSlot(number=number, outcome=outcome, **fields)  # type: ignore[arg-type]


def request(
    *numbers: int,
    zone: str = "a",
    subnet_id: str = "subnet-a",
    market: Market = "spot",
    types: tuple[str, ...] = ("t3.small",),
    attempt: int = 0,
) -> LaunchRequest:
    return LaunchRequest(
        slots=numbers or (1,), zone=zone, subnet_id=subnet_id, market=market, types=types, attempt=attempt
    )


def operation(*slots: LaunchSlot, **more: Any) -> Operation:
    fields: dict[str, Any] = {"started_at": NOW, "requested": len(slots), "workers_before": 2, **more}
    return Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="verify",
        reason="pods wait",
        execution_id="e",
        slots=slots,
        **fields,
    )


def node(number: int, *, ready: bool = True, **more: Any) -> NodeReading:
    instance_id = f"i-{number:017x}"
    fields: dict[str, Any] = {"node_name": instance_id, "provider_id": f"aws:///a/{instance_id}", **more}
    return NodeReading(ready=ready, **fields)
