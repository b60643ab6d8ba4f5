"""The live picture of a simulation."""

from __future__ import annotations

import io
import threading

from rich.console import Console

from cli.live_view import LiveView
from simulator.scenario.files import load_scenario


class Screen(io.StringIO):
    """Keeps what it shows, and says when it has been written so often."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left, self.moved = writes, threading.Event()

    def write(self, text: str) -> int:
        self.left -= "starting" in text
        if self.left <= 0:
            self.moved.set()
        return super().write(text)


def test_the_picture_moves_while_the_simulation_starts_and_is_gone_when_it_is_closed() -> None:
    screen = Screen(writes=4)
    with LiveView(load_scenario("flash-sale"), Console(file=screen, force_terminal=True, width=100)) as view:
        assert screen.moved.wait(60), "four pictures, although the simulation reports nothing"
        view.close()
        shown = len(screen.getvalue())
        assert not view._live.is_started
        assert len(screen.getvalue()) == shown


def test_a_terminal_shows_the_picture_before_the_simulation_is_ready() -> None:
    screen = io.StringIO()
    with LiveView(load_scenario("flash-sale"), Console(file=screen, force_terminal=True, width=100)):
        assert "starting simulated AWS and the cluster" in screen.getvalue()
