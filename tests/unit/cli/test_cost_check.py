"""The findings of doctor about money: known prices, costly credits, and settings that differ from what EC2 launches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cli.cost import mean_of_readings
from cli.cost_check import cost_settings, cpu_credits, prices
from cli.findings import Finding
from cli.live_prices import CurrentPrices
from node_fleet.domain.cost.prices import PriceList
from node_fleet.settings import Settings

SUBNETS = ("ap-southeast-1a=subnet-0123456789abcdef0",)


class Ec2:
    """The launch template and the subnets of one cluster."""

    def __init__(self, *, gib: int = 20, credits: str = "", public: bool = True) -> None:
        self._gib, self._credits, self._public = gib, credits, public

    def describe_launch_template_versions(self, **_: Any) -> dict[str, Any]:
        data: dict[str, Any] = {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": self._gib}}]}
        if self._credits:
            data["CreditSpecification"] = {"CpuCredits": self._credits}
        return {"LaunchTemplateVersions": [{"LaunchTemplateData": data}]}

    def describe_subnets(self, **request: Any) -> dict[str, Any]:
        return {"Subnets": [{"SubnetId": one, "MapPublicIpOnLaunch": self._public} for one in request["SubnetIds"]]}


def target(*cpus: float | None, ec2: Ec2 | None = None, **settings: Any) -> Any:
    """A cluster with these settings, whose readings of the last 24 hours have this CPU."""
    readings = [{"cpu_percent": cpu, "usable": 2} for cpu in cpus]
    records = SimpleNamespace(readings=lambda since, until: readings)
    clock = SimpleNamespace(now=lambda: 1_780_272_000)
    services = SimpleNamespace(settings=Settings(subnets=SUBNETS, **settings), records=records, clock=clock)
    return SimpleNamespace(services=services, client=lambda service, region="": ec2 or Ec2())


def current(region: str = "ap-southeast-1", *problems: str) -> CurrentPrices:
    return CurrentPrices(prices=PriceList.shipped(region), problems=problems)


def credits_of(*cpus: float | None, **settings: Any) -> Finding:
    return cpu_credits(target(*cpus, **settings), current())


def test_each_price_says_from_where_it_is() -> None:
    found = prices(target(), current())
    assert found.verdict == "ok"
    assert found.saw == "t3.small On-Demand $0.0264 (shipped 2025-11), Spot $0.0087 (shipped 2025-11)"


def test_a_type_without_a_price_is_a_warning_that_costs_are_the_least() -> None:
    found = prices(target(instance_types=("t3.small", "x9.huge")), current())
    assert found.verdict == "warn"
    assert found.saw == "no price for x9.huge in ap-southeast-1: every cost is at least the sum shown"


def test_a_price_that_aws_refused_is_a_warning_with_its_reason() -> None:
    found = prices(target(), current("ap-southeast-1", "AWS did not answer the Spot prices (AccessDenied)"))
    assert found.verdict == "warn"
    assert "(shipped 2025-11)" in found.saw and found.saw.endswith("AWS did not answer the Spot prices (AccessDenied)")


@pytest.mark.parametrize(
    ("found", "verdict", "text"),
    [
        (credits_of(21.4), "ok", "credits cost at most a tenth"),
        (credits_of(45.0, 55.0), "warn", "t3.small: CPU 50 %, the mean of 24 h, over a baseline of 20 % costs $21.90"),
        (credits_of(50.0, None), "warn", "214 % of the price of the instance"),
        (credits_of(None), "warn", "no CPU was recorded in 24 h"),
        (credits_of(50.0, instance_types=("m5.large",)), "ok", "m5.large have no CPU credits"),
        (credits_of(20.0, cpu_credits="standard"), "ok", "standard"),
        (credits_of(21.0, cpu_credits="standard"), "warn", "slows a worker down to its baseline"),
    ],
    ids=["small", "costly", "share", "no readings", "not burstable", "standard, low", "standard, high"],
)
def test_credits_above_a_tenth_of_the_instance_are_a_warning(found: Finding, verdict: str, text: str) -> None:
    assert (found.verdict, text in found.saw) == (verdict, True), found


@pytest.mark.parametrize(
    ("cpu", "instance_type", "fix"),
    [
        (50.0, "t3.small", "put t3a.small first in instance_types, which saves $0.82 a month for each worker"),
        (90.0, "t3.small", "put c6i.large first in instance_types, which saves $20.35 a month for each worker"),
        (50.0, "t4g.small", "no type with its capacity is cheaper at this load"),
    ],
)
def test_the_fix_names_the_cheapest_type_for_the_load_and_what_it_saves(
    cpu: float, instance_type: str, fix: str
) -> None:
    assert credits_of(cpu, instance_types=(instance_type,)).fix.startswith(fix)


@pytest.mark.parametrize(
    ("settings", "ec2", "text"),
    [
        ({"worker_volume_gib": 20}, Ec2(gib=40), "worker_volume_gib is 20, the launch template has 40 GiB"),
        ({}, Ec2(credits="standard"), "cpu_credits is unlimited, the launch template has standard"),
        ({}, Ec2(public=False), "worker_public_address is true, and the subnets subnet-0123456789abcdef0 give none"),
        ({"worker_public_address": False}, Ec2(), "worker_public_address is false, and the subnets"),
    ],
    ids=["volume", "credits", "no address", "an address"],
)
def test_a_setting_that_differs_from_what_ec2_launches_is_a_warning(
    settings: dict[str, Any], ec2: Ec2, text: str
) -> None:
    found = cost_settings(target(ec2=ec2, **settings))
    assert found.verdict == "warn" and text in found.saw


def test_settings_that_are_what_ec2_launches_are_fine() -> None:
    found = cost_settings(target(ec2=Ec2(credits="unlimited")))
    assert (found.verdict, found.saw) == ("ok", "20 GiB, with public address, CPU credits unlimited")


def test_readings_count_by_their_workers_and_missing_cpu_does_not_count() -> None:
    readings: list[dict[str, Any]] = [{"cpu_percent": 80, "usable": 1}, {"cpu_percent": 20, "usable": 3}, {"usable": 9}]
    assert mean_of_readings(readings) == pytest.approx(35.0)
    assert mean_of_readings([{"usable": 2}]) is None
