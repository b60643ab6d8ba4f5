"""Runs before `node-fleet cdk deploy` and refuses what CloudFormation or EC2 would refuse later, or worse, carry out.

It compares cdk.json with the deployed stacks and reads the launch template of an attached cluster. It changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from cdk_app.config import ClusterConfig, ConfigurationError
from cli.configured import clusters_of, configured_clusters
from cli.launch_template import image_problems, template_problems
from node_fleet.adapters.clock import SystemClock
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.instance_types import architecture_of
from node_fleet.domain.model.k3s_version import deploy_problem

Client = Callable[..., Any]
K3S_RULES = "docs/upgrades.md has the rules; after each deployment: node-fleet upgrade"
WHERE = "docs/deployment.md#settings-that-are-fixed describes what to do instead"


def refusals(cluster: ClusterConfig, client: Client) -> Iterator[str]:
    """Everything that makes a deployment of this cluster wrong."""
    if cluster.attach:
        yield from _template_refusals(cluster, client("ec2"))
        return
    yield from changed_fixed_settings(cluster, client("cloudformation"))
    yield from k3s_refusals(cluster, client("dynamodb"))
    for problem, fix in image_problems(client("ec2"), cluster.workers.image, cluster.settings.instance_types):
        yield f"clusters[{cluster.cluster_id}].workers.image: {problem}. Fix: {fix}"


def k3s_refusals(cluster: ClusterConfig, dynamodb: Any) -> Iterator[str]:
    """A release of K3s that the server, as the last run saw it, cannot be upgraded to. Without a record nothing."""
    try:
        memory = StateStore(dynamodb, cluster.settings, SystemClock()).load().memory
    except StateStoreError:
        return
    if problem := deploy_problem(memory.roll_out.server_version, cluster.k3s_version):
        yield f"clusters[{cluster.cluster_id}].k3s_version={cluster.k3s_version}: {problem}. {K3S_RULES}"


def changed_fixed_settings(cluster: ClusterConfig, cloudformation: Any) -> Iterator[str]:
    """Settings of cdk.json that differ from the deployed stacks and can only be chosen for a new cluster."""
    network = _resources(cloudformation, f"{cluster.cluster_id}-network")
    for vpc in network.get("AWS::EC2::VPC", ()):
        yield from _difference(cluster, "network.cidr", cluster.network.cidr, vpc["CidrBlock"])
    zones = tuple(dict.fromkeys(subnet["AvailabilityZone"] for subnet in network.get("AWS::EC2::Subnet", ())))
    if zones:
        deployed = ", ".join(zone.removeprefix(cluster.region) for zone in zones)
        yield from _difference(cluster, "network.zones", ", ".join(cluster.network.zones), deployed)
    for server in _resources(cloudformation, f"{cluster.cluster_id}-cluster").get("AWS::EC2::Instance", ()):
        volume = server["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"]
        yield from _difference(cluster, "server.volume_gib", str(cluster.server.volume_gib), str(volume))
        kind = server["InstanceType"]
        if architecture_of(cluster.server.instance_type) != architecture_of(kind):
            yield from _difference(cluster, "server.instance_type", cluster.server.instance_type, kind)


def _difference(cluster: ClusterConfig, setting: str, wanted: str, deployed: str) -> Iterator[str]:
    if wanted != deployed:
        yield (
            f"clusters[{cluster.cluster_id}].{setting}={wanted}: the deployed cluster has {deployed}, and this setting"
            f" is fixed, because a change would replace the server or its network. Keep {deployed}; {WHERE}"
        )


def _resources(cloudformation: Any, stack: str) -> dict[str, list[dict[str, Any]]]:
    """The properties of the deployed resources by type; nothing when there is no such stack."""
    try:
        body = cloudformation.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return {}
        raise
    found: dict[str, list[dict[str, Any]]] = {}
    for resource in body["Resources"].values():
        found.setdefault(resource["Type"], []).append(resource.get("Properties", {}))
    return found


def _template_refusals(cluster: ClusterConfig, ec2: Any) -> Iterator[str]:
    assert cluster.attach is not None
    template, version = cluster.attach.launch_template_id, str(cluster.attach.launch_template_version)
    place = f"clusters[{cluster.cluster_id}].attach.launch_template_version={version}"
    try:
        answer = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=[version])
        data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    except (ClientError, IndexError) as error:
        if isinstance(error, ClientError) and not error.response["Error"]["Code"].startswith("InvalidLaunchTemplate"):
            raise
        yield f"{place}: {template} has no such version in {cluster.region}"
        return
    types = cluster.settings.instance_types
    for problem, fix in (*template_problems(data, types), *image_problems(ec2, data.get("ImageId", ""), types)):
        yield f"{place}: {problem}. Fix: {fix}"


def main(words: Sequence[str]) -> int:
    """1 when a deployment is refused. Without access to AWS nothing is checked: the CDK reports that itself."""
    try:
        clusters = _chosen(words)
    except ConfigurationError as error:
        return _refused(str(error))
    problems: list[str] = []
    for cluster in clusters:
        try:
            session = boto3.Session(profile_name=_value_of("--profile", words) or None, region_name=cluster.region)
            problems += refusals(cluster, session.client)
        except (BotoCoreError, ClientError) as error:
            text = f"node-fleet: {cluster.cluster_id} was not compared with what is deployed: {error}"
            sys.stderr.write(text + "\n")
    if problems:
        return _refused("nothing was deployed:\n  - " + "\n  - ".join(problems))
    return 0


def _chosen(words: Sequence[str]) -> tuple[ClusterConfig, ...]:
    """The clusters whose stacks the command names; all of them when it names none."""
    given = [word.partition("=")[2] for word in words if word.startswith("clusters=")]
    clusters = clusters_of(given[-1]) if given else configured_clusters()
    named = tuple(one for one in clusters if any(word.startswith(one.cluster_id) for word in words))
    return named or clusters


def _value_of(option: str, words: Sequence[str]) -> str:
    for number, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option:
            return words[number + 1] if number + 1 < len(words) else ""
    return ""


def _refused(text: str) -> int:
    sys.stderr.write(f"node-fleet: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
