"""The commands of the documents and the messages are accepted by the programs that they call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer
from typer._click.exceptions import ClickException

from cdk_app.synth import node
from cli.main import app
from tests.support.documented_commands import commands_of
from tests.unit.cluster.test_operator_commands import texts

pytestmark = pytest.mark.sampled(3)  # with --all, every one

Arguments = tuple[str, ...]
BIN = Path(sys.executable).parent
# The AWS CLI sends a request only after it has accepted the arguments; here it is stopped just before.
CHECK_AWS = """
import contextlib, io, json, sys
from awscli.clidriver import create_clidriver
refused, models = {}, create_clidriver().session.get_component("data_loader")
for words in json.load(sys.stdin):
    said, requests = io.StringIO(), []
    def stop(model, **_):
        requests.append(model.name)
        raise KeyboardInterrupt
    driver = create_clidriver()
    driver.session.register_component("data_loader", models)
    driver.session.register("before-call", stop)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        driver.main(words)
    if not requests:
        refused[" ".join(words)] = said.getvalue()[-300:]
json.dump(refused, sys.stdout)
"""
NODE_FLEET = typer.main.get_command(app)
PASSED_ON = ("synth", "test", "bench")


@cache
def documented(program: str) -> tuple[Arguments, ...]:
    return tuple(sorted({words for _, text in texts() for words in commands_of(text, program)}))


def refused_by_aws(commands: tuple[Arguments, ...], folder: Path) -> dict[str, str]:
    environment = {**os.environ, "AWS_DEFAULT_REGION": "ap-southeast-1", "AWS_PAGER": ""}
    command = [sys.executable, "-c", CHECK_AWS]
    ended = subprocess.run(
        command, cwd=folder, input=json.dumps(commands), env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(ended.stdout)
    return found


def refusal_of_node_fleet(words: Arguments) -> str:
    """Why the command line refuses the words; a command without arguments is only named."""
    name, *rest = words
    command = NODE_FLEET.commands.get(name)  # type: ignore[attr-defined]
    if command is None:
        return f"no command {name}"
    if name in PASSED_ON or not rest:
        return ""
    try:
        command.make_context(name, list(rest))
    except ClickException as error:
        return error.format_message()
    return ""


def test_the_aws_cli_accepts_every_aws_command(tmp_path: Path) -> None:
    commands = documented("aws")
    assert len(commands) >= 20
    for written in {word for words in commands for word in words if word.startswith("cdk.out")}:  # by synth
        (tmp_path / written).mkdir(parents=True)
        (tmp_path / written / "file").touch()
    assert refused_by_aws(commands, tmp_path) == {}


def test_node_fleet_accepts_every_command_of_its_own() -> None:
    typed = [words for words in (*documented("./node-fleet"), *documented("node-fleet")) if words[0] != "cdk"]
    assert len(typed) >= 40
    assert {" ".join(words): refusal for words in typed if (refusal := refusal_of_node_fleet(words))} == {}


def test_the_cdk_has_every_command_that_is_passed_on_to_it() -> None:
    environment = {**os.environ, "JSII_NODE": node(), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run([BIN / "cdk", "--help"], env=environment, capture_output=True, text=True, check=True)
    passed_on = {words[1] for words in documented("./node-fleet") if words[0] == "cdk"}
    assert passed_on >= {"bootstrap", "deploy", "destroy", "diff"}
    assert [name for name in passed_on if f"cdk {name} " not in ended.stdout] == []


def test_kubectl_accepts_every_kubectl_command() -> None:
    commands = documented("kubectl")
    assert len(commands) >= 5
    for words in commands:
        ended = subprocess.run([BIN / "kubectl", *words, "--help"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(words)}: {ended.stderr}"


def test_a_wrong_command_is_refused_by_each_program(tmp_path: Path) -> None:
    wrong = (
        ("ec2", "terminate-instance", "--instance-ids", "i-1"),
        ("ec2", "terminate-instances", "--instances", "i-1"),
        ("ec2", "terminate-instances"),
        ("ssm", "start-sesion", "--target", "i-1"),
    )
    assert set(refused_by_aws(wrong, tmp_path)) == {" ".join(words) for words in wrong}
    assert refusal_of_node_fleet(("doctr",)) and refusal_of_node_fleet(("pause", "--resaon", "x"))
    for words in (("gett", "nodes"), ("get", "nodes", "--wide")):
        command = [BIN / "kubectl", *words, "--help"]
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_commands_are_found_in_prose_in_blocks_and_over_several_lines() -> None:
    block = "    aws ec2 wait instance-terminated \\\n      --instance-ids WORKER_ID ...\n"
    text = f"Run `aws sts get-caller-identity`, then:\n\n{block}"
    assert list(commands_of(text, "aws")) == [
        ("sts", "get-caller-identity"),
        ("ec2", "wait", "instance-terminated", "--instance-ids", "i-0123456789abcdef1"),
    ]
    quoted = (
        './node-fleet pause --reason "a; b" --for 2h   # stops\nsudo /usr/local/bin/k3s kubectl get nodes; it lists'
    )
    assert list(commands_of(quoted, "./node-fleet")) == [("pause", "--reason", "a; b", "--for", "2h")]
    assert list(commands_of(quoted, "kubectl")) == [("get", "nodes")]
