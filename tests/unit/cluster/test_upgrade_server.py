"""The server's upgrade command, run for real with stub commands: what is replaced, restored and left alone."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.shipped_scripts import script
from tests.support.stub_commands import Reply, Stubs

OLD, NEW = "v1.35.5+k3s1", "v1.36.2+k3s1"
DB = "var/lib/rancher/k3s/server/db/state.db"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def binary(version: str) -> str:
    return f"#!/bin/sh\necho 'k3s version {version} (abc)'\n"


def checksum(version: str) -> str:
    return hashlib.sha256(binary(version).encode()).hexdigest()


def nodes(server: str) -> str:
    """What the API lists: the server and one worker."""
    found = [
        {"metadata": {"name": "i-server", "labels": {"node-role.kubernetes.io/control-plane": "true"}}},
        {"metadata": {"name": "i-worker"}},
    ]
    for node, version in zip(found, (server, OLD), strict=True):
        node["status"] = {"nodeInfo": {"kubeletVersion": version}}  # type: ignore[dict-item]
    return json.dumps({"items": found})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A server that runs the old release."""
    root = tmp_path / "root"
    for name, text in {"usr/local/bin/k3s": binary(OLD), DB: "before"}.items():
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    (root / "usr/local/bin/k3s").chmod(0o755)
    return root


@pytest.fixture
def stubs(tmp_path: Path) -> Stubs:
    """Everything works, and after the restart the server states the new release. Each `date` is 10 s later."""
    stubs = Stubs(tmp_path / "stubs", ("curl", "systemctl", "kubectl", "uname", "sleep", "date", "flock"))
    stubs.on("uname", "-m", "x86_64\n")
    stubs.on("systemctl", "")
    stubs.on("flock", "")
    stubs.on("date", "", *(f"{1000 + 10 * n}\n" for n in range(200)))
    stubs.on("curl", "v1.36.2%2Bk3s1/k3s$", binary(NEW))
    stubs.on("curl", "v1.36.2%2Bk3s1/sha256sum-amd64.txt$", f"{checksum(NEW)}  k3s\n")
    stubs.on("kubectl", "--raw /readyz", "ok")
    stubs.on("kubectl", "--raw /api/v1/nodes", nodes(NEW))
    return stubs


@pytest.fixture
def run(tmp_path: Path, stubs: Stubs, root: Path) -> Run:
    def start(**changed: str) -> subprocess.CompletedProcess[str]:
        values = {"MODE": "upgrade", "FROM_RELEASE": OLD, "TO_RELEASE": NEW, "CHECKSUM": checksum(NEW), **changed}
        text = tmp_path / "upgrade.sh"
        text.write_text(script("upgrade_server"))
        own = {"NODE_FLEET_ROOT": str(root), "NODE_FLEET_LOCK_DIRECTORY": str(tmp_path), "TMPDIR": str(tmp_path)}
        return stubs.run(text, {**values, **own})

    return start


def result(done: subprocess.CompletedProcess[str]) -> str:
    return re.findall(r"^result: (.*)$", done.stdout, re.M)[-1]


def installed(root: Path) -> str:
    return (root / "usr/local/bin/k3s").read_text()


def orders(stubs: Stubs) -> list[str]:
    return [" ".join(call[1:]) for call in stubs.calls("systemctl")]


def test_the_binary_is_replaced_while_k3s_is_stopped_and_the_time_without_api_is_reported(
    run: Run, stubs: Stubs, root: Path
) -> None:
    stubs.on("kubectl", "--raw /readyz", Reply(exit=1), Reply(exit=1), Reply(stdout="ok"))
    done = run()
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"upgraded \d+0", result(done))
    assert installed(root) == binary(NEW)
    assert orders(stubs) == ["stop k3s", "start --no-block k3s", "start --no-block k3s"]
    assert not (root / "usr/local/bin/k3s.new").exists()


def test_the_earlier_binary_and_datastore_are_kept(run: Run, root: Path) -> None:
    run()
    kept = root / "var/lib/rancher/k3s/before-upgrade"
    assert (kept / "k3s").read_text() == binary(OLD)
    assert (kept / "db/state.db").read_text() == "before"


def test_the_api_is_not_enough_the_node_of_the_server_must_state_the_new_release(
    run: Run, stubs: Stubs, root: Path
) -> None:
    stubs.on("kubectl", "--raw /api/v1/nodes", *[nodes(OLD)] * 60)
    assert result(run()).startswith("restored")


def test_a_release_that_does_not_become_healthy_is_replaced_by_the_earlier_one_with_its_datastore(
    run: Run, stubs: Stubs, root: Path
) -> None:
    stubs.on("kubectl", "--raw /readyz", *[Reply(exit=1)] * 25, Reply(stdout="ok"))
    stubs.on("kubectl", "--raw /api/v1/nodes", nodes(OLD))
    stubs.on("systemctl", "start --no-block k3s", Reply(run=str(_breaks_the_datastore(stubs, root))), "")
    done = run()
    assert (done.returncode, result(done).split()[0]) == (70, "restored"), done.stderr
    assert installed(root) == binary(OLD)
    assert (root / DB).read_text() == "before"
    assert orders(stubs)[:4] == ["stop k3s", "start --no-block k3s"] * 2


def _breaks_the_datastore(stubs: Stubs, root: Path) -> Path:
    """The new release changes the datastore when it starts."""
    program = stubs.home / "start-new"
    program.write_text(f"#!/bin/sh\necho changed >{root / DB}\n")
    program.chmod(0o755)
    return program


def test_when_neither_release_becomes_healthy_the_command_says_so(run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "--raw /readyz", Reply(exit=1))
    done = run()
    assert done.returncode == 71
    assert result(done).startswith(f"broken neither {NEW} nor {OLD} became healthy in 240 s")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (("curl", "/k3s$", Reply(exit=28)), "not-downloaded K3s v1.36.2+k3s1 could not be downloaded from https://"),
        (("curl", "sha256sum-amd64.txt$", f"{'0' * 64}  k3s\n"), "does not have its published checksum"),
        (("curl", "/k3s$", "something else"), "does not have its published checksum"),
        (("flock", "", Reply(exit=1)), "busy another upgrade of the server runs"),
    ],
    ids=["no answer", "other published checksum", "other binary", "another upgrade"],
)
def test_what_fails_before_the_stop_changes_nothing(
    run: Run, stubs: Stubs, root: Path, fault: tuple[str, str, Reply | str], reason: str
) -> None:
    stubs.on(*fault)
    done = run()
    assert done.returncode not in (0, 70, 71) and reason in result(done)
    assert installed(root) == binary(OLD) and not orders(stubs)


def test_a_binary_with_the_published_but_not_the_pinned_checksum_is_refused(run: Run, stubs: Stubs, root: Path) -> None:
    assert "or not the one that is pinned" in result(run(CHECKSUM="0" * 64))
    assert installed(root) == binary(OLD) and not orders(stubs)


def test_a_binary_that_states_another_version_is_refused(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("curl", "/k3s$", binary("v1.36.4+k3s1"))
    stubs.on("curl", "sha256sum-amd64.txt$", f"{checksum('v1.36.4+k3s1')}  k3s\n")
    done = run(CHECKSUM=checksum("v1.36.4+k3s1"))
    assert result(done) == f"not-downloaded the binary states version v1.36.4+k3s1, not {NEW}"
    assert not orders(stubs) and not (root / "usr/local/bin/k3s.new").exists()


def test_a_server_with_another_release_than_the_plan_is_left_alone(run: Run, stubs: Stubs, root: Path) -> None:
    done = run(FROM_RELEASE="v1.35.4+k3s1")
    assert (done.returncode, result(done)) == (66, f"other-version {OLD} is installed, expected v1.35.4+k3s1")
    assert not orders(stubs) and not stubs.calls("curl")


def test_a_second_upgrade_to_the_same_release_changes_nothing(run: Run, stubs: Stubs) -> None:
    run()
    before = len(orders(stubs))
    done = run()
    assert (done.returncode, result(done)) == (0, f"unchanged {NEW} runs already")
    assert len(stubs.calls("curl", "/k3s$")) == 1 and "stop k3s" not in orders(stubs)[before:]


def test_a_datastore_that_cannot_be_copied_stops_the_upgrade_and_k3s_runs_again(
    run: Run, stubs: Stubs, root: Path
) -> None:
    (root / DB).unlink()
    (root / DB).parent.rmdir()
    done = run()
    assert done.returncode == 68 and "check the free space" in result(done)
    assert installed(root) == binary(OLD)
    assert orders(stubs) == ["stop k3s", "start --no-block k3s"]


def test_the_check_prints_every_version_and_changes_nothing(run: Run, stubs: Stubs, root: Path) -> None:
    done = run(MODE="check")
    assert done.stdout.splitlines() == [
        f"server {OLD} ready",
        f"n i-server {NEW} server",
        f"n i-worker {OLD} worker",
        "result: checked",
    ]
    assert installed(root) == binary(OLD) and not orders(stubs)


def test_a_check_without_an_api_says_so(run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "", Reply(exit=1))
    done = run(MODE="check")
    assert done.returncode == 69
    assert done.stdout.splitlines()[0] == f"server {OLD} not-ready"
    assert result(done) == "unreadable the API of the server does not list its nodes"
