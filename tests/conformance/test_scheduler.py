"""The real kube-scheduler judges the fit check: random clusters with mixed predicates, one removal in each.

Where the check says that a worker's pods fit elsewhere, the scheduler places all of them; where it says that they do
not fit, one of them waits.
"""

from __future__ import annotations

import random

import pytest

from tests.support.real_plane.batch import build_all, drain, verdicts, waiting_pods
from tests.support.real_plane.cluster import RealCluster
from tests.support.tiers import Tier

pytestmark = pytest.mark.whole
BATCH = 20


def test_what_the_fit_check_says_is_what_the_scheduler_does(
    real_cluster: RealCluster, tier: Tier, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, fitting, refused, wrong, careful = random.Random(tier.seed), 0, 0, [], []
    for first in range(0, tier.judged_clusters, BATCH):
        real_cluster.reset(add_ons=False)
        clusters = build_all(real_cluster, range(first, min(first + BATCH, tier.judged_clusters)))
        judged, said = verdicts(real_cluster, clusters), {}
        for name, (found, together) in judged.items():
            single = dice.choice(sorted(found))
            removed = sorted(together) if together and dice.random() < 0.3 else [single]
            said[name] = (removed, found[single] if removed == [single] else None)
            for node in removed:
                drain(real_cluster, node)
                if len(removed) > 1:
                    real_cluster.settle()
        real_cluster.settle()
        waiting = waiting_pods(real_cluster)
        for name, (removed, misfit) in said.items():
            fitting, refused = fitting + (misfit is None), refused + (misfit is not None)
            wrong += [(name, removed, pod) for pod in waiting.get(name, ()) if misfit is None]
            careful += [(name, removed, misfit)] if misfit and name not in waiting else []
    with capsys.disabled():
        print(f"{fitting} removals fit, {refused} do not; {len(careful)} of these were placed all the same")
    assert wrong == []
    assert fitting >= tier.judged_clusters // 4 and refused >= tier.judged_clusters // 10
    assert len(careful) <= 0.05 * tier.judged_clusters, careful
