"""Every fault at the states that treat standby workers in another way than other workers, then clean ticks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.chaos.test_matrix import assert_nothing_is_lost
from tests.support.chaos.faults import FAULTS, Fault
from tests.support.chaos.matrix_cell import PreparedStories
from tests.support.chaos.stories import STANDBY_CELLS, Story

CELLS = [pytest.param(story, state, id=f"{story.name.replace(' ', '-')}-{state}") for story, state in STANDBY_CELLS]


@pytest.fixture(scope="module")
def stories() -> Iterator[PreparedStories]:
    with contextlib.closing(PreparedStories(dict.fromkeys(story for story, _ in STANDBY_CELLS))) as made:
        yield made


@pytest.mark.whole
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
@pytest.mark.parametrize(("story", "state"), CELLS)
def test_nothing_is_lost_while_a_standby_worker_is_made_started_or_renewed(
    story: Story, state: str, fault: Fault, stories: PreparedStories, record_property: pytest.RecordProperty
) -> None:
    assert_nothing_is_lost(state, fault, stories, record_property, story)
