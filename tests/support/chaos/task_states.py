"""The task states of both workflows, read from their definitions: a new state is in here the day it appears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdk_app.workflow import definitions

AUTOSCALER, INTERRUPTION = "autoscaler", "interruption"


def states_of(machine: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All states, those inside Parallel branches and Map processors too."""
    for name, state in machine["States"].items():
        yield name, state
        for inner in [*state.get("Branches", ()), state.get("ItemProcessor")]:
            if inner:
                yield from states_of(inner)


TASKS: dict[str, str] = {
    name: machine
    for machine in (AUTOSCALER, INTERRUPTION)
    for name, state in states_of(definitions()[machine])
    if state["Type"] == "Task"
}
"""Task state -> the machine that it belongs to."""
HOLDERS = frozenset({name for name, machine in TASKS.items() if machine == AUTOSCALER} | {"CleanUp"})
"""Functions that may change something only while their execution holds the lock."""
