"""The versions of Kubernetes in this repository agree: installed, simulated, and built for the conformance tests."""

from __future__ import annotations

import re
from pathlib import Path

from cdk_app.k3s_releases import shipped_version
from simulator.cluster.objects import K3S_VERSION
from tests.support.real_plane.build import CONTROL_PLANE, KUBE_STATE_METRICS

ROOT = Path(__file__).parents[2]


def installed(name: str = "") -> str:
    if not name:
        return shipped_version()
    found = re.search(rf"^{name}=(\S+)$", (ROOT / "cluster/versions.env").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_simulated_kubelets_report_the_version_that_is_installed() -> None:
    assert installed() == K3S_VERSION


def test_the_control_plane_of_the_conformance_tests_has_the_minor_version_that_is_installed() -> None:
    assert CONTROL_PLANE.version().split(".")[:2] == installed().split(".")[:2]


def test_the_exporter_of_the_conformance_tests_has_the_version_that_is_installed() -> None:
    assert installed("KUBE_STATE_METRICS_IMAGE").partition("@")[0].rpartition(":")[2] == KUBE_STATE_METRICS.version()


def test_every_staging_module_is_the_one_of_that_control_plane() -> None:
    text = (CONTROL_PLANE.module_folder / "go.mod").read_text()
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) v0\.(\S+)$", text, re.MULTILINE)
    assert len(replaced) > 25
    assert {(old == new, number) for old, new, number in replaced} == {
        (True, CONTROL_PLANE.version().removeprefix("v1."))
    }
