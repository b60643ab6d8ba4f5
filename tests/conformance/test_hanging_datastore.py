"""When the datastore hangs, a script ends with a status of its own before SSM would end it."""

from __future__ import annotations

import time

import pytest

from tests.support.real_plane.cluster import RealCluster
from tests.support.script_stories import CHECK, FORGET, TARGET, UNCORDON, Step, variables_of
from tests.support.shipped_scripts import script

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("step", [CHECK, UNCORDON, FORGET], ids=lambda step: step[0])
def test_a_script_reports_that_the_api_cannot_be_read(step: Step, cluster: RealCluster) -> None:
    cluster.add_worker(TARGET, az="eu-west-1a")
    cluster.settle()
    with cluster.plane.paused("etcd"):
        ended = cluster.script(script(step[0]), variables_of(step, time.time()))
    assert ended.exit_code == 69, ended
    assert ended.stdout.splitlines()[-1].startswith("result: unreadable")
