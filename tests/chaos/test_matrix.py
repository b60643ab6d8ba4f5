"""Every fault at every task state of both workflows, then clean ticks: nothing is lost and the fleet comes home.

The states come from the definitions. A state that no story walks through fails here by its name. The quick tier draws
one fault for each state, so that every fault strikes somewhere.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Iterator

import pytest

from tests.support.chaos.faults import FAULTS, Fault
from tests.support.chaos.matrix_cell import PreparedStories, play
from tests.support.chaos.stories import (
    DRAINING,
    REBOOTING,
    REPAIRING,
    REPLACING,
    RETURNED,
    RETURNING,
    ROLLING,
    SLEEPING,
    STARTING,
    STORIES,
    WAKING,
    Story,
    course,
    story_of,
)
from tests.support.chaos.task_states import TASKS
from tests.support.tiers import Tier

OF_OTHER_STORIES = [
    pytest.param(story, state, id=f"{story.name.replace(' ', '-')}-{state}")
    for story, states in (
        *((ROLLING, REPLACING), (REBOOTING, REPAIRING), (RETURNING, RETURNED)),
        *((SLEEPING, DRAINING), (WAKING, STARTING)),
    )
    for state in states
]


@pytest.fixture(scope="module")
def stories() -> Iterator[PreparedStories]:
    with contextlib.closing(PreparedStories()) as made:
        yield made


@pytest.mark.whole
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
@pytest.mark.parametrize("state", TASKS)
def test_nothing_is_lost(
    state: str, fault: Fault, stories: PreparedStories, record_property: pytest.RecordProperty
) -> None:
    assert_nothing_is_lost(state, fault, stories, record_property)


@pytest.mark.sample
@pytest.mark.parametrize("state", TASKS)
def test_nothing_is_lost_when_a_drawn_fault_strikes(
    state: str, tier: Tier, stories: PreparedStories, record_property: pytest.RecordProperty
) -> None:
    assert_nothing_is_lost(state, drawn_faults(tier.seed)[state], stories, record_property)


@pytest.mark.whole
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
@pytest.mark.parametrize(("story", "state"), OF_OTHER_STORIES)
def test_nothing_is_lost_while_a_worker_is_replaced_or_rebooted(
    story: Story, state: str, fault: Fault, stories: PreparedStories, record_property: pytest.RecordProperty
) -> None:
    assert_nothing_is_lost(state, fault, stories, record_property, story)


@pytest.mark.sample
@pytest.mark.parametrize(("story", "state"), OF_OTHER_STORIES)
def test_nothing_is_lost_while_a_worker_is_replaced_or_rebooted_and_a_drawn_fault_strikes(
    story: Story, state: str, tier: Tier, stories: PreparedStories, record_property: pytest.RecordProperty
) -> None:
    possible = [f for f in FAULTS if not f.not_applicable(state, course(story).uses[state])]
    fault = random.Random(f"{tier.seed} {story.name} {state}").choice(possible)
    assert_nothing_is_lost(state, fault, stories, record_property, story)


def possible_faults(state: str) -> list[Fault]:
    """The faults that can happen at the state; all of them when no story walks through it, which then fails."""
    story = story_of(state)
    return [f for f in FAULTS if story is None or not f.not_applicable(state, course(story).uses[state])]


@functools.cache
def drawn_faults(seed: int) -> dict[str, Fault]:
    """One possible fault for each state, and each fault for at least one state: those with the fewest states first."""
    dice, possible = random.Random(seed), {state: possible_faults(state) for state in TASKS}
    drawn: dict[str, Fault] = {}
    places = {fault.name: [state for state in TASKS if fault in possible[state]] for fault in FAULTS}
    for fault in sorted(FAULTS, key=lambda fault: len(places[fault.name])):
        drawn[dice.choice([state for state in places[fault.name] if state not in drawn])] = fault
    return {state: drawn.get(state) or dice.choice(possible[state]) for state in TASKS}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_drawn_sample_has_every_state_and_every_fault_and_only_cells_that_can_happen(seed: int) -> None:
    drawn = drawn_faults(seed)
    assert list(drawn) == list(TASKS)
    assert {fault.name for fault in drawn.values()} == {fault.name for fault in FAULTS}
    assert all(fault in possible_faults(state) for state, fault in drawn.items())


def assert_nothing_is_lost(
    state: str,
    fault: Fault,
    stories: PreparedStories,
    record_property: pytest.RecordProperty,
    story: Story | None = None,
) -> None:
    """Play the cell, and record it for the table at the end of the run."""
    begun = sum(os.times()[:4])  # with the processes that have ended
    result = play(state, fault, stories, story)
    cell = {
        "state": f"{state} ({story.name})" if story else state,
        "fault": fault.name,
        "mark": "-" if result.not_applicable else "X" if result.broken or not result.struck else "o",
        "why": result.not_applicable,
        "broken": list(result.broken),
        "cpu_seconds": sum(os.times()[:4]) - begun,
    }
    record_property("cell", cell)
    if result.not_applicable:
        return
    paths = "\n".join(result.paths)
    assert result.struck, f"the fault never struck {state} in {result.story!r}:\n{paths}"
    assert {where for where, _ in result.struck} == {state}
    assert result.broken == (), f"{result.story}:\n{paths}"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_undisturbed_stories_keep_every_invariant(story: Story) -> None:
    assert course(story).broken == ()


def test_the_stories_walk_through_every_task_state_of_both_workflows() -> None:
    walked = {state for story in STORIES for state in course(story).uses}
    assert set(TASKS) - walked == set()
