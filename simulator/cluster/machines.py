"""The capacity of each instance type, in one table.

Capacity is the figure that AWS publishes; allocatable is the capacity without K3s, containerd and the system.
"""

from __future__ import annotations

from difflib import get_close_matches

from node_fleet.domain.model.value_class import value_class

K3S_OVERHEAD_CPU_MILLI = 100
K3S_OVERHEAD_MEMORY_MIB = 350
MAX_PODS = 110


class UnknownInstanceTypeError(ValueError):
    """An instance type that the table does not hold."""


@value_class
class MachineType:
    """One instance type: its capacity, and the part of it that pods can request."""

    name: str
    vcpus: int
    memory_mib: int

    @property
    def capacity_cpu_milli(self) -> int:
        return self.vcpus * 1000

    @property
    def allocatable_cpu_milli(self) -> int:
        return self.capacity_cpu_milli - K3S_OVERHEAD_CPU_MILLI

    @property
    def allocatable_memory_mib(self) -> int:
        return self.memory_mib - K3S_OVERHEAD_MEMORY_MIB


_ROWS: tuple[tuple[str, int, int], ...] = (
    ("t2.small", 1, 2048),
    ("t2.medium", 2, 4096),
    ("t2.large", 2, 8192),
    ("t3.micro", 2, 1024),
    ("t3.small", 2, 2048),
    ("t3.medium", 2, 4096),
    ("t3.large", 2, 8192),
    ("t3.xlarge", 4, 16384),
    ("t3a.small", 2, 2048),
    ("t3a.medium", 2, 4096),
    ("t3a.large", 2, 8192),
    ("t4g.small", 2, 2048),
    ("t4g.medium", 2, 4096),
    ("t4g.large", 2, 8192),
    ("m5.large", 2, 8192),
    ("m5.xlarge", 4, 16384),
    ("m6g.large", 2, 8192),
    ("m6i.large", 2, 8192),
    ("c5.large", 2, 4096),
    ("c5.xlarge", 4, 8192),
    ("c6i.large", 2, 4096),
    ("r5.large", 2, 16384),
)

MACHINE_TYPES: dict[str, MachineType] = {
    name: MachineType(name=name, vcpus=vcpus, memory_mib=memory) for name, vcpus, memory in _ROWS
}


def machine_type(name: str) -> MachineType:
    """The row of this type, or an error that names the nearest valid name."""
    if name in MACHINE_TYPES:
        return MACHINE_TYPES[name]
    near = get_close_matches(name, MACHINE_TYPES, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(MACHINE_TYPES)}"
    raise UnknownInstanceTypeError(f"unknown instance type {name!r}{hint}")
