"""Every price that node-fleet ships, with its month and its source. Data only, read by the modules of domain/cost.

USD. On-Demand prices and the prices of volumes, addresses and requests are AWS's list prices. Spot prices change by the
hour; their column is a long-run average. docs/cost.md lists the sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache

from node_fleet.domain.model.value_class import value_class

DATED = "2025-11"
"""Month of the shipped prices. Every figure names it, since the bill of another month differs."""
HOURS_PER_MONTH = 730.0

_COLUMN = {"ap-southeast-1": 0, "ap-south-1": 1, "eu-central-1": 2, "eu-west-1": 3, "us-east-1": 4, "us-west-2": 4}
_INSTANCES = {
    # type: (on-demand, Spot) an hour in each column of regions; https://aws.amazon.com/ec2/pricing/on-demand/
    "t2.small": ((0.0292, 0.0088), (0.0248, 0.0074), (0.0268, 0.0080), (0.0250, 0.0075), (0.0230, 0.0069)),
    "t3.micro": ((0.0132, 0.0044), (0.0112, 0.0039), (0.0120, 0.0042), (0.0114, 0.0038), (0.0104, 0.0034)),
    "t3.small": ((0.0264, 0.0087), (0.0224, 0.0078), (0.0240, 0.0084), (0.0228, 0.0075), (0.0208, 0.0069)),
    "t3.medium": ((0.0528, 0.0174), (0.0448, 0.0157), (0.0480, 0.0168), (0.0456, 0.0150), (0.0416, 0.0137)),
    "t3.large": ((0.1056, 0.0348), (0.0896, 0.0314), (0.0960, 0.0336), (0.0912, 0.0301), (0.0832, 0.0275)),
    "t3a.small": ((0.0236, 0.0083), (0.0123, 0.0049), (0.0216, 0.0076), (0.0204, 0.0071), (0.0188, 0.0066)),
    "t3a.medium": ((0.0472, 0.0165), (0.0246, 0.0098), (0.0432, 0.0151), (0.0408, 0.0143), (0.0376, 0.0132)),
    "t4g.small": ((0.0212, 0.0076), (0.0112, 0.0045), (0.0192, 0.0069), (0.0184, 0.0066), (0.0168, 0.0060)),
    "t4g.medium": ((0.0424, 0.0153), (0.0224, 0.0090), (0.0384, 0.0138), (0.0368, 0.0132), (0.0336, 0.0121)),
    "m5.large": ((0.1200, 0.0456), (0.1010, 0.0394), (0.1150, 0.0449), (0.1070, 0.0417), (0.0960, 0.0374)),
    "m6i.large": ((0.1200, 0.0444), (0.1010, 0.0384), (0.1150, 0.0437), (0.1070, 0.0407), (0.0960, 0.0365)),
    "c5.large": ((0.0980, 0.0392), (0.0850, 0.0340), (0.0970, 0.0388), (0.0960, 0.0384), (0.0850, 0.0340)),
    "c6i.large": ((0.0980, 0.0382), (0.0850, 0.0332), (0.0970, 0.0378), (0.0960, 0.0374), (0.0850, 0.0332)),
}
_GP3_GIB_MONTH = (0.096, 0.0912, 0.0952, 0.088, 0.08)
"""A GiB of a gp3 volume for a month in each column of regions; https://aws.amazon.com/ebs/pricing/"""
PUBLIC_IPV4_HOUR = 0.005
"""A public IPv4 address in use, in every region; https://aws.amazon.com/vpc/pricing/"""
SURPLUS_CREDIT_HOURS: Mapping[str, float] = {"t2": 0.05, "t3": 0.05, "t3a": 0.05, "t4g": 0.04}
"""A vCPU-hour above the baseline in mode unlimited, by family, in every region and for Spot too (Linux);
https://aws.amazon.com/ec2/pricing/on-demand/, "T2/T3/T4g Unlimited Mode Pricing"."""


@value_class
class Price:
    """USD for one unit. source: "shipped 2025-11", or "live" with the day on which AWS was asked."""

    usd: float
    source: str = f"shipped {DATED}"


@value_class
class PriceList:
    """The prices of one region. A price that is not known is missing or None.

    instances: (type, market) -> an hour. spot_pools: (type, zone) -> an hour of Spot in that zone, where AWS was asked.
    """

    region: str
    instances: Mapping[tuple[str, str], Price]
    gp3_gib_month: Price | None
    public_ipv4_hour: Price = Price(usd=PUBLIC_IPV4_HOUR)
    spot_pools: Mapping[tuple[str, str], Price] = field(default_factory=dict)

    @classmethod
    @cache
    def shipped(cls, region: str) -> PriceList:
        """The prices of this file; none of instances and volumes for a region that it does not have."""
        column = _COLUMN.get(region)
        if column is None:
            return cls(region=region, instances={}, gp3_gib_month=None)
        instances = {
            (instance_type, market): Price(usd=usd)
            for instance_type, pairs in _INSTANCES.items()
            for market, usd in zip(("on-demand", "spot"), pairs[column], strict=True)
        }
        return cls(region=region, instances=instances, gp3_gib_month=Price(usd=_GP3_GIB_MONTH[column]))

    def instance(self, instance_type: str, market: str, zone: str = "") -> Price | None:
        """An hour of an instance; of Spot in that zone, if its price there is known."""
        pool = self.spot_pools.get((instance_type, zone)) if market == "spot" else None
        return pool or self.instances.get((instance_type, market))

    @property
    def types(self) -> tuple[str, ...]:
        """Every type with a price in both markets."""
        both = (kind for kind, market in self.instances if market == "spot" and (kind, "on-demand") in self.instances)
        return tuple(sorted(both))


REGIONS = tuple(_COLUMN)
"""The regions with shipped prices."""


@value_class
class UnitPrice:
    """The price of `per` units of a service, and the units of a month that are always free."""

    name: str
    usd: float
    per: float
    free: float
    unit: str


SERVICES: Mapping[str, UnitPrice] = {
    # ap-southeast-1; other regions differ by some percent. https://aws.amazon.com/SERVICE/pricing/
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
    "alarms": UnitPrice(name="CloudWatch alarms", usd=0.10, per=1, free=10, unit="alarm metrics"),
    "dashboards": UnitPrice(name="CloudWatch dashboards", usd=3.0, per=1, free=3, unit="dashboards"),
    "metric_requests": UnitPrice(
        name="CloudWatch requests of Grafana", usd=0.01, per=1e3, free=0, unit="metrics requested"
    ),
    "secrets": UnitPrice(name="Secrets Manager", usd=0.40, per=1, free=0, unit="secrets"),
    "secret_reads": UnitPrice(name="Secrets Manager reads", usd=0.05, per=1e4, free=0, unit="reads"),
    "keys": UnitPrice(name="KMS key of the topics", usd=1.0, per=1, free=0, unit="keys"),
    "key_requests": UnitPrice(name="KMS requests", usd=0.03, per=1e4, free=20_000, unit="requests"),
    "nat_hours": UnitPrice(name="NAT gateway (off by default)", usd=0.059, per=1, free=0, unit="hours"),
}
