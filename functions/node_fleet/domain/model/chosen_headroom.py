"""The headroom that an operator chooses for the threshold strategy, as pods of one size. Values only."""

from __future__ import annotations

from node_fleet.domain.model.value_class import value_class


@value_class
class HeadroomPods:
    """So many pods of this size must fit on the free capacity of the workers at any time."""

    count: int
    cpu_milli: int
    memory_mib: int

    @property
    def text(self) -> str:
        """For example: 3 pods of 500m CPU and 512 MiB."""
        noun = "pod" if self.count == 1 else "pods"
        return f"{self.count} {noun} of {self.cpu_milli}m CPU and {self.memory_mib} MiB"

    def problem(self) -> str:
        """What is out of range; empty when nothing is."""
        ranges = (("count", self.count, 1000), ("cpu_milli", self.cpu_milli, 256_000))
        for name, value, highest in (*ranges, ("memory_mib", self.memory_mib, 4 * 2**20)):
            if not 1 <= value <= highest:
                return f"{name}={value}, expected 1 to {highest}"
        return ""
