"""The capacity of an EC2 instance type for pods, estimated by family and size.

For types of which no node has run yet; the values of a running node take precedence.
"""

from __future__ import annotations

import functools
import re

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
_TYPE = re.compile(r"^(?P<family>[a-z])(?P<generation>\d)[a-z-]*\.(?P<size>[a-z0-9]+)$")
_ALLOCATABLE_SHARE = 0.93


@functools.cache
def capacity(instance_type: str) -> tuple[int, int] | None:
    """Cores and memory (MiB) of such a machine; None for an unknown family."""
    match = _TYPE.match(instance_type)
    if not match:
        return None
    cores, gib = _size(match["family"], match["generation"], match["size"])
    return (int(cores), int(gib * 1024)) if cores else None


@functools.cache
def offered(instance_type: str) -> tuple[int, int] | None:
    """CPU (millicores) and memory (MiB) that pods can request of such a worker; None for an unknown family."""
    known = capacity(instance_type)
    return (known[0] * 1000, int(known[1] * _ALLOCATABLE_SHARE)) if known else None


def _size(family: str, generation: str, size: str) -> tuple[float, float]:
    if family == "t" and size in _BURSTABLE:
        cores, gib = _BURSTABLE[size]
        return (_T2_CORES.get(size, cores) if generation == "2" else cores), gib
    if family not in _GIB_PER_CORE:
        return 0, 0
    cores_of = {"medium": 1, "large": 2, "xlarge": 4}
    count = cores_of.get(size) or (4 * int(size[: -len("xlarge")]) if re.fullmatch(r"\d+xlarge", size) else 0)
    return count, count * _GIB_PER_CORE[family]
