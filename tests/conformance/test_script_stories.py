"""The shipped scripts against a real control plane end as the transcripts say."""

from __future__ import annotations

import pytest

from tests.support.real_plane.cluster import RealCluster
from tests.support.script_stories import STORIES, Story, story_record
from tests.support.transcripts import Record, recorded

pytestmark = pytest.mark.whole
SUBJECT = "script_stories"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_of_scripts_ends_as_recorded(
    story: Story, cluster: RealCluster, records: Record, pytestconfig: pytest.Config
) -> None:
    records[story.name] = found = story_record(story, cluster)
    assert pytestconfig.option.record or found == recorded(SUBJECT)[story.name]
