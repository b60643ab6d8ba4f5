"""The bounds of what a worker, Prometheus or the API may state. A figure beyond them is missing, and it is reported.

They are far above every real value: they stop one worker from filling a payload, a table item or a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from node_fleet.domain.model.instance_types import capacity
from node_fleet.domain.model.snapshot import NodeReading

MAX_CORES: Final = 4096
MAX_MEMORY_BYTES: Final = 2**46
MAX_PODS: Final = 10_000
MAX_SECONDS: Final = 10 * 365 * 86_400
MAX_TAINTS: Final = 32
MAX_LABEL_CHARACTERS: Final = 340
MAX_METRIC: Final = 1e15
MAX_NODES_LISTED: Final = 50
MAX_REFUSALS: Final = 10


@dataclass(slots=True)
class Bounds:
    """Checks figures one by one and keeps a sentence about each of the first that are refused."""

    refused: list[str] = field(default_factory=list)

    def refuse(self, sentence: str) -> None:
        """Keep the sentence, unless there are enough."""
        if len(self.refused) < MAX_REFUSALS:
            self.refused.append(sentence)

    def checked(self, what: str, value: float | None, high: float, *, low: float = 0.0) -> float | None:
        """The figure when it is from low to high, else None."""
        if value is None or low <= value <= high:
            return value
        self.refuse(f"{what:.80} is {value:.4g}, expected {low:.4g} to {high:.4g}")
        return None


def confirm_capacity(node: NodeReading, instance_type: str, bounds: Bounds) -> NodeReading:
    """The Node with what its instance type has: no worker outweighs the others by the size that it states itself.

    A type of an unknown family keeps the stated figures. EC2 gives the whole memory of a machine, of which its kernel
    shows less.
    """
    known = capacity(instance_type)
    if known is None:
        return node
    cores, memory_mib = known
    if node.cores is not None and node.cores != cores:
        bounds.refuse(f"{node.node_name} states {node.cores:g} cores, {instance_type} has {cores:g}")
    who = f"of {node.node_name}, a {instance_type},"
    total = bounds.checked(f"the memory in MiB {who}", node.memory_total_mib, memory_mib)
    cpu = bounds.checked(f"the allocatable CPU in millicores {who}", node.cpu_allocatable_milli, cores * 1000)
    memory = bounds.checked(f"the allocatable memory in MiB {who}", node.memory_allocatable_mib, memory_mib)
    return replace(
        node,
        cores=None if node.cores is None else float(cores),
        memory_total_mib=node.memory_total_mib if total is not None else None,
        memory_used_mib=node.memory_used_mib if total is not None else None,
        cpu_allocatable_milli=node.cpu_allocatable_milli if cpu is not None else None,
        memory_allocatable_mib=node.memory_allocatable_mib if memory is not None else None,
    )
