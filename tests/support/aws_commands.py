"""The AWS commands in documents, held to the models of the services in botocore, from which the AWS CLI takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import botocore.session
from botocore import xform_name

# Options of every command, and commands that the CLI adds to those of the models.
GLOBAL_OPTIONS = {"--query", "--output", "--region", "--profile", "--no-cli-pager"}
OF_THE_CLI_ALONE = ("s3", "configure")
ENDS = {"|", "||", "&&", ";", ")"}
_COMMAND = re.compile(r"(?:^ {4,}.*?|`)(?:sudo )?\b(aws (?:[^\n`\\]|\\\n)+)", re.MULTILINE)


def aws_commands(document: str) -> list[list[str]]:
    """Every command of the document in words, without what follows a pipe or the end of a substitution."""
    found = []
    for match in _COMMAND.finditer(document):
        text = match[1].replace("\\\n", " ").replace("[...]", "").replace(" ...", "")
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(takewhile(lambda word: word not in ENDS, lexer))
        if len(words) > 2 and re.fullmatch(r"[a-z0-9-]+", words[2]):
            found.append(words)
    return found


def mistakes(words: list[str]) -> Iterator[str]:
    """What the models do not know in one command, and the required parameters that it lacks."""
    service, operation = words[1], words[2]
    if service in OF_THE_CLI_ALONE:
        return
    session = botocore.session.get_session()
    if service not in session.get_available_services():
        yield f"{service} is no service"
        return
    model = session.get_service_model(service)
    if operation == "wait":
        waiters = session.create_client(service, region_name="us-east-1").waiter_names
        if words[3].replace("-", "_") not in waiters:
            yield f"{service} has no waiter {words[3]}"
        return
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in operations:
        yield f"{service} has no command {operation}"
        return
    shape = model.operation_model(operations[operation]).input_shape
    members: dict[str, Any] = dict(shape.members) if shape else {}
    options = {f"--{xform_name(name, '-')}": name for name in members}
    given = {word.partition("=")[0] for word in words[3:] if word.startswith("--")}
    for option in sorted(given - GLOBAL_OPTIONS):
        if option not in options and option.replace("--no-", "--", 1) not in options:
            yield f"{service} {operation} has no option {option}"
    required = shape.required_members if shape else []
    for name in required:
        if f"--{xform_name(name, '-')}" not in given:
            yield f"{service} {operation} needs --{xform_name(name, '-')}"
