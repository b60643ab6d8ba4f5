"""upgrade: replaces K3s on the server by the release that cdk.json names, and shows before what follows from it.

The workers follow by themselves: they drift, and the runs replace them. docs/upgrades.md has the whole procedure.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError

from cli.output import CommandError, ExitCode, facts, leaving, note, print_json, say, working
from cli.target import JsonOption, Opening, Target, on_cluster
from cli.upgrade_plan import (
    COMMAND_SECONDS,
    DOCUMENT,
    PAUSE_SECONDS,
    USUAL_OUTAGE,
    Plan,
    plan_rows,
    read_plan,
    workers_row,
)
from node_fleet.domain.model.errors import NodeFleetError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.scale_down.drain import CommandResult

RUN_SECONDS = 300
"""How long a run in progress may take to stop at the pause."""
BACKUP_SECONDS = 3600
POLL_SECONDS = 5.0
UNKNOWN = (
    f"the upgrade on the server continues if it had begun, and scaling may stay paused for {PAUSE_SECONDS // 60} min; "
    "in some minutes, see: node-fleet upgrade --dry-run"
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: node-fleet upgrade --dry-run | node-fleet upgrade | node-fleet upgrade --local --scenario"
        " k3s-upgrade --at 10m"
    )(upgrade)


@on_cluster(at="10m")
def upgrade(
    opening: Opening,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Upgrade K3s on the server to the deployed k3s_version: plan, backup, upgrade, health check; workers follow."""
    with opening as target:
        with working("reading the versions of the server and the workers"):
            plan = target.call(lambda: read_plan(target))
        if not as_json:
            facts(plan_rows(plan, target.services.settings), title=f"K3s upgrade of {target.place}")
        if plan.problems:
            raise CommandError(
                plan.problems[0], hint="nothing was changed; docs/upgrades.md has the rules and the way back"
            )
        if plan.is_done or dry_run:
            _end_without_change(plan, dry_run=dry_run, as_json=as_json)
            return
        refuse_open_operation(target)
        question = f"Upgrade the server now? The API does not answer for {USUAL_OUTAGE}"
        if not yes and not typer.confirm(question, default=False):
            raise CommandError("the server was not upgraded", code=ExitCode.NOTHING_DONE)
        with leaving(UNKNOWN), working(f"upgrading the server to {plan.target}"):
            backup, seconds = target.call(lambda: perform(target, plan))
    if as_json:
        print_json({**asdict(plan), "backup": backup, "seconds_without_api": seconds})
        return
    say(f"the server runs {plan.target}; the API did not answer for {seconds} s; the backup is {', '.join(backup)}")
    say(f"workers: {workers_row(plan, target.services.settings)}; follow with node-fleet status")


def _end_without_change(plan: Plan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json(asdict(plan))
    if dry_run:
        return
    hint = f"nothing was changed; {count_of(plan.replaced, 'worker')} of another version: node-fleet status"
    raise CommandError(f"the server runs {plan.target} already", hint=hint, code=ExitCode.NOTHING_DONE)


def refuse_open_operation(target: Target) -> None:
    """An upgrade in the middle of a launch or a drain would stop it.

    Raises:
        CommandError: an operation is open.
    """
    operation = target.services.state.load().operation
    if operation is not None:
        text = f"an operation is open: {operation.kind} {operation.operation_id}, phase {operation.phase}"
        hint = "the server was not changed; try again when node-fleet status shows none (a pause keeps it open)"
        raise CommandError(text, hint=hint, code=ExitCode.NOTHING_DONE)


def perform(target: Target, plan: Plan) -> tuple[list[str], int]:
    """Take a backup, pause, upgrade the server, and end the pause. The ids of the backup, and the seconds without API.

    The pause stays, and ends by itself, while an upgrade may still run, or K3s does not.

    Raises:
        CommandError: the server has its earlier release, or its state is unknown; the text says which.
    """
    person = getpass.getuser()
    backup = back_up(target, plan)
    pause = _pause(target, plan, person)
    try:
        _wait_for_runs(target)
        _compare_again(target, plan)
        result = _run(target, plan)
    except (CommandError, NodeFleetError):
        _end_pause(target, pause)
        raise
    if result.word in ("upgraded", "unchanged"):
        text = f"{person} upgraded the server, {plan.server} to {plan.target}"
    elif result.known:
        text = f"{person} did not upgrade the server, {plan.server} to {plan.target}: {result.answer}"
    else:
        text = f"the end of the upgrade by {person}, {plan.server} to {plan.target}, is unknown: {result.answer}"
    try:
        if result.known and result.word not in ("broken", "busy"):
            _end_pause(target, pause)
        target.services.records.put_event("upgrade", target.services.clock.now(), {"text": text})
    except NodeFleetError as error:  # it must not hide how the upgrade has ended
        note(f"the pause may last {span(PAUSE_SECONDS)}, and the upgrade may be missing in the history: {error}")
    if result.word not in ("upgraded", "unchanged"):
        raise _failure(plan, result, backup)
    return backup, int(result.detail) if result.detail.isdigit() else 0


def _compare_again(target: Target, plan: Plan) -> None:
    """The plan must still hold: a confirmation and a backup may take an hour, and only the pause stops launches."""
    again = read_plan(target)
    if again.problems or again.server != plan.server:
        found = "; ".join(again.problems) or f"the server has {again.server}"
        text = f"the cluster has changed since the plan: {found}"
        raise CommandError(text, hint="the server was not changed; see: node-fleet upgrade --dry-run")
    refuse_open_operation(target)


def _failure(plan: Plan, result: CommandResult, backup: list[str]) -> CommandError:
    kept = f"the backup is {', '.join(backup)}"
    if result.word == "restored":
        text = f"{plan.target} did not become healthy; {plan.server} runs again, with the datastore as it was before"
        return CommandError(text, hint=f"read journalctl -u k3s on the server; {kept}")
    if result.word == "broken":
        text = f"the server is broken: {result.detail}. Scaling stays paused for {span(PAUSE_SECONDS)} at most"
        return CommandError(text, hint=f"docs/upgrades.md#when-k3s-does-not-come-back; {kept}")
    if result.word in ("busy", "other-version"):
        text = f"this command did not upgrade the server: {result.answer}"
        return CommandError(text, hint=f"{kept}; in some minutes, see: node-fleet upgrade --dry-run")
    if result.known:
        text = f"the server was not upgraded: {result.answer} {result.stderr.strip()[:300]}".rstrip()
        return CommandError(text, hint=f"the server still runs {plan.server}; {kept}")
    text = f"the end of the upgrade is unknown: SSM status {result.status}; scaling stays paused for a while"
    return CommandError(text, hint=f"see node-fleet upgrade --dry-run, and journalctl -u k3s on the server; {kept}")


def back_up(target: Target, plan: Plan) -> list[str]:
    """Snapshots of every volume of the server, when they are complete."""
    ec2, settings, clock = target.client("ec2"), target.services.settings, target.services.clock
    tags = {
        "Project": "node-fleet",
        "Cluster": settings.cluster_id,
        "Name": f"{settings.cluster_id} before {plan.target}",
    }
    try:
        answer = ec2.create_snapshots(
            InstanceSpecification={"InstanceId": target.services.ec2.server().instance_id},
            Description=f"node-fleet {settings.cluster_id}: server with K3s {plan.server}, before {plan.target}",
            TagSpecifications=[
                {"ResourceType": "snapshot", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            ],
        )
        ids = [str(one["SnapshotId"]) for one in answer["Snapshots"]]
        is_done = bool(ids) and _wait(clock, lambda: "pending" not in _states(ec2, ids), BACKUP_SECONDS)
        if not is_done or "error" in _states(ec2, ids):
            text = f"the backup {', '.join(ids)} did not complete"
            raise CommandError(text, hint="nothing was changed; look at the snapshot in EC2, and try again")
    except (ClientError, BotoCoreError, NodeFleetError) as error:
        hint = (
            "nothing was changed; your credentials need ec2:CreateSnapshots, ec2:CreateTags and ec2:DescribeSnapshots"
        )
        raise CommandError(f"no backup of the server could be taken: {error}", hint=hint) from error
    return ids


def _states(ec2: Any, ids: list[str]) -> set[str]:
    """The states of the snapshots. EC2 may not show one in the first seconds."""
    try:
        return {str(one["State"]) for one in ec2.describe_snapshots(SnapshotIds=ids)["Snapshots"]}
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidSnapshot.NotFound":
            raise
        return {"pending"}


def _pause(target: Target, plan: Plan, person: str) -> tuple[Pause | None, Pause | None]:
    """Pause scaling for long enough. The pause of this command, and the shorter one before it, which is put back.

    The pause of another person's upgrade to the same release stays: the server runs one upgrade at a time.
    """
    state, now = target.services.state, target.services.clock.now()
    order = Pause(reason=f"K3s upgrade to {plan.target}", by=person, since=now, until=now + PAUSE_SECONDS)
    earlier = state.load().active_pause(now)
    is_upgrade = earlier is not None and earlier.reason == order.reason
    if earlier is not None and (earlier.until >= order.until or (is_upgrade and earlier.by != person)):
        return None, None
    state.set_pause(order)
    return order, None if is_upgrade else earlier


def _wait_for_runs(target: Target) -> None:
    """Wait until no run is in progress: each stops before its next change, because scaling is paused."""
    state, clock = target.services.state, target.services.clock

    def is_idle() -> bool:
        lease = state.load().lease
        return lease is None or lease.expires_at <= clock.now()

    if not _wait(clock, is_idle, RUN_SECONDS):
        text = f"a run is still in progress after {span(RUN_SECONDS)}"
        hint = "the server was not changed; try again when it has ended"
        raise CommandError(text, hint=hint, code=ExitCode.NOTHING_DONE)


def _end_pause(target: Target, pause: tuple[Pause | None, Pause | None]) -> None:
    """End the command's own pause, or put back the one before it; one that someone has set meanwhile stays."""
    state, (order, earlier) = target.services.state, pause
    if order is None or state.load().pause != order:
        return
    if earlier is not None and earlier.until > target.services.clock.now():
        state.set_pause(earlier)
    else:
        state.clear_pause()


def _run(target: Target, plan: Plan) -> CommandResult:
    """The upgrade on the server, to its end. An answer that SSM refuses for a moment is asked for again."""
    server, clock = target.services.server, target.services.clock
    parameters = {
        "Mode": "upgrade",
        "FromRelease": plan.server,
        "ToRelease": plan.target,
        "Checksum": plan.checksum,
        "ExecutionTimeoutSeconds": str(COMMAND_SECONDS),
    }
    try:
        command = server.send(DOCUMENT, parameters)
    except NodeFleetError as error:
        if isinstance(error.__cause__, BotoCoreError):  # SSM may have started it, and the answer was lost
            return CommandResult(status="not known, SendCommand has no answer")
        hint = "the server was not changed; check the way to the server: node-fleet doctor"
        raise CommandError(f"the server cannot be upgraded: {error}", hint=hint) from error
    last = CommandResult(status="no answer", command_id=command)

    def has_ended() -> bool:
        nonlocal last
        try:
            last = server.result(command)
        except NodeFleetError:
            return False
        return last.final

    _wait(clock, has_ended, COMMAND_SECONDS + 120)
    return last


def _wait(clock: Any, condition: Callable[[], bool], seconds: int) -> bool:
    """Whether the condition holds within the time."""
    until = clock.now() + seconds
    while not condition():
        if clock.now() >= until:
            return False
        clock.sleep(POLL_SECONDS)
    return True
