"""Live prices: what AWS answers replaces the shipped price, and what it refuses keeps it. botocore checks requests."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from cli.live_prices import CurrentPrices, PriceReader, prices_for
from node_fleet.domain.cost.prices import DATED, Price, PriceList

REGION = "ap-southeast-1"
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LIVE, SHIPPED = "live 2026-03-01", f"shipped {DATED}"
ZONES = (f"{REGION}a", f"{REGION}b")


def client(service: str, region: str) -> Any:
    return boto3.client(service, region_name=region, aws_access_key_id="x", aws_secret_access_key="x")


class Account:
    """Stubbed clients: botocore checks each request against its model, and each answer too."""

    def __init__(self) -> None:
        self.ec2, self.pricing = client("ec2", REGION), client("pricing", "us-east-1")
        self.ec2_stub, self.pricing_stub = Stubber(self.ec2), Stubber(self.pricing)

    def types(self, *names: str, asked: tuple[str, ...] = (), burstable: bool = True) -> None:
        self.ec2_stub.add_response(
            "describe_instance_types",
            {"InstanceTypes": [{"InstanceType": name, "BurstablePerformanceSupported": burstable} for name in names]},
            {"Filters": [{"Name": "instance-type", "Values": list(asked or names)}]},
        )

    def spot(self, types: list[str], *entries: tuple[str, str, str, dt.datetime]) -> None:
        history = [
            {"InstanceType": kind, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": at}
            for kind, zone, price, at in entries
        ]
        self.ec2_stub.add_response(
            "describe_spot_price_history",
            {"SpotPriceHistory": history},
            {"InstanceTypes": types, "ProductDescriptions": ["Linux/UNIX"], "StartTime": NOW, "EndTime": NOW},
        )

    def products(self, filters: dict[str, str], *products: tuple[str, str, str]) -> None:
        texts = [
            json.dumps(
                {
                    "product": {"attributes": {"usagetype": usage, "instanceType": usage}},
                    "terms": {
                        "OnDemand": {"a": {"priceDimensions": {"b": {"unit": unit, "pricePerUnit": {"USD": usd}}}}}
                    },
                }
            )
            for usage, unit, usd in products
        ]
        wanted = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in {**filters, "regionCode": REGION}.items()]
        expected = {"ServiceCode": "AmazonEC2", "Filters": wanted, "FormatVersion": "aws_v1"}
        self.pricing_stub.add_response("get_products", {"PriceList": texts}, expected)

    def on_demand(self, kind: str, *products: tuple[str, str, str]) -> None:
        self.products(
            {
                "instanceType": kind,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
            },
            *products,
        )

    def volume(self, *products: tuple[str, str, str]) -> None:
        self.products({"productFamily": "Storage", "volumeApiName": "gp3"}, *products)

    def read(self, *types: str, zones: tuple[str, ...] = ZONES) -> CurrentPrices:
        with self.ec2_stub, self.pricing_stub:
            found = PriceReader(self.ec2, self.pricing, REGION, NOW).read(PriceList.shipped(REGION), [*types], zones)
            self.ec2_stub.assert_no_pending_responses()
            self.pricing_stub.assert_no_pending_responses()
            return found


def price(usd: float, source: str) -> Price:
    return Price(usd=pytest.approx(usd), source=source)


@pytest.fixture
def account() -> Account:
    return Account()


def test_live_prices_replace_the_shipped_ones_and_each_says_its_day(account: Account) -> None:
    account.types("t3.small")
    account.spot(
        ["t3.small"],
        ("t3.small", ZONES[0], "0.0100", NOW - dt.timedelta(hours=2)),
        ("t3.small", ZONES[0], "0.0080", NOW - dt.timedelta(hours=9)),
        ("t3.small", ZONES[1], "0.0120", NOW - dt.timedelta(hours=1)),
        ("t3.small", f"{REGION}c", "0.0900", NOW - dt.timedelta(hours=1)),
    )
    account.on_demand("t3.small", ("APS1-BoxUsage:t3.small", "Hrs", "0.0270"), ("APS1-Reservation", "Hrs", "0.0000"))
    account.volume(("APS1-EBS:VolumeUsage.gp3", "GB-Mo", "0.1000"), ("APS1-EBS:VolumeP-IOPS.gp3", "IOPS-Mo", "0.006"))
    found = account.read("t3.small")
    prices = found.prices
    assert found.problems == ()
    assert prices.instance("t3.small", "on-demand") == price(0.027, LIVE)
    assert prices.instance("t3.small", "spot", ZONES[0]) == price(0.010, LIVE)
    assert prices.instance("t3.small", "spot", ZONES[1]) == price(0.012, LIVE)
    assert prices.instance("t3.small", "spot") == price(0.011, LIVE), "the mean of the zones of the workers"
    assert prices.gp3_gib_month == price(0.1, LIVE)
    assert prices.instance("m5.large", "spot") == price(0.0456, SHIPPED), "a type that was not asked"


@pytest.fixture
def refused(account: Account) -> Iterator[CurrentPrices]:
    for method in ("describe_instance_types", "describe_spot_price_history"):
        account.ec2_stub.add_client_error(method, "UnauthorizedOperation")
    for _ in range(2):
        account.pricing_stub.add_client_error("get_products", "AccessDeniedException")
    yield account.read("t3.small")


def test_what_aws_refuses_keeps_its_shipped_price_and_names_the_permission(refused: CurrentPrices) -> None:
    assert refused.prices.instances == PriceList.shipped(REGION).instances
    assert refused.prices.gp3_gib_month == PriceList.shipped(REGION).gp3_gib_month
    actions = ("DescribeInstanceTypes", "DescribeSpotPriceHistory", "pricing:GetProducts", "pricing:GetProducts")
    for problem, action in zip(refused.problems, actions, strict=True):
        assert action in problem and f"those shipped in {DATED} are used" in problem


def test_a_type_that_the_region_does_not_offer_has_no_price(account: Account) -> None:
    account.types("t3.small", asked=("t3.small", "t3a.small"))
    account.spot(["t3.small"])
    account.on_demand("t3.small")
    account.volume()
    prices = account.read("t3.small", "t3a.small").prices
    assert prices.instance("t3a.small", "spot") is None
    assert prices.instance("t3.small", "spot") == price(0.0087, SHIPPED), "an empty answer is no price of 0"


def test_many_types_are_asked_in_groups_and_priced_with_one_request(account: Account) -> None:
    every = [f"m7i.{number}xlarge" for number in range(1, 231)]
    for few in (every[:200], every[200:]):
        account.types(*few, burstable=False)
    for few in (sorted(every)[:200], sorted(every)[200:]):
        account.spot(few, *[(few[0], ZONES[0], "0.5000", NOW)])
    attributes = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
    account.products(attributes, (every[0], "Hrs", "2.0000"), (every[0], "Hrs", "1.0000"), ("x2.large", "Hrs", "9.0"))
    account.volume()
    prices = account.read(*every).prices
    assert prices.instance(every[0], "on-demand") == price(1.0, LIVE)
    assert prices.instance(sorted(every)[200], "spot") == price(0.5, LIVE)
    assert prices.instance("x2.large", "on-demand") is None


def test_a_burstable_type_without_a_known_baseline_is_reported(account: Account) -> None:
    account.types("t9.small")
    account.spot(["t9.small"])
    account.on_demand("t9.small")
    account.volume()
    (problem,) = account.read("t9.small").problems
    assert problem.startswith("EC2 calls t9.small burstable, and node-fleet does not know its baseline")


def test_the_simulator_has_the_shipped_prices() -> None:
    simulated: Any = SimpleNamespace(services=SimpleNamespace(settings=SimpleNamespace(region=REGION)))
    assert prices_for(simulated, ["t3.small"]).prices == PriceList.shipped(REGION)
