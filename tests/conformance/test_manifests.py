"""The API server takes every object that the bootstrap applies, checked in a dry run that stores nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.cluster.kubectl.fake import CommandResult
from tests.support.real_plane.cluster import RealCluster
from tests.unit.cluster.test_manifests import NATIVE

pytestmark = pytest.mark.whole
OBJECTS = [document for _, document in NATIVE]
"""Without the kinds whose definitions K3s and Flux install: HelmChartConfig, GitRepository and Kustomization."""


@pytest.fixture
def cluster(real_cluster: RealCluster) -> RealCluster:
    """A cluster as K3s starts it, without the add-ons that other tests find on the server."""
    real_cluster.reset(add_ons=False)
    return real_cluster


def applied(cluster: RealCluster, folder: Path, objects: list[dict[str, Any]]) -> CommandResult:
    for namespace in {found for one in objects if (found := one["metadata"].get("namespace"))}:
        cluster.ensure_namespace(namespace)
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(file))


def test_every_shipped_object_is_taken(cluster: RealCluster, tmp_path: Path) -> None:
    done = applied(cluster, tmp_path, OBJECTS)
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(OBJECTS)


def test_an_object_with_a_value_that_only_the_api_server_checks_is_refused(
    cluster: RealCluster, tmp_path: Path
) -> None:
    policy = next(one for one in OBJECTS if one["kind"] == "NetworkPolicy")
    wrong = {**policy, "spec": {**policy["spec"], "podSelector": {"matchLabels": {"app": "not a label"}}}}
    done = applied(cluster, tmp_path, [wrong])
    assert done.exit_code != 0
    assert "NetworkPolicy" in done.stderr and "not a label" in done.stderr
