"""doctor: checks everything that a run needs. Each check says what it found and, where something is wrong, the fix.

It only reads; the one command on the server is the read-only inspection of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer
from botocore.exceptions import BotoCoreError, ClientError

from cli.output import CommandError, console, print_json
from cli.status import ago
from cli.target import JsonOption, Opening, Target, on_cluster
from node_fleet.adapters.secrets import SecretError
from node_fleet.adapters.slack import address_in
from node_fleet.domain.cost.fleet_cost import usd_per_hour
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.instance_types import offered

Verdict = Literal["ok", "warn", "fail"]
SIGNS = {"ok": "[green]✓[/green]", "warn": "[yellow]![/yellow]", "fail": "[red]✗[/red]"}
LATE_TICKS = 3
AGENT_TOKEN = "file:///var/lib/rancher/k3s/server/agent-token"
ON_DEMAND_QUOTA, SPOT_QUOTA = "L-1216C47A", "L-34B43A08"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. `fix` is empty when nothing has to be done."""

    name: str
    verdict: Verdict
    saw: str
    fix: str = ""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet doctor | node-fleet doctor --local | node-fleet doctor --json")(doctor)


@on_cluster(at="14m")
def doctor(
    opening: Opening,
    *,
    token_secret: Annotated[str, typer.Option(help="Name of the secret with the K3s join token.")] = (
        "node-fleet/k3s-token"
    ),
    as_json: JsonOption = False,
) -> None:
    """Check a deployed cluster: tables, server, Prometheus, secrets, launch template, subnets, quotas, ticks."""
    findings: list[Finding] = []
    with opening as target:
        for finding in examine(target, token_secret):
            findings.append(finding)
            if not as_json:
                show(finding)
    bad = [one for one in findings if one.verdict == "fail"]
    if as_json:
        print_json([{"name": f.name, "verdict": f.verdict, "saw": f.saw, "fix": f.fix} for f in findings])
    if bad:
        raise CommandError(f"{len(bad)} of {len(findings)} checks failed", hint=f"first: {bad[0].fix}")


def show(finding: Finding) -> None:
    """Print one line, and the fix below it."""
    out = console()
    out.print(f"{SIGNS[finding.verdict]} [bold]{finding.name}[/bold]  ", end="")
    out.print(finding.saw, markup=False)
    if finding.fix:
        out.print(f"    fix: {finding.fix}", markup=False, style="cyan")


def examine(target: Target, token_secret: str) -> Iterator[Finding]:
    """Run every check, in the order in which a run needs the things. A check that cannot be made is a finding, too."""
    for name, check, fix in checks(target, token_secret):
        try:
            yield check()
        except (NodeFleetError, SecretError) as error:
            yield Finding(name=name, verdict="fail", saw=str(error), fix=fix)
        except ClientError as error:
            saw = f"{error.response['Error']['Code']}: {error.response['Error'].get('Message', '')[:160]}"
            yield Finding(name=name, verdict="fail", saw=saw, fix=fix)
        except BotoCoreError as error:
            yield Finding(name=name, verdict="fail", saw=str(error)[:200], fix="check the network and the AWS profile")


def checks(target: Target, token_secret: str) -> Iterator[tuple[str, Callable[[], Finding], str]]:
    """Name, check, and the fix when the check itself cannot be made."""
    settings = target.services.settings
    write, from_file = "aws secretsmanager put-secret-value --secret-id", "--secret-string file://FILE"
    yield "state table", lambda: state(target), "run cdk deploy; the table's name is DYNAMODB_TABLE"
    yield "history and events", lambda: tables(target), "run cdk deploy"
    yield "ticks", lambda: ticks(target), "enable the rule that starts the workflow"
    yield "K3s server", lambda: server(target), f"tag the server Role={settings.server_role_tag} and start it"
    agent = "start the SSM agent on the server; its role needs AmazonSSMManagedInstanceCore"
    yield "kubectl on the server", lambda: kubectl(target), agent
    login = (
        f"write the JSON object with username and password to FILE: {write} {settings.prometheus_secret} {from_file}"
    )
    yield "Prometheus login", lambda: credentials(target), login
    reach = f"allow port {settings.prometheus_port} from the functions to the server; check that Prometheus runs"
    yield "Prometheus queries", lambda: prometheus(target), reach
    join = f"run on the server: sudo {write} {token_secret} --region {settings.region} --secret-string {AGENT_TOKEN}"
    yield "join token", lambda: token(target, token_secret), join
    yield "Slack webhook", lambda: slack(target), f"write the URL to FILE: {write} {settings.slack_secret} {from_file}"
    yield "launch template", lambda: launch_template(target), "run cdk deploy; it publishes the workers' template"
    yield "subnets", lambda: subnets(target), "correct the subnets in cdk.json and deploy"
    yield "quotas", lambda: quotas(target), "request an increase in Service Quotas, EC2"
    yield "message topic", lambda: topic(target), "run cdk deploy"
    yield "prices", lambda: prices(target), "add the type to functions/node_fleet/domain/cost/prices.py"


def state(target: Target) -> Finding:
    """The state item can be read and has no broken part."""
    found = target.services.state.load()
    if found.problems:
        fix = "node-fleet status shows them; the next run repairs what it can"
        return Finding(name="state table", verdict="warn", saw="; ".join(found.problems), fix=fix)
    return Finding(name="state table", verdict="ok", saw=target.services.settings.state_table)


def tables(target: Target) -> Finding:
    """Both tables answer a query."""
    now = target.services.clock.now()
    target.services.records.events(now - 60, now)
    target.services.records.latest_snapshot()
    settings = target.services.settings
    return Finding(name="history and events", verdict="ok", saw=f"{settings.history_table}, {settings.events_table}")


def ticks(target: Target) -> Finding:
    """The schedule starts runs."""
    settings, last = target.services.settings, target.services.state.load().last_tick
    late = target.services.clock.now() - last
    fix = f"aws events enable-rule --name {settings.cluster_id}-autoscaler-trigger"
    if not last:
        return Finding(name="ticks", verdict="fail", saw="no tick has been recorded", fix=fix)
    verdict: Verdict = "ok" if late <= LATE_TICKS * settings.interval_seconds else "fail"
    return Finding(name="ticks", verdict=verdict, saw=f"the last one {ago(late)}", fix="" if verdict == "ok" else fix)


def server(target: Target) -> Finding:
    """Exactly one running server carries the tag."""
    found = target.services.ec2.server()
    return Finding(name="K3s server", verdict="ok", saw=f"{found.instance_id} at {found.private_ip}")


def kubectl(target: Target) -> Finding:
    """Systems Manager reaches the server, and kubectl there lists nodes."""
    inspection = target.call(target.services.server.inspect)
    if inspection.known:
        return Finding(name="kubectl on the server", verdict="ok", saw=f"{len(inspection.nodes)} nodes listed")
    fix = "run on the server: sudo /usr/local/bin/k3s kubectl get nodes"
    return Finding(name="kubectl on the server", verdict="fail", saw=inspection.detail, fix=fix)


def credentials(target: Target) -> Finding:
    """The secret has a user name and a password."""
    user, _ = target.services.secrets.credentials(target.services.settings.prometheus_secret)
    return Finding(name="Prometheus login", verdict="ok", saw=f"user {user}")


def prometheus(target: Target) -> Finding:
    """Every query has an answer."""
    reading = target.call(lambda: target.services.prometheus.read(target.services.clock.now()))
    if reading.missing:
        fix = "see docs/cluster.md for what exports each series"
        saw = f"no value for {', '.join(reading.missing)}"
        verdict: Verdict = "fail" if "nodes" in reading.missing else "warn"  # without nodes nothing is ever sized
        return Finding(name="Prometheus queries", verdict=verdict, saw=saw, fix=fix)
    return Finding(name="Prometheus queries", verdict="ok", saw=f"all answered, {len(reading.nodes)} workers seen")


def token(target: Target, name: str) -> Finding:
    """Workers cannot join without the token."""
    target.services.secrets.text(name)
    return Finding(name="join token", verdict="ok", saw=name)


def slack(target: Target) -> Finding:
    """Without a webhook there are no Slack messages; scaling is not affected."""
    name = target.services.settings.slack_secret
    fix = (
        "write the URL https://hooks.slack.com/... to FILE:"
        f" aws secretsmanager put-secret-value --secret-id {name} --secret-string file://FILE"
    )
    try:
        address_in(target.services.secrets.text(name))
    except (SecretError, NodeFleetError) as error:
        return Finding(name="Slack webhook", verdict="warn", saw=str(error), fix=fix)
    return Finding(name="Slack webhook", verdict="ok", saw=name)


def launch_template(target: Target) -> Finding:
    """The explicit version exists."""
    settings = target.services.settings
    answer = target.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=settings.launch_template_id, Versions=[settings.launch_template_version]
    )
    data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    saw = f"{settings.launch_template_id} version {settings.launch_template_version}, image {data.get('ImageId', '?')}"
    return Finding(name="launch template", verdict="ok", saw=saw)


def subnets(target: Target) -> Finding:
    """Every subnet exists and has free addresses for the largest fleet."""
    settings = target.services.settings
    ids = [entry.split("=", 1)[1] for entry in settings.subnets]
    if not ids:
        return Finding(name="subnets", verdict="fail", saw="none is configured", fix="deploy with subnets")
    found = target.client("ec2").describe_subnets(SubnetIds=ids)["Subnets"]
    tight = [s["SubnetId"] for s in found if s["AvailableIpAddressCount"] < settings.max_workers]
    if tight:
        saw = f"fewer than {settings.max_workers} free addresses in {', '.join(tight)}"
        return Finding(name="subnets", verdict="warn", saw=saw, fix="use larger subnets")
    return Finding(
        name="subnets", verdict="ok", saw=f"{len(found)} in {', '.join(s['AvailabilityZone'] for s in found)}"
    )


def quotas(target: Target) -> Finding:
    """The account may run the largest fleet, On-Demand and as Spot."""
    settings = target.services.settings
    cores = max((offered(one) or (2000, 0))[0] for one in settings.instance_types) / 1000
    need = settings.max_workers * cores
    client = target.client("service-quotas")
    try:
        values = {code: _quota(client, code) for code in (ON_DEMAND_QUOTA, SPOT_QUOTA)}
    except (ClientError, BotoCoreError) as error:
        return Finding(
            name="quotas", verdict="warn", saw=f"cannot be read: {error}"[:160], fix="check EC2 in Service Quotas"
        )
    short = [f"{code} is {value:.0f}" for code, value in values.items() if value < need]
    if short:
        saw = f"{', '.join(short)}, {need:.0f} vCPUs are needed"
        return Finding(name="quotas", verdict="warn", saw=saw, fix="request an increase in Service Quotas, EC2")
    return Finding(name="quotas", verdict="ok", saw=f"{need:.0f} vCPUs fit")


def _quota(client: Any, code: str) -> float:
    return float(client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"])


def topic(target: Target) -> Finding:
    """The topic exists."""
    arn = target.services.settings.topic_arn
    if not arn:
        fix = "set SNS_TOPIC_ARN by deploying"
        return Finding(name="message topic", verdict="warn", saw="none: no message is sent", fix=fix)
    target.client("sns").get_topic_attributes(TopicArn=arn)
    return Finding(name="message topic", verdict="ok", saw=arn.rsplit(":", 1)[-1])


def prices(target: Target) -> Finding:
    """Costs are shown only for instance types in the price table."""
    settings = target.services.settings
    unknown = [one for one in settings.instance_types if usd_per_hour(settings.region, one, "spot") is None]
    if unknown:
        saw = f"no price for {', '.join(unknown)} in {settings.region}"
        fix = "add the type to functions/node_fleet/domain/cost/prices.py"
        return Finding(name="prices", verdict="warn", saw=saw, fix=fix)
    return Finding(name="prices", verdict="ok", saw=f"known for {', '.join(settings.instance_types)}")
