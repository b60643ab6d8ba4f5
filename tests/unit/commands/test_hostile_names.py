"""Whatever text arrives as a name or an id, no shell ever runs a part of it: shown under a real shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cdk_app.documents import content
from node_fleet.adapters.server import PATTERNS, check_parameters
from node_fleet.domain.model.errors import InvalidInputError
from tests.support.shipped_scripts import COMMANDS, script
from tests.support.tiers import examples

pytestmark = pytest.mark.sampled(8)  # with --all, every one

DECLARED = json.loads((COMMANDS / "parameters.json").read_text())
TEXT_PARAMETERS = [
    (document, name) for document, names in DECLARED.items() for name in names if name != "ExecutionTimeoutSeconds"
]
GOOD = {
    "NodeName": "i-0123456789abcdef0",
    "InstanceId": "i-0123456789abcdef0",
    "OperationId": "down-1-100",
    "NotAfter": "99999999999",
    "DrainTimeoutSeconds": "30",
    "DrainMode": "voluntary",
    "Cause": "none",
    "Report": "eJw",
    "Mode": "check",
    "FromRelease": "v1.35.5+k3s1",
    "ToRelease": "v1.36.2+k3s1",
    "Checksum": 64 * "a",
    "ExecutionTimeoutSeconds": "60",
}
PARTS = ["'", '"', ";", "$(touch canary)", "`touch canary`", "\n", "\\", "|", "&", "touch canary", " ", "-", "--all"]
PARTS += ["*", "..", "/", "}}", "{{ NodeName }}", "$IFS", "\x00", "é", "i-0", "a", "0", ">canary"]
PARTS += ["#", "!", "~", "\t", "\r"]
hostile = st.lists(st.sampled_from(PARTS) | st.text(max_size=5), max_size=6).map("".join)
KUBECTL = '#!/bin/sh\nprintf "%s\\n" "$@" >>"$CALLS"\nexit 1\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a kubectl that only notes its arguments and fails."""
    folder = tmp_path_factory.mktemp("shell")
    (folder / "kubectl").write_text(KUBECTL)
    (folder / "kubectl").chmod(0o755)
    return folder


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)


def run_script(folder: Path, text: str, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    for left in ("canary", "calls"):
        (folder / left).unlink(missing_ok=True)
    basic = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "NODE_FLEET_LOCK_DIRECTORY": str(folder),
    }
    return subprocess.run(
        [text.partition("\n")[0].removeprefix("#!"), "-c", text],
        cwd=folder,
        env={**basic, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )


def rendered(document: str, values: dict[str, str]) -> str:
    """What SSM would run, were every pattern forgotten: each placeholder replaced by the bare value."""
    lines = content(COMMANDS / f"{snake(document).lower()}.sh", DECLARED[document])["mainSteps"][0]["inputs"][
        "runCommand"
    ]
    text = "\n".join(lines)
    for name, value in values.items():
        text = text.replace("{{ " + name + " }}", value)
    return text


def assert_nothing_ran(folder: Path) -> None:
    assert not (folder / "canary").exists()
    assert "canary" not in ((folder / "calls").read_text() if (folder / "calls").exists() else "")


def test_the_patterns_of_adapter_and_documents_are_the_same() -> None:
    declared = {name: rule["pattern"] for names in DECLARED.values() for name, rule in names.items()}
    assert {name: pattern.strip("^$").strip("()") for name, pattern in declared.items()} == {
        name: pattern.pattern.strip("()") for name, pattern in PATTERNS.items()
    }


@pytest.mark.parametrize(("document", "name"), TEXT_PARAMETERS)
@settings(examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=hostile)
@example(value="a\n")
@example(value="'; touch canary; '")
@example(value="$(touch canary)")
@example(value="i-0")
@example(value="i-0123456")
@example(value="i-0123456789abcdef01")
def test_no_hostile_value_is_ever_run(folder: Path, document: str, name: str, value: str) -> None:
    accepted = PATTERNS[name].fullmatch(value) is not None
    if not accepted:
        with pytest.raises(InvalidInputError, match=name):
            check_parameters({name: value})
    if re.search(DECLARED[document][name]["pattern"], value):
        run_script(folder, rendered(document, {**GOOD, name: value}), {})
        assert_nothing_ran(folder)
    if "\x00" in value:
        return
    environment = {snake(n).upper(): v for n, v in {**GOOD, name: value}.items() if n in DECLARED[document]}
    text = script(snake(document).lower())
    done = run_script(folder, text, environment)
    assert_nothing_ran(folder)
    if not accepted and value:
        assert done.returncode == 64
        assert not (folder / "calls").exists()


@examples(300)
@given(value=hostile | st.text(max_size=300))
def test_what_a_pattern_accepts_has_no_character_that_a_shell_reads(value: str) -> None:
    for rules in DECLARED.values():
        for rule in rules.values():
            if re.search(rule["pattern"], value):
                assert re.fullmatch(r"[A-Za-z0-9.+_-]*\n?", value)


def test_an_unknown_parameter_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="Command is no parameter"):
        check_parameters({"Command": "true"})
