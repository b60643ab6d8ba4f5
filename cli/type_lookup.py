"""Asks EC2 which instance types meet requirements, with the API that attribute-based selection of EC2 Fleet uses."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.instance_requirements import ANY, InstanceRequirements

LOOKUP_ACTION = "ec2:GetInstanceTypesFromInstanceRequirements"


def types_of_ec2(ec2: Any, requirements: InstanceRequirements) -> tuple[str, ...]:
    """Every type of the region that meets the requirements, by name. It says nothing about free capacity."""
    pages = ec2.get_paginator("get_instance_types_from_instance_requirements").paginate(**request_of(requirements))
    return tuple(sorted(one["InstanceType"] for page in pages for one in page["InstanceTypes"]))


def request_of(requirements: InstanceRequirements) -> dict[str, Any]:
    """The parameters of GetInstanceTypesFromInstanceRequirements. Types with accelerators are never asked for."""
    wanted: dict[str, Any] = {
        "VCpuCount": _whole(requirements.vcpus),
        "MemoryMiB": _whole(requirements.memory_mib),
        "BurstablePerformance": requirements.burstable,
        "InstanceGenerations": list(requirements.generations),
        "AcceleratorCount": {"Max": 0},
    }
    if requirements.excluded:
        wanted["ExcludedInstanceTypes"] = list(requirements.excluded)
    return {
        "ArchitectureTypes": [requirements.architecture],
        "VirtualizationTypes": ["hvm"],
        "InstanceRequirements": wanted,
    }


def _whole(limits: tuple[float, ...]) -> dict[str, int]:
    """The range in the form of EC2, which has no maximum for one without an end."""
    low, high = limits
    found = {"Min": int(low)}
    return found if high == ANY[1] else {**found, "Max": int(high)}
