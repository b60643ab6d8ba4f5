"""import: proposes settings for what Cluster Autoscaler or an Auto Scaling group has configured. It changes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import autoscaler_flags, scaling_group
from cli.output import CommandError, WrongUseError, print_json, say, table
from cli.proposal import Proposal
from cli.target import JsonOption, maker_of_clients

Client = Callable[..., Any]
COLUMNS = ("from", "setting", "difference")


def register(app: typer.Typer) -> None:
    """Add the command with its two sources."""
    group = typer.Typer(no_args_is_help=True, help="Propose settings for what another autoscaler has configured.")
    group.command(
        "cluster-autoscaler",
        context_settings={"ignore_unknown_options": True},
        epilog="Examples: node-fleet import cluster-autoscaler deployment.yaml | "
        "node-fleet import cluster-autoscaler -- --nodes=1:10:workers --scale-down-unneeded-time=15m",
    )(cluster_autoscaler)
    group.command("asg", epilog="Example: node-fleet import asg k3s-workers --region eu-west-1")(asg)
    app.add_typer(group, name="import")


def cluster_autoscaler(
    source: Annotated[
        list[str], typer.Argument(help="A manifest (- for standard input), or after -- the flags themselves.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Propose settings for the flags of Cluster Autoscaler, with a line on each difference."""
    has_flags = source[0].startswith("-") and source != ["-"]
    try:
        words = source if has_flags else autoscaler_flags.words_of_manifest(_text_of(source))
    except autoscaler_flags.FlagError as error:
        raise WrongUseError(
            f"{source[0]} cannot be read: {error}", hint="give a manifest, or the flags after --"
        ) from None
    show(autoscaler_flags.propose(words), as_json=as_json)


def asg(
    name: Annotated[str, typer.Argument(help="Name of the Auto Scaling group.")],
    region: Annotated[str, typer.Option("--region", envvar="AWS_REGION", help="AWS region.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Propose settings for an Auto Scaling group, with a line on each difference. It only reads."""
    show(proposal_of_group(name, maker_of_clients(region)), as_json=as_json)


def proposal_of_group(name: str, client: Client) -> Proposal:
    """The proposal for a group as AWS describes it.

    Raises:
        CommandError: the group does not exist, or AWS refuses to describe it.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        scaling, ec2 = client("autoscaling"), client("ec2")
        groups = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
        if not groups:
            raise CommandError(
                f"there is no Auto Scaling group {name} in this region", hint="give its name and --region"
            )
        policies = scaling.describe_policies(AutoScalingGroupName=name)["ScalingPolicies"]
        subnets = [subnet for subnet in groups[0].get("VPCZoneIdentifier", "").split(",") if subnet]
        found = ec2.describe_subnets(SubnetIds=subnets)["Subnets"] if subnets else []
        template = _template_data(ec2, scaling_group.launch_template_of(groups[0]))
    except (BotoCoreError, ClientError) as error:
        text = f"AWS did not describe the Auto Scaling group {name}: {error}"
        raise CommandError(text, hint="it needs autoscaling:Describe* and ec2:Describe*") from error
    zones = {subnet["SubnetId"]: subnet["AvailabilityZone"] for subnet in found}
    return scaling_group.propose(groups[0], policies, template=template, zones=zones)


def _template_data(ec2: Any, template: Any) -> dict[str, Any]:
    if not template:
        return {}
    asked = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": [template.get("Version") or "$Default"]}
    versions = ec2.describe_launch_template_versions(**asked)["LaunchTemplateVersions"]
    return dict(versions[0]["LaunchTemplateData"]) if versions else {}


def show(proposal: Proposal, *, as_json: bool) -> None:
    """Print the proposal.

    Raises:
        CommandError: something could not be read, or node-fleet would refuse the settings. The proposal is printed.
    """
    refused = proposal.refused()
    if as_json:
        lines = [{"from": o.source, "settings": o.settings, "difference": o.difference} for o in proposal.lines]
        answer = {"settings": proposal.settings, "attach": proposal.attach, "lines": lines}
        print_json({**answer, "problems": [*proposal.problems, *refused]})
    else:
        table("Proposed settings", COLUMNS, [(o.source, _shown(o.settings), o.difference) for o in proposal.lines])
        say("For cdk.json, beside cluster_id:")
        say(
            json.dumps(
                {"settings": proposal.settings, **({"attach": proposal.attach} if proposal.attach else {})}, indent=2
            )
        )
    problems = [*proposal.problems, *(f"node-fleet would refuse {problem}" for problem in refused)]
    if problems:
        raise CommandError("; ".join(problems), hint="the proposal above lacks these; settle them by hand")


def _shown(settings: Any) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def _text_of(source: list[str]) -> str:
    if len(source) > 1:
        raise WrongUseError("several manifests are given", hint="give one file, or the flags after --")
    try:
        if source[0] == "-":
            return sys.stdin.read()
        return Path(source[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        text = f"{source[0]} cannot be read: {getattr(error, 'strerror', '') or 'it is not UTF-8 text'}"
        raise WrongUseError(text, hint="give a manifest, or the flags after --") from error
