"""While the clock of the K3s server is off no drain begins; one alert names the difference."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import SOON_IDLE, nothing_left_behind


def alerts(fleet: Stage) -> list[list[str]]:
    messages = (json.loads(record["Message"]) for record in fleet.deployment.messages)
    return [row for message in messages for row in (message["alerts"] or {"rows": []})["rows"]]


@pytest.mark.parametrize(("ahead", "words"), [(90, "(89|90) s ahead"), (-90, "(89|90) s behind")])
def test_no_drain_begins_until_the_clock_is_right_again(ahead: int, words: str) -> None:
    with stage(workers=4, warm_up=1, **SOON_IDLE) as fleet:
        for shell in fleet.sim.shells:
            shell.seconds_ahead = ahead
        fleet.tick_until(lambda e: "InspectNodes" in e.path)
        later = fleet.ticks(5)
        assert all("InspectNodes" in e.path and "StartDrain" not in e.path for e in later)
        assert {e.status for e in later} == {"SUCCEEDED"}
        ((kind, text, *_),) = alerts(fleet)
        assert kind == "clock_difference" and re.search(words, text)
        assert fleet.state().memory.back_offs == () and len(fleet.workers()) == 4
        for shell in fleet.sim.shells:
            shell.seconds_ahead = 0
        fleet.tick_until(lambda e: "StartDrain" in e.path, limit=2)
        assert len(fleet.workers()) == 3
        nothing_left_behind(fleet)
