"""Every fault at every task state of both workflows, then clean ticks: nothing is lost and the fleet comes home.

The states come from the definitions. A state that no story walks through fails here by its name.
"""

from __future__ import annotations

import time

import pytest

from tests.support.chaos.faults import FAULTS, Fault
from tests.support.chaos.matrix_cell import play
from tests.support.chaos.stories import STORIES, Story, course
from tests.support.chaos.task_states import TASKS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
@pytest.mark.parametrize("state", TASKS)
def test_nothing_is_lost(state: str, fault: Fault, record_property: pytest.RecordProperty) -> None:
    begun = time.process_time()
    result = play(state, fault)
    cell = {
        "state": state,
        "fault": fault.name,
        "mark": "-" if result.not_applicable else "X" if result.broken or not result.struck else "o",
        "why": result.not_applicable,
        "broken": list(result.broken),
        "cpu_seconds": time.process_time() - begun,
    }
    record_property("cell", cell)
    if result.not_applicable:
        return
    story = "\n".join(result.paths)
    assert result.struck, f"the fault never struck {state} in {result.story!r}:\n{story}"
    assert {where for where, _ in result.struck} == {state}
    assert result.broken == (), f"{result.story}:\n{story}"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_undisturbed_stories_keep_every_invariant(story: Story) -> None:
    assert course(story).broken == ()


def test_the_stories_walk_through_every_task_state_of_both_workflows() -> None:
    walked = {state for story in STORIES for state in course(story).uses}
    assert set(TASKS) - walked == set()
