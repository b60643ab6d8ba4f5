"""The assumptions of the back-test: one type of worker, one type of pod, and how replicas follow the load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from node_fleet.domain.model.instance_types import capacity as machine_capacity
from node_fleet.domain.model.value_class import value_class

STEP_SECONDS = 10

SAME_FOR_ALL_TYPES = (
    "pod_cpu_milli",
    "pod_cpu_limit_milli",
    "pod_idle_cpu_milli",
    "pod_memory_mib",
    "pod_memory_used_mib",
    "boot_seconds",
    "start_seconds",
    "drain_seconds",
    "alert_seconds",
)
Interpolation = Literal["ramp", "jump"]


class ModelError(ValueError):
    """An assumption that the model does not support; the message has its name, its value and what is allowed."""

    hint = ""
    """Nothing to add: the message says what would be right."""


@value_class
class Capacity:
    """Workers and pods. Every time is a whole number of STEP_SECONDS.

    daemon_*: requests of the DaemonSet pods of one worker. system_*: usage of a worker without pods.
    start_seconds: from the start of a stopped standby worker to usable. drain_seconds: from the start of a drain to the
    end of the bill.
    """

    instance_type: str = "t3.small"
    vcpus: int = 2
    memory_mib: int = 2048
    allocatable_cpu_milli: int = 1900
    allocatable_memory_mib: int = 1698
    daemon_cpu_milli: int = 20
    daemon_memory_mib: int = 32
    system_cpu_milli: int = 48
    system_memory_mib: int = 320
    max_pods: int = 110
    pod_cpu_milli: int = 250
    pod_memory_mib: int = 128
    pod_cpu_limit_milli: int = 500
    pod_memory_used_mib: int = 102
    pod_idle_cpu_milli: int = 0
    boot_seconds: int = 90
    start_seconds: int = 40
    drain_seconds: int = 60
    alert_seconds: int = 20

    @classmethod
    def of_type(cls, instance_type: str, **changes: Any) -> Capacity:
        """A worker of that type, with the default's pods and reserve. Raises ModelError for an unknown family."""
        size, default = machine_capacity(instance_type), cls()
        if size is None:
            raise ModelError(f"the size of {instance_type!r} is not known, expected a type of family t, c, m or r")
        return replace(
            default,
            instance_type=instance_type,
            vcpus=size[0],
            memory_mib=size[1],
            allocatable_cpu_milli=size[0] * 1000 - default.vcpus * 1000 + default.allocatable_cpu_milli,
            allocatable_memory_mib=size[1] - default.memory_mib + default.allocatable_memory_mib,
            **changes,
        )

    def as_type(self, instance_type: str) -> Capacity:
        """A worker of another type with the same pods and times. Raises ModelError for an unknown family."""
        return Capacity.of_type(instance_type, **{name: getattr(self, name) for name in SAME_FOR_ALL_TYPES})

    def __post_init__(self) -> None:
        for name in ("boot_seconds", "start_seconds", "drain_seconds", "alert_seconds"):
            value = getattr(self, name)
            if value <= 0 or value % STEP_SECONDS:
                raise ModelError(f"{name} is {value}, expected a multiple of {STEP_SECONDS} above 0")
        if self.pods_per_worker < 1:
            raise ModelError(
                f"a pod of {self.pod_cpu_milli}m CPU and {self.pod_memory_mib} MiB fits no {self.instance_type}: "
                f"pods can request {self.allocatable_cpu_milli}m and {self.allocatable_memory_mib} MiB"
            )

    @property
    def pods_per_worker(self) -> int:
        """The number of pods that fit on one worker by their requests."""
        by_cpu = (self.allocatable_cpu_milli - self.daemon_cpu_milli) // self.pod_cpu_milli
        by_memory = (self.allocatable_memory_mib - self.daemon_memory_mib) // self.pod_memory_mib
        return min(by_cpu, by_memory, self.max_pods - 1)


@value_class
class Scaling:
    """How a trace becomes pods: the value at `quantile` of the trace needs `workers_at_quantile` full workers.

    target_percent, tolerance_percent and stabilization_seconds are those of a HorizontalPodAutoscaler. max_replicas 0:
    the pods that fit on the largest fleet. milli_per_unit: CPU of one unit of the trace; 0: by the quantile.
    """

    milli_per_unit: float = 0.0
    quantile: float = 0.995
    workers_at_quantile: float = 8.0
    interpolation: Interpolation = "ramp"
    target_percent: float = 70.0
    tolerance_percent: float = 0.0
    stabilization_seconds: int = 0
    min_replicas: int = 2
    max_replicas: int = 0
