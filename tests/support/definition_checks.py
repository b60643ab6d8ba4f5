"""Four independent readers of a workflow's definition. Each answers what it finds wrong; an empty list is a pass."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.session

from tests.support.asl_tools import program

SDK = re.compile(r"^arn:aws:states:::aws-sdk:([a-z0-9]+):([A-Za-z0-9]+)(\.\w+)?$")
ARN = "arn:aws:lambda:ap-southeast-1:123456789012:function:"


def by_cloudformation(text: str) -> list[str]:
    """cfn-lint over a template that holds the states inline."""
    machine = {"RoleArn": "arn:aws:iam::123456789012:role/x", "DefinitionString": _with_functions(text)}
    return lint_template(
        {"Resources": {"Machine": {"Type": "AWS::StepFunctions::StateMachine", "Properties": machine}}}
    )


def lint_template(template: dict[str, Any]) -> list[str]:
    """cfn-lint's findings over a whole template."""
    from cfnlint.config import ConfigMixIn  # seconds to load, in every process that collects the tests
    from cfnlint.decode import decode_str
    from cfnlint.runner import run_template_by_data

    read, errors = decode_str(json.dumps(template))
    config = ConfigMixIn(regions=["ap-southeast-1"])
    matches = errors or run_template_by_data(read, config, _rules_of_cloudformation())
    return [f"{m.rule.id} {m.message}" for m in matches]


@functools.cache
def _rules_of_cloudformation() -> Any:
    """The rules that cfn-lint applies without a configuration. To load them takes longer than to apply them."""
    from cfnlint.config import ConfigMixIn
    from cfnlint.runner import Runner

    return Runner(ConfigMixIn()).rules


def by_interpreter(text: str) -> list[str]:
    """moto's parser, the one that the simulator executes with."""
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

    try:
        AmazonStateLanguageParser.parse(_with_functions(text))
    except Exception as error:  # any error of the parser is its finding
        return [f"{type(error).__name__}: {error}"]
    return []


def by_linter(text: str, folder: Path, packages: Path) -> list[str]:
    """asl-validator: the states language's schema, dead ends, unreachable states, paths."""
    definition = folder / "definition.asl.json"
    definition.write_text(_with_functions(text), encoding="utf-8")
    linter = packages / "node_modules" / "asl-validator" / "dist" / "bin" / "asl-validator.js"
    command = [program("node"), str(linter), "--json-path", str(definition)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if ended.returncode == 0 else [ended.stdout + ended.stderr]


def by_models(text: str) -> list[str]:
    """Names of SDK actions and their parameters against botocore's models, which no linter reads."""
    found = []
    for name, state in _states(json.loads(text)):
        if match := SDK.match(str(state.get("Resource", ""))):
            found += [
                f"{name}: {problem}" for problem in _sdk_problems(match[1], match[2], state.get("Parameters", {}))
            ]
    return found


def _with_functions(text: str) -> str:
    return re.sub(r"\$\{(\w+)FunctionArn\}", ARN + r"\1", text)


def _states(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in definition["States"].items():
        yield name, state
        for inner in [*state.get("Branches", []), state.get("ItemProcessor"), state.get("Iterator")]:
            if inner:
                yield from _states(inner)


def _sdk_problems(service: str, action: str, parameters: dict[str, Any]) -> list[str]:
    session = botocore.session.get_session()
    known = {name.replace("-", ""): name for name in session.get_available_services()}
    if service not in known:
        return [f"{service} is no AWS service"]
    model = session.get_service_model(known[service])
    operation = action[0].upper() + action[1:]
    if operation not in model.operation_names:
        return [f"{service} has no action {action}"]
    shape = model.operation_model(operation).input_shape
    members = {_pascal(name) for name in shape.members} if shape else set()
    given = {name.removesuffix(".$") for name in parameters}
    return [f"{service}:{action} has no parameter {name}" for name in sorted(given - members)]


def _pascal(name: str) -> str:
    return name[0].upper() + name[1:]
