"""The server's bootstrap on a volume that holds a cluster, and the command that finds the snapshot to restore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import boto3
import jmespath
import pytest
from moto import mock_aws

from tests.support.documented_commands import commands_of
from tests.support.server_bootstrap import AGENT_TOKEN, INSTANCE, Booted, Run, failure_tag, k3s_config
from tests.support.stub_commands import SESSION, Stubs

pytestmark = pytest.mark.sampled(2)  # with --all, every one

SERVER = "var/lib/rancher/k3s/server"
NEW_INSTANCE = "i-0123456789abcdef0"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "cluster.md"


def content(folder: Path) -> dict[str, bytes]:
    """Everything of K3s's own in the folder of the server; the bootstrap owns the manifests."""
    files = (path for path in folder.rglob("*") if path.is_file() and "manifests" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def snapshot(booted: Booted, root: Path, tmp_path: Path) -> Path:
    """A copy of the volume of a server that has run for some time."""
    assert booted.returncode == 0
    for name, text in {
        "db/state.db": "SQLite format 3",
        "db/state.db-wal": "not yet merged",
        "tls/server-ca.key": "authority",
        "cred/passwd": "token",
        "token": "K10::server:secret",
    }.items():
        (root / SERVER / name).parent.mkdir(exist_ok=True)
        (root / SERVER / name).write_text(text)
    shutil.copytree(root, tmp_path / "snapshot")
    return tmp_path / "snapshot"


@pytest.mark.parametrize("stored", [AGENT_TOKEN, f"K10{'0' * 64}::node:other"], ids=["same token", "other token"])
def test_the_boot_after_a_restore_keeps_the_datastore_and_stores_a_token_only_if_it_differs(
    repeat: Run, stubs: Stubs, root: Path, snapshot: Path, stored: str
) -> None:
    (root / SERVER / "db/state.db").write_text("broken")
    stubs.on("aws", "get-secret-value .*k3s-token", stored)
    before = len(stubs.calls("aws", "put-secret-value"))
    shutil.rmtree(root)
    shutil.copytree(snapshot, root)
    result = repeat()
    assert result.returncode == 0, result.stderr
    assert content(root / SERVER) == content(snapshot / SERVER)
    assert len(stubs.calls("aws", "put-secret-value")) - before == (stored != AGENT_TOKEN)
    assert stubs.calls("systemctl", "start --no-block k3s$") and not failure_tag(stubs)


def test_a_restored_volume_with_an_earlier_k3s_keeps_it_and_the_datastore(
    repeat: Run, stubs: Stubs, root: Path, snapshot: Path
) -> None:
    stubs.on("kubectl", "--version", "k3s version v1.34.1+k3s1 (abc)\n")
    assert repeat().returncode == 0
    assert len(stubs.calls("curl", "k3s-io.*/k3s$")) == 1
    assert content(root / SERVER) == content(snapshot / SERVER)


def test_a_new_server_with_the_folder_of_a_snapshot_serves_that_cluster_under_its_own_name(
    run: Run, repeat: Run, stubs: Stubs, root: Path, snapshot: Path
) -> None:
    shutil.rmtree(root)
    (root / SERVER).mkdir(parents=True)
    own_token = f"K10{'b' * 64}::node:ofTheNewServer"
    (root / SERVER / "agent-token").write_text(own_token)
    stubs.on("curl", f"{SESSION}meta-data/instance-id$", NEW_INSTANCE)
    assert run().returncode == 0
    assert (stubs.home / "stored-token").read_text() == own_token
    stubs.on("aws", "get-secret-value .*k3s-token", own_token)
    shutil.move(root / SERVER, root / f"{SERVER}.empty")
    shutil.copytree(snapshot / SERVER, root / SERVER)
    assert repeat().returncode == 0
    assert content(root / SERVER) == content(snapshot / SERVER)
    assert (stubs.home / "stored-token").read_text() == AGENT_TOKEN
    assert k3s_config(root)["node-name"] == NEW_INSTANCE != INSTANCE


@mock_aws
def test_the_documented_command_lists_the_snapshots_of_this_cluster_newest_first() -> None:
    text = DOCUMENT.read_text(encoding="utf-8").replace("CLUSTER ", "shop ")
    (command,) = [list(words) for words in commands_of(text, "aws") if words[1] == "describe-snapshots"]
    options = _options(command)
    ec2 = boto3.client("ec2", "ap-southeast-1")
    server = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    made = {cluster: [_daily_snapshot(ec2, server, cluster) for _ in range(2)] for cluster in ("shop", "other")}
    filters = [dict(zip(("Name", "Values"), _filter(word), strict=True)) for word in options["--filters"]]
    answer = ec2.describe_snapshots(OwnerIds=options["--owner-ids"], Filters=filters)
    for number, one in enumerate(answer["Snapshots"]):
        one["StartTime"] = f"2026-11-{28 - number}T19:00:00Z"
    listed = jmespath.search(options["--query"][0], {"Snapshots": list(reversed(answer["Snapshots"]))})
    assert {snapshot_id for snapshot_id, _ in listed} == set(made["shop"])
    assert [time for _, time in listed] == ["2026-11-28T19:00:00Z", "2026-11-27T19:00:00Z"]


def _options(words: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in words[2:]:
        if word.startswith("--"):
            last = found.setdefault(word, [])
        else:
            last.append(word)
    return found


def _filter(word: str) -> tuple[str, list[str]]:
    name, _, values = word.removeprefix("Name=").partition(",Values=")
    return name, values.split(",")


def _daily_snapshot(ec2: Any, instance: str, cluster: str) -> str:
    """A snapshot with the tags of the backup policy."""
    tags = [{"Key": "Project", "Value": "node-fleet"}, {"Key": "Cluster", "Value": cluster}]
    made = ec2.create_snapshots(
        InstanceSpecification={"InstanceId": instance},
        TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}],
    )
    return str(made["Snapshots"][0]["SnapshotId"])
