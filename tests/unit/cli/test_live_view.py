"""The live picture of a simulation."""

from __future__ import annotations

import io

from rich.console import Console

from cli.live_view import LiveView
from simulator.scenario.files import load_scenario


def test_a_terminal_shows_the_picture_before_the_simulation_is_ready() -> None:
    screen = io.StringIO()
    with LiveView(load_scenario("flash-sale"), Console(file=screen, force_terminal=True, width=100)):
        assert "starting simulated AWS and the cluster" in screen.getvalue()
