"""The plan of an upgrade of K3s: the versions that server and workers have, the rules, and what would happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace

from botocore.exceptions import BotoCoreError, ClientError

from cli.output import CommandError
from cli.target import Target
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.k3s_version import OLDEST_MINORS, lowest_version, upgrade_problems
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.settings import Settings

DOCUMENT = "UpgradeServer"
COMMAND_SECONDS = 1800
"""More than the script may take: download, two starts and their health checks."""
PAUSE_SECONDS = COMMAND_SECONDS + 300
USUAL_OUTAGE, LONGEST_OUTAGE = "about 1 min", "12 min"


@value_class
class ServerVersions:
    """What the server's own check prints.

    running: the version that its Node states, empty when unknown. is_ready: the API, and the Node of the server.
    workers: the version of each other node by its name.
    """

    installed: str
    is_ready: bool
    running: str = ""
    workers: dict[str, str] = field(default_factory=dict)


@value_class
class Plan:
    """What an upgrade changes. problems: why it must not be done; empty when it may."""

    server: str
    target: str
    checksum: str
    workers: dict[str, str]
    problems: tuple[str, ...]
    replaced: int
    budgets: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether the server has the release already."""
        return self.server == self.target


def read_plan(target: Target) -> Plan:
    """What the deployed release changes.

    Raises:
        CommandError: the server is not this deployment's, or the versions or the release cannot be read.
    """
    settings = target.services.settings
    release, checksum = _release(target)
    try:
        found = versions_of(target.services.server.run(DOCUMENT, {"Mode": "check"}))
    except NodeFleetError as error:
        hint = "nothing was changed; check the way to the server: node-fleet doctor"
        raise CommandError(f"the versions on the server cannot be read: {error}", hint=hint) from error
    launched = {one.instance_id: one.k3s_version for one in target.services.ec2.instances() if one.k3s_version}
    return plan_of(replace(found, workers=launched | found.workers), release, checksum, settings)


def plan_of(found: ServerVersions, release: str, checksum: str, settings: Settings) -> Plan:
    """The plan for these versions."""
    problems = upgrade_problems(found.installed, release, found.workers)
    if found.running not in ("", found.installed):
        running = f"{found.installed} is installed on the server, but {found.running} runs"
        problems.insert(0, f"{running}: restart K3s there, sudo systemctl restart k3s")
    if not found.is_ready:
        ready = "the API of the server is not ready, or its node is not Ready"
        problems.insert(0, f"{ready}: repair it before an upgrade, see journalctl -u k3s there")
    return Plan(
        server=found.installed,
        target=release,
        checksum=checksum,
        workers=found.workers,
        problems=tuple(problems),
        replaced=sum(version != release for version in found.workers.values()),
        budgets=tuple(budget.text for budget in settings.policy().budgets),
    )


def versions_of(result: CommandResult) -> ServerVersions:
    """The answer of the check.

    Raises:
        CommandError: the command did not run to its end.
    """
    lines = [line.split() for line in result.stdout.splitlines()]
    servers = [words for words in lines if words[:1] == ["server"] and len(words) == 3]
    if not result.succeeded or not servers:
        text = f"the versions on the server cannot be read: {result.answer} {result.stderr.strip()[:300]}".rstrip()
        raise CommandError(text, hint="nothing was changed; on the server: journalctl -u k3s")
    _, installed, status = servers[0]
    nodes = [words[1:] for words in lines if words[:1] == ["n"] and len(words) > 4]
    workers = {name: version for role, version, _, *names in nodes if role == "worker" for name in names}
    own = [(version, ready) for role, version, ready, *_ in nodes if role == "server"]
    is_ready = status == "ready" and all(ready == "ready" for _, ready in own)
    running = lowest_version([version for version, _ in own])
    return ServerVersions(installed=installed, running=running, is_ready=is_ready, workers=workers)


def _release(target: Target) -> tuple[str, str]:
    """The deployed release and its checksum."""
    settings = target.services.settings
    if not settings.k3s_version:
        hint = "upgrade it as you installed it, the server before the workers: docs/upgrades.md"
        raise CommandError("the K3s server of this cluster is not node-fleet's (mode attach)", hint=hint)
    name = f"/node-fleet/{settings.cluster_id}/k3s"
    try:
        value = target.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except (ClientError, BotoCoreError) as error:
        hint = "run cdk deploy, which writes it; your credentials need ssm:GetParameter"
        raise CommandError(f"the parameter {name} cannot be read: {error}", hint=hint) from error
    release, _, checksum = str(value).partition(" ")
    if release != settings.k3s_version:
        text = f"the parameter {name} names {release}, and the functions have {settings.k3s_version}"
        raise CommandError(text, hint="end the deployment first: node-fleet cdk deploy --all")
    return release, checksum


def plan_rows(plan: Plan, settings: Settings) -> Iterator[tuple[str, str]]:
    """Names and sentences of the plan, in the order in which things happen."""
    counts = Counter(plan.workers.values())
    workers = ", ".join(f"{number} {version}" for version, number in sorted(counts.items()))
    yield "server", f"{plan.server}, configured {plan.target}"
    yield "workers", f"{len(plan.workers)}: {workers}" if workers else "none"
    rule = f"a worker is never newer than the server, and at most {OLDEST_MINORS} minor versions older"
    yield "version skew", f"{rule}: {'; '.join(plan.problems) or 'kept'}"
    if plan.problems:
        return
    if not plan.is_done:
        yield "1. backup", "a snapshot of the server's volume, complete before anything is changed"
        yield "2. pause", f"scaling is paused for at most {span(PAUSE_SECONDS)}, until the server is healthy"
        yield (
            "3. server",
            f"K3s {plan.server} is replaced by {plan.target}, whose checksum is verified; pods keep running",
        )
        yield (
            "time without API",
            f"{USUAL_OUTAGE}; at most {LONGEST_OUTAGE}, when {plan.server} and its datastore must be restored",
        )
        yield (
            "4. health",
            f"/readyz answers, and the server's node is Ready and states {plan.target}; else {plan.server} is restored",
        )
    yield "5. workers" if not plan.is_done else "workers to replace", workers_row(plan, settings)
    yield "budgets", "; ".join(plan.budgets) or "none"


def workers_row(plan: Plan, settings: Settings) -> str:
    """What follows for the workers, in one sentence."""
    if not plan.replaced:
        return "none is to be replaced"
    if settings.drift != "replace":
        return (
            f"{count_of(plan.replaced, 'worker')} not replaced, drift is {settings.drift}: node-fleet rotate marks them"
        )
    pace = f"one after the other, each when its replacement has been Ready for {settings.bake_seconds} s"
    return f"{count_of(plan.replaced, 'worker')} replaced, {pace}"
