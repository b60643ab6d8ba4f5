"""The monthly bill of the control plane, line by line, with and without AWS's always-free tier.

Services that AWS does not charge for (rules of the default event bus, Run Command) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

PRICED_IN = "2025-11"
"""Month of the unit prices below: ap-southeast-1, USD. Other regions differ by some percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    secrets: float = 0.0
    secret_reads: float = 0.0
    address_hours: float = 0.0
    nat_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrice:
    """The price of `per` units, and the units of a month that are always free."""

    name: str
    usd: float
    per: float
    free: float
    unit: str


RATES: Mapping[str, UnitPrice] = {
    "transitions": UnitPrice(name="Step Functions", usd=0.025, per=1e3, free=4_000, unit="state transitions"),
    "invocations": UnitPrice(name="Lambda requests", usd=0.20, per=1e6, free=1e6, unit="invocations"),
    "gb_seconds": UnitPrice(name="Lambda time, arm64", usd=13.3334, per=1e6, free=400_000, unit="GB-seconds"),
    "write_units": UnitPrice(name="DynamoDB writes", usd=0.71, per=1e6, free=0, unit="write units"),
    "read_units": UnitPrice(name="DynamoDB reads", usd=0.1425, per=1e6, free=0, unit="read units"),
    "stored_gb": UnitPrice(name="DynamoDB storage", usd=0.285, per=1, free=25, unit="GB"),
    "backed_up_gb": UnitPrice(name="DynamoDB point-in-time recovery", usd=0.228, per=1, free=0, unit="GB"),
    "log_gb": UnitPrice(name="CloudWatch Logs", usd=0.70, per=1, free=5, unit="GB written"),
    "messages": UnitPrice(name="SNS", usd=0.50, per=1e6, free=1e6, unit="messages"),
    "metrics": UnitPrice(name="CloudWatch metrics", usd=0.30, per=1, free=10, unit="metrics"),
    "alarms": UnitPrice(name="CloudWatch alarms", usd=0.10, per=1, free=10, unit="alarms"),
    "dashboards": UnitPrice(name="CloudWatch dashboards", usd=3.0, per=1, free=3, unit="dashboards"),
    "secrets": UnitPrice(name="Secrets Manager", usd=0.40, per=1, free=0, unit="secrets"),
    "secret_reads": UnitPrice(name="Secrets Manager reads", usd=0.05, per=1e4, free=0, unit="reads"),
    "address_hours": UnitPrice(name="Public IPv4 of the server", usd=0.005, per=1, free=0, unit="hours"),
    "nat_hours": UnitPrice(name="NAT gateway (off by default)", usd=0.059, per=1, free=0, unit="hours"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of the bill. usd: at full price; usd_after_free: with the always-free tier."""

    name: str
    quantity: float
    unit: str
    usd: float
    usd_after_free: float


def monthly_bill(use: MonthlyUsage) -> tuple[BillLine, ...]:
    """A line for each kind of usage that is not 0, in the order of RATES."""
    lines = []
    for key, rate in RATES.items():
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
            )
        )
    return tuple(lines)


def totals(lines: tuple[BillLine, ...]) -> tuple[float, float]:
    """The bill's sum at full price and with the always-free tier."""
    return sum(line.usd for line in lines), sum(line.usd_after_free for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
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

    return replace(
        standing,
        transitions=total("transitions"),
        invocations=total("invocations"),
        gb_seconds=total("gb_seconds"),
        write_units=total("write_units"),
        read_units=total("read_units"),
        log_gb=total("log_kb") / 1e6,
        messages=total("messages"),
        secret_reads=total("secret_reads"),
        stored_gb=standing.stored_gb + kept_items,
        backed_up_gb=standing.backed_up_gb + kept_items,
    )
