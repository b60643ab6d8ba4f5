"""preflight: what the account, the region and this machine must have before the first deployment. It only reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import boto3
import typer
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnectionError

from cdk_app.config import Attachment, ClusterConfig, ConfigurationError
from cdk_app.endpoints import CALLED_OVER_IPV6
from cdk_app.json_file import configuration_file
from cdk_app.recorded_types import FILE_NAME, read_records
from cli.configured import configured_clusters
from cli.findings import Check, Finding, Verdict, report, settings_finding
from cli.launch_template import template_finding
from cli.output import CommandError
from cli.quotas import SERVER_VCPUS, quota_check, quotas_needed, vcpus_of
from cli.target import NO_ANSWER_HINT, JsonOption

Client = Callable[..., Any]

OLDEST_BOOTSTRAP = 6
"""The templates of the CDK refuse an older stack CDKToolkit."""
SPOT_ROLE = "/aws-service-role/spot.amazonaws.com/"
VPC_QUOTA, CONCURRENCY_QUOTA = "L-F678F1CE", "L-B99A9384"
TOOLS = {
    "aws": (
        "secrets and sessions",
        "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    ),
    "session-manager-plugin": (
        "sessions on the server",
        "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html",
    ),
}
FUNCTIONS_AT_ONCE, FUNCTIONS_OF_A_NOTICE = 4, 2
"""A run, the start of the next one, a message and a clean-up; and the drain and the replacement of one notice."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet preflight | node-fleet preflight --cluster shop --json")(preflight)


def preflight(
    *,
    cluster: Annotated[str, typer.Option("--cluster", help="One cluster of cdk.json (all of them).")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check what a first deployment needs: quotas, Spot role, zones, instance types, free names, CDK bootstrap."""
    try:
        clusters = configured_clusters()
    except ConfigurationError as error:
        raise CommandError(str(error), hint="correct cdk.json; ./node-fleet synth lists the same mistakes") from error
    chosen = [one for one in clusters if cluster in ("", one.cluster_id)]
    if not chosen:
        known = ", ".join(one.cluster_id for one in clusters)
        raise CommandError(f"cdk.json has no cluster {cluster}", hint=f"it has {known}")
    found = [*tool_checks()]
    for one in chosen:
        prefix = f"{one.cluster_id}: " if len(chosen) > 1 else ""
        found += [_with_prefix(check, prefix) for check in account_checks(one, client_of(one.region))]
    report(found, as_json=as_json)


def client_of(region: str) -> Client:
    """Makes the clients of one region."""
    try:
        return boto3.Session(region_name=region).client
    except BotoCoreError as error:
        raise CommandError(f"cannot use your AWS profile: {error}") from error


def _with_prefix(check: Check, prefix: str) -> Check:
    def find() -> Finding:
        found = check.find()
        return replace(found, name=prefix + found.name)

    return replace(check, name=prefix + check.name, find=find)


def tool_checks() -> Iterator[Check]:
    """Programs that the documentation uses on this machine. The deployment itself needs neither."""
    for name, (purpose, page) in TOOLS.items():
        yield Check(name, partial(tool, name, purpose, page), "")


def tool(name: str, purpose: str, page: str) -> Finding:
    """The program is on the search path."""
    place = shutil.which(name)
    if place:
        return Finding(name=name, verdict="ok", saw=place)
    return Finding(name=name, verdict="warn", saw=f"not installed: needed for {purpose}", fix=f"install it: {page}")


def account_checks(cluster: ClusterConfig, client: Client) -> Iterator[Check]:
    """The checks of one cluster.

    Raises:
        CommandError: AWS does not answer or the credentials are missing or invalid, so that nothing can be checked.
    """
    try:
        identity = client("sts").get_caller_identity()
    except (NoConnectionError, HTTPClientError) as error:
        raise CommandError(f"AWS does not answer: {error}", hint=NO_ANSWER_HINT) from error
    except (BotoCoreError, ClientError) as error:
        hint = "log in, and set AWS_PROFILE or the variables that your account gives you"
        raise CommandError(f"AWS does not accept your credentials: {error}", hint=hint) from error
    account, deployed = identity["Account"], _is_deployed(cluster, client)
    yield Check("account", lambda: Finding(name="account", verdict="ok", saw=f"{account}, {identity['Arn']}"), "")
    yield Check("region", lambda: region(cluster, client), "check the region in cdk.json")
    yield Check("CDK bootstrap", lambda: bootstrap(cluster, client, account), bootstrap_fix(cluster, account))
    server = SERVER_VCPUS if cluster.attach else vcpus_of(cluster.server.instance_type)
    for one in quotas_needed(cluster.settings, server):
        yield quota_check(client("service-quotas"), *one)
    if cluster.settings.spot_percent:
        yield Check("Spot role", lambda: spot_role(client), "your credentials need iam:ListRoles")
    yield Check("zones", lambda: zones(cluster, client), "your credentials need ec2:DescribeAvailabilityZones")
    yield Check("settings", lambda: settings_finding(cluster.settings), "")
    yield Check("instance types", lambda: instance_types(cluster, client), "correct settings.instance_types")
    if cluster.settings.instance_requirements:
        yield Check("instance requirements", lambda: recorded(cluster), f"correct or remove {FILE_NAME}")
    yield Check(
        "Lambda concurrency", lambda: concurrency(cluster, client), "your credentials need lambda:GetAccountSettings"
    )
    if cluster.attach:
        yield from attach_checks(cluster, cluster.attach, client)
    elif not deployed:
        yield Check("VPC quota", lambda: vpcs(client), "your credentials need ec2:DescribeVpcs")
    if not deployed:
        yield Check("names", lambda: names(cluster, client), "your credentials need dynamodb:DescribeTable")


def _is_deployed(cluster: ClusterConfig, client: Client) -> bool:
    """Whether the stack of the autoscaler exists; a stack that cannot be read counts as missing."""
    try:
        client("cloudformation").describe_stacks(StackName=f"{cluster.cluster_id}-autoscaler")
    except ClientError:
        return False
    return True


def region(cluster: ClusterConfig, client: Client) -> Finding:
    """The account may use the region, and functions in the VPC reach the services that they call there.

    read_clusters has refused a region without dual-stack names where the functions depend on them.
    """
    found = client("ec2").describe_regions(RegionNames=[cluster.region], AllRegions=True)["Regions"]
    if not found or found[0]["OptInStatus"] == "not-opted-in":
        fix = f"aws account enable-region --region-name {cluster.region}"
        return Finding(name="region", verdict="fail", saw=f"{cluster.region} is not enabled in this account", fix=fix)
    over = f"{', '.join(CALLED_OVER_IPV6)} answer over IPv6, dynamodb through the gateway endpoint"
    if cluster.attach and cluster.attach.function_egress == "existing":
        over = "functions reach AWS through the egress of your subnets"
    return Finding(name="region", verdict="ok", saw=f"{cluster.region}: {over}")


def bootstrap(cluster: ClusterConfig, client: Client, account: str) -> Finding:
    """`cdk bootstrap` has run in the region, in a version that the templates accept."""
    name, fix = "CDK bootstrap", bootstrap_fix(cluster, account)
    try:
        answer = client("ssm").get_parameter(Name="/cdk-bootstrap/hnb659fds/version")
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        return Finding(name=name, verdict="fail", saw=f"{cluster.region} has no stack CDKToolkit", fix=fix)
    version = int(answer["Parameter"]["Value"])
    if version < OLDEST_BOOTSTRAP:
        saw = f"version {version}, the templates need {OLDEST_BOOTSTRAP} or newer"
        return Finding(name=name, verdict="fail", saw=saw, fix=fix)
    return Finding(name=name, verdict="ok", saw=f"version {version}")


def bootstrap_fix(cluster: ClusterConfig, account: str) -> str:
    """The command that prepares the region."""
    return f"./node-fleet cdk bootstrap aws://{account}/{cluster.region}"


def spot_role(client: Client) -> Finding:
    """The account has the role of Spot. The functions may not create it, so their first Spot launch would fail."""
    if client("iam").list_roles(PathPrefix=SPOT_ROLE)["Roles"]:
        return Finding(name="Spot role", verdict="ok", saw="AWSServiceRoleForEC2Spot exists")
    fix = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    return Finding(name="Spot role", verdict="fail", saw="the account has no AWSServiceRoleForEC2Spot", fix=fix)


def zones(cluster: ClusterConfig, client: Client) -> Finding:
    """The account has every zone; the letters differ between accounts in some regions."""
    found = client("ec2").describe_availability_zones()["AvailabilityZones"]
    usable = [zone["ZoneName"] for zone in found if zone["State"] == "available"]
    missing = [zone for zone in cluster.zones if zone not in usable]
    if missing:
        setting = "attach.worker_subnets" if cluster.attach else "network.zones"
        saw = f"no zone {', '.join(missing)}; available: {', '.join(usable)}"
        return Finding(name="zones", verdict="fail", saw=saw, fix=f"choose others in {setting} of cdk.json")
    return Finding(name="zones", verdict="ok", saw=", ".join(cluster.zones))


def instance_types(cluster: ClusterConfig, client: Client) -> Finding:
    """EC2 offers the server's type in its zone and each worker type in every zone."""
    name, types = "instance types", cluster.settings.instance_types
    server = () if cluster.attach else (cluster.server.instance_type,)
    wanted = [{"Name": "instance-type", "Values": sorted({*types, *server})}]
    pages = client("ec2").get_paginator("describe_instance_type_offerings")
    found = {
        (one["InstanceType"], one["Location"])
        for page in pages.paginate(LocationType="availability-zone", Filters=wanted)
        for one in page["InstanceTypeOfferings"]
    }
    if any((one, cluster.zones[0]) not in found for one in server):
        saw = f"{cluster.server.instance_type} of the server is not offered in {cluster.zones[0]}"
        fix = "choose another server.instance_type, or another first zone in network.zones"
        return Finding(name=name, verdict="fail", saw=saw, fix=fix)
    missing = [(one, zone) for zone in cluster.zones for one in types if (one, zone) not in found]
    if not missing:
        return Finding(name=name, verdict="ok", saw=f"{', '.join(types)} in every zone")
    without = [zone for zone in cluster.zones if all((one, zone) in missing for one in types)]
    saw = f"not offered: {', '.join(f'{one} in {zone}' for one, zone in missing)}"
    fix = "add types to settings.instance_types that the zone offers, or choose another zone"
    return Finding(name=name, verdict="fail" if without else "warn", saw=saw, fix=fix)


def recorded(cluster: ClusterConfig) -> Finding:
    """The types that EC2 selects for the requirements are recorded."""
    name, types = "instance requirements", ", ".join(cluster.settings.instance_types)
    if cluster.cluster_id in read_records(configuration_file()):
        return Finding(name=name, verdict="ok", saw=f"recorded in {FILE_NAME}: {types}")
    saw = f"EC2 was not asked: {types} are those with a shipped price"
    return Finding(name=name, verdict="warn", saw=saw, fix=f"node-fleet types --record --cluster {cluster.cluster_id}")


def concurrency(cluster: ClusterConfig, client: Client) -> Finding:
    """Enough functions may run at once. A new account often has 10; Step Functions repeats a throttled call."""
    free = client("lambda").get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"]
    storm = FUNCTIONS_AT_ONCE + FUNCTIONS_OF_A_NOTICE * cluster.settings.max_workers
    verdict: Verdict = "ok" if free >= storm else "warn" if free >= FUNCTIONS_AT_ONCE else "fail"
    saw = f"{free} functions at once; a run needs {FUNCTIONS_AT_ONCE}, notices for all workers at once {storm}"
    fix = (
        ""
        if verdict == "ok"
        else "aws service-quotas request-service-quota-increase --service-code lambda"
        f" --quota-code {CONCURRENCY_QUOTA} --desired-value 1000"
    )
    return Finding(name="Lambda concurrency", verdict=verdict, saw=saw, fix=fix)


def vpcs(client: Client) -> Finding:
    """The account may have one more VPC. node-fleet uses no Elastic IP address and no NAT gateway."""
    used = len(client("ec2").describe_vpcs()["Vpcs"])
    quota = client("service-quotas").get_service_quota(ServiceCode="vpc", QuotaCode=VPC_QUOTA)["Quota"]["Value"]
    if used < quota:
        return Finding(name="VPC quota", verdict="ok", saw=f"{used} of {quota:.0f} VPCs are in use")
    fix = (
        "delete a VPC, or aws service-quotas request-service-quota-increase --service-code vpc"
        f" --quota-code {VPC_QUOTA} --desired-value {used + 1}"
    )
    return Finding(name="VPC quota", verdict="fail", saw=f"all {quota:.0f} VPCs are in use", fix=fix)


def names(cluster: ClusterConfig, client: Client) -> Finding:
    """No table and, in mode new, no secret with these names is left: a deployment creates them."""
    settings = cluster.settings
    tables = (settings.state_table, settings.history_table, settings.events_table)
    describe_table, describe_secret = client("dynamodb").describe_table, client("secretsmanager").describe_secret
    left = [f"table {one}" for one in tables if _exists(partial(describe_table, TableName=one))]
    own = () if cluster.attach else (cluster.server.token_secret, cluster.server.grafana_secret)
    secrets = (settings.prometheus_secret, settings.slack_secret, *own)
    existing = [one for one in secrets if _exists(partial(describe_secret, SecretId=one))]
    if cluster.attach and settings.prometheus_secret not in existing:
        fix = f"aws secretsmanager create-secret --name {settings.prometheus_secret} --secret-string file://FILE"
        return Finding(name="names", verdict="fail", saw=f"no secret {settings.prometheus_secret}", fix=fix)
    left += [] if cluster.attach else [f"secret {one}" for one in existing]
    if not left:
        return Finding(name="names", verdict="ok", saw="no table or secret is in the way")
    fix = "docs/deployment.md#remove-everything deletes them; or give the cluster other names in settings"
    return Finding(name="names", verdict="fail", saw=f"left from another deployment: {', '.join(left)}", fix=fix)


def _exists(describe: Callable[[], Any]) -> bool:
    try:
        describe()
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return False
    return True


def attach_checks(cluster: ClusterConfig, attach: Attachment, client: Client) -> Iterator[Check]:
    """What mode attach expects to exist."""
    ec2, version = client("ec2"), str(attach.launch_template_version)
    tags = {"Role": cluster.settings.server_role_tag, "Cluster": cluster.cluster_id}

    def template() -> Finding:
        answer = ec2.describe_launch_template_versions(LaunchTemplateId=attach.launch_template_id, Versions=[version])
        data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        saw = f"{attach.launch_template_id} version {version}"
        return template_finding(saw, data, cluster.settings.instance_types, ec2)

    def server() -> Finding:
        filters = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]
        filters.append({"Name": "instance-state-name", "Values": ["running"]})
        found = [one for group in ec2.describe_instances(Filters=filters)["Reservations"] for one in group["Instances"]]
        shown = ", ".join(f"{key}={value}" for key, value in tags.items())
        verdict: Verdict = "ok" if len(found) == 1 else "fail"
        fix = "" if len(found) == 1 else f"give exactly one running instance the tags {shown}"
        return Finding(name="K3s server", verdict=verdict, saw=f"{len(found)} running with {shown}", fix=fix)

    def subnets() -> Finding:
        found = ec2.describe_subnets(SubnetIds=sorted({*attach.worker_subnets.values()}))["Subnets"]
        zone_of = {one["SubnetId"]: one["AvailabilityZone"] for one in found}
        wrong = [
            f"{one} is in {zone_of[one]}, not in {zone}"
            for zone, one in attach.worker_subnets.items()
            if zone_of[one] != zone
        ]
        verdict: Verdict = "fail" if wrong else "ok"
        fix = "correct attach.worker_subnets in cdk.json" if wrong else ""
        return Finding(name="subnets", verdict=verdict, saw="; ".join(wrong) or ", ".join(zone_of), fix=fix)

    yield Check(
        "launch template", template, "correct attach.launch_template_id and launch_template_version in cdk.json"
    )
    yield Check("K3s server", server, "your credentials need ec2:DescribeInstances")
    yield Check("subnets", subnets, "correct attach.worker_subnets in cdk.json")
