"""Live prices, with the operator's credentials: Spot from EC2, On-Demand and volumes from the Price List API.

What AWS does not answer keeps its shipped price, and a sentence says so. It changes nothing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from cli.target import Deployed, Target
from node_fleet.domain.cost.prices import DATED, Price, PriceList
from node_fleet.domain.model.instance_types import baseline_percent

Answer = TypeVar("Answer")

PRICE_LIST_REGION = "us-east-1"
"""The Price List API has endpoints in a few regions; each of them knows the prices of every region."""
NO_POOLS: dict[tuple[str, str], float] = {}
NO_TYPES: dict[str, float] = {}
GP3_USAGE = "EBS:VolumeUsage.gp3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPrices:
    """The prices of a region, and a sentence for each of them that AWS did not answer."""

    prices: PriceList
    problems: tuple[str, ...] = ()


def prices_for(target: Target, types: Iterable[str]) -> CurrentPrices:
    """Live prices of these types in an account; the shipped prices in the simulator, which has no account."""
    settings = target.services.settings
    shipped = PriceList.shipped(settings.region)
    if not isinstance(target, Deployed):
        return CurrentPrices(prices=shipped)
    now = dt.datetime.fromtimestamp(target.services.clock.now(), tz=dt.UTC)
    reader = PriceReader(target.client("ec2"), target.client("pricing", PRICE_LIST_REGION), settings.region, now)
    return reader.read(shipped, sorted(set(types)), tuple(settings.zones))


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
        pages = self._ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "instance-type", "Values": types}]
        )
        return {
            one["InstanceType"]: one.get("BurstablePerformanceSupported")
            for page in pages
            for one in page["InstanceTypes"]
        }

    def _spot(self, types: list[str]) -> dict[tuple[str, str], float]:
        """(type, zone) -> the price in force."""
        pages = self._ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=types, ProductDescriptions=["Linux/UNIX"], StartTime=self._now, EndTime=self._now
        )
        newest: dict[tuple[str, str], tuple[dt.datetime, float]] = {}
        for page in pages:
            for one in page["SpotPriceHistory"]:
                pool, entry = (
                    (one["InstanceType"], one["AvailabilityZone"]),
                    (one["Timestamp"], float(one["SpotPrice"])),
                )
                newest[pool] = max(newest.get(pool, entry), entry)
        return {pool: usd for pool, (_, usd) in newest.items()}

    def _on_demand(self, types: list[str]) -> dict[str, float]:
        """Type -> the price of a Linux instance of an own account, without other software."""
        found = {}
        for kind in types:
            filters = {
                "instanceType": kind,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
            }
            prices = [usd for _, unit, usd in self._products(filters) if unit == "Hrs" and usd > 0]
            if prices:
                found[kind] = min(prices)
        return found

    def _gp3(self) -> float | None:
        products = self._products({"productFamily": "Storage", "volumeApiName": "gp3"})
        prices = [usd for usage, unit, usd in products if usage.endswith(GP3_USAGE) and unit == "GB-Mo"]
        return min(prices, default=None)

    def _products(self, filters: dict[str, str]) -> Iterator[tuple[str, str, float]]:
        """Usage type, unit and USD of each On-Demand price of the products in this region."""
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
                usage = product["product"]["attributes"].get("usagetype", "")
                for term in product["terms"].get("OnDemand", {}).values():
                    for price in term["priceDimensions"].values():
                        yield usage, price["unit"], float(price["pricePerUnit"].get("USD", 0))
