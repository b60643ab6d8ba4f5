"""Pods from tests of other drain implementations: their workers, removed with a real control plane."""

from __future__ import annotations

import pytest

from tests.integration.test_drain_cases import REMOVED
from tests.support.drain_cases import CASES, WORKERS, act_out
from tests.support.real_plane.cluster import RealCluster

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("name", REMOVED)
def test_a_worker_that_the_pod_does_not_keep_is_really_emptied(name: str, cluster: RealCluster) -> None:
    assert act_out(CASES[name], cluster, cluster.lose) == f"removed {WORKERS[0]}"
