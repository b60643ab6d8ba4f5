"""The simulated cluster against the transcripts of a real control plane, on every machine.

A difference that is accepted stands in `ACCEPTED` with its reason; an entry that no longer differs fails.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.api_cases import BUDGETS, REQUESTS, budget_record, prepare_requests, request_record
from tests.support.clusters import VirtualCluster
from tests.support.kubectl_cases import CASES, Case
from tests.support.script_stories import STORIES, Story, story_record
from tests.support.transcripts import kubectl_record, recorded

ACCEPTED: dict[str, str] = {}
"""Case -> why its answer may differ."""


def compare(name: str, simulated: Any, real: Any) -> None:
    if name in ACCEPTED:
        assert simulated != real, f"{name} does not differ: remove it from ACCEPTED"
    else:
        assert simulated == real


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kubectl_ends_as_on_a_real_control_plane(case: Case) -> None:
    cluster = VirtualCluster(float(int(time.time())) - 300)
    found = kubectl_record(case, cluster)
    cluster.close()
    compare(case.name, found, recorded("kubectl_cases")[case.name])


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_of_scripts_ends_as_on_a_real_control_plane(story: Story) -> None:
    cluster = VirtualCluster(float(int(time.time())) - 300)
    found = story_record(story, cluster)
    cluster.close()
    compare(story.name, found, recorded("script_stories")[story.name])


def test_the_transcripts_have_exactly_the_cases_that_are_compared() -> None:
    assert set(recorded("kubectl_cases")) == {case.name for case in CASES}
    assert set(recorded("script_stories")) == {story.name for story in STORIES}
    assert set(recorded("api_cases")) == {one.name for one in REQUESTS} | set(BUDGETS)


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    cluster = VirtualCluster(0.0)
    prepare_requests(cluster)
    given = cluster.answers(*(lambda answer, one=one: request_record(one, answer) for one in REQUESTS))
    cluster.close()
    return dict(zip((one.name for one in REQUESTS), given, strict=True))


@pytest.mark.parametrize("name", [one.name for one in REQUESTS])
def test_a_request_is_answered_as_by_a_real_api_server(name: str, answers: dict[str, Any]) -> None:
    compare(name, answers[name], recorded("api_cases")[name])


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_allows_what_the_real_controller_allows(name: str) -> None:
    cluster = VirtualCluster(0.0)
    found = budget_record(name, cluster)
    cluster.close()
    compare(name, found, recorded("api_cases")[name])
