"""pause, resume, unlock and run: the four things an operator may change. Each is recorded with who did it and why."""

from __future__ import annotations

import getpass
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cli.output import CommandError, ExitCode, WrongUseError, print_json, say
from cli.status import ago, clock, short, span
from cli.target import (
    DEFAULT_CLUSTER,
    DEFAULT_SCENARIO,
    AtOption,
    ClusterOption,
    JsonOption,
    LocalOption,
    LocalTarget,
    RegionOption,
    ScenarioOption,
    Target,
    Where,
    seconds_of,
)
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.run import Run
from node_fleet.domain.scaling.memory_update import reset_breaker
from node_fleet.payload import to_payload
from simulator.report.story import rows_of

if TYPE_CHECKING:
    from node_fleet.adapters.state_store import StateStore
    from simulator.runner import Execution

POLL_SECONDS = 2.0
NOTHING_DONE = ("AlreadyScaling", "Paused", "StaleTrigger")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog='Example: node-fleet pause --reason "kernel update" --for 2h')(pause)
    app.command(epilog="Examples: node-fleet resume | node-fleet resume --breaker")(resume)
    app.command(epilog="Examples: node-fleet unlock | node-fleet unlock --yes")(unlock)
    app.command(epilog="Examples: node-fleet run --dry-run | node-fleet run")(run)


def pause(
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the others who will ask.")] = "",
    length: Annotated[str, typer.Option("--for", help="How long, such as 30m, 2h or 1d.")] = "1h",
    cluster: ClusterOption = DEFAULT_CLUSTER,
    region: RegionOption = "",
    local: LocalOption = False,
    scenario: ScenarioOption = DEFAULT_SCENARIO,
    at: AtOption = "14m",
    as_json: JsonOption = False,
) -> None:
    """Change nothing until the time is over: every run looks at this before each change."""
    seconds = seconds_of(length, "--for")
    if not reason.strip():
        raise WrongUseError("a pause needs a reason", hint='type: node-fleet pause --reason "kernel update" --for 2h')
    with Where(cluster=cluster, region=region, local=local, scenario=scenario, at=at).open() as target:
        now = target.tools.clock.now()
        order = Pause(reason=reason, by=getpass.getuser(), since=now, until=now + seconds)
        target.tools.state.set_pause(order)
        target.tools.records.put_event("pause", now, {"text": f"paused by {order.by} for {length}: {reason}"})
        running = target.tools.state.load().lease is not None
    if as_json:
        print_json({"pause": to_payload(order), "run_in_progress": running})
        return
    say(f"paused until {clock(order.until, day=True)} UTC: {reason}")
    if running:
        say("a run is at work right now; it stops before its next change")


def resume(
    *,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    region: RegionOption = "",
    local: LocalOption = False,
    scenario: ScenarioOption = DEFAULT_SCENARIO,
    at: AtOption = "14m",
    breaker: Annotated[bool, typer.Option("--breaker", help="Close the circuit breaker; launch at once.")] = False,
    as_json: JsonOption = False,
) -> None:
    """End a pause, or close the circuit breaker that failed joins opened."""
    if breaker:
        _close_breaker(Where(cluster=cluster, region=region, local=local, scenario=scenario, at=at), as_json=as_json)
        return
    with Where(cluster=cluster, region=region, local=local, scenario=scenario, at=at).open() as target:
        now, order = target.tools.clock.now(), target.tools.state.load().pause
        if order is not None:
            target.tools.state.clear_pause()
            target.tools.records.put_event("resume", now, {"text": f"resumed by {getpass.getuser()}"})
    if order is None or order.until <= now:
        raise CommandError("no pause was in force", hint="nothing was changed", code=ExitCode.NOTHING_DONE)
    if as_json:
        print_json({"ended": to_payload(order)})
        return
    say(f"resumed; the pause by {order.by} had {span(order.until - now)} left: {order.reason}")


def close_breaker(state: StateStore, person: str, now: int) -> str:
    """Forget failed joins and launches, so that the next tick may launch; empty, or why the lock is not free.

    It holds the lock while it writes: a run at work would overwrite the change with its own memory.
    """
    run = Run(execution_id=f"person:{person}:{now}", trigger="manual", scheduled_at=0, started_at=now)
    acquired = state.acquire(run)
    if acquired.status != "acquired":
        return acquired.detail
    held = replace(run, fence=acquired.state.fence)
    return "" if state.release(held, reset_breaker(acquired.state.memory)) else "another run took the lock"


def _close_breaker(where: Where, *, as_json: bool) -> None:
    person = getpass.getuser()
    with where.open() as target:
        now = target.tools.clock.now()
        hindered = close_breaker(target.tools.state, person, now)
        if not hindered:
            target.tools.records.put_event("breaker", now, {"text": f"circuit breaker closed by {person}"})
    if hindered:
        raise CommandError(f"the circuit breaker was not closed: {hindered}", hint="try again when that run has ended")
    if as_json:
        print_json({"closed_by": person, "at": now})
        return
    say("the circuit breaker is closed; the next tick may launch")


def unlock(
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    region: RegionOption = "",
    local: LocalOption = False,
    scenario: ScenarioOption = DEFAULT_SCENARIO,
    at: AtOption = "14m",
    as_json: JsonOption = False,
) -> None:
    """Free the lock by hand. Shows who holds it and what it was doing, asks, and records it."""
    with Where(cluster=cluster, region=region, local=local, scenario=scenario, at=at).open() as target:
        state, now = target.tools.state.load(), target.tools.clock.now()
        lease, operation = state.lease, state.operation
        if lease is None:
            hint = "nothing was changed"
            raise CommandError("the lock is free", hint=hint, code=ExitCode.NOTHING_DONE)
        doing = "no operation"
        if operation is not None:
            doing = f"{operation.kind}, phase {operation.phase}, begun {ago(now - operation.started_at)}"
        if not as_json:
            say(f"held by {short(lease.owner)} (fence {lease.fence}) since {ago(now - lease.acquired_at)}")
            say(f"it was doing: {doing}")
            left = lease.expires_at - now
            say(f"it frees itself in {span(left)}" if left > 0 else f"it expired {ago(-left)}; the next run takes it")
        if not yes and not typer.confirm("Free it now? The run that holds it will change nothing more", default=False):
            raise CommandError("the lock was left as it is", code=ExitCode.NOTHING_DONE)
        if not target.tools.state.force_unlock(lease):
            raise CommandError("the lock changed hands meanwhile", hint="look again", code=ExitCode.NOTHING_DONE)
        text = f"unlocked by {getpass.getuser()}; it was held by {short(lease.owner)}: {doing}"
        target.tools.records.put_event("unlock", now, {"text": text})
    if as_json:
        print_json({"freed": to_payload(lease), "operation": doing})
        return
    say("freed; the next run finishes or undoes what was begun")


def run(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Stop before the first change and say what it was.")
    ] = False,
    cluster: ClusterOption = DEFAULT_CLUSTER,
    region: RegionOption = "",
    local: LocalOption = False,
    scenario: ScenarioOption = DEFAULT_SCENARIO,
    at: AtOption = "12m",
    as_json: JsonOption = False,
) -> None:
    """Start a run now and follow it to its end."""
    with Where(cluster=cluster, region=region, local=local, scenario=scenario, at=at).open() as target:
        now = target.tools.clock.now()
        name = target.start(f"manual-{now}", {"trigger": "manual", "dry_run": dry_run})
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
    """What the run says of itself: the sentence that ReleaseLock answers."""
    output = execution.output
    return str(output.get("sentence", "")) if isinstance(output, dict) else ""


def follow(target: Target, name: str) -> Execution:
    """The execution when it has ended; shows the state it is in while it runs."""
    if isinstance(target, LocalTarget):
        return target.execution(name)
    with Console(stderr=True).status(f"{name} runs") as live:
        while (execution := target.execution(name)).running:
            live.update(f"{name}: {execution.path[-1] if execution.path else 'starting'}")
            time.sleep(POLL_SECONDS)
    return execution
