"""wake and sleep: switch the fleet on or off now, over the times off of the setting hibernate."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from cli.operate import MAYBE_DONE
from cli.output import CommandError, ExitCode, WrongUseError, leaving, print_json, say
from cli.target import JsonOption, Opening, Target, on_cluster, seconds_of
from cli.times import clock
from node_fleet.domain.model.fleet_state import FleetState, times_of
from node_fleet.domain.model.hibernation import LEAST_OFF_SECONDS, Order, Times
from node_fleet.domain.model.text import count_of, span
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

LONGEST_SECONDS = 30 * 86_400
USUAL_WAKE_SECONDS = 240
"""From the start of the server to its health, while nothing is measured: two ticks."""
USUAL_JOIN_SECONDS = 120
"""From there until the workers have joined."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Examples: node-fleet wake | node-fleet wake --for 3h")(wake)
    app.command(epilog="Examples: node-fleet sleep | node-fleet sleep --for 10h --yes")(sleep)


@on_cluster(at="14m")
def wake(
    opening: Opening,
    *,
    length: Annotated[
        str, typer.Option("--for", help="How long, such as 3h; without it until the end of this time off.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Switch the fleet on, or keep it on: the server starts at once, and the workers follow."""
    seconds = _seconds(length)
    with opening as target, leaving(MAYBE_DONE):
        state, settings, now = _state(target)
        until = now + seconds if seconds else times_of(settings, state).on_again(now)
        if until == now:
            hint = "give a time, to keep it on over the next time off: node-fleet wake --for 3h"
            raise CommandError("the fleet is to be on now", hint=hint, code=ExitCode.NOTHING_DONE)
        order = _order(target, Order(kind="wake", by=getpass.getuser(), since=now, until=until))
        is_off = state.hibernation.phase in ("stopping", "off")
        if is_off:
            target.start(f"wake-{now}", {"trigger": "manual"})
    expected = _expected_seconds(state) if is_off else 0
    if as_json:
        print_json({"order": to_payload(order), "phase": state.hibernation.phase, "expected_seconds": expected})
        return
    say(f"the fleet is on until {clock(until, day=True)} UTC")
    if _is_paused(state, now):
        return
    if is_off:
        measured = "as the last time" if state.hibernation.wake_seconds else "not measured yet"
        workers = count_of(settings.min_workers, "worker")
        say(f"the server starts now; {workers} should be ready in about {span(expected)} ({measured})")


@on_cluster(at="14m")
def sleep(
    opening: Opening,
    *,
    length: Annotated[
        str, typer.Option("--for", help="How long, such as 10h; without it until the end of the next time off.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Switch the fleet off now: drain and end all workers, back up the datastore, stop the server."""
    seconds = _seconds(length)
    with opening as target, leaving(MAYBE_DONE):
        state, settings, now = _state(target)
        times = times_of(settings, state)
        least = times.drain_seconds + times.lead_seconds + LEAST_OFF_SECONDS
        if seconds and seconds < least:
            hint = f"at least {-(-least // 60)}m: the time to drain, to be off and to start again"
            raise WrongUseError(f"--for {length} is too short", hint=hint)
        until = now + seconds if seconds else _next_end(settings, now, least)
        question = f"Switch all workers and the server off until {clock(until, day=True)} UTC?"
        if not yes and not typer.confirm(question, default=False):
            raise CommandError("the fleet was not switched off", code=ExitCode.NOTHING_DONE)
        order = _order(target, Order(kind="sleep", by=getpass.getuser(), since=now, until=until))
        target.start(f"sleep-{now}", {"trigger": "manual"})
    if as_json:
        print_json({"order": to_payload(order), "phase": state.hibernation.phase})
        return
    say(f"the fleet is switched off until {clock(until, day=True)} UTC; what keeps it on: node-fleet status")
    say(f"workers are drained for up to {span(settings.hibernate_drain_seconds)}; take it back: node-fleet wake")
    _is_paused(state, now)


def _seconds(length: str) -> int:
    seconds = seconds_of(length, "--for") if length else 0
    if length and not 0 < seconds <= LONGEST_SECONDS:
        raise WrongUseError(f"--for {length} is not possible", hint="more than 0 and at most 30d")
    return seconds


def _state(target: Target) -> tuple[FleetState, Settings, int]:
    """The state item, the settings and the time.

    Raises:
        CommandError: the cluster has no times off, so no function may stop its server.
    """
    settings, state = target.services.settings, target.services.state.load()
    if not settings.hibernate and state.hibernation.is_settled:
        hint = 'set hibernate in cdk.json, such as "Sun-Fri 20:00-07:00; Sat-Sun", and deploy: docs/hibernate.md'
        raise CommandError(f"{target.place} has no times off", hint=hint, code=ExitCode.NOTHING_DONE)
    return state, settings, target.services.clock.now()


def _is_paused(state: FleetState, now: int) -> bool:
    """Whether a pause holds the order back, which is printed."""
    pause = state.active_pause(now)
    if pause is not None:
        say(f"{pause.sentence}: nothing is switched before it ends; end it with node-fleet resume")
    return pause is not None


def _next_end(settings: Settings, now: int, least: int) -> int:
    """The end of the time off that is open or begins next; of one after it where less than `least` seconds are left."""
    times, end = Times(windows=settings.hibernate, timezone=settings.timezone), now
    while end - now < least:
        begin = times.off_again(end)
        if begin is None:
            raise WrongUseError("no time off begins within eight days", hint="say how long: node-fleet sleep --for 10h")
        end = times.window_end(begin)
    return end


def _order(target: Target, order: Order) -> Order:
    """Store the order, and who gave it."""
    target.services.state.set_hibernate_order(order)
    done = "on" if order.kind == "wake" else "off"
    text = f"switched {done} by {order.by} until {clock(order.until, day=True)} UTC"
    target.services.records.put_event(order.kind, order.since, {"text": text})
    return order


def _expected_seconds(state: FleetState) -> int:
    return (state.hibernation.wake_seconds or USUAL_WAKE_SECONDS) + USUAL_JOIN_SECONDS
