"""What the tests of the simulator share: a clock at 0, and a simulated AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.aws import Cloud
from simulator.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(0.0)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(VirtualClock()) as cloud:
        yield cloud
