"""The cases of other drain implementations, acted out: inspection, drain, termination and clean-up of the worker."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.clusters import VirtualCluster
from tests.support.drain_cases import CASES, NOW, WORKERS, act_out, keeps_worker
from tests.support.shipped_scripts import rules

REMOVED = [n for n in sorted(CASES) if CASES[n]["scope"] != "terminate" and not keeps_worker(CASES[n])]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", REMOVED)
def test_a_worker_that_the_pod_does_not_keep_is_really_emptied(name: str) -> None:
    with contextlib.closing(VirtualCluster(rules.epoch(NOW))) as cluster:
        assert act_out(CASES[name], cluster, cluster.wait) == f"removed {WORKERS[0]}"
