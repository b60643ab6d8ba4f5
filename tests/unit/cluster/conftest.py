"""What the cluster tests share: the folder under test and scripts with their placeholders filled."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cdk_app.scripts import read_script
from cdk_app.stacks.cluster import DASHBOARDS, NOT_IN_BUNDLE
from tests.support.server_bootstrap import (
    AGENT_TOKEN,
    GRAFANA_PASSWORD,
    INSTANCE,
    K3S_BINARY,
    K3S_CHECKSUM,
    PASSWORD,
    VALUES,
    Booted,
    Run,
    boot_unit,
)
from tests.support.stub_commands import SESSION, Reply, Stubs

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"
USER_DATA = f"{SESSION}latest/user-data$"


@pytest.fixture(scope="session")
def cluster() -> Path:
    return CLUSTER


def fill(template: Path, values: dict[str, str], folder: Path) -> Path:
    """Fills a user data file as the deployment does: plain text replacement, nothing else."""
    text = read_script(template)
    for name, value in values.items():
        assert f"${{{name}}}" in text, f"{template.name} has no placeholder {name}"
        text = text.replace(f"${{{name}}}", value)
    target = folder / "user_data.sh"
    target.write_text(text)
    return target


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[Path, dict[str, str]], Path]:
    return lambda template, values: fill(template, values, tmp_path)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, cluster: Path) -> Path:
    """The bundle as the deployment uploads it: a zip of what the server installs from cluster/."""
    target = tmp_path_factory.mktemp("bundle") / "cluster.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(cluster.rglob("*")):
            name = str(file.relative_to(cluster))
            left_out = "__pycache__" in file.parts or name.startswith(tuple(f"{part}/" for part in NOT_IN_BUNDLE))
            if file.is_file() and not left_out:
                archive.write(file, name)
    return target


@pytest.fixture(scope="session")
def dashboards(tmp_path_factory: pytest.TempPathFactory, cluster: Path) -> Path:
    target = tmp_path_factory.mktemp("dashboards") / "dashboards.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted((cluster / DASHBOARDS).iterdir()):
            archive.write(file, file.name)
    return target


def new_machine(folder: Path) -> Path:
    """A machine on which K3s, once started, has written the agents' token."""
    token = folder / "root/var/lib/rancher/k3s/server/agent-token"
    token.parent.mkdir(parents=True)
    token.write_text(AGENT_TOKEN + "\n")
    return folder / "root"


def working_stubs(folder: Path, bundle: Path, dashboards: Path) -> Stubs:
    commands = ("curl", "aws", "systemctl", "sleep", "uname", "kubectl")
    stubs = Stubs(folder / "stubs", commands)
    stubs.on("uname", "-m", "x86_64\n")
    stubs.on("systemctl", "")
    stubs.on_metadata(
        {"instance-id": INSTANCE, "placement/availability-zone": "ap-southeast-1b", "local-ipv4": "10.0.1.10"}
    )
    stubs.on("curl", "k3s-io.*/k3s$", K3S_BINARY)
    stubs.on("curl", "sha256sum-amd64.txt$", f"{K3S_CHECKSUM}  k3s\n")
    stubs.on("kubectl", ".*", "kind: Fake\n")
    stubs.on("kubectl", "--version", "k3s version v1.35.5+k3s1 (abc)\n")
    stubs.on("aws", "s3 cp .*s3://assets/cluster.zip", Reply(copy=str(bundle)))
    stubs.on("aws", "ssm get-parameter .*/node-fleet/node-fleet-prod/dashboards ", "s3://assets/dashboards.zip\n")
    stubs.on("aws", "ssm get-parameter .*/node-fleet/node-fleet-prod/k3s ", f"v1.35.5+k3s1 {K3S_CHECKSUM}\n")
    stubs.on("aws", "s3 cp .*s3://assets/dashboards.zip", Reply(copy=str(dashboards)))
    stubs.on("aws", "ec2 create-tags")
    stubs.on("aws", "get-secret-value .*k3s-token", "set-by-the-server-at-first-boot")
    stubs.on("aws", "put-secret-value", "version-1", keeps="stored-token")
    secret = json.dumps({"username": "prometheus", "password": PASSWORD})
    stubs.on("aws", "get-secret-value .*prometheus-auth", secret)
    stubs.on("aws", "get-secret-value .*grafana-auth", json.dumps({"username": "admin", "password": GRAFANA_PASSWORD}))
    return stubs


def boot(stubs: Stubs, root: Path, folder: Path, **changed: str) -> Booted:
    script = fill(CLUSTER / "server/user_data.sh", {**VALUES, **changed}, folder)
    stubs.on("curl", USER_DATA, script.read_text())
    return stubs.run(script, {"NODE_FLEET_ROOT": str(root)})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_machine(tmp_path)


@pytest.fixture
def stubs(tmp_path: Path, bundle: Path, dashboards: Path) -> Stubs:
    return working_stubs(tmp_path, bundle, dashboards)


@pytest.fixture
def run(stubs: Stubs, root: Path, tmp_path: Path) -> Run:
    return partial(boot, stubs, root, tmp_path)


@pytest.fixture(scope="session")
def first_boot(tmp_path_factory: pytest.TempPathFactory, bundle: Path, dashboards: Path) -> tuple[Path, Booted]:
    folder = tmp_path_factory.mktemp("first-boot")
    return folder, boot(working_stubs(folder, bundle, dashboards), new_machine(folder), folder)


@pytest.fixture
def booted(first_boot: tuple[Path, Booted], stubs: Stubs, root: Path) -> Booted:
    """What `run()` returns where everything works; `stubs` and `root` are as it leaves them, in copies of one run."""
    folder, result = first_boot
    stubs.on("curl", USER_DATA, (folder / "user_data.sh").read_text())
    for source, target in ((folder / "stubs", stubs.home), (folder / "root", root)):
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    return result


@pytest.fixture
def repeat(stubs: Stubs, root: Path) -> Run:
    """Runs the boot unit as systemd does: its command in its environment."""

    def start() -> Booted:
        unit = boot_unit(root)
        command = unit.get("Service", "ExecStart").split()
        assert command[0] == "/bin/bash"
        name, _, value = unit.get("Service", "Environment").partition("=")
        return stubs.run(Path(f"{root}{command[1]}"), {"NODE_FLEET_ROOT": str(root), name: value})

    return start
