"""Live prices, with the operator's credentials: Spot from EC2, On-Demand and volumes from the Price List API.

What AWS does not answer keeps its shipped price, and a sentence says so. It changes nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from cli.target import Deployed, Target
from node_fleet.domain.cost.prices import DATED, Price, PriceList
from node_fleet.domain.model.instance_types import baseline_percent
from node_fleet.domain.model.value_class import value_class

Answer = TypeVar("Answer")

PRICE_LIST_REGION = "us-east-1"
"""The Price List API has endpoints in a few regions; each of them knows the prices of every region."""
NO_POOLS: dict[tuple[str, str], float] = {}
NO_TYPES: dict[str, float] = {}
GP3_USAGE = "EBS:VolumeUsage.gp3"
MOST_FILTER_VALUES = 200
"""What EC2 accepts as values of one filter."""
MOST_REQUESTS = 25
"""So many types are priced one by one. The region's list is some 15 pages of the Price List API."""


def batched(values: list[str], size: int) -> Iterator[list[str]]:
    """The values in groups of at most that size."""
    return (values[first : first + size] for first in range(0, len(values), size))


@value_class
class CurrentPrices:
    """The prices of a region, and a sentence for each of them that AWS did not answer."""

    prices: PriceList
    problems: tuple[str, ...] = ()


def prices_for(target: Target, types: Iterable[str]) -> CurrentPrices:
    """Live prices of these types in an account; the shipped prices in the simulator, which has no account."""
    settings = target.services.settings
    if not isinstance(target, Deployed):
        return CurrentPrices(prices=PriceList.shipped(settings.region))
    return live_prices(target.client, settings.region, types, tuple(settings.zones), target.services.clock.now())


def live_prices(
    client: Callable[..., Any], region: str, types: Iterable[str], zones: tuple[str, ...], now: float
) -> CurrentPrices:
    """Live prices of these types in that region. client: makes a boto3 client of a service, and of another region."""
    reader = PriceReader(
        client("ec2"), client("pricing", PRICE_LIST_REGION), region, dt.datetime.fromtimestamp(now, tz=dt.UTC)
    )
    return reader.read(PriceList.shipped(region), sorted(set(types)), zones)


class PriceReader:
    """Asks AWS for the prices of one region."""

    def __init__(self, ec2: Any, price_list: Any, region: str, now: dt.datetime) -> None:
        self._ec2 = ec2
        self._price_list = price_list
        self._region = region
        self._now = now
        self._problems: list[str] = []

    def read(self, shipped: PriceList, types: list[str], zones: tuple[str, ...]) -> CurrentPrices:
        """The shipped prices, replaced by those that AWS answers. The Spot price of a type is the mean of the zones."""
        offered = self._asked("types", "ec2:DescribeInstanceTypes", lambda: self._types(types), dict.fromkeys(types))
        found = sorted(offered)
        spot = self._asked("Spot prices", "ec2:DescribeSpotPriceHistory", lambda: self._spot(found), NO_POOLS)
        on_demand = self._asked("On-Demand prices", "pricing:GetProducts", lambda: self._on_demand(found), NO_TYPES)
        gp3 = self._asked("price of a gp3 volume", "pricing:GetProducts", self._gp3, None)
        self._problems += [
            f"EC2 calls {kind} burstable, and node-fleet does not know its baseline: its CPU credits are not counted"
            for kind, is_burstable in offered.items()
            if is_burstable and baseline_percent(kind) is None
        ]
        instances = {**shipped.instances, **{(kind, "on-demand"): self._live(usd) for kind, usd in on_demand.items()}}
        for kind in found:
            here = [usd for (name, zone), usd in spot.items() if name == kind and (zone in zones or not zones)]
            if here:
                instances[kind, "spot"] = self._live(fmean(here))
        prices = replace(
            shipped,
            instances={key: price for key, price in instances.items() if key[0] in offered or key[0] not in types},
            spot_pools={pool: self._live(usd) for pool, usd in spot.items()},
            gp3_gib_month=shipped.gp3_gib_month if gp3 is None else self._live(gp3),
        )
        return CurrentPrices(prices=prices, problems=tuple(self._problems))

    def _live(self, usd: float) -> Price:
        return Price(usd=usd, source=f"live {self._now:%Y-%m-%d}")

    def _asked(self, what: str, action: str, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            answer = ask()
        except ClientError as error:
            reason = f"{error.response['Error']['Code']}; your credentials need {action}"
        except BotoCoreError as error:
            reason = str(error)[:160]
        else:
            return answer
        self._problems.append(f"AWS did not answer the {what} ({reason}): those shipped in {DATED} are used")
        return otherwise

    def _types(self, types: list[str]) -> dict[str, bool | None]:
        """The types that EC2 offers in this region, and whether they are burstable."""
        paginator = self._ec2.get_paginator("describe_instance_types")
        return {
            one["InstanceType"]: one.get("BurstablePerformanceSupported")
            for few in batched(types, MOST_FILTER_VALUES)
            for page in paginator.paginate(Filters=[{"Name": "instance-type", "Values": few}])
            for one in page["InstanceTypes"]
        }

    def _spot(self, types: list[str]) -> dict[tuple[str, str], float]:
        """(type, zone) -> the price in force."""
        paginator = self._ec2.get_paginator("describe_spot_price_history")
        newest: dict[tuple[str, str], tuple[dt.datetime, float]] = {}
        for few in batched(types, MOST_FILTER_VALUES):
            for page in paginator.paginate(
                InstanceTypes=few, ProductDescriptions=["Linux/UNIX"], StartTime=self._now, EndTime=self._now
            ):
                for one in page["SpotPriceHistory"]:
                    pool = (one["InstanceType"], one["AvailabilityZone"])
                    entry = (one["Timestamp"], float(one["SpotPrice"]))
                    newest[pool] = max(newest.get(pool, entry), entry)
        return {pool: usd for pool, (_, usd) in newest.items()}

    def _on_demand(self, types: list[str]) -> dict[str, float]:
        """Type -> the price of a Linux instance of an own account, without other software.

        For many types, one request for all types of the region takes less time than one for each of them.
        """
        found: dict[str, float] = {}
        plain = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
        for asked in [{}] if len(types) > MOST_REQUESTS else [{"instanceType": kind} for kind in types]:
            for product, unit, usd in self._products({**asked, **plain}):
                kind = asked.get("instanceType") or product.get("instanceType", "")
                if unit == "Hrs" and usd > 0 and kind in types:
                    found[kind] = min(usd, found.get(kind, usd))
        return found

    def _gp3(self) -> float | None:
        products = self._products({"productFamily": "Storage", "volumeApiName": "gp3"})
        prices = [
            usd for one, unit, usd in products if one.get("usagetype", "").endswith(GP3_USAGE) and unit == "GB-Mo"
        ]
        return min(prices, default=None)

    def _products(self, filters: dict[str, str]) -> Iterator[tuple[dict[str, str], str, float]]:
        """Attributes, unit and USD of each On-Demand price of the products in this region."""
        wanted = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in {**filters, "regionCode": self._region}.items()
        ]
        pages = self._price_list.get_paginator("get_products").paginate(
            ServiceCode="AmazonEC2", Filters=wanted, FormatVersion="aws_v1"
        )
        for page in pages:
            for text in page["PriceList"]:
                product = json.loads(text)
                attributes = product["product"]["attributes"]
                for term in product["terms"].get("OnDemand", {}).values():
                    for price in term["priceDimensions"].values():
                        yield attributes, price["unit"], float(price["pricePerUnit"].get("USD", 0))
