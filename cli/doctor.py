"""doctor: checks everything that a run needs. Each check says what it found and, where something is wrong, the fix.

It only reads; the one command on the server is the read-only inspection of the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError

from cdk_app.config import ClusterConfig, NewServer
from cli.cluster_status import worker_versions
from cli.configured import configured
from cli.cost_check import cost_checks
from cli.deploy_check import changed_fixed_settings
from cli.findings import Check, Finding, Verdict, report, settings_finding
from cli.history import short
from cli.launch_template import template_finding
from cli.observation import observe
from cli.quotas import SERVER_VCPUS, quota_check, quotas_needed, vcpus_of
from cli.target import Deployed, JsonOption, Opening, Target, on_cluster
from cli.times import ago
from node_fleet.adapters.secrets import SecretError
from node_fleet.adapters.slack import access_in
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.k3s_version import skew_problems

LATE_TICKS = 3
AGENT_TOKEN = "file:///var/lib/rancher/k3s/server/agent-token"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet doctor | node-fleet doctor --local | node-fleet doctor --json")(doctor)


@on_cluster(at="14m")
def doctor(
    opening: Opening,
    *,
    token_secret: Annotated[str, typer.Option(help="Secret with the K3s join token (from cdk.json).")] = "",
    as_json: JsonOption = False,
) -> None:
    """Check a deployed cluster: tables, server, Prometheus, secrets, launch template, subnets, quotas, ticks."""
    with opening as target:
        report(checks(target, token_secret or _join_token(target)), as_json=as_json)


def _join_token(target: Target) -> str:
    """The secret that workers read, as in cdk.json; none in mode attach, where workers join in their own way."""
    entry = configured(target.services.settings.cluster_id)
    if entry is None:
        return NewServer().token_secret
    return "" if entry.attach else entry.server.token_secret


def checks(target: Target, token_secret: str) -> Iterator[Check]:
    """The checks in the order in which a run needs the things."""
    settings = target.services.settings
    yield Check("state table", lambda: state(target), "run cdk deploy; the table is the setting state_table")
    yield Check("history and events", lambda: tables(target), "run cdk deploy")
    yield Check("ticks", lambda: ticks(target), "enable the rule that starts the workflow")
    yield Check("K3s server", lambda: server(target), f"tag the server Role={settings.server_role_tag} and start it")
    agent = "start the SSM agent on the server; its role needs AmazonSSMManagedInstanceCore"
    yield Check("kubectl on the server", lambda: kubectl(target), agent)
    login = f"write the JSON object with username and password to FILE: {put_secret(settings.prometheus_secret)}"
    yield Check("Prometheus login", lambda: credentials(target), login)
    reach = f"allow port {settings.prometheus_port} from the functions to the server; check that Prometheus runs"
    yield Check("Prometheus queries", lambda: prometheus(target), reach)
    yield Check("K3s versions", lambda: k3s_versions(target), reach)
    join = f"run on the server: sudo {put_secret(token_secret, AGENT_TOKEN)} --region {settings.region}"
    if token_secret:
        yield Check("join token", lambda: token(target, token_secret), join)
    yield Check("Slack webhook", lambda: slack(target), f"write the URL to FILE: {put_secret(settings.slack_secret)}")
    template = "run cdk deploy; it publishes the workers' template"
    yield Check("launch template", lambda: launch_template(target), template)
    yield Check("subnets", lambda: subnets(target), "correct the subnets in cdk.json and deploy")
    entry = configured(settings.cluster_id)
    if isinstance(target, Deployed) and entry and not entry.attach:
        stacks = target.client("cloudformation")
        yield Check("fixed settings", lambda: fixed_settings(entry, stacks), "allow cloudformation:GetTemplate")
    yield Check("settings", lambda: settings_finding(settings), "")
    if isinstance(target, Deployed):  # the simulated AWS has no quotas
        yield from quota_checks(target)
    yield Check("message topic", lambda: topic(target), "run cdk deploy")
    yield from cost_checks(target)


def put_secret(name: str, file: str = "file://FILE") -> str:
    """The command that stores the content of a file."""
    return f"aws secretsmanager put-secret-value --secret-id {name} --secret-string {file}"


def fixed_settings(entry: ClusterConfig, cloudformation: Any) -> Finding:
    """cdk.json has the values that the deployed cluster was created with; a deployment refuses others."""
    differences = list(changed_fixed_settings(entry, cloudformation))
    if differences:
        fix = "write the deployed values into cdk.json"
        return Finding(name="fixed settings", verdict="warn", saw="; ".join(differences), fix=fix)
    return Finding(name="fixed settings", verdict="ok", saw="cdk.json has those of the deployed stacks")


def quota_checks(target: Target) -> Iterator[Check]:
    """The account may run the largest fleet, On-Demand and as Spot."""
    settings, client = target.services.settings, target.client("service-quotas")
    entry = configured(settings.cluster_id)
    server_vcpus = vcpus_of(entry.server.instance_type) if entry and not entry.attach else SERVER_VCPUS
    for one in quotas_needed(settings, server_vcpus):
        yield quota_check(client, *one)


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
    target.services.records.readings(now - 60, now)
    settings = target.services.settings
    return Finding(name="history and events", verdict="ok", saw=f"{settings.history_table}, {settings.events_table}")


def ticks(target: Target) -> Finding:
    """The schedule starts runs. A run in progress and a pause let ticks pass without a record."""
    settings, state, now = target.services.settings, target.services.state.load(), target.services.clock.now()
    fix = f"aws events enable-rule --name {settings.cluster_id}-autoscaler-trigger"
    if pause := state.active_pause(now):
        return Finding(name="ticks", verdict="warn", saw=pause.sentence, fix="./node-fleet resume ends the pause")
    if state.hibernation.phase == "off":
        saw = f"the fleet is off: {state.hibernation.detail}"
        return Finding(name="ticks", verdict="warn", saw=saw, fix="switch it on: ./node-fleet wake")
    if state.lease and state.lease.expires_at > now:
        began = ago(now - state.lease.acquired_at)
        return Finding(name="ticks", verdict="ok", saw=f"{short(state.lease.owner)} runs, begun {began}")
    if not state.last_tick:
        return Finding(name="ticks", verdict="fail", saw="no tick has been recorded", fix=fix)
    late = now - state.last_tick
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
    """Every query has an answer, as the function reads them that reads them for a run."""
    name, settings, found = "Prometheus queries", target.services.settings, observe(target)
    if found.recorded:
        verdict: Verdict = "fail" if found.age_seconds > LATE_TICKS * settings.interval_seconds else "warn"
        fix = "allow lambda:InvokeFunction on the function CollectMetrics, which reads Prometheus inside the VPC"
        return Finding(name=name, verdict=verdict, saw=found.recorded, fix=fix)
    snapshot = found.snapshot
    if snapshot.source != "live":
        fix = f"allow port {settings.prometheus_port} from the functions to the server; check that Prometheus runs"
        return Finding(name=name, verdict="fail", saw=snapshot.problem, fix=fix)
    if snapshot.missing:
        verdict = "fail" if "nodes" in snapshot.missing else "warn"  # without nodes nothing is ever sized
        saw = f"no value for {', '.join(snapshot.missing)}"
        return Finding(name=name, verdict=verdict, saw=saw, fix="see docs/cluster.md for what exports each series")
    return Finding(name=name, verdict="ok", saw=f"all answered, {len(snapshot.usable)} usable workers")


def k3s_versions(target: Target) -> Finding:
    """No worker is newer than the server or more than three minor versions older, and none waits for an upgrade."""
    name, snapshot = "K3s versions", observe(target).snapshot
    server = snapshot.server_version
    if not server:
        fix = "let Prometheus keep kube_node_info with its label kubelet_version"
        return Finding(name=name, verdict="warn", saw="the version of the server is not known", fix=fix)
    kubelets = {worker.instance_id: worker.kubelet_version for worker in snapshot.workers}
    versions = worker_versions(target.services.ec2.instances(), kubelets)
    if wrong := skew_problems(versions, server):
        fix = "upgrade the server first: node-fleet upgrade; or replace these workers: node-fleet rotate"
        return Finding(name=name, verdict="fail", saw="; ".join(wrong), fix=fix)
    if snapshot.launch_hold:
        return Finding(name=name, verdict="warn", saw=snapshot.launch_hold, fix="node-fleet upgrade --dry-run")
    return Finding(name=name, verdict="ok", saw=f"server {server}, no worker is newer")


def token(target: Target, name: str) -> Finding:
    """Workers cannot join without the token."""
    target.services.secrets.text(name)
    return Finding(name="join token", verdict="ok", saw=name)


def slack(target: Target) -> Finding:
    """Without a webhook or a bot token there are no Slack messages; scaling is not affected."""
    name = target.services.settings.slack_secret
    fix = f"write https://hooks.slack.com/..., or JSON with bot_token and channel, to FILE: {put_secret(name)}"
    try:
        access_in(target.services.secrets.text(name))
    except (SecretError, NodeFleetError) as error:
        return Finding(name="Slack webhook", verdict="warn", saw=str(error), fix=fix)
    return Finding(name="Slack webhook", verdict="ok", saw=name)


def launch_template(target: Target) -> Finding:
    """The explicit version exists, and EC2 accepts a launch from it."""
    settings = target.services.settings
    answer = target.client("ec2").describe_launch_template_versions(
        LaunchTemplateId=settings.launch_template_id, Versions=[settings.launch_template_version]
    )
    data = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    saw = f"{settings.launch_template_id} version {settings.launch_template_version}, image {data.get('ImageId', '?')}"
    return template_finding(saw, data, settings.instance_types)


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


def topic(target: Target) -> Finding:
    """The general topic exists, and that of critical messages where one is configured."""
    settings = target.services.settings
    arn, critical = settings.topic_arn, settings.alert_topic_critical
    if not arn:
        fix = "run cdk deploy, which sets the topic"
        return Finding(name="message topic", verdict="warn", saw="none: no message is sent", fix=fix)
    sns = target.client("sns")
    sns.get_topic_attributes(TopicArn=arn)
    found = [arn.rsplit(":", 1)[-1], *([critical.rsplit(":", 1)[-1]] if critical else [])]
    try:
        if critical:
            sns.get_topic_attributes(TopicArn=critical)
    except ClientError as error:
        saw = f"{critical} cannot be read, so critical messages may not arrive: {error.response['Error']['Code']}"
        return Finding(name="message topic", verdict="warn", saw=saw, fix="check the ARN in alert_topic_critical")
    return Finding(name="message topic", verdict="ok", saw=", ".join(found))
