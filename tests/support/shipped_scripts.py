"""The scripts as they are shipped, and the pod rules as a module: shared by the tests of the server's commands."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from cdk_app.programs import with_shipped_programs
from cdk_app.scripts import read_script

COMMANDS = Path(__file__).parents[2] / "cluster" / "commands"


def script(name: str) -> str:
    return with_shipped_programs(read_script(COMMANDS / f"{name}.sh"))


def load_server(name: str) -> ModuleType:
    """A Python file of the server's bootstrap."""
    return load(name, COMMANDS.parent / "server")


def load(name: str, folder: Path = COMMANDS) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shipped_{name}", folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


rules = load("rules")
