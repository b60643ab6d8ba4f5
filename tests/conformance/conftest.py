"""One real control plane for the tests of a session; each test gets it empty."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.support.real_plane.build import CONTROL_PLANE
from tests.support.real_plane.cluster import RealCluster
from tests.support.real_plane.kubelets import Kubelets
from tests.support.real_plane.plane import ControlPlane
from tests.support.transcripts import Record, write


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Started at the first use; skips the test without Go, except in CI."""
    if shutil.which("go") is None and not CONTROL_PLANE.binary_path().exists():
        message = "go is not on this machine: the Debian package golang-go builds the control plane"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    plane = ControlPlane(CONTROL_PLANE.built(), tmp_path_factory.mktemp("plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        plane.close_clients()


@pytest.fixture(scope="session")
def kubelets(plane: ControlPlane) -> Iterator[Kubelets]:
    found = Kubelets(plane.api("kubelets"))
    yield found
    found.end()
    plane.stop()
    found.close()


@pytest.fixture(scope="session")
def real_cluster(plane: ControlPlane, kubelets: Kubelets) -> RealCluster:
    return RealCluster(plane, kubelets)


@pytest.fixture
def cluster(real_cluster: RealCluster) -> RealCluster:
    """An empty cluster."""
    real_cluster.reset()
    return real_cluster


@pytest.fixture(scope="module")
def records(request: pytest.FixtureRequest) -> Iterator[Record]:
    """What the tests of a module record; with --record it becomes the module's transcript."""
    found: Record = {}
    yield found
    if request.config.option.record and found:
        write(request.module.SUBJECT, found)
