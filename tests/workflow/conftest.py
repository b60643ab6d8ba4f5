"""What several files about the interruption workflow stand on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.handlers.bench import Bench, bench
from tests.support.interruptions import prepare


@pytest.fixture
def fleet() -> Iterator[Bench]:
    """At most four workers, all of them Spot, and the interruption workflow; files about others make their own."""
    with bench(max_workers=4, spot_percent=100) as made:
        prepare(made)
        yield made
