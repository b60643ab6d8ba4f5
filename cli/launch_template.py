"""What in a launch template makes every launch of node-fleet fail, and the fix. It reads the data of one version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from botocore.exceptions import ClientError

from cli.findings import Finding
from node_fleet.domain.model.instance_types import architecture_of, baseline_percent

NO_PERMISSION = "the functions have no permission to launch with it: create a version without it"


def template_problems(data: Mapping[str, Any], instance_types: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Each problem of LaunchTemplateData as EC2 returns it, with its fix, for launches of these types."""
    fixed = [one for one in instance_types if baseline_percent(one) is None]
    if data.get("CreditSpecification") and fixed:
        yield (
            f"CreditSpecification: EC2 refuses the launch of a type without CPU credits, such as {fixed[0]}",
            "create a version without CreditSpecification, or name only T2, T3, T3a and T4g types",
        )
    if data.get("NetworkInterfaces"):
        yield (
            "NetworkInterfaces: EC2 refuses this block in a launch that names its subnet, as each launch does",
            "create a version without NetworkInterfaces: write its groups into SecurityGroupIds; "
            "whether an instance gets a public address follows from its subnet (MapPublicIpOnLaunch)",
        )
    tagged = [one.get("ResourceType") for one in data.get("TagSpecifications", ())]
    if "spot-instances-request" in tagged:
        yield (
            "TagSpecifications for spot-instances-request: EC2 refuses every On-Demand launch with these tags, "
            "and the functions have no permission to set them",
            "create a version without them: tags for instance, volume and network-interface are fine",
        )
    if data.get("InstanceMarketOptions"):
        yield (
            "InstanceMarketOptions: the template makes every launch a Spot launch, also one of On-Demand capacity",
            "create a version without InstanceMarketOptions: node-fleet names the market of each launch",
        )
    placement = data.get("Placement", {})
    if placement.get("GroupName") or placement.get("GroupId"):
        yield "Placement names a placement group", NO_PERMISSION
    if data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget"):
        yield "CapacityReservationSpecification names a reservation", NO_PERMISSION
    if data.get("LicenseSpecifications"):
        yield "LicenseSpecifications names a license", NO_PERMISSION
    if any(one.get("Ebs", {}).get("SnapshotId") for one in data.get("BlockDeviceMappings", ())):
        yield "BlockDeviceMappings names a snapshot", NO_PERMISSION


def image_problems(ec2: Any, image_id: str, instance_types: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What makes the image wrong for these types. A public parameter in its place is not looked up."""
    if not image_id.startswith("ami-"):
        return
    try:
        found = ec2.describe_images(ImageIds=[image_id])["Images"]
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith("InvalidAMIID"):
            raise
        found = []
    if not found:
        yield f"EC2 has no image {image_id} here", "name an image of this region that the account may use"
        return
    has, types = found[0]["Architecture"], list(instance_types)
    other = [one for one in types if architecture_of(one) != has]
    if other:
        yield (
            f"image {image_id} is for {has}, and {other[0]} is {architecture_of(other[0])}",
            f"name an image for {architecture_of(other[0])}, or instance types for {has}",
        )


def template_finding(
    saw: str, data: Mapping[str, Any], instance_types: tuple[str, ...] = (), ec2: Any = None
) -> Finding:
    """The finding of a version that `saw` describes. ec2: a client that looks up its image; None: it is not checked."""
    problems = list(template_problems(data, instance_types))
    problems += image_problems(ec2, data.get("ImageId", ""), instance_types) if ec2 else []
    if not problems:
        return Finding(name="launch template", verdict="ok", saw=saw)
    texts, fixes = zip(*problems, strict=True)
    fix = "; ".join(dict.fromkeys(fixes)) + "; then raise attach.launch_template_version in cdk.json and deploy"
    return Finding(name="launch template", verdict="fail", saw=f"{saw}. {'; '.join(texts)}", fix=fix)
