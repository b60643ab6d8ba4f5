"""The command line as a person uses it: typed in a real terminal, read from its screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulator.simulation import synthesised_template
from tests.support.terminal import Terminal, terminal

SCENARIO = """\
name: small-rush
description: A short rush on one application.
duration: 12m
seed: 3
workers:
  - {count: 2, instance_type: t3.small}
settings: {min_workers: 2, max_workers: 5}
applications:
  - name: web
    replicas: 4
    cpu_milli: 250
    memory_mib: 128
    load:
      flash_sale: {base: 60, peak: 420, start: 2m, ramp: 2m, hold: 6m, fall: 1m}
    cpu_milli_per_request: 10
    autoscale: {min: 4, max: 40, target_percent: 70}
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    synthesised_template()
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "small-rush.yaml").write_text(SCENARIO)
    with terminal("desk", folder) as session:
        session.wait_for(r"^> ")
        yield session


def test_a_mistyped_command_says_what_was_meant_and_the_right_one_works(desk: Terminal) -> None:
    desk.command("node-fleet simualte --list")
    shown = desk.wait_for(r"code=2")
    assert "No such command 'simualte'. Did you mean 'simulate'" in shown
    assert "Traceback" not in shown
    desk.command("node-fleet simulate --list")
    shown = desk.wait_for(r"code=0")
    assert "flash-sale" in shown and "spot-storm" in shown


def test_a_simulation_shows_its_progress_while_it_runs_and_the_story_at_its_end(desk: Terminal) -> None:
    desk.command("node-fleet simulate small-rush.yaml --report story.html")
    running = desk.wait_for(r"small-rush ─")
    assert "A short rush on one application." in running
    shown = desk.wait_for(r"time .* of 12 min")
    assert "load" in shown and "workers" in shown and "usable" in shown
    shown = desk.wait_for(r"code=0")
    assert "Executions that changed something" in shown
    assert "Report: story.html" in shown
    assert "╭" not in shown.split("Executions that changed something")[1], "the live picture is gone at the end"


def test_unlock_asks_and_no_leaves_the_lock_alone(desk: Terminal) -> None:
    desk.command("node-fleet unlock --local --scenario small-rush.yaml --at 4m50s")
    shown = desk.wait_for(r"\[y/N\]:|code=")
    assert "held by" in shown and "open operation: scale_up" in shown
    desk.type("n")
    shown = desk.wait_for(r"code=3")
    assert "the lock was not released" in shown


def test_ctrl_c_ends_a_simulation_at_once_and_leaves_a_usable_terminal(desk: Terminal) -> None:
    desk.command("node-fleet simulate day-and-night")
    desk.wait_for(r"time .* of 1440 min")
    desk.press("C-c")
    shown = desk.wait_for(r"code=130")
    assert "Traceback" not in shown
    desk.command("echo still here")
    desk.wait_for(r"^still here")


@pytest.mark.parametrize("width", [80, 120])
def test_top_shows_the_fleet_while_it_changes_and_obeys_its_keys(width: int, tmp_path: Path) -> None:
    (tmp_path / "small-rush.yaml").write_text(SCENARIO.replace("duration: 12m", "duration: 7m"))
    with terminal(f"top-{width}", tmp_path, width=width, height=30) as screen:
        screen.wait_for(r"^> ")
        screen.command("node-fleet top --local --scenario small-rush.yaml --at 3m --speed 30")
        shown = screen.wait_for(r"^i-\w{17} .* ready")
        assert bool(re.search(r"an hour +state", shown)) == (width == 120)
        assert len([line for line in shown.splitlines() if re.match(r"i-\w{17} ", line)]) == 2
        screen.wait_for(r"^i-\w{17} .* joining", limit_seconds=120)
        screen.press("Space")
        paused = screen.wait_for(r"^paused; ")
        screen.press("e")
        assert "Evidence" in screen.wait_for(r"^any key goes back")
        screen.press("x")
        again = screen.wait_for(r"^paused; ")
        assert clock_on(again) == clock_on(paused), "virtual time stood still"
        screen.press("r")
        screen.wait_for(r"\.html is written")
        assert [path.suffix for path in tmp_path.glob("*.html")] == [".html"]
        screen.press("Space")
        screen.wait_for(r"^paused; the scenario has ended", limit_seconds=240)
        screen.press("q")
        screen.wait_for(r"^code=0")


def test_top_prints_its_picture_once_into_a_pipe(desk: Terminal) -> None:
    desk.command("node-fleet top --local --scenario small-rush.yaml | cat")
    shown = desk.wait_for(r"code=0")
    assert "q leaves" not in shown and re.search(r"^i-\w{17} ", shown, re.MULTILINE)


def clock_on(screen: str) -> str:
    found = re.search(r"(\d\d:\d\d:\d\d) UTC", screen)
    assert found
    return found[1]
