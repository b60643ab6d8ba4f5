"""Turns the server's commands (cluster/commands/*.sh) into SSM Command documents, with the parameters of
parameters.json.

A value reaches the shell only inside single quotes, and only if it matches a pattern that allows no quote.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cdk_app.programs import with_shipped_programs
from cdk_app.scripts import read_script
from cdk_app.workflow import ROOT, camel_case
from node_fleet.settings import Settings

COMMANDS = ROOT / "cluster" / "commands"
DECLARATIONS = COMMANDS / "parameters.json"
TIMEOUT_PARAMETER = "ExecutionTimeoutSeconds"
_COMMENT = re.compile(r"\s*(#.*)?")


def documents(settings: Settings) -> dict[str, dict[str, Any]]:
    """Document content by document name (prefix included), for every script present."""
    declared: dict[str, dict[str, dict[str, str]]] = json.loads(DECLARATIONS.read_text(encoding="utf-8"))
    return {
        settings.document_prefix + camel_case(script.stem): content(script, declared[camel_case(script.stem)])
        for script in sorted(COMMANDS.glob("*.sh"))
    }


def content(script: Path, declared: dict[str, dict[str, str]]) -> dict[str, Any]:
    """The document of one script: exports of its parameters, then the script's lines of code."""
    text = read_script(script)
    lines = with_shipped_programs(text).splitlines()
    code = [line for line in lines[1:] if not _COMMENT.fullmatch(line)]
    exports = [f"export {_variable(name)}='{{{{ {name} }}}}'" for name in declared]
    return {
        "schemaVersion": "2.2",
        "description": _purpose(text.splitlines(), script.stem),
        "parameters": {name: _parameter(given) for name, given in declared.items()},
        "mainSteps": [
            {
                "action": "aws:runShellScript",
                "name": camel_case(script.stem),
                "precondition": {"StringEquals": ["platformType", "Linux"]},
                "inputs": {
                    "timeoutSeconds": f"{{{{ {TIMEOUT_PARAMETER} }}}}",
                    "runCommand": [*lines[:1], *exports, *code],
                },
            }
        ],
    }


def _variable(parameter: str) -> str:
    """Name in the script: NodeName -> NODE_NAME."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", parameter).upper()


def _parameter(given: dict[str, str]) -> dict[str, str]:
    declared = {"type": "String", "description": given["description"], "allowedPattern": given["pattern"]}
    return {**declared, "default": given["default"]} if "default" in given else declared


def _purpose(lines: list[str], name: str) -> str:
    comments = (line.lstrip("# ").strip() for line in lines[1:] if line.startswith("#"))
    return next(filter(None, comments), name.replace("_", " "))
