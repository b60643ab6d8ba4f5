"""The vCPU quotas of EC2 against what the smallest and the largest fleet need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from cli.findings import Check, Finding, Verdict
from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.scale_up.placement import choose_market
from node_fleet.settings import Settings

SERVER_VCPUS = 2
"""The server where its type is unknown: an attached server is in this account, and its vCPUs count too."""


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """A quota of EC2 that counts the vCPUs of one market; the name is that in Service Quotas."""

    code: str
    name: str
    market: str


ON_DEMAND = VcpuQuota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "On-Demand")
SPOT = VcpuQuota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "Spot")


def quotas_needed(settings: Settings, server_vcpus: int = SERVER_VCPUS) -> Iterator[tuple[VcpuQuota, int, int]]:
    """Each quota with the vCPUs of the minimum size and those of the maximum size.

    While Spot has no capacity, every worker may be an On-Demand instance.
    """
    cores, spot = max(vcpus_of(one) for one in settings.instance_types), 0
    for total in range(settings.min_workers):
        market = choose_market(
            spot=spot,
            total=total,
            spot_percent=settings.spot_percent,
            on_demand_minimum=settings.on_demand_minimum,
        )
        spot += market == "spot"
    on_demand = settings.min_workers - spot
    yield ON_DEMAND, server_vcpus + on_demand * cores, server_vcpus + settings.max_workers * cores
    if settings.spot_percent:
        yield SPOT, spot * cores, settings.max_workers * cores


def vcpus_of(instance_type: str) -> int:
    """The vCPUs of an instance type; 2, those of a small one, when the type is not known."""
    return (offered(instance_type) or (2000, 0))[0] // 1000


def quota_check(client: Any, quota: VcpuQuota, at_start: int, at_most: int) -> Check:
    """`client` is one of Service Quotas. A quota that cannot be read is a warning."""

    def find() -> Finding:
        name, fix = f"{quota.market} quota", increase(quota, at_most)
        try:
            value = float(client.get_service_quota(ServiceCode="ec2", QuotaCode=quota.code)["Quota"]["Value"])
        except (ClientError, BotoCoreError) as error:
            return Finding(name=name, verdict="warn", saw=f"cannot be read: {error}"[:200], fix=f"if it is low, {fix}")
        if value >= at_most:
            return Finding(name=name, verdict="ok", saw=f"{value:.0f} vCPUs, the largest fleet needs {at_most}")
        verdict: Verdict = "fail" if value < at_start else "warn"
        saw = f"{value:.0f} vCPUs; the smallest fleet needs {at_start}, the largest one {at_most}"
        return Finding(name=name, verdict=verdict, saw=saw, fix=fix)

    return Check(f"{quota.market} quota", find, increase(quota, at_most))


def increase(quota: VcpuQuota, vcpus: int) -> str:
    """The command that asks AWS for more."""
    return (
        f'request "{quota.name}": aws service-quotas request-service-quota-increase --service-code ec2'
        f" --quota-code {quota.code} --desired-value {vcpus}"
    )
