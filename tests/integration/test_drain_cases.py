"""The cases of other drain implementations, acted out: inspection, drain, termination and clean-up of the worker."""

from __future__ import annotations

import pytest

from tests.support.drain_cases import CASES, WORKERS, act_out, keeps_worker

REMOVED = [n for n in sorted(CASES) if CASES[n]["scope"] != "terminate" and not keeps_worker(CASES[n])]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", REMOVED)
def test_a_worker_that_the_pod_does_not_keep_is_really_emptied(name: str) -> None:
    assert act_out(CASES[name]) == f"removed {WORKERS[0]}"
