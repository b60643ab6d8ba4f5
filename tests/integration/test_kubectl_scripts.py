"""The shell that SSM runs, once with the real kubectl and once with the fake: same answer, same cluster."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from simulator.cluster.kubectl.fake import CommandResult
from tests.integration.test_kubectl_conformance import KUBECTL, PREPARATION_SECONDS, needs_kubectl
from tests.support.budget_checker import BudgetChecker
from tests.support.clusters import VirtualCluster
from tests.support.kube_api import kubernetes_api, realtime_pump
from tests.support.script_stories import STORIES, Story, prepare_story, story_record, story_state, variables_of
from tests.support.shipped_scripts import script


def with_the_fake(story: Story, now: float) -> tuple[dict[str, Any], BudgetChecker]:
    cluster = VirtualCluster(now - PREPARATION_SECONDS)
    checker = BudgetChecker(cluster)
    found = story_record(story, cluster)
    cluster.close()
    return found, checker


def with_the_real_one(story: Story, now: float, home: Path) -> tuple[dict[str, Any], BudgetChecker]:
    cluster = VirtualCluster(now - PREPARATION_SECONDS)
    checker = BudgetChecker(cluster)
    prepare_story(story, cluster)
    cluster.clock.advance_to(now)
    ended = []
    with kubernetes_api(cluster) as api, realtime_pump(cluster, cluster.clock):
        for step in story.steps:
            environment = {
                "PATH": f"{Path(str(KUBECTL)).parent}:{os.environ['PATH']}",
                "HOME": str(home),
                "KUBECONFIG": str(api.kubeconfig),
                "NODE_FLEET_LOCK_DIRECTORY": str(home),
                **variables_of(step, now),
            }
            done = subprocess.run(
                ["sh", "-c", script(step[0])], env=environment, capture_output=True, text=True, timeout=90, check=False
            )
            ended.append(CommandResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr))
    cluster.wait(5)
    found = story_state(ended, cluster)
    cluster.close()
    return found, checker


@needs_kubectl
@pytest.mark.sampled(3)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_shipped_script_ends_alike_with_kubectl_and_with_the_fake(story: Story, tmp_path: Path) -> None:
    now = float(int(time.time()))
    real, checker = with_the_real_one(story, now, tmp_path)
    assert with_the_fake(story, now)[0] == real
    is_deadline = any("DRAIN_MODE" in variables for _, variables in story.steps)
    assert bool(checker.violations) is is_deadline
