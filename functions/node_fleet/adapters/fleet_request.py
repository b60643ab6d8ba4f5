"""The request of CreateFleet that launches workers: template, types, subnets, capacity and tags."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.model.errors import LaunchConfigurationError
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.scale_up.requests import client_token, slots_tag
from node_fleet.settings import Settings

MANAGED_BY = "node-fleet"
WORKER_ROLE = "k3s-worker"


def fleet_request(settings: Settings, request: LaunchRequest, operation_id: str, version: str = "") -> dict[str, Any]:
    """A fleet of type instant. version: of the launch template; empty: the configured one.

    Raises:
        LaunchConfigurationError: the launch template is not set.
    """
    version = version or settings.launch_template_version
    if not settings.launch_template_id:
        raise LaunchConfigurationError("launch_template_id is empty, expected the id of the workers' launch template")
    template = {
        "LaunchTemplateId": settings.launch_template_id,
        "Version": version,
    }
    spot = {"AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate"}
    tags = _launch_tags(settings, request, operation_id, version)
    return {
        "Type": "instant",
        "ClientToken": client_token(operation_id, request),
        "LaunchTemplateConfigs": [
            {"LaunchTemplateSpecification": template, "Overrides": _overrides(settings, request)}
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": len(request.slots),
            "DefaultTargetCapacityType": request.market,
        },
        **({"SpotOptions": spot} if request.market == "spot" else {}),
        **({"OnDemandOptions": {"AllocationStrategy": "prioritized"}} if request.market == "on-demand" else {}),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance", "volume")],
    }


def _overrides(settings: Settings, request: LaunchRequest) -> list[dict[str, Any]]:
    """The types; of On-Demand with their priority, of Spot with the highest price."""
    overrides: list[dict[str, Any]] = []
    for place, instance_type in enumerate(request.types):
        override = {"InstanceType": instance_type, "SubnetId": request.subnet_id}
        if request.market == "on-demand":
            overrides.append({**override, "Priority": float(place)})
        elif settings.spot_max_price:
            overrides.append({**override, "MaxPrice": settings.spot_max_price})
        else:
            overrides.append(override)
    return overrides


def _launch_tags(settings: Settings, request: LaunchRequest, operation_id: str, version: str) -> list[dict[str, str]]:
    """What another version than the configured one installs is unknown here, so it is no tag."""
    cluster, is_configured = settings.cluster_id, version == settings.launch_template_version
    tags = {
        "Project": "node-fleet",
        "Role": WORKER_ROLE,
        "ManagedBy": MANAGED_BY,
        "Cluster": cluster,
        "Operation": operation_id,
        "Slot": slots_tag(request),
        "Name": f"{cluster}-worker-{operation_id}",
        "TemplateVersion": version,
        "Bootstrap": settings.bootstrap_hash if is_configured else "",
        "K3sVersion": settings.k3s_version if is_configured else "",
    }
    return [{"Key": key, "Value": value} for key, value in tags.items() if value]
