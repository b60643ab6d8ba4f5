"""The versions of Kubernetes in this repository agree: installed, simulated, and built for the conformance tests."""

from __future__ import annotations

import re
from pathlib import Path

from simulator.cluster.control.kubelets import K3S_VERSION
from tests.support.real_plane.build import MODULE, version

ROOT = Path(__file__).parents[2]


def installed() -> str:
    found = re.search(r"^K3S_VERSION=(\S+)$", (ROOT / "cluster/versions.env").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_simulated_kubelets_report_the_version_that_is_installed() -> None:
    assert installed() == K3S_VERSION


def test_the_control_plane_of_the_conformance_tests_has_the_minor_version_that_is_installed() -> None:
    assert version().split(".")[:2] == installed().split(".")[:2]


def test_every_staging_module_is_the_one_of_that_control_plane() -> None:
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) v0\.(\S+)$", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert len(replaced) > 25
    assert {(old == new, number) for old, new, number in replaced} == {(True, version().removeprefix("v1."))}
