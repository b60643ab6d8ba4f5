"""Checks of doctor about money: known prices, CPU credits, and settings of costs that differ from what EC2 launches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cli.cost import measured_cpu
from cli.findings import Check, Finding
from cli.live_prices import CurrentPrices, prices_for
from cli.target import Target
from node_fleet.domain.cost.cpu_credits import CreditFinding, find_costly_credits
from node_fleet.domain.cost.prices import HOURS_PER_MONTH, PriceList
from node_fleet.domain.cost.tariff import Currency
from node_fleet.domain.model.instance_types import baseline_percent, is_arm

ADD_PRICE = "add the type to functions/node_fleet/domain/cost/prices.py"


def cost_checks(target: Target) -> Iterator[Check]:
    """The checks; prices are read once for both checks that need them."""
    found: list[CurrentPrices] = []

    def current() -> CurrentPrices:
        if not found:
            found.append(prices_for(target, _candidates(target)))
        return found[0]

    yield Check("prices", lambda: prices(target, current()), ADD_PRICE)
    yield Check("CPU credits", lambda: cpu_credits(target, current()), "run cdk deploy")
    yield Check("settings of costs", lambda: cost_settings(target), "set them in cdk.json to what EC2 launches")


def _candidates(target: Target) -> set[str]:
    """The configured types, and every type of the same architecture with a shipped price."""
    settings = target.services.settings
    first, shipped = settings.instance_types[0], PriceList.shipped(settings.region).types
    return {*settings.instance_types, *(one for one in shipped if is_arm(one) == is_arm(first))}


def prices(target: Target, current: CurrentPrices) -> Finding:
    """Every configured type has a price in both markets, and the finding says from where."""
    settings = target.services.settings
    unknown, known = [], []
    for kind in settings.instance_types:
        on_demand, spot = (current.prices.instance(kind, market) for market in ("on-demand", "spot"))
        if on_demand is None or spot is None:
            unknown.append(kind)
        else:
            known.append(
                f"{kind} On-Demand ${on_demand.usd:.4f} ({on_demand.source}), Spot ${spot.usd:.4f} ({spot.source})"
            )
    if unknown:
        saw = f"no price for {', '.join(unknown)} in {settings.region}: every cost is at least the sum shown"
        return Finding(name="prices", verdict="warn", saw=saw, fix=ADD_PRICE)
    if current.problems:
        saw, fix = "; ".join((*known, *current.problems)), "allow your credentials these actions for live prices"
        return Finding(name="prices", verdict="warn", saw=saw, fix=fix)
    return Finding(name="prices", verdict="ok", saw="; ".join(known))


def cpu_credits(target: Target, current: CurrentPrices) -> Finding:
    """The credits that the measured load costs are at most a tenth of the price of the instances."""
    name, settings = "CPU credits", target.services.settings
    if all(baseline_percent(kind) is None for kind in settings.instance_types):
        return Finding(name=name, verdict="ok", saw=f"{', '.join(settings.instance_types)} have no CPU credits")
    cpu = measured_cpu(target)
    if cpu is None:
        return Finding(
            name=name,
            verdict="warn",
            saw="no CPU was recorded in 24 h, so their cost is not known",
            fix="wait for ticks",
        )
    if settings.cpu_credits == "standard":
        return _standard(cpu, settings.instance_types[0])
    tariff = settings.tariff(current.prices)
    every = (find_costly_credits(tariff, kind, cpu, settings.spot_percent) for kind in settings.instance_types)
    found = [one for one in every if one is not None]
    if not found:
        saw = f"CPU {cpu:.0f} %, the mean of 24 h: credits cost at most a tenth of the price of the instances"
        return Finding(name=name, verdict="ok", saw=saw)
    texts, fixes = zip(*(_costly(one, settings.money) for one in found), strict=True)
    return Finding(name=name, verdict="warn", saw="; ".join(texts), fix="; ".join(fixes))


def _standard(cpu_percent: float, instance_type: str) -> Finding:
    baseline = baseline_percent(instance_type)
    if baseline is None or cpu_percent <= baseline:
        return Finding(name="CPU credits", verdict="ok", saw=f"standard, CPU {cpu_percent:.0f} %, the mean of 24 h")
    saw = (
        f"CPU {cpu_percent:.0f} %, the mean of 24 h, is above the baseline of {instance_type} ({baseline:g} %): in "
        "mode standard EC2 slows a worker down to its baseline when its credits are used up"
    )
    return Finding(name="CPU credits", verdict="warn", saw=saw, fix="set cpu_credits to unlimited, or use another type")


def _costly(found: CreditFinding, money: Currency) -> tuple[str, str]:
    saw = (
        f"{found.instance_type}: CPU {found.cpu_percent:.0f} %, the mean of 24 h, over a baseline of "
        f"{found.baseline_percent:g} % costs {money.text(found.credits_usd * HOURS_PER_MONTH)} a month for each "
        f"worker, {found.share_of_instance * 100:.0f} % of the price of the instance"
    )
    if found.cheapest is None:
        return saw, "no type with its capacity is cheaper at this load: nothing to change, or lower the CPU thresholds"
    saved = money.text(found.saved_usd * HOURS_PER_MONTH)
    return saw, f"put {found.cheapest[0]} first in instance_types, which saves {saved} a month for each worker"


def cost_settings(target: Target) -> Finding:
    """Volume, public address and credits of the settings are those that EC2 launches."""
    name, settings, ec2 = "settings of costs", target.services.settings, target.client("ec2")
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=settings.launch_template_id, Versions=[settings.launch_template_version]
    )
    data = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    differences = [
        *_template_differences(settings.worker_volume_gib, settings.cpu_credits, data),
        *_subnet_differences(target, ec2),
    ]
    if differences:
        fix = "set them in cdk.json, under settings, to what EC2 launches, and deploy"
        return Finding(name=name, verdict="warn", saw="; ".join(differences), fix=fix)
    address = "with" if settings.worker_public_address else "without"
    saw = f"{settings.worker_volume_gib} GiB, {address} public address, CPU credits {settings.cpu_credits}"
    return Finding(name=name, verdict="ok", saw=saw)


def _template_differences(volume_gib: int, cpu_credits: str, data: Any) -> Iterator[str]:
    sizes = [one.get("Ebs", {}).get("VolumeSize") for one in data.get("BlockDeviceMappings", ())]
    size = sum(one for one in sizes if one)
    if size and size != volume_gib:
        yield f"worker_volume_gib is {volume_gib}, the launch template has {size} GiB"
    credits = data.get("CreditSpecification", {}).get("CpuCredits", "")
    if credits and credits != cpu_credits:
        yield f"cpu_credits is {cpu_credits}, the launch template has {credits}"


def _subnet_differences(target: Target, ec2: Any) -> Iterator[str]:
    settings = target.services.settings
    ids = list(settings.zones.values())
    if not ids:
        return
    differing = [
        one["SubnetId"]
        for one in ec2.describe_subnets(SubnetIds=ids)["Subnets"]
        if one.get("MapPublicIpOnLaunch", False) != settings.worker_public_address
    ]
    if differing:
        wanted, gives = ("true", "give none") if settings.worker_public_address else ("false", "give one")
        yield f"worker_public_address is {wanted}, and the subnets {', '.join(differing)} {gives}"
