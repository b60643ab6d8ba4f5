"""What an instance type of a worker must be like, instead of a list of types, and whether a type meets it.

Each attribute has the meaning that it has in EC2's attribute-based selection of instance types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from node_fleet.domain.model.instance_types import Architecture, Generation, TypeFacts
from node_fleet.domain.model.value_class import value_class

BurstableRule = Literal["included", "excluded", "required"]
Range = tuple[float, ...]
ANY: Range = (0.0, float("inf"))
PATTERN = re.compile(r"[a-zA-Z0-9.*-]{1,30}")
"""What EC2 accepts as an excluded type."""
LARGEST_LIST = 20
MIB_PER_GIB = 1024


@value_class
class InstanceRequirements:
    """What a type must meet. vcpus, memory_gib: smallest and largest. excluded: names, with * for any text.

    max_types: of the types that meet it, so many of the cheapest are used.
    """

    vcpus: Range = ANY
    memory_gib: Range = ANY
    architecture: Architecture = "x86_64"
    burstable: BurstableRule = "included"
    generations: tuple[Generation, ...] = ("current", "previous")
    excluded: tuple[str, ...] = ()
    max_types: int = 10

    @property
    def memory_mib(self) -> Range:
        """The range in MiB, the unit of EC2."""
        return tuple(gib * MIB_PER_GIB for gib in self.memory_gib)

    def refusal(self, facts: TypeFacts) -> str:
        """The first requirement that the type does not meet; empty when it meets all."""
        if facts.architecture != self.architecture:
            return f"{facts.architecture}, not {self.architecture}"
        for unit, value, (low, high) in (
            ("vCPU", facts.vcpus, self.vcpus),
            ("GiB", facts.memory_mib / MIB_PER_GIB, self.memory_gib),
        ):
            if value < low:
                return f"{value:g} {unit}, under {low:g}"
            if value > high:
                return f"{value:g} {unit}, over {high:g}"
        if facts.is_burstable and self.burstable == "excluded":
            return "burstable"
        if not facts.is_burstable and self.burstable == "required":
            return "not burstable"
        if facts.generation not in self.generations:
            return f"of the {facts.generation} generation"
        return next((f"matches {pattern}" for pattern in self.excluded if is_match(facts.instance_type, pattern)), "")

    def problems(self) -> Iterator[str]:
        """What no type could meet or EC2 would refuse, each with its name, its value and what is expected."""
        for name, limits, unit, step in (
            ("vcpus", self.vcpus, "vCPUs", 1),
            ("memory_gib", self.memory_gib, "MiB", 1024),
        ):
            shown = f"{name}=[{', '.join(f'{one:g}' for one in limits)}]"
            if len(limits) != 2:
                yield f"{shown}: expected the smallest and the largest value, such as [2, 4]"
            elif limits[0] > limits[1]:
                yield f"{shown}: the smallest value is above the largest"
            elif limits[0] <= 0:
                yield f"{shown}: expected values above 0"
            elif any(one * step % 1 for one in limits):
                yield f"{shown}: expected a whole number of {unit}"
        if not self.generations:
            yield "generations is empty: expected current, previous or both"
        for pattern in self.excluded:
            if not PATTERN.fullmatch(pattern):
                yield f"excluded={pattern!r}: expected a type such as m5.large or m5.*, of at most 30 characters"
        if not 1 <= self.max_types <= LARGEST_LIST:
            yield f"max_types={self.max_types}: expected 1 to {LARGEST_LIST}"


def is_match(instance_type: str, pattern: str) -> bool:
    """Whether the pattern names the type; * stands for any text, and every other character for itself."""
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), instance_type))
