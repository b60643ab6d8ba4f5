"""The fleet that the tests of the interruption workflow share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.handlers.bench import Bench, bench
from tests.support.interruptions import prepare


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """At most four workers, all of them Spot, with the settings of the nearest mark `settings`, and the workflow."""
    mark = request.node.get_closest_marker("settings")
    with bench(**{"max_workers": 4, "spot_percent": 100, **(mark.kwargs if mark else {})}) as made:
        prepare(made)
        yield made
