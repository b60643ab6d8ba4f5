"""What a worker may state of itself, at the bounds, and what is kept of it when a figure is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.bounds import MAX_REFUSALS, Bounds, confirm_capacity
from node_fleet.domain.model.setting import Spec
from node_fleet.domain.model.snapshot import NodeReading

SMALL = NodeReading(
    node_name="n1",
    provider_id="aws:///a/i-1",
    ready=True,
    cores=2.0,
    memory_total_mib=2048.0,
    memory_used_mib=900.0,
    cpu_allocatable_milli=2000,
    memory_allocatable_mib=2048,
)
"""A t3.small with exactly what its type has."""


@pytest.mark.parametrize(
    ("stated", "kept"),
    [
        ({}, {}),
        ({"memory_total_mib": 2048.5}, {"memory_total_mib": None, "memory_used_mib": None}),
        ({"cpu_allocatable_milli": 2001}, {"cpu_allocatable_milli": None}),
        ({"memory_allocatable_mib": 2049}, {"memory_allocatable_mib": None}),
        ({"memory_allocatable_mib": -1}, {"memory_allocatable_mib": None}),
        ({"memory_allocatable_mib": 0}, {"memory_allocatable_mib": 0}),
        ({"cores": 64.0}, {"cores": 2.0}),
    ],
    ids=str,
)
def test_a_worker_has_at_most_what_its_type_has(stated: dict[str, Any], kept: dict[str, Any]) -> None:
    bounds = Bounds()
    assert confirm_capacity(replace(SMALL, **stated), "t3.small", bounds) == replace(SMALL, **kept)
    assert len(bounds.refused) == (kept != stated)


def test_unknown_figures_stay_unknown_and_are_not_refused() -> None:
    bounds, unknown = Bounds(), NodeReading(node_name="n1", provider_id="aws:///a/i-1", ready=True)
    assert confirm_capacity(unknown, "t3.small", bounds) == unknown
    assert bounds.refused == []


def test_a_type_of_an_unknown_family_keeps_what_the_worker_states() -> None:
    huge = replace(SMALL, cores=4000.0)
    assert confirm_capacity(huge, "z9.huge", Bounds()) == huge


def test_the_first_ten_refusals_are_kept() -> None:
    bounds = Bounds()
    for number in range(12):
        bounds.refuse(str(number))
    assert bounds.refused == [str(number) for number in range(MAX_REFUSALS)] and MAX_REFUSALS == 10


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Spec("X"), ""),
        (Spec("X", 1, 100), "1 to 100"),
        (Spec("X", 0, 12.5, unit="%"), "0 to 12.5 %"),
        (Spec("X", 1, 2, choices=("a", "b")), "a, b"),
    ],
)
def test_the_allowed_values_of_a_setting_are_shown_with_their_unit(spec: Spec, text: str) -> None:
    assert spec.range == text
