"""The monthly bill of the control plane, line by line, with and without AWS's always-free tier.

Services that AWS does not charge for (rules of the default event bus, Run Command) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node_fleet.domain.cost.fleet_cost import BillLine
from node_fleet.domain.cost.prices import DATED, SERVICES
from node_fleet.domain.model.value_class import value_class


@value_class
class MonthlyUsage:
    """Usage of one month. Memory in GB-seconds, sizes in GB."""

    transitions: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    write_units: float = 0.0
    read_units: float = 0.0
    stored_gb: float = 0.0
    backed_up_gb: float = 0.0
    log_gb: float = 0.0
    messages: float = 0.0
    metrics: float = 0.0
    alarms: float = 0.0
    dashboards: float = 0.0
    metric_requests: float = 0.0
    secrets: float = 0.0
    secret_reads: float = 0.0
    keys: float = 0.0
    key_requests: float = 0.0
    nat_hours: float = 0.0


REQUESTS_OF_A_MESSAGE = 2
"""SNS asks KMS for a data key when a message arrives, and to decrypt it on delivery, unless it still has the key."""


def monthly_bill(use: MonthlyUsage) -> tuple[BillLine, ...]:
    """A line for each kind of usage that is not 0, in the order of SERVICES."""
    lines = []
    for key, rate in SERVICES.items():
        quantity = float(getattr(use, key))
        if quantity <= 0:
            continue
        lines.append(
            BillLine(
                name=rate.name,
                quantity=quantity,
                unit=rate.unit,
                usd=quantity / rate.per * rate.usd,
                usd_after_free=max(0.0, quantity - rate.free) / rate.per * rate.usd,
                basis=f"shipped {DATED}, ap-southeast-1",
            )
        )
    return tuple(lines)


@value_class
class RunUsage:
    """The usage of one run of a kind, as counted in simulation."""

    transitions: float
    invocations: float
    gb_seconds: float
    write_units: float
    read_units: float
    log_kb: float
    messages: float
    secret_reads: float


def monthly_usage(
    profiles: Mapping[str, RunUsage],
    runs_per_month: Mapping[str, float],
    standing: MonthlyUsage,
    *,
    kept_items: float = 0.0,
) -> MonthlyUsage:
    """The usage of a month with so many runs of each kind, added to the constant usage (alarms, secrets, addresses)."""

    def total(name: str) -> float:
        return sum(float(getattr(profiles[kind], name)) * count for kind, count in runs_per_month.items())

    messages = total("messages")
    return replace(
        standing,
        transitions=total("transitions"),
        invocations=total("invocations"),
        gb_seconds=total("gb_seconds"),
        write_units=total("write_units"),
        read_units=total("read_units"),
        log_gb=total("log_kb") / 1e6,
        messages=messages,
        key_requests=REQUESTS_OF_A_MESSAGE * messages if standing.keys else 0.0,
        secret_reads=total("secret_reads"),
        stored_gb=standing.stored_gb + kept_items,
        backed_up_gb=standing.backed_up_gb + kept_items,
    )
