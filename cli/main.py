"""node-fleet: the command line. Registers the commands, and turns every error into one line and an exit code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer._click.exceptions import ClickException

from cli import (
    build,
    cost,
    demo,
    doctor,
    explain,
    hibernate,
    history,
    import_settings,
    operate,
    preflight,
    rotate,
    scale,
    status,
    top,
    type_table,
    upgrade,
    windows,
)
from cli.installed import version
from cli.output import CommandError, ExitCode, StoppedError, WrongUseError, refuse, say

COMMANDS = (
    demo.register,
    status.register,
    history.register,
    top.register,
    explain.register,
    windows.register,
    operate.register,
    scale.register,
    hibernate.register,
    rotate.register,
    upgrade.register,
    preflight.register,
    doctor.register,
    cost.register,
    type_table.register,
    import_settings.register,
    build.register,
)
OPTIONAL = ("cli.backtest", "cli.ui")

app = typer.Typer(
    name="node-fleet",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong use, 3 nothing was done (lock held, paused, refused).",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"node-fleet {version()}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Size the workers of a K3s cluster on EC2 and explain each decision. Start with: node-fleet demo."""


for register in COMMANDS:
    register(app)
for module in OPTIONAL:
    if importlib.util.find_spec(module):
        importlib.import_module(module).register(app)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; without words show the help.

    NODE_FLEET_DEBUG=1 shows the stack trace of an error.
    """
    given = list(sys.argv[1:] if words is None else words) or ["--help"]
    try:
        answer = app(given, prog_name="node-fleet", standalone_mode=False)
        code = answer if isinstance(answer, int) else ExitCode.OK
        return code if code != ExitCode.STOPPED else _stopped(given[0], "")
    except (StoppedError, KeyboardInterrupt) as stop:
        return _stopped(given[0], str(stop))
    except Exception as error:
        if os.environ.get("NODE_FLEET_DEBUG"):
            raise
        return _refused(error)


def _stopped(command: str, left: str) -> int:
    left = left or "nothing was changed and nothing is left"
    sys.stderr.write(f"node-fleet: {command} was stopped; {left}\n")
    return ExitCode.STOPPED


def _refused(error: Exception) -> int:
    try:
        refuse(_as_command_error(error))
    except SystemExit as end:
        return int(end.code or 0)


def _as_command_error(error: Exception) -> CommandError:
    if isinstance(error, CommandError):
        return error
    if isinstance(error, ClickException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "node-fleet"
        return WrongUseError(error.format_message().rstrip("."), hint=f"see: {path} --help")
    if isinstance(error, typer.Abort):
        return CommandError("nothing was done", code=ExitCode.NOTHING_DONE)
    if isinstance(error, OSError) and error.filename:
        hint = "check that the file exists and that you may read it, and write in its folder"
        return CommandError(f"cannot use {error.filename}: {error.strerror}", hint=hint)
    return CommandError(f"{type(error).__name__}: {error}", hint="set NODE_FLEET_DEBUG=1 to see the stack trace")


if __name__ == "__main__":
    sys.exit(main())
