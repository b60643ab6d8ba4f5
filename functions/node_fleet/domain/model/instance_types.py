"""EC2 instance types by family and size: the capacity for pods, vCPUs, and the CPU baseline of burstable types.

The capacity is an estimate for types of which no node has run yet; the values of a running node take precedence.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

from node_fleet.domain.model.value_class import value_class

Architecture = Literal["x86_64", "arm64"]
Generation = Literal["current", "previous"]
CpuCredits = Literal["unlimited", "standard"]
"""What a burstable type does without CPU credits: cost more, or be throttled to its baseline."""
_BURSTABLE = {
    "nano": (2, 0.5),
    "micro": (2, 1.0),
    "small": (2, 2.0),
    "medium": (2, 4.0),
    "large": (2, 8.0),
    "xlarge": (4, 16.0),
    "2xlarge": (8, 32.0),
}
_T2_CORES = {"nano": 1, "micro": 1, "small": 1}
_GIB_PER_CORE = {"c": 2.0, "m": 4.0, "r": 8.0}
_BASELINE_PERCENT = {"nano": 5, "micro": 10, "small": 20, "medium": 20, "large": 30, "xlarge": 40, "2xlarge": 40}
_T2_BASELINE_PERCENT = {**_BASELINE_PERCENT, "xlarge": 22.5, "2xlarge": 17}
"""CPU of each vCPU that the price of a burstable instance includes; EC2 user guide, "Earn CPU credits"."""
BURSTABLE_FAMILIES = ("t2", "t3", "t3a", "t4g")
_PREVIOUS_FAMILIES = frozenset(
    ["c1", "c3", "c4", "c5", "c6gn", "m1", "m2", "m3", "m4", "m5", "m6i", "r3", "r4", "r5", "r6i", "r7g", "r7gd", "t1"]
)
"""Families whose types EC2 describes as of the previous generation (DescribeInstanceTypes, CurrentGeneration)."""
_OTHER_SIZES = frozenset(["c1", "c3", "c4", "c5n", "m1", "m2", "m3", "r3", "r4", "t1"])
"""Families whose memory or vCPUs do not follow from the letter and the size."""
_TYPE = re.compile(r"^(?P<family>[a-z])(?P<generation>\d)[a-z-]*\.(?P<size>[a-z0-9]+)$")
_ALLOCATABLE_SHARE = 0.93
PODS_PER_NODE = 110
"""The default of the kubelet's maxPods, which K3s keeps."""


@value_class
class TypeFacts:
    """What EC2 selects instance types by."""

    instance_type: str
    vcpus: int
    memory_mib: int
    architecture: Architecture
    is_burstable: bool
    generation: Generation


@functools.cache
def facts_of(instance_type: str) -> TypeFacts | None:
    """The facts that follow from the name; None for an unknown family."""
    size = capacity(instance_type)
    if size is None:
        return None
    return TypeFacts(
        instance_type=instance_type,
        vcpus=size[0],
        memory_mib=size[1],
        architecture=architecture_of(instance_type),
        is_burstable=baseline_percent(instance_type) is not None,
        generation="previous" if family_of(instance_type) in _PREVIOUS_FAMILIES else "current",
    )


@functools.cache
def capacity(instance_type: str) -> tuple[int, int] | None:
    """Cores and memory (MiB) of such a machine; None for an unknown family."""
    match = _TYPE.match(instance_type)
    if not match or family_of(instance_type) in _OTHER_SIZES:
        return None
    cores, gib = _size(match["family"], match["generation"], match["size"])
    return (int(cores), int(gib * 1024)) if cores else None


@functools.cache
def offered(instance_type: str) -> tuple[int, int] | None:
    """CPU (millicores) and memory (MiB) that pods can request of such a worker; None for an unknown family."""
    known = capacity(instance_type)
    return (known[0] * 1000, int(known[1] * _ALLOCATABLE_SHARE)) if known else None


def family_of(instance_type: str) -> str:
    """t3 of t3.small."""
    return instance_type.partition(".")[0]


def is_arm(instance_type: str) -> bool:
    """Whether the type is of a Graviton family, which has a g after its generation."""
    family = re.match(r"[a-z]+\d+([a-z]*)", instance_type)
    return instance_type.startswith("a1.") or bool(family and "g" in family[1])


def architecture_of(instance_type: str) -> Architecture:
    """The processor architecture, read from the type's family."""
    return "arm64" if is_arm(instance_type) else "x86_64"


def baseline_percent(instance_type: str) -> float | None:
    """The CPU that a burstable instance may use without spending credits, in percent of its vCPUs.

    None for a type that is not burstable.
    """
    family, _, size = instance_type.partition(".")
    if family not in BURSTABLE_FAMILIES:
        return None
    return (_T2_BASELINE_PERCENT if family == "t2" else _BASELINE_PERCENT).get(size)


def vcpus_of(instance_type: str) -> int:
    """The vCPUs of the type; 0 for an unknown family."""
    known = capacity(instance_type)
    return known[0] if known else 0


def _size(family: str, generation: str, size: str) -> tuple[float, float]:
    if family == "t" and size in _BURSTABLE:
        cores, gib = _BURSTABLE[size]
        return (_T2_CORES.get(size, cores) if generation == "2" else cores), gib
    if family not in _GIB_PER_CORE:
        return 0, 0
    cores_of = {"medium": 1, "large": 2, "xlarge": 4}
    count = cores_of.get(size) or (4 * int(size[: -len("xlarge")]) if re.fullmatch(r"\d+xlarge", size) else 0)
    return count, count * _GIB_PER_CORE[family]
