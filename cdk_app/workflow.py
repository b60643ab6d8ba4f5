"""Loads the state machines (statemachine/*.asl.yaml) and lists the handler that serves each state.

CDK deploys the JSON that this module expands from the YAML, the simulator executes it, and the report draws it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
HANDLERS = ROOT / "functions" / "handlers"
STATE_MACHINES = ROOT / "statemachine"
SUFFIX = ".asl.yaml"
_PLACEHOLDER = re.compile(r"\$\{(\w+)FunctionArn\}")
_ANY_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Every start of a simulation reads these files: the loader in C takes a ninth of the time, where PyYAML has it."""


@dataclass(frozen=True)
class Workflow:
    """One state machine: its name (the file name without .asl.yaml) and its definition as JSON text."""

    name: str
    text: str

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The text, parsed."""
        parsed: dict[str, Any] = json.loads(self.text)
        return parsed

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions that the state machine calls, each once, in the order of the text."""
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


@cache
def workflows() -> tuple[Workflow, ...]:
    """All state machines, ordered by name."""
    files = sorted(STATE_MACHINES.glob(f"*{SUFFIX}"))
    return tuple(Workflow(file.name.removesuffix(SUFFIX), _expanded(file)) for file in files)


def definitions() -> dict[str, dict[str, Any]]:
    """The definition of every state machine by name, as it is deployed."""
    return {flow.name: flow.definition for flow in workflows()}


def _expanded(file: Path) -> str:
    """The YAML as JSON text, with its anchors resolved and without the top-level x- keys that hold them."""
    source = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    definition = {key: value for key, value in source.items() if not key.startswith("x-")}
    return json.dumps(definition, indent=2, ensure_ascii=False) + "\n"


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
