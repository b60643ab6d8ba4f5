"""pause, resume, protect, unlock and run: what an operator can change, recorded with the person and the reason."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cli import cluster_completion
from cli.history import short
from cli.output import CommandError, ExitCode, WrongUseError, leaving, print_json, say
from cli.target import JsonOption, LocalTarget, Opening, Target, on_cluster, seconds_of
from cli.times import ago, clock
from node_fleet.domain.model.fleet_state import FleetState, Pause, Protection, times_of
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import TERMINATION_BEGUN
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.text import span
from node_fleet.domain.scaling.memory_update import reset_breaker
from node_fleet.domain.scaling.roll_out_stop import resumed
from node_fleet.payload import to_payload
from simulator.report.story import rows_of

if TYPE_CHECKING:
    from node_fleet.adapters.state_store import StateStore
    from simulator.runner import Execution

POLL_SECONDS = 2.0
LONGEST_PROTECTION_SECONDS = 7 * 86_400
MOST_PROTECTIONS = 20
"""The state item stays small."""
MAYBE_DONE = "the change may have been made; node-fleet status shows it"
NOTHING_DONE = ("AlreadyScaling", "Paused", "SwitchedOff", "StaleTrigger")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog='Example: node-fleet pause --reason "kernel update" --for 2h')(pause)
    app.command(
        epilog="Examples: node-fleet resume | node-fleet resume --roll-out | node-fleet resume --worker i-0123456789ab"
    )(resume)
    app.command(
        epilog="Examples: node-fleet protect i-0123456789ab --for 2h | node-fleet protect i-0123456789ab --end"
    )(protect)
    app.command(epilog="Examples: node-fleet unlock | node-fleet unlock --yes")(unlock)
    app.command(epilog="Examples: node-fleet run --dry-run | node-fleet run")(run)


@on_cluster(at="14m")
def pause(
    opening: Opening,
    *,
    reason: Annotated[str, typer.Option("--reason", help="The reason, shown in status and messages.")] = "",
    length: Annotated[str, typer.Option("--for", help="How long, such as 30m, 2h or 1d.")] = "1h",
    as_json: JsonOption = False,
) -> None:
    """Pause scaling for a time: every run checks the pause before each change."""
    seconds = seconds_of(length, "--for")
    if not reason.strip():
        raise WrongUseError("a pause needs a reason", hint='type: node-fleet pause --reason "kernel update" --for 2h')
    with opening as target, leaving(MAYBE_DONE):
        now = target.services.clock.now()
        order = Pause(reason=reason, by=getpass.getuser(), since=now, until=now + seconds)
        target.services.state.set_pause(order)
        target.services.records.put_event("pause", now, {"text": f"paused by {order.by} for {length}: {reason}"})
        state = target.services.state.load()
        running, late = state.lease is not None, _late_start(target, state, order)
    if as_json:
        print_json({"pause": to_payload(order), "run_in_progress": running})
        return
    say(f"paused until {clock(order.until, day=True)} UTC: {reason}")
    if running:
        say("a run is in progress; it stops before its next change")
    if late:
        say(late)


def _late_start(target: Target, state: FleetState, pause: Pause) -> str:
    """That the pause keeps a fleet that is switched off from being started in time; empty when it does not."""
    times = times_of(target.services.settings, state)
    start = times.on_again(pause.since) - times.lead_seconds
    if state.hibernation.phase == "on" or pause.until <= start:
        return ""
    begin = f"the fleet is switched off, and its start at {clock(start, day=True)} UTC waits for the end of the pause"
    return f"{begin}; end it before: node-fleet resume"


@on_cluster(at="14m")
def resume(
    opening: Opening,
    *,
    breaker: Annotated[
        bool,
        typer.Option("--breaker", help="Close the circuit breaker and end back-offs of launches and removals."),
    ] = False,
    roll_out: Annotated[
        bool, typer.Option("--roll-out", help="Continue a roll-out that a failed worker has stopped.")
    ] = False,
    worker: Annotated[
        str,
        typer.Option(
            "--worker",
            autocompletion=cluster_completion.workers,
            help="Count this instance again: remove its interruption notice.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """End a pause, close the circuit breaker, continue a stopped roll-out, or count a worker under notice again."""
    with opening as target, leaving(MAYBE_DONE):
        if roll_out:
            _resume_roll_out(target, as_json=as_json)
            return
        if breaker:
            _close_breaker(target, as_json=as_json)
            return
        if worker:
            _remove_notice(target, worker, as_json=as_json)
            return
        now, order = target.services.clock.now(), target.services.state.load().pause
        if order is not None:
            target.services.state.clear_pause()
            target.services.records.put_event("resume", now, {"text": f"resumed by {getpass.getuser()}"})
    if order is None or order.until <= now:
        raise CommandError("no pause was in force", hint="nothing was changed", code=ExitCode.NOTHING_DONE)
    if as_json:
        print_json({"ended": to_payload(order)})
        return
    say(f"resumed; the pause by {order.by} had {span(order.until - now)} left: {order.reason}")


def close_breaker(state: StateStore, person: str, now: int) -> str:
    """Remove the back-offs of joins, launches and removals, so the next tick can act. Empty, or why it was not done."""
    return change_memory(state, person, now, reset_breaker)


def change_memory(state: StateStore, person: str, now: int, change: Callable[[Memory], Memory]) -> str:
    """Change the memory in the state item. Empty, or why it was not done.

    It holds the lock while it writes: a run in progress would overwrite the change with its own memory.
    """
    run = Run(execution_id=f"person:{person}:{now}", trigger="manual", scheduled_at=0, started_at=now)
    acquired = state.acquire(run)
    if acquired.status != "acquired":
        return acquired.detail
    held = replace(run, fence=acquired.state.fence)
    return "" if state.release(held, change(acquired.state.memory)) else "another run took the lock"


def _resume_roll_out(target: Target, *, as_json: bool) -> None:
    person, now, state = getpass.getuser(), target.services.clock.now(), target.services.state
    roll_out = state.load().memory.roll_out
    if not roll_out.is_stopped(target.services.settings.launch_template_version):
        raise CommandError("no roll-out is stopped", hint="nothing was changed", code=ExitCode.NOTHING_DONE)
    hindered = change_memory(state, person, now, lambda m: replace(m, roll_out=resumed(m.roll_out)))
    if hindered:
        raise CommandError(f"the roll-out was not resumed: {hindered}", hint="try again when that run has ended")
    target.services.records.put_event("roll_out", now, {"text": f"roll-out resumed by {person}: {roll_out.stopped}"})
    if as_json:
        print_json({"resumed": to_payload(roll_out), "by": person})
        return
    version = target.services.settings.launch_template_version
    say(f"the roll-out continues; new workers are launched from version {version} of the launch template again")


def _close_breaker(target: Target, *, as_json: bool) -> None:
    person, now = getpass.getuser(), target.services.clock.now()
    hindered = close_breaker(target.services.state, person, now)
    if not hindered:
        target.services.records.put_event("breaker", now, {"text": f"circuit breaker closed by {person}"})
    if hindered:
        raise CommandError(f"the circuit breaker was not closed: {hindered}", hint="try again when that run has ended")
    if as_json:
        print_json({"closed_by": person, "at": now})
        return
    say("the circuit breaker is closed and the back-offs of launches and removals have ended; the next tick can act")


def _remove_notice(target: Target, instance_id: str, *, as_json: bool) -> None:
    person, now, state = getpass.getuser(), target.services.clock.now(), target.services.state
    notice = state.load().notice_of(instance_id)
    if notice is None:
        hint = "node-fleet status lists the workers under notice"
        raise CommandError(f"{instance_id} is under no interruption notice", hint=hint, code=ExitCode.NOTHING_DONE)
    state.drop_notice(instance_id)
    text = f"{person} removed the interruption notice of {instance_id} ({notice.kind}, {ago(now - notice.at)})"
    target.services.records.put_event("notice", now, {"text": text}, key=instance_id)
    if as_json:
        print_json({"removed": to_payload(notice), "by": person})
        return
    say(f"the next run counts {instance_id} again, and the next runs remove the cordon of node-fleet from its node")


@on_cluster(at="14m")
def protect(
    opening: Opening,
    *,
    worker: Annotated[
        str, typer.Argument(autocompletion=cluster_completion.workers, help="The instance id of the worker.")
    ],
    length: Annotated[str, typer.Option("--for", help="How long, such as 30m, 2h or 1d; at most 7d.")] = "2h",
    reason: Annotated[str, typer.Option("--reason", help="The reason, shown in status and explain.")] = "",
    end: Annotated[bool, typer.Option("--end", help="End the protection now.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Keep one worker from removal and replacement for a time; it does not keep a worker that AWS reclaims."""
    seconds = seconds_of(length, "--for")
    if seconds > LONGEST_PROTECTION_SECONDS:
        raise WrongUseError(f"--for {length} is too long", hint="at most 7d; protect the worker again before it ends")
    with opening as target, leaving(MAYBE_DONE):
        now = target.services.clock.now()
        if end:
            ended = _end_protection(target, worker, now)
        else:
            order = Protection(
                instance_id=worker, by=getpass.getuser(), since=now, until=now + seconds, reason=reason.strip()
            )
            notes = _protect(target, order, length)
    if end:
        print_json({"ended": to_payload(ended)}) if as_json else say(f"the protection of {worker} has ended")
        return
    if as_json:
        print_json({"protection": to_payload(order), "notes": notes})
        return
    say(f"{worker} is protected until {clock(order.until, day=True)} UTC")
    for note in notes:
        say(note)


def _protect(target: Target, order: Protection, length: str) -> list[str]:
    """Store the protection, and say what it does to a drain or a notice of that worker.

    Raises:
        CommandError: there is no such worker, too many are protected, or its termination has begun.
    """
    services, worker = target.services, order.instance_id
    before = services.state.load().active_protections(order.since)
    if worker not in {one.instance_id for one in services.ec2.instances()}:
        raise CommandError(f"no worker {worker} in {target.place}", hint="node-fleet status lists the workers")
    if worker not in before and len(before) >= MOST_PROTECTIONS:
        hint = "end one with --end, or pause the fleet: node-fleet pause --reason TEXT"
        raise CommandError(f"{len(before)} workers are protected, which is the limit", hint=hint)
    state = services.state.protect(order)
    removal = next((t for t in state.operation.targets if t.instance_id == worker), None) if state.operation else None
    if removal and removal.phase in TERMINATION_BEGUN:
        services.state.end_protection(worker)
        text = f"{worker} cannot be kept: its termination has begun"
        raise CommandError(text, hint="nothing was changed", code=ExitCode.NOTHING_DONE)
    text = f"{worker} protected by {order.by} for {length}" + (f": {order.reason}" if order.reason else "")
    services.records.put_event("protect", order.since, {"text": text}, key=worker)
    notes = []
    if removal and removal.phase in ("draining", "drained"):
        notes.append("its drain has begun: the run withdraws it at its next check and uncordons the node")
    if worker in state.ids_under_notice:
        notes.append("it is under interruption notice: AWS may reclaim it, and it is drained and replaced as any other")
    return notes


def _end_protection(target: Target, worker: str, now: int) -> Protection:
    found = target.services.state.load().active_protections(now).get(worker)
    if found is None:
        hint = "node-fleet status lists the protected workers"
        raise CommandError(f"{worker} is not protected", hint=hint, code=ExitCode.NOTHING_DONE)
    target.services.state.end_protection(worker)
    text = f"{getpass.getuser()} ended the protection of {worker} by {found.by}"
    target.services.records.put_event("protect", now, {"text": text}, key=worker)
    return found


@on_cluster(at="14m")
def unlock(
    opening: Opening,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Release the lock by hand: shows its holder and the open operation, asks for confirmation, and records it."""
    with opening as target, leaving(MAYBE_DONE):
        state, now = target.services.state.load(), target.services.clock.now()
        lease, operation = state.lease, state.operation
        if lease is None:
            hint = "nothing was changed"
            raise CommandError("the lock is free", hint=hint, code=ExitCode.NOTHING_DONE)
        doing = "no operation"
        if operation is not None:
            doing = f"{operation.kind}, phase {operation.phase}, begun {ago(now - operation.started_at)}"
        if not as_json:
            say(f"held by {short(lease.owner)} (fence {lease.fence}) since {ago(now - lease.acquired_at)}")
            say(f"open operation: {doing}")
            left = lease.expires_at - now
            say(f"it expires in {span(left)}" if left > 0 else f"it expired {ago(-left)}; the next run takes it")
        if not yes and not typer.confirm("Release it now? The run that holds it changes nothing more", default=False):
            raise CommandError("the lock was not released", code=ExitCode.NOTHING_DONE)
        if not target.services.state.force_unlock(lease):
            raise CommandError(
                "another run took the lock in the meantime", hint="run node-fleet status", code=ExitCode.NOTHING_DONE
            )
        text = f"unlocked by {getpass.getuser()}; it was held by {short(lease.owner)}: {doing}"
        target.services.records.put_event("unlock", now, {"text": text})
    if as_json:
        print_json({"released": to_payload(lease), "operation": doing})
        return
    say("released; the next run finishes or rolls back the open operation")


@on_cluster(at="12m")
def run(
    opening: Opening,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Stop before the first change and print it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a run now and follow it to its end."""
    with opening as target:
        now = target.services.clock.now()
        name = f"manual-{now}"
        with leaving(f"the run {name} continues if it had begun; node-fleet history --all lists it when it has ended"):
            target.start(name, {"trigger": "manual", "dry_run": dry_run})
            execution = follow(target, name)
    (row,) = rows_of([execution])
    end = execution.path[-1] if execution.path else ""
    answer = {
        "execution": execution.name,
        "status": execution.status,
        "decision": row.decision,
        "reason": row.reason,
        "path": execution.path,
        "workers_before": row.workers_before,
        "workers_after": row.workers_after,
        "outcome": _outcome(execution),
    }
    if as_json:
        print_json(answer)
    else:
        say(f"{execution.name}: {execution.status.lower()}")
        say(row.tasks)
        say(str(answer["outcome"] or row.reason))
    if execution.status != "SUCCEEDED":
        raise CommandError(f"{execution.error}: {execution.cause}", hint=f"node-fleet explain {name} --html run.html")
    if end in NOTHING_DONE:
        raise CommandError(f"nothing was done: {end}", hint="node-fleet status says why", code=ExitCode.NOTHING_DONE)


def _outcome(execution: Execution) -> str:
    """The sentence in the output of ReleaseLock."""
    output = execution.output
    return str(output.get("sentence", "")) if isinstance(output, dict) else ""


def follow(target: Target, name: str) -> Execution:
    """The execution after its end; shows its current state while it runs."""
    if isinstance(target, LocalTarget):
        return target.execution(name)
    with Console(stderr=True).status(f"{name} runs") as live:
        while (execution := target.execution(name)).running:
            live.update(f"{name}: {execution.path[-1] if execution.path else 'starting'}")
            time.sleep(POLL_SECONDS)
    return execution
