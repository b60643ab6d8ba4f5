"""Every test of a handler measures its branches, on fake services or on a fleet in the simulated AWS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_fleet import services as node_fleet_services
from tests.support.handlers.bench import Bench, bench
from tests.support.handlers.fakes import FakeServices


@pytest.fixture(autouse=True)
def _measured(handler_coverage: None) -> None:
    """Take part in the measurement."""


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> FakeServices:
    """What every handler gets from load_services()."""
    made = FakeServices()
    monkeypatch.setattr(node_fleet_services, "_services_for", lambda environment: made)
    return made


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A fleet with the settings of the nearest mark `settings`."""
    mark = request.node.get_closest_marker("settings")
    with bench(**(mark.kwargs if mark else {})) as made:
        yield made
