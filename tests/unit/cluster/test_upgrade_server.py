"""The server's upgrade command, run for real with stub commands: what is replaced, restored and left alone."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from node_fleet.domain.scale_down.drain import OUTPUT_LIMIT
from tests.support.shipped_scripts import script
from tests.support.stub_commands import Reply, Stubs

OLD, NEW = "v1.35.5+k3s1", "v1.36.2+k3s1"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "upgrades.md"
DB = "var/lib/rancher/k3s/server/db/state.db"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Server = tuple[Run, Stubs, Path]


def binary(version: str) -> str:
    return f"#!/bin/sh\necho 'k3s version {version} (abc)'\n"


def checksum(version: str) -> str:
    return hashlib.sha256(binary(version).encode()).hexdigest()


def nodes(server: str, *, ready: str = "True") -> str:
    """What the API lists: the server and one worker."""
    found = [
        {"metadata": {"name": "i-server", "labels": {"node-role.kubernetes.io/control-plane": "true"}}},
        {"metadata": {"name": "i-worker"}},
    ]
    for node, version in zip(found, (server, OLD), strict=True):
        conditions = [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": ready}]
        node["status"] = {"nodeInfo": {"kubeletVersion": version}, "conditions": conditions}  # type: ignore[dict-item]
    return json.dumps({"items": found})


def free(kib: int) -> str:
    return f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/nvme0n1p1 31444972 1 {kib} 1% /\n"


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
    stubs = Stubs(tmp_path / "stubs", ("curl", "systemctl", "kubectl", "uname", "sleep", "date", "flock", "df"))
    stubs.on("uname", "-m", "x86_64\n")
    stubs.on("systemctl", "")
    stubs.on("flock", "")
    stubs.on("df", "", free(525_000))
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


@pytest.fixture
def server(run: Run, stubs: Stubs, root: Path) -> Server:
    return run, stubs, root


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


def test_a_server_whose_node_is_not_ready_is_not_healthy(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("kubectl", "--raw /api/v1/nodes", *[nodes(NEW, ready="Unknown")] * 25, nodes(OLD))
    assert result(run()).startswith("restored")
    assert installed(root) == binary(OLD)


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
    assert (root / "var/lib/rancher/k3s/before-upgrade/db.failed/state.db").read_text() == "changed\n"
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
        (("df", "", free(524_288)), "before-upgrade and the new release need 512 MiB, 512 MiB are free"),
        (("df", "", Reply(exit=1)), "0 MiB are free"),
    ],
    ids=["no answer", "other published checksum", "other binary", "another upgrade", "full volume", "unknown space"],
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
    assert not (root / "var/lib/rancher/k3s/before-upgrade").exists(), "a part of a copy fills the volume"


def test_k3s_that_does_not_stop_is_not_replaced(run: Run, stubs: Stubs, root: Path) -> None:
    stubs.on("systemctl", "stop k3s", Reply(exit=1))
    done = run()
    assert (done.returncode, result(done)) == (68, "not-kept K3s could not be stopped; see systemctl status k3s")
    assert installed(root) == binary(OLD) and (root / DB).read_text() == "before"
    assert orders(stubs) == ["stop k3s", "start --no-block k3s"]


def test_a_datastore_that_cannot_be_restored_is_not_started_because_k3s_would_make_a_new_cluster(
    run: Run, stubs: Stubs, root: Path
) -> None:
    program = stubs.home / "loses-the-copy"
    program.write_text(f"#!/bin/sh\nrm -rf {root}/var/lib/rancher/k3s/before-upgrade/db\n")
    program.chmod(0o755)
    stubs.on("systemctl", "start --no-block k3s", Reply(run=str(program)))
    stubs.on("kubectl", "--raw /readyz", Reply(exit=1))
    done = run()
    assert done.returncode == 71 and result(done).startswith(f"broken {OLD} could not be restored from ")
    assert orders(stubs) == ["stop k3s", "start --no-block k3s", "stop k3s"]


@pytest.mark.parametrize(
    ("after", "code", "word"), [(Reply(stdout="ok"), 0, "unchanged"), (Reply(exit=1), 71, "broken")]
)
def test_a_command_that_a_restart_interrupted_waits_for_the_release_that_it_had_installed(
    server: Server, after: Reply, code: int, word: str
) -> None:
    """SSM or an operator runs it again while K3s starts."""
    run, stubs, root = server
    (root / "usr/local/bin/k3s").write_text(binary(NEW))
    stubs.on("kubectl", "--raw /readyz", *[Reply(exit=1)] * 5, after)
    done = run()
    assert (done.returncode, result(done).split()[:2]) == (code, [word, NEW])
    assert orders(stubs) == ["start --no-block k3s"] and not stubs.calls("curl")
    assert (root / DB).read_text() == "before"


@pytest.mark.parametrize("changed", [{"MODE": "check"}, {}], ids=["a check", "a second upgrade"])
def test_a_command_beside_a_running_upgrade_leaves_its_download_alone(
    run: Run, stubs: Stubs, root: Path, changed: dict[str, str]
) -> None:
    stubs.on("flock", "", Reply(exit=1))
    download = root / "usr/local/bin/k3s.new"
    download.write_text(binary(NEW))
    run(**changed)
    assert download.read_text() == binary(NEW)


@pytest.mark.parametrize("name", ["FROM_RELEASE", "TO_RELEASE", "CHECKSUM"])
def test_an_upgrade_without_a_release_or_a_checksum_is_refused(run: Run, stubs: Stubs, name: str) -> None:
    done = run(**{name: ""})
    assert (done.returncode, result(done)) == (64, f"bad-parameter {name} is empty")
    assert not orders(stubs) and not stubs.calls("curl")


def test_a_download_that_fails_leaves_no_file_in_the_temporary_folder(run: Run, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    assert result(run(CHECKSUM="0" * 64)).startswith("not-downloaded")
    assert {one for one in tmp_path.iterdir() if one.name.startswith("tmp.")} <= before


def test_the_names_of_a_thousand_workers_fit_into_the_answer_of_ssm(run: Run, stubs: Stubs) -> None:
    found = json.loads(nodes(OLD))
    worker = found["items"].pop()
    found["items"] += [{**worker, "metadata": {"name": f"i-{number:017x}"}} for number in range(1000)]
    stubs.on("kubectl", "--raw /api/v1/nodes", json.dumps(found))
    assert len(run(MODE="check").stdout) < OUTPUT_LIMIT


def test_the_check_prints_every_version_and_changes_nothing(run: Run, stubs: Stubs, root: Path) -> None:
    done = run(MODE="check")
    assert done.stdout.splitlines() == [
        f"server {OLD} ready",
        f"n server {NEW} ready i-server",
        f"n worker {OLD} ready i-worker",
        "result: checked",
    ]
    assert installed(root) == binary(OLD) and not orders(stubs)


def test_a_check_without_an_api_says_so(run: Run, stubs: Stubs) -> None:
    stubs.on("kubectl", "", Reply(exit=1))
    done = run(MODE="check")
    assert done.returncode == 69
    assert done.stdout.splitlines()[0] == f"server {OLD} not-ready"
    assert result(done) == "unreadable the API of the server does not list its nodes"


def test_the_documented_commands_put_back_the_earlier_release(run: Run, stubs: Stubs, root: Path) -> None:
    run()
    (root / DB).write_text("changed")
    section = DOCUMENT.read_text(encoding="utf-8").partition("## When K3s does not come back")[2].partition("\n## ")[0]
    commands = re.findall(r"^ {7}sudo (.*)$", section, re.M)
    for command in commands:
        words = [str(root / word[1:]) if word.startswith("/") else word for word in command.split()]
        if words[0] == "mv":
            subprocess.run(words, check=True)
    assert installed(root) == binary(OLD) and (root / DB).read_text() == "before"
    assert [commands[0], commands[-1]] == ["systemctl stop k3s", "systemctl start k3s"]
