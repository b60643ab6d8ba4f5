"""Which instance types meet requirements, held to what EC2 describes of every type."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto.ec2.models.instance_types import INSTANCE_TYPES

from node_fleet.domain.cost.prices import REGIONS, PriceList
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.cost.type_choice import cheapest_first, matching_types, types_meeting
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.instance_requirements import InstanceRequirements, is_match
from node_fleet.domain.model.instance_types import TypeFacts, facts_of
from node_fleet.settings import Settings
from node_fleet.settings.parsing import given_requirements

REGION = "ap-southeast-1"
DESCRIBED: dict[str, dict[str, Any]] = INSTANCE_TYPES
"""DescribeInstanceTypes of AWS, as moto ships it."""
KNOWN = tuple(kind for kind in DESCRIBED if facts_of(kind))
WIDE: dict[str, Any] = {"vcpus": [1, 192], "memory_gib": [0.5, 2048]}


def described(kind: str) -> TypeFacts:
    """The facts of a type as EC2 describes it."""
    raw = DESCRIBED[kind]
    return TypeFacts(
        instance_type=kind,
        vcpus=raw["VCpuInfo"]["DefaultVCpus"],
        memory_mib=raw["MemoryInfo"]["SizeInMiB"],
        architecture="arm64" if "arm64" in raw["ProcessorInfo"]["SupportedArchitectures"] else "x86_64",
        is_burstable=raw["BurstablePerformanceSupported"],
        generation="current" if raw["CurrentGeneration"] else "previous",
    )


def test_the_facts_of_every_known_type_are_those_that_ec2_describes() -> None:
    assert len(KNOWN) > 900
    assert [facts_of(kind) for kind in KNOWN] == [described(kind) for kind in KNOWN]


def test_every_type_with_a_shipped_price_has_known_facts_and_no_accelerator() -> None:
    shipped = {kind for region in REGIONS for kind in PriceList.shipped(region).types}
    assert shipped <= set(KNOWN)
    assert not [kind for kind in shipped if {"GpuInfo", "InferenceAcceleratorInfo"} & DESCRIBED[kind].keys()]


REQUIRED = InstanceRequirements(vcpus=(2, 4), memory_gib=(2, 8), burstable="included")


@pytest.mark.parametrize(
    ("changed", "kind", "refusal"),
    [
        ({}, "t3.small", ""),
        ({"vcpus": (2, 2)}, "t3.small", ""),
        ({"vcpus": (3, 4)}, "t3.small", "2 vCPU, under 3"),
        ({"vcpus": (1, 1)}, "t3.small", "2 vCPU, over 1"),
        ({"memory_gib": (2, 2)}, "t3.small", ""),
        ({"memory_gib": (2.5, 8)}, "t3.small", "2 GiB, under 2.5"),
        ({"memory_gib": (0.5, 1.5)}, "t3.small", "2 GiB, over 1.5"),
        ({"architecture": "arm64"}, "t3.small", "x86_64, not arm64"),
        ({"architecture": "arm64"}, "t4g.small", ""),
        ({}, "t4g.small", "arm64, not x86_64"),
        ({"burstable": "excluded"}, "t3.small", "burstable"),
        ({"burstable": "excluded"}, "m6i.large", ""),
        ({"burstable": "required"}, "t3.small", ""),
        ({"burstable": "required"}, "c6i.large", "not burstable"),
        ({"generations": ("current",)}, "m5.large", "of the previous generation"),
        ({"generations": ("previous",)}, "m5.large", ""),
        ({"generations": ("previous",)}, "t3.small", "of the current generation"),
        ({"excluded": ("t3.*",)}, "t3.small", "matches t3.*"),
        ({"excluded": ("t3.*",)}, "t3a.small", ""),
    ],
)
def test_a_type_is_refused_by_the_first_requirement_that_it_does_not_meet(
    changed: dict[str, Any], kind: str, refusal: str
) -> None:
    facts = facts_of(kind)
    assert facts is not None
    assert replace(REQUIRED, **changed).refusal(facts) == refusal


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        ("m5.8xlarge", ["m5.8xlarge"], ["m5.xlarge"]),
        ("c5*.*", ["c5.large", "c5a.large", "c5n.large"], ["c6i.large"]),
        ("c5*", ["c5.large", "c5a.large", "c5n.large"], ["m5.large"]),
        ("m5a.*", ["m5a.large"], ["m5n.large", "m5.large"]),
        ("r*", ["r5.large", "r6g.large"], ["m5.large", "t3.large"]),
        ("*3*", ["t3.small", "r3.large", "m3.large"], ["t2.small"]),
        ("t3.s", [], ["t3.small"]),
        ("t3.smal?", [], ["t3.small"]),
        ("t3-small", [], ["t3.small"]),
    ],
)
def test_an_excluded_type_has_the_wildcards_of_ec2(pattern: str, matched: list[str], others: list[str]) -> None:
    assert [one for one in (*matched, *others) if is_match(one, pattern)] == matched


ranges = st.tuples(st.integers(1, 200), st.integers(1, 200)).map(lambda ends: tuple(map(float, sorted(ends))))
requirements = st.builds(
    InstanceRequirements,
    vcpus=ranges,
    memory_gib=ranges,
    architecture=st.sampled_from(("x86_64", "arm64")),
    burstable=st.sampled_from(("included", "excluded", "required")),
    generations=st.sampled_from((("current",), ("previous",), ("current", "previous"))),
    excluded=st.lists(st.sampled_from(("t3.*", "c5*", "*2xlarge", "m*")), max_size=2).map(tuple),
)


@given(requirements)
def test_a_type_is_listed_if_and_only_if_each_attribute_holds(required: InstanceRequirements) -> None:
    def holds(kind: str) -> bool:
        facts = described(kind)
        return (
            required.vcpus[0] <= facts.vcpus <= required.vcpus[1]
            and required.memory_mib[0] <= facts.memory_mib <= required.memory_mib[1]
            and facts.architecture == required.architecture
            and facts.is_burstable
            in {"included": (True, False), "excluded": (False,), "required": (True,)}[required.burstable]
            and facts.generation in required.generations
            and not any(is_match(kind, pattern) for pattern in required.excluded)
        )

    assert matching_types(required, KNOWN) == [kind for kind in KNOWN if holds(kind)]


@given(requirements, ranges, ranges)
def test_widening_a_range_never_removes_a_type(
    required: InstanceRequirements, vcpus: tuple[float, float], memory: tuple[float, float]
) -> None:
    wider = replace(
        required,
        vcpus=(min(vcpus[0], required.vcpus[0]), max(vcpus[1], required.vcpus[1])),
        memory_gib=(min(memory[0], required.memory_gib[0]), max(memory[1], required.memory_gib[1])),
    )
    assert set(matching_types(required, KNOWN)) <= set(matching_types(wider, KNOWN))


@given(required=requirements, most=st.integers(1, 20))
def test_the_list_has_the_cheapest_types_in_their_order_and_none_more_than_allowed(
    required: InstanceRequirements, most: int
) -> None:
    tariff = Tariff(prices=PriceList.shipped(REGION))
    every = cheapest_first(matching_types(required, tariff.prices.types), tariff, 70)
    assert types_meeting(replace(required, max_types=most), tariff, 70) == tuple(every[:most])
    hours = [
        0.7 * (tariff.instance_usd(k, "spot") or 0) + 0.3 * (tariff.instance_usd(k, "on-demand") or 0) for k in every
    ]
    assert hours == sorted(hours)


def settings(**raw: Any) -> Settings:
    return Settings.from_mapping({"region": REGION, **raw})


def test_requirements_stand_for_the_types_of_the_shipped_table_or_for_the_recorded_ones() -> None:
    required = {"vcpus": [2, 2], "memory_gib": [2, 4], "burstable": "required", "excluded": ["t3.*"]}
    assert settings(instance_requirements=required).instance_types == ("t3a.small", "t3a.medium")
    recorded = Settings.from_mapping({"instance_requirements": required}, ("m7i.large",))
    assert recorded.instance_types == ("m7i.large",)


@given(requirements)
def test_requirements_survive_the_environment(required: InstanceRequirements) -> None:
    chosen = Settings.from_mapping({"instance_requirements": given_requirements(required)}, ("t3a.small", "m5.large"))
    assert chosen.instance_requirements == required
    assert Settings.from_env({**chosen.to_env(), "AWS_REGION": chosen.region}) == chosen


def test_without_requirements_the_environment_has_none() -> None:
    assert "INSTANCE_REQUIREMENTS" not in settings().to_env()
    assert settings(instance_requirements="").instance_requirements is None


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"vcpus": [4, 2], "memory_gib": [4, 8]}, "vcpus=[4, 2]: the smallest value is above the largest"),
        (
            {"vcpus": [2], "memory_gib": [4, 8]},
            "vcpus=[2]: expected the smallest and the largest value, such as [2, 4]",
        ),
        ({"vcpus": [0, 2], "memory_gib": [4, 8]}, "vcpus=[0, 2]: expected values above 0"),
        ({"vcpus": [1.5, 2], "memory_gib": [4, 8]}, "vcpus=[1.5, 2]: expected a whole number of vCPUs"),
        ({"vcpus": [2, 2], "memory_gib": [0.0001, 8]}, "memory_gib=[0.0001, 8]: expected a whole number of MiB"),
        ({"vcpus": [2, 4]}, "it lacks memory_gib, expected"),
        ({}, "it lacks vcpus, memory_gib, expected"),
        ({**WIDE, "architecture": "amd64"}, "architecture is 'amd64', expected one of x86_64, arm64"),
        ({**WIDE, "burstable": True}, "burstable is True, expected one of included, excluded, required"),
        ({**WIDE, "generations": []}, "generations is empty: expected current, previous or both"),
        ({**WIDE, "excluded": ["m5.[x]"]}, "excluded='m5.[x]': expected a type such as m5.large or m5.*"),
        ({**WIDE, "max_types": 0}, "max_types=0: expected 1 to 20"),
        ({**WIDE, "max_types": 21}, "max_types=21: expected 1 to 20"),
        ({**WIDE, "cores": 2}, "unknown field 'cores', expected architecture, burstable"),
        ("{", "expected a JSON object such as"),
        (["t3.small"], "expected an object"),
        ({"vcpus": [64, 64], "memory_gib": [1, 1]}, f"no type with a shipped price in {REGION} meets it"),
    ],
)
def test_wrong_requirements_are_named_with_their_value_and_what_is_right(raw: Any, problem: str) -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        settings(instance_requirements=raw)
    assert len(refused.value.problems) == 1
    (text,) = refused.value.problems
    assert text.startswith("instance_requirements=") and problem in text


def test_a_list_and_requirements_together_are_refused() -> None:
    with pytest.raises(InvalidSettingsError, match=r"instance_types=t3.small beside instance_requirements: keep one"):
        settings(instance_types="t3.small", instance_requirements=WIDE)
