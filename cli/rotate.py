"""rotate: marks workers so that the next runs replace them, each in its turn. No worker is changed by the command."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from cli import cluster_completion
from cli.output import CommandError, ExitCode, leaving, print_json, say
from cli.target import JsonOption, Opening, on_cluster
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.text import count_of

TAG = "Rotate"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Examples: node-fleet rotate i-0123456789ab | node-fleet rotate | node-fleet rotate --undo")(
        rotate
    )


@on_cluster(at="14m")
def rotate(
    opening: Opening,
    *,
    workers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKER]...",
            autocompletion=cluster_completion.workers,
            help="Instance ids; without one, every worker and every standby worker.",
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the mark of workers that are not replaced yet.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Mark workers for rotation: they count as drifted and are replaced one after the other, launch first."""
    person = getpass.getuser()
    with opening as target, leaving("some workers may be marked; node-fleet status shows them"):
        services = target.services
        running, standby = services.ec2.with_standby()
        chosen = chosen_workers((*running, *standby), workers or [], undo=undo)
        ids = [one.instance_id for one in chosen]
        if not undo and not yes and not typer.confirm(_question(ids), default=False):
            raise CommandError("no worker was marked", code=ExitCode.NOTHING_DONE)
        services.ec2.tag(ids, {TAG: "" if undo else person})
        verb = "removed the mark for rotation of" if undo else "marked for rotation"
        services.records.put_event("rotate", services.clock.now(), {"text": f"{person} {verb} {', '.join(ids)}"})
    if as_json:
        print_json({"workers": ids, "marked": not undo, "by": person})
        return
    if undo:
        say(f"the mark is removed from {count_of(len(ids), 'worker')}: {', '.join(ids)}")
        return
    say(f"{count_of(len(ids), 'worker')} marked: {', '.join(ids)}")
    say("the next runs replace them one after the other, within budgets and windows; follow with node-fleet status")


def chosen_workers(instances: tuple[Instance, ...], named: list[str], *, undo: bool) -> list[Instance]:
    """The workers to mark, or to unmark.

    Raises:
        CommandError: a name is no worker of the fleet, or there is nothing to do.
    """
    known = {one.instance_id: one for one in instances}
    if unknown := [name for name in named if name not in known]:
        hint = f"the workers are {', '.join(sorted(known)) or 'none'}"
        raise CommandError(
            f"{', '.join(unknown)}: no worker of this fleet that runs or is a standby worker",
            hint=hint,
            code=ExitCode.WRONG_USE,
        )
    wanted = [known[name] for name in dict.fromkeys(named)] if named else list(instances)
    found = [one for one in wanted if bool(one.rotate) is undo]
    if not found:
        text = "no worker is marked for rotation" if undo else "every named worker is marked for rotation already"
        raise CommandError(text, hint="nothing was changed", code=ExitCode.NOTHING_DONE)
    return found


def _question(ids: list[str]) -> str:
    return f"Replace {count_of(len(ids), 'worker')}, one after the other: {', '.join(ids)}?"
