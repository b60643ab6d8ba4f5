"""Fleets of several instance types under one load, and what each costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from backtest.compare import Assumptions, study
from backtest.model import Capacity, ModelError
from backtest.trace import Stretch, Trace
from backtest.type_study import TypeStudy, answer, as_data, name_of, rows, study_types, types_of
from node_fleet.settings import Settings


def trace() -> Trace:
    """Half a day of five-minute readings, from low to high."""
    times = tuple(range(1_780_272_000, 1_780_272_000 + 43200, 300))
    values = tuple(100 - 80 * math.cos((at - times[0]) / 43200 * math.pi) for at in times)
    return Trace(name="day", interval_seconds=300, stretches=(Stretch(times=times, values=values),))


def compared(*types: str, **settings: Any) -> TypeStudy:
    chosen = Settings.from_mapping({"region": "ap-southeast-1", **settings})
    fleets = [chosen.instance_types, *(tuple(one.split("+")) for one in types)]
    return study_types(trace(), chosen, Assumptions(), fleets, chosen.tariff())


def test_every_type_carries_the_same_load_and_the_configured_one_comes_first() -> None:
    found = compared("c6i.large", "t3.small", "t3a.small")
    assert [row[0] for row in rows(found)] == ["t3.small", "c6i.large", "t3a.small"]
    loads = [(one.load.milli_per_unit, [phase.changes for phase in one.load.phases]) for one in found.studies]
    assert loads[1:] == loads[:1] * 2


def test_the_configured_type_costs_what_its_own_study_says() -> None:
    own = study(trace(), Settings.from_mapping({"region": "ap-southeast-1"}), Assumptions())
    first = as_data(compared("t3a.small"))["fleets"][0]
    assert (first["worker_hours"], first["usd"]) == (
        round(own.configured.worker_hours, 3),
        round(own.cost(own.configured).usd, 4),
    )
    assert first["usd_a_month"] == pytest.approx(first["usd"] / own.configured.days * 730 / 24, abs=1e-3)


def test_types_of_one_size_differ_by_their_prices_only_and_the_cheaper_is_the_answer() -> None:
    small, cheaper = as_data(compared("t3a.small"))["fleets"]
    assert small["worker_hours"] == cheaper["worker_hours"]
    per_hour = 0.7 * (0.0087 - 0.0083) + 0.3 * (0.0264 - 0.0236)
    assert small["usd"] - cheaper["usd"] == pytest.approx(small["worker_hours"] * per_hour, abs=1e-3)
    assert "cheapest without more pending pod-minutes: t3a.small" in answer(compared("t3a.small"))


def test_a_list_of_one_type_costs_what_the_type_costs() -> None:
    alone, listed = (as_data(compared(one))["fleets"][1] for one in ("t3a.small", "t3a.small+t3a.small"))
    assert {**alone, "types": []} == {**listed, "types": []}


def test_workers_of_a_list_are_billed_by_their_own_types_and_spot_takes_the_cheapest() -> None:
    found = compared("t3.medium+t3a.small")
    mixed = found.studies[1]
    hours = {one.instance_type: one.worker_hours for one in mixed.configured.usage}
    assert set(hours) == {"t3.medium", "t3a.small"}, "On-Demand takes the first of the list"
    assert sum(hours.values()) == pytest.approx(mixed.configured.worker_hours)
    prices = {"t3.medium": (0.0174, 0.0528), "t3a.small": (0.0083, 0.0236)}
    beside, credits = 0.005 + 20 * 0.096 / 730, sum(one.charged_vcpu_hours for one in mixed.configured.usage) * 0.05
    by_hand = sum(hours[kind] * (0.7 * spot + 0.3 * full + beside) for kind, (spot, full) in prices.items()) + credits
    assert mixed.cost(mixed.configured).usd == pytest.approx(by_hand)
    assert rows(found)[1][:4] == ("t3.medium+t3a.small", "2", "2-4", "7")


def test_a_worker_of_a_list_has_the_pods_and_the_cpu_of_its_own_type() -> None:
    (mixed,) = compared("m5.large+t2.small", max_workers=6).studies[1:]
    alone = {name_of(one): one for one in compared("t2.small", "m5.large", max_workers=6).studies}
    assert mixed.load.max_workers == alone["t2.small"].load.max_workers
    hours = mixed.configured.worker_hours
    assert alone["m5.large"].configured.worker_hours < hours < alone["t2.small"].configured.worker_hours


def test_a_long_list_is_named_by_its_first_type_and_the_number_of_the_others() -> None:
    found = compared("t3a.small+t3.small+t3.medium", "t3a.small+t3.small+t3.medium+t3.large")
    assert [name_of(one) for one in found.studies[1:]] == ["t3a.small+t3.small+t3.medium", "t3a.small+3 more"]
    assert types_of(found.studies[2]) == ("t3a.small", "t3.small", "t3.medium", "t3.large")


def test_the_largest_fleet_of_a_smaller_type_holds_as_many_pods() -> None:
    fleets = as_data(compared("c7g.medium", "m5.large", max_workers=6))["fleets"]
    assert {one["types"][0]["type"]: (one["types"][0]["pods_per_worker"], one["max_workers"]) for one in fleets} == {
        "t3.small": (7, 6),
        "c7g.medium": (3, 14),
        "m5.large": (7, 6),
    }


def test_a_type_without_a_price_costs_at_least_its_volumes_and_is_not_the_cheapest() -> None:
    found = compared("c7g.medium")
    assert str(rows(found)[1][5]).startswith("at least ") and rows(found)[1][6] == "unknown"
    assert as_data(found)["fleets"][1]["usd_missing"] == [
        "the price of c7g.medium spot in ap-southeast-1",
        "the price of c7g.medium on-demand in ap-southeast-1",
    ]
    assert answer(found).endswith("no compared fleet is cheaper without more pending pod-minutes")


def test_a_cheaper_type_whose_standard_credits_leave_demand_unserved_is_not_the_answer() -> None:
    chosen = Settings.from_mapping({"region": "ap-southeast-1", "cpu_credits": "standard"})
    own = Assumptions(capacity=Capacity.of_type("c6i.large"))
    found = study_types(trace(), chosen, own, [("c6i.large",), ("t3.small",)], chosen.tariff())
    large, small = as_data(found)["fleets"]
    assert (large["missing_vcpu_hours"], small["usd"] < large["usd"]) == (0, True)
    assert small["missing_vcpu_hours"] > 0
    assert found.cheapest is found.configured


@pytest.mark.parametrize(
    ("instance_type", "reason"),
    [
        ("x9.huge", "the size of 'x9.huge' is not known, expected a type of family t, c, m or r"),
        ("t2.nano", "fits no t2.nano: pods can request 900m and 162 MiB"),
    ],
)
def test_a_type_that_cannot_be_modelled_is_refused_with_its_name(instance_type: str, reason: str) -> None:
    with pytest.raises(ModelError, match=instance_type) as refused:
        Capacity.of_type(instance_type, pod_memory_mib=200)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("instance_type", "allocatable"),
    [("t3.small", (1900, 1698)), ("t3.medium", (1900, 3746)), ("t2.small", (900, 1698)), ("m5.xlarge", (3900, 16034))],
)
def test_every_type_reserves_as_much_as_a_t3_small(instance_type: str, allocatable: tuple[int, int]) -> None:
    found = Capacity.of_type(instance_type)
    assert (found.allocatable_cpu_milli, found.allocatable_memory_mib) == allocatable


def test_another_type_has_the_same_pods_and_times() -> None:
    own = Capacity.of_type("t3.small", pod_memory_mib=500, pod_cpu_milli=200, boot_seconds=120)
    other = own.as_type("t3.medium")
    assert (own.pods_per_worker, other.pods_per_worker, other.boot_seconds) == (3, 7, 120)
    assert other.as_type("t3.small") == own


def test_a_t3_small_is_the_default() -> None:
    assert Capacity.of_type("t3.small") == Capacity()
