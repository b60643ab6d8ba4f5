"""CPU credits: baselines by type, the account of one instance in both modes, and the finding of a high cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.cpu_credits import CreditAccount, cheapest_type, find_costly_credits, mixed_hour
from node_fleet.domain.cost.prices import SURPLUS_CREDIT_HOURS, PriceList
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.instance_types import BURSTABLE_FAMILIES, CpuCredits, baseline_percent, is_arm, vcpus_of

HOUR = 3600
DAY = 24 * HOUR
TARIFF = Tariff(prices=PriceList.shipped("ap-southeast-1"))
EARNED_BY_AWS = {
    "nano": 6, "micro": 12, "small": 24, "medium": 24, "large": 36, "xlarge": 96, "2xlarge": 192,
}  # fmt: skip
"""Credits (vCPU-minutes) an hour of T3, T3a and T4g; EC2 user guide, "Earn CPU credits"."""
T2_EARNED_BY_AWS = {
    "nano": 3, "micro": 6, "small": 12, "medium": 24, "large": 36, "xlarge": 54, "2xlarge": 81.6,
}  # fmt: skip


@pytest.mark.parametrize("family", BURSTABLE_FAMILIES)
@pytest.mark.parametrize("size", EARNED_BY_AWS)
def test_baseline_and_vcpus_give_the_credits_of_the_user_guide(family: str, size: str) -> None:
    kind = f"{family}.{size}"
    baseline = baseline_percent(kind)
    assert baseline is not None
    earned = (T2_EARNED_BY_AWS if family == "t2" else EARNED_BY_AWS)[size]
    assert baseline / 100 * vcpus_of(kind) * 60 == pytest.approx(earned)
    assert family in SURPLUS_CREDIT_HOURS


@pytest.mark.parametrize("kind", ["m5.large", "c7g.medium", "x9.huge", "", "t3.metal"])
def test_other_types_have_no_baseline(kind: str) -> None:
    assert baseline_percent(kind) is None


@pytest.mark.parametrize(
    ("kind", "arm"),
    [("t4g.small", True), ("m6gd.large", True), ("a1.large", True), ("g4dn.xlarge", False), ("t3.nano", False)],
)
def test_graviton_families_are_known_by_the_letter_after_their_generation(kind: str, arm: bool) -> None:
    assert is_arm(kind) is arm


def account(*stretches: tuple[float, float], mode: CpuCredits = "unlimited", kind: str = "t3.small") -> CreditAccount:
    """An account after stretches of (CPU percent of all vCPUs, seconds)."""
    found = CreditAccount(kind, mode)
    for cpu, seconds in stretches:
        found.use(cpu / 100 * vcpus_of(kind) * seconds, seconds)
    return found


@pytest.mark.parametrize(
    ("stretches", "charged", "at_end"),
    [
        ([(20, DAY)], 0, 0),
        ([(50, HOUR)], 0, 0.6),
        ([(50, 16 * HOUR)], 0, 9.6),
        ([(50, 17 * HOUR)], 0.6, 10.2),
        ([(0, HOUR), (40, HOUR)], 0, 0),
        ([(40, HOUR), (0, HOUR)], 0, 0),
        ([(0, 3 * DAY), (100, 6 * HOUR)], 0, 0),
        ([(0, 3 * DAY), (100, 7 * HOUR)], 0, 1.6),
    ],
    ids=[
        "at the baseline",
        "a short life pays its surplus at its end",
        "a surplus of 24 hours of earnings is not charged yet",
        "a larger surplus is charged",
        "earned credits pay for a later burst",
        "a burst is paid back by later idle time",
        "the account keeps the credits of 24 hours",
        "and not more than those",
    ],
)
def test_mode_unlimited_charges_the_surplus_that_is_not_paid_back(
    stretches: list[tuple[float, float]], charged: float, at_end: float
) -> None:
    found = account(*stretches)
    assert found.charged == pytest.approx(charged)
    assert found.charged_at_end == pytest.approx(at_end)
    assert found.missing == 0


@pytest.mark.parametrize(
    ("kind", "stretches", "missing"),
    [
        ("t3.small", [(20, HOUR)], 0),
        ("t3.small", [(50, HOUR)], 0.6),
        ("t3.small", [(0, HOUR), (40, HOUR)], 0),
        ("t2.small", [(100, HOUR / 2)], 0),
        ("t2.small", [(100, HOUR)], 0.3),
    ],
    ids=[
        "the baseline is always there",
        "a new worker has no credits",
        "earned credits can be used",
        "T2 has launch credits",
        "until they are used up",
    ],
)
def test_mode_standard_charges_nothing_and_gives_no_more_than_was_earned(
    kind: str, stretches: list[tuple[float, float]], missing: float
) -> None:
    found = account(*stretches, mode="standard", kind=kind)
    assert found.missing == pytest.approx(missing)
    assert found.charged_at_end == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(1, DAY)), min_size=1, max_size=30))
def test_both_modes_account_for_all_cpu_above_the_baseline(stretches: list[tuple[float, float]]) -> None:
    unlimited, standard = account(*stretches), account(*stretches, mode="standard")
    surplus = sum((cpu / 100 - 0.2) * 2 * seconds / HOUR for cpu, seconds in stretches)
    above = sum(max(0.0, cpu / 100 - 0.2) * 2 * seconds / HOUR for cpu, seconds in stretches)
    assert max(0.0, surplus) - 1e-6 <= unlimited.charged_at_end <= above + 1e-6
    assert max(0.0, surplus) - 1e-6 <= standard.missing <= above + 1e-6
    assert standard.missing >= unlimited.charged_at_end - 1e-6, "unlimited may pay a burst back later, standard may not"


@pytest.mark.parametrize(("cpu", "is_costly"), [(20.0, False), (21.4, False), (21.5, True), (60.0, True)])
def test_credits_above_a_tenth_of_the_instance_are_a_finding(cpu: float, is_costly: bool) -> None:
    """70 % Spot: 0.7 x 0.0087 + 0.3 x 0.0264 = 0.01401 USD an hour, of which a tenth is 1.4 % of two vCPUs."""
    found = find_costly_credits(TARIFF, "t3.small", cpu, 70)
    assert (found is not None) is is_costly


def test_the_finding_names_the_share_the_cheapest_type_and_what_it_saves() -> None:
    found = find_costly_credits(TARIFF, "t3.small", 50.0, 70)
    assert found is not None and found.cheapest is not None
    assert found.credits_usd == pytest.approx(0.03)
    assert found.share_of_instance == pytest.approx(0.03 / 0.01401)
    assert found.cheapest[0] == "t3a.small"
    assert found.saved_usd == pytest.approx(0.7 * (0.0087 - 0.0083) + 0.3 * (0.0264 - 0.0236))


@pytest.mark.parametrize(
    ("cpu", "cheapest"), [(10.0, "t3a.small"), (60.0, "t3a.small"), (70.0, "c6i.large"), (100.0, "c6i.large")]
)
def test_above_a_load_of_two_thirds_a_type_without_credits_is_the_cheapest(cpu: float, cheapest: str) -> None:
    found = cheapest_type(TARIFF, "t3.small", cpu, 70)
    assert found is not None and found[0] == cheapest
    assert found[1] < mixed_hour(TARIFF, "t3.small", cpu, 70).usd


def test_a_type_of_the_other_architecture_is_not_named() -> None:
    found = cheapest_type(TARIFF, "t4g.small", 100.0, 70)
    assert found is None or is_arm(found[0])


def test_in_mode_standard_and_without_a_price_there_is_no_finding() -> None:
    standard = Tariff(prices=TARIFF.prices, cpu_credits="standard")
    assert find_costly_credits(standard, "t3.small", 90.0, 70) is None
    assert find_costly_credits(Tariff(prices=PriceList.shipped("mars-1")), "t3.small", 90.0, 70) is None
    assert find_costly_credits(TARIFF, "m5.large", 90.0, 70) is None
