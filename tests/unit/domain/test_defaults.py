"""What a record of the domain holds before anything is known; a stored item without the field is read with it."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from typing import Any

from node_fleet import domain

NOT_EMPTY = {
    "AdaptiveMemory.boot_seconds": 90.0,
    "CommandResult.exit_code": -1,
    "Currency.per_usd": 1.0,
    "CustomMetric.readings": 2,
    "Interruption.poll_seconds": 5,
    "Notice.is_due": True,
    "Placement.spot_percent": 70,
    "PlanTrials.weight": 1.0,
    "PodSums.least": -1,
    "Run.round": 1,
    "Seen.most": math.inf,
    "Tariff.public_address": True,
    "InstanceRequirements.max_types": 10,
    "Tariff.volume_gib": 20,
}


def numbers_of_the_domain() -> dict[str, Any]:
    """Record and field -> the number or truth value that it holds unless given. Settings are documented elsewhere."""
    names = [found.name for found in pkgutil.walk_packages(domain.__path__, f"{domain.__name__}.")]
    kinds = [kind for name in names for kind in vars(importlib.import_module(name)).values()]
    return {
        f"{kind.__name__}.{one.name}": one.default
        for kind in kinds
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
        for one in dataclasses.fields(kind)
        if isinstance(one.default, int | float) and not one.metadata
    }


def test_a_number_is_0_and_a_truth_value_is_false_unless_listed() -> None:
    found = numbers_of_the_domain()
    assert len(found) > 50
    assert {name: value for name, value in found.items() if value} == NOT_EMPTY
