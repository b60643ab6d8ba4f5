"""The site fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.model import SimulatedCluster
from simulator.fakes.shell import ServerShell
from tests.support.server_site import FIRST, SECOND, SERVER, Site


@pytest.fixture
def site() -> Iterator[Site]:
    clock = VirtualClock()
    world = SimulatedCluster(clock)
    world.add_server(SERVER, "us-east-1a")
    world.add_worker(FIRST, az="us-east-1a")
    world.add_worker(SECOND, az="us-east-1b", market="spot")
    clock.advance(60)
    shell = ServerShell(world, clock.advance)
    yield Site(clock, world, shell)
    shell.close()
    clock.close()
