"""The table of instance types: prices, pods, and the reason for each type that is no choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cli.live_prices import CurrentPrices
from cli.output import WrongUseError
from cli.type_choice import Choice, TypeLine
from cli.type_table import _range, _row, requirements_of
from node_fleet.domain.cost.prices import Price, PriceList
from node_fleet.settings import Settings

REGION = "ap-southeast-1"
SETTINGS = Settings.from_mapping(
    {"region": REGION, "instance_types": "t3.small,t3a.small", "subnets": f"{REGION}a=subnet-1,{REGION}b=subnet-2"}
)
SHIPPED = PriceList.shipped(REGION)


def choice(prices: PriceList = SHIPPED, pod: tuple[int, int] = (250, 128), **given: Any) -> Choice:
    settings = given.pop("settings", SETTINGS)
    return Choice(
        settings=settings,
        current=CurrentPrices(prices=prices),
        zones=tuple(settings.zones),
        requirements=requirements_of(settings, given),
        selected=None,
        pod=pod,
    )


def lines(*types: str, **given: Any) -> list[TypeLine]:
    return choice(**given).lines(types)


def reason(kind: str, **given: Any) -> str:
    return lines(kind, **given)[0].excluded


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("t3.small", {}, ""),
        ("m5.large", {}, "not configured"),
        ("m5.large", {"burstable": "excluded"}, ""),
        ("t3.small", {"burstable": "excluded"}, "burstable"),
        ("t4g.small", {}, "arm64, not x86_64"),
        ("x9.huge", {}, "its size is not known"),
        ("c7i.large", {}, f"no price in {REGION}"),
        ("t3.small", {"vcpus": (2, 4)}, ""),
        ("t2.small", {"vcpus": (2, 4)}, "1 vCPU, under 2"),
        ("m5.large", {"memory_gib": (2, 8)}, ""),
        ("m5.large", {"memory_gib": (2, 7.9)}, "8 GiB, over 7.9"),
        ("m5.large", {"excluded": ("m5.*",)}, "matches m5.*"),
        ("m6i.large", {"excluded": ("m5.*",)}, ""),
        ("t3.small", {"pod": (250, 1904)}, ""),
        ("t3.small", {"pod": (250, 1905)}, "the pod does not fit"),
        ("t3.small", {"pod": (2001, 64)}, "the pod does not fit"),
    ],
)
def test_each_type_that_is_no_choice_has_its_reason(kind: str, given: dict[str, Any], expected: str) -> None:
    assert reason(kind, **given) == expected


def test_an_x86_type_is_no_choice_for_workers_with_an_arm64_image() -> None:
    arm = replace(SETTINGS, instance_types=("t4g.small",))
    found = lines("t3.small", "t4g.small", settings=arm)
    assert [(one.instance_type, one.excluded) for one in found] == [
        ("t4g.small", ""),
        ("t3.small", "x86_64, not arm64"),
    ]


def test_choices_come_first_the_cheapest_at_the_top_and_unknown_prices_last() -> None:
    found = lines("c7i.large", "m5.large", "t3.small", "t3a.small")
    assert [one.instance_type for one in found] == ["t3a.small", "t3.small", "m5.large", "c7i.large"]


def test_a_month_of_a_worker_has_its_volume_and_address() -> None:
    (line,) = lines("t3.small")
    instance = 0.7 * 0.0087 + 0.3 * 0.0264
    assert line.usd_a_month == pytest.approx(730 * (instance + 0.005) + 20 * 0.096)
    assert (line.vcpus, line.memory_gib, line.baseline_percent, line.pods) == (2, 2.0, 20, 8)


def test_spot_is_shown_for_each_zone_of_the_workers_where_its_price_is_live() -> None:
    live = {("t3.small", f"{REGION}{zone}"): Price(usd=usd) for zone, usd in (("a", 0.008), ("b", 0.012), ("c", 0.1))}
    (line,) = lines("t3.small", prices=replace(SHIPPED, spot_pools=live))
    assert line.spot == {f"{REGION}a": 0.008, f"{REGION}b": 0.012}
    assert _row(line)[5] == "a 0.0080, b 0.0120"
    assert _row(lines("t3.small")[0])[5] == "0.0087"
    assert _row(lines("c7i.large")[0])[4:7] == ("unknown", "unknown", "unknown")


@pytest.mark.parametrize(("text", "found"), [("", None), ("2", (2, 2)), ("2-4", (2, 4)), ("0.5-8", (0.5, 8))])
def test_a_range_has_one_or_two_ends(text: str, found: tuple[float, float] | None) -> None:
    assert _range("--vcpus", text) == found


@pytest.mark.parametrize("text", ["x", "4-2", "-2", "2-", "nan", "2-nan"])
def test_a_text_that_is_no_range_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(WrongUseError, match=r"^--vcpus .* is not a number or a range") as refused:
        _range("--vcpus", text)
    assert "--vcpus 2-4" in (refused.value.hint or "")
