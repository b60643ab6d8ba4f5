"""synth, test, mutate and bench: handed to the start script, which runs them with nothing but Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parents[1]
PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(context_settings=PASSED_ON, epilog="Example: node-fleet synth --out cdk.out")(synth)
    examples = "Examples: node-fleet test | node-fleet test --all | node-fleet test tests/unit -k cooldown"
    app.command(context_settings=PASSED_ON, epilog=examples)(test)
    app.command(context_settings=PASSED_ON, epilog="Example: node-fleet mutate --number 300 --seed 7")(mutate)
    app.command(context_settings=PASSED_ON, epilog="Example: node-fleet bench --executions 5000")(bench)


def synth(context: typer.Context) -> None:
    """Write the CloudFormation templates. No AWS account is needed."""
    _hand_over("synth", context.args)


def test(context: typer.Context) -> None:
    """Check style, types and layers, then run the tests: with a daily sample of the long ones, or with --all."""
    _hand_over("test", context.args)


def mutate(context: typer.Context) -> None:
    """Put small faults into a copy of the code and report those that no test notices."""
    _hand_over("mutate", context.args)


def bench(context: typer.Context) -> None:
    """Print what the simulator costs, as ratios to a fixed work on the same machine."""
    _hand_over("bench", context.args)


def _hand_over(command: str, words: list[str]) -> None:
    ended = subprocess.run([sys.executable, str(ROOT / "node-fleet"), command, *words], check=False)
    raise typer.Exit(ended.returncode)
