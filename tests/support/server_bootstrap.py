"""What the tests of the server's bootstrap share: answers of AWS, the values of the user data, and what a run left."""

from __future__ import annotations

import configparser
import hashlib
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.support.stub_commands import Reply, Stubs

AGENT_TOKEN = f"K10{'a' * 64}::node:agentSecretPart"
PASSWORD = "pa55wordOfPrometheus"
GRAFANA_PASSWORD = "pa55wordOfGrafana"
INSTANCE = "i-0aaaabbbbccccdddd"
VALUES = {
    "CLUSTER_ID": "node-fleet-prod",
    "AWS_REGION": "ap-southeast-1",
    "BUNDLE_BUCKET": "assets",
    "BUNDLE_KEY": "cluster.zip",
    "TOKEN_SECRET_ID": "node-fleet/k3s-token",
    "PROMETHEUS_SECRET_ID": "node-fleet/prometheus-auth",
    "GRAFANA_SECRET_ID": "node-fleet/grafana-auth",
    "ALERT_TOPIC_ARN": "arn:aws:sns:ap-southeast-1:123456789012:node-fleet-alerts",
    "STATE_TABLE": "k3s-autoscaler-state",
    "FLUX_GIT_URL": "",
    "REGISTRY_MIRROR": "false",
    "IMAGE_WAIT_SECONDS": "0",
}
K3S_BINARY = '#!/bin/sh\nexec "$STUB_HOME/bin/kubectl" "$@"\n'
"""The download makes kubectl a name of K3s; in these tests both names lead to the stub."""
K3S_CHECKSUM = hashlib.sha256(K3S_BINARY.encode()).hexdigest()
NO_ANSWER = Reply(exit=28, stderr="curl: (28) Connection timed out\n")
DENIED = Reply(exit=254, stderr="AccessDeniedException\n")

Booted = subprocess.CompletedProcess[str]
Run = Callable[..., Booted]


def boot_unit(root: Path) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(root / "etc/systemd/system/node-fleet-bootstrap.service")
    return unit


def failure_tag(stubs: Stubs) -> str:
    tags = [part for call in stubs.calls("aws", "create-tags") for part in call if "BootstrapError" in part]
    return tags[-1].removeprefix("Key=BootstrapError,Value=") if tags else ""


def k3s_config(root: Path) -> dict[str, object]:
    loaded = yaml.safe_load((root / "etc/rancher/k3s/config.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def pin_flux(stubs: Stubs, bundle: Path, folder: Path, checksum: str) -> None:
    """Serves a bundle that pins this checksum of Flux's manifest."""
    changed = folder / "pinned.zip"
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            if name == "versions.env":
                text = re.sub(rb"(?m)^FLUX_SHA256=.*$", f"FLUX_SHA256={checksum}".encode(), text)
            target.writestr(name, text)
    stubs.on("aws", "s3 cp .*cluster.zip", Reply(copy=str(changed)))
