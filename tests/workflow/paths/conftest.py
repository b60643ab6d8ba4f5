"""Fleets for the tests of the autoscaler's paths. After the whole suite every edge of the definition must have run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import SOON_IDLE


@pytest.fixture
def fleet() -> Iterator[Stage]:
    with stage(workers=2) as made:
        yield made


@pytest.fixture
def idle() -> Iterator[Stage]:
    """Four workers with next to no load: the next ticks remove one."""
    with stage(workers=4, warm_up=1, **SOON_IDLE) as made:
        yield made


@pytest.fixture
def pair() -> Iterator[Stage]:
    """Five idle workers of which two can be removed in one operation."""
    with stage(workers=5, warm_up=1, max_targets=2, **SOON_IDLE) as made:
        yield made
