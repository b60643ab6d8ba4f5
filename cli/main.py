"""node-fleet: the command line. Registers the commands, and turns every error into one line and an exit code."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence

import typer
from typer._click.exceptions import ClickException

from cli import build, cost, demo, doctor, explain, operate, preflight, status, type_table, windows
from cli.output import CommandError, ExitCode, WrongUseError, refuse

COMMANDS = (
    demo.register,
    status.register,
    explain.register,
    windows.register,
    operate.register,
    preflight.register,
    doctor.register,
    cost.register,
    type_table.register,
    build.register,
)
OPTIONAL = ("cli.backtest",)

app = typer.Typer(
    name="node-fleet",
    help="Sizes the workers of a K3s cluster on EC2 and explains each decision. Start with: node-fleet demo",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong use, 3 nothing was done (lock held, paused, refused).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for register in COMMANDS:
    register(app)
for module in OPTIONAL:
    if importlib.util.find_spec(module):
        importlib.import_module(module).register(app)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. NODE_FLEET_DEBUG=1 shows the stack trace of an error."""
    try:
        answer = app(list(words) if words is not None else None, prog_name="node-fleet", standalone_mode=False)
        return answer if isinstance(answer, int) else ExitCode.OK
    except Exception as error:
        if os.environ.get("NODE_FLEET_DEBUG"):
            raise
        return _refused(error)
    except KeyboardInterrupt:
        sys.stderr.write("node-fleet: stopped\n")
        return 130


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
    return CommandError(f"{type(error).__name__}: {error}", hint="set NODE_FLEET_DEBUG=1 to see the stack trace")


if __name__ == "__main__":
    sys.exit(main())
