"""CPU credits as EC2 counts them: the account of one burstable instance, and the finding that they cost too much.

Credits are vCPU-hours here; EC2 counts vCPU-minutes (60 credits are one vCPU-hour). Source: EC2 user guide, "Unlimited
mode concepts" and "Standard mode concepts".
"""

from __future__ import annotations

from collections.abc import Mapping

from node_fleet.domain.cost.tariff import Cost, Tariff
from node_fleet.domain.model.instance_types import CpuCredits, baseline_percent, family_of, is_arm, offered, vcpus_of
from node_fleet.domain.model.value_class import value_class

HOURS_KEPT = 24
"""An instance keeps, and owes before it is charged, at most the credits that it earns in this time."""
T2_LAUNCH_VCPU_HOURS = 0.5
"""Launch credits of each vCPU of a T2 instance in mode standard. T3, T3a and T4g never have launch credits."""
LARGE_SHARE = 0.1
"""Credits above this share of the price of the instance are a finding."""


class CreditAccount:
    """The credits of one instance from its launch on.

    Mode unlimited: `charged` has the vCPU-hours that EC2 charges. Mode standard: `missing` has the vCPU-hours that the
    load wants and EC2 does not give, because the account is empty.
    """

    __slots__ = ("_balance", "_earned_per_second", "_least", "_limit", "_mode", "charged", "missing")

    def __init__(self, instance_type: str, mode: CpuCredits) -> None:
        vcpus = vcpus_of(instance_type)
        earned = (baseline_percent(instance_type) or 0.0) / 100 * vcpus
        has_launch_credits = mode == "standard" and family_of(instance_type) == "t2"
        self._balance = T2_LAUNCH_VCPU_HOURS * vcpus if has_launch_credits else 0.0
        self._earned_per_second = earned / 3600
        self._limit = earned * HOURS_KEPT
        self._least = 0.0 if mode == "standard" else -self._limit
        self._mode = mode
        self.charged = 0.0
        self.missing = 0.0

    def use(self, vcpu_seconds: float, seconds: float) -> None:
        """Enter the CPU that was used in this time, or that the load wanted."""
        limit = self._limit
        if not limit:
            return
        balance = self._balance + self._earned_per_second * seconds - vcpu_seconds / 3600
        if balance > limit:
            balance = limit
        elif balance < self._least:
            if self._mode == "standard":
                self.missing -= balance
            else:
                self.charged -= balance + limit
            balance = self._least
        self._balance = balance

    @property
    def charged_at_end(self) -> float:
        """What is charged if the instance ends now: EC2 then also charges the surplus that is not paid back."""
        return self.charged + max(0.0, -self._balance)


@value_class
class CreditFinding:
    """Credits that cost more than LARGE_SHARE of the instance. All money is for one worker and one hour.

    cheapest: the type with the lowest cost at the measured load, and that cost; None when no type is cheaper.
    """

    instance_type: str
    cpu_percent: float
    baseline_percent: float
    credits_usd: float
    share_of_instance: float
    usd: float
    cheapest: tuple[str, float] | None

    @property
    def saved_usd(self) -> float:
        """What the cheapest type saves."""
        return self.usd - self.cheapest[1] if self.cheapest else 0.0


def find_costly_credits(
    tariff: Tariff, instance_type: str, cpu_percent: float, spot_percent: float
) -> CreditFinding | None:
    """The finding for workers of this type at this mean CPU, with this share of Spot; None when there is none."""
    baseline, rate = baseline_percent(instance_type), tariff.credit_usd_per_vcpu_hour(instance_type)
    instance = _mixed(
        {market: tariff.instance_usd(instance_type, market) for market in ("spot", "on-demand")}, spot_percent
    )
    now = mixed_hour(tariff, instance_type, cpu_percent, spot_percent).known_usd
    if baseline is None or rate is None or not instance or now is None:
        return None
    credits = max(0.0, cpu_percent - baseline) / 100 * vcpus_of(instance_type) * rate
    if credits <= LARGE_SHARE * instance:
        return None
    return CreditFinding(
        instance_type=instance_type,
        cpu_percent=cpu_percent,
        baseline_percent=baseline,
        credits_usd=credits,
        share_of_instance=credits / instance,
        usd=now,
        cheapest=cheapest_type(tariff, instance_type, cpu_percent, spot_percent),
    )


def cheapest_type(
    tariff: Tariff, instance_type: str, cpu_percent: float, spot_percent: float
) -> tuple[str, float] | None:
    """The cheapest type that carries this load, and what its hour costs; None when `instance_type` is the cheapest.

    It has at least the vCPUs and the memory of this type, and its architecture, because the image stays.
    """
    now = mixed_hour(tariff, instance_type, cpu_percent, spot_percent).known_usd
    shape = offered(instance_type)
    if now is None or shape is None:
        return None
    vcpu_percent = cpu_percent * vcpus_of(instance_type)
    costs = {
        other: mixed_hour(tariff, other, vcpu_percent / vcpus_of(other), spot_percent).known_usd
        for other in tariff.prices.types
        if is_arm(other) == is_arm(instance_type) and _has_capacity_of(other, shape)
    }
    known = [(usd, other) for other, usd in costs.items() if usd is not None and usd < now - 1e-9]
    if not known:
        return None
    usd, other = min(known)
    return other, usd


def mixed_hour(tariff: Tariff, instance_type: str, cpu_percent: float | None, spot_percent: float) -> Cost:
    """An hour of a worker, at this share of Spot."""
    spot, on_demand = (tariff.hour(instance_type, market, cpu_percent) for market in ("spot", "on-demand"))
    usd = (spot_percent * spot.usd + (100 - spot_percent) * on_demand.usd) / 100
    return Cost(usd=usd, missing=tuple(dict.fromkeys((*spot.missing, *on_demand.missing))))


def _mixed(usd: Mapping[str, float | None], spot_percent: float) -> float | None:
    spot, on_demand = usd["spot"], usd["on-demand"]
    if spot is None or on_demand is None:
        return None
    return (spot_percent * spot + (100 - spot_percent) * on_demand) / 100


def _has_capacity_of(instance_type: str, shape: tuple[int, int]) -> bool:
    other = offered(instance_type)
    return other is not None and other[0] >= shape[0] and other[1] >= shape[1]
