"""Instances as EC2 describes them, and their status checks, converted into types of the domain."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from node_fleet.domain.model.snapshot import Instance
from node_fleet.settings.groups import NodeNameRule

_PULLED = re.compile(r"\d{1,3} of \d{1,3} in \d{1,5} s")


def instance_of(raw: Mapping[str, Any], rule: NodeNameRule) -> Instance:
    tags = tags_of(raw)
    return Instance(
        instance_id=raw["InstanceId"],
        zone=raw["Placement"]["AvailabilityZone"],
        instance_type=raw["InstanceType"],
        market="spot" if raw.get("InstanceLifecycle") == "spot" else "on-demand",
        state=raw["State"]["Name"],
        launched_at=int(raw["LaunchTime"].timestamp()),
        operation_id=tags.get("Operation", ""),
        join_failed=tags.get("JoinFailed") == "true",
        addresses=_addresses(raw),
        node_names=_node_names(raw, rule),
        slot=tags.get("Slot", ""),
        template_id=tags.get("aws:ec2launchtemplate:id", ""),
        template_version=tags.get("TemplateVersion", "") or tags.get("aws:ec2launchtemplate:version", ""),
        image_id=raw.get("ImageId", ""),
        bootstrap_hash=tags.get("Bootstrap", ""),
        k3s_version=tags.get("K3sVersion", ""),
        subnet_id=raw.get("SubnetId", ""),
        rotate=tags.get("Rotate", ""),
        images=images if _PULLED.fullmatch(images := tags.get("ImagePull", "")) else "",
        standby=tags.get("Standby", ""),
    )


def impaired_since(status: Mapping[str, Any]) -> float:
    """Since when (epoch) a status check is impaired; infinity when EC2 does not say."""
    details = [*status.get("InstanceStatus", {}).get("Details", ()), *status.get("SystemStatus", {}).get("Details", ())]
    return min((one["ImpairedSince"].timestamp() for one in details if one.get("ImpairedSince")), default=math.inf)


def _addresses(raw: Mapping[str, Any]) -> tuple[str, ...]:
    found = [raw.get("PrivateIpAddress", ""), raw.get("Ipv6Address", "")]
    for interface in raw.get("NetworkInterfaces", ()):
        found += [one["PrivateIpAddress"] for one in interface.get("PrivateIpAddresses", ())]
        found += [one["Ipv6Address"] for one in interface.get("Ipv6Addresses", ())]
    return tuple(dict.fromkeys(address for address in found if address))


def _node_names(raw: Mapping[str, Any], rule: NodeNameRule) -> tuple[str, ...]:
    """The names that the rule allows for the Node of this instance. EC2 may not know a new instance's DNS name yet."""
    if rule == "instance-id":
        return (raw["InstanceId"],)
    dns_name = raw.get("PrivateDnsName", "")
    return tuple(dict.fromkeys((dns_name, dns_name.partition(".")[0]))) if dns_name else ()


def tags_of(raw: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in raw.get("Tags", [])}
