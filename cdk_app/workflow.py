"""Reads the workflow's source (statemachine/*.asl.json) and the handlers' file names: who serves which state.

Only reading: what is deployed is these bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HANDLERS = ROOT / "functions" / "handlers"
STATE_MACHINES = ROOT / "statemachine"
_PLACEHOLDER = re.compile(r"\$\{(\w+)FunctionArn\}")
_ANY_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Workflow:
    """One state machine: name (file name without .asl.json) and its text, byte for byte."""

    name: str
    text: str

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The text as JSON."""
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions that it calls, each once, in the order of the text."""
        return tuple(dict.fromkeys(_PLACEHOLDER.findall(self.text)))

    @property
    def placeholders(self) -> tuple[str, ...]:
        """All placeholders, as written between dollar-brace and brace."""
        return tuple(dict.fromkeys(_ANY_PLACEHOLDER.findall(self.text)))

    def states(self) -> dict[str, dict[str, Any]]:
        """Every state by name, those inside Parallel and Map included."""
        return _states(self.definition)

    def timeout_seconds(self, function: str) -> int:
        """The shortest TimeoutSeconds among the states that call this function."""
        wanted = f"${{{function}FunctionArn}}"
        limits = [s["TimeoutSeconds"] for s in self.states().values() if wanted in json.dumps(s.get("Resource", ""))]
        return int(min(limits))


def workflows() -> tuple[Workflow, ...]:
    """All state machines, ordered by name."""
    files = sorted(STATE_MACHINES.glob("*.asl.json"))
    return tuple(Workflow(f.name.removesuffix(".asl.json"), f.read_text(encoding="utf-8")) for f in files)


def handlers() -> dict[str, str]:
    """State or function name -> handler module, from the files present: LaunchNodes -> launch_nodes."""
    modules = sorted(f.stem for f in HANDLERS.glob("*.py") if not f.stem.startswith("_"))
    return {camel_case(module): module for module in modules}


def camel_case(module: str) -> str:
    """launch_nodes -> LaunchNodes."""
    return "".join(part.capitalize() for part in module.split("_"))


def _states(definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, state in definition["States"].items():
        found[name] = state
        inner = [*state.get("Branches", []), state.get("Iterator"), state.get("ItemProcessor")]
        for branch in filter(None, inner):
            found.update(_states(branch))
    return found
