"""Random clusters: what the inspection says about fit, against the scheduler that places evicted pods."""

from __future__ import annotations

import pytest

from tests.support.fit_clusters import finds_placement, inspected_fit, random_cluster, waiting_after_removal
from tests.support.tiers import Tier

CLUSTERS = 300


def test_workers_whose_pods_fit_lose_none_and_few_of_the_others_could_have_been_emptied(
    capsys: pytest.CaptureFixture[str], tier: Tier
) -> None:
    """A set that fits is drained one worker after the other, in both orders."""
    drawn = range(CLUSTERS) if tier.whole else range(tier.seed, tier.seed + tier.clusters)
    fitting, refused, careful, sets, wrong = 0, 0, [], 0, []
    for number in drawn:
        found, together = inspected_fit(random_cluster(number))
        for name, misfit in found.items():
            if misfit is None:
                fitting += 1
                wrong += [(number, name, pod) for pod in waiting_after_removal(random_cluster(number), [name])]
            else:
                refused += 1
                careful += [(number, name)] if finds_placement(random_cluster(number), name) else []
        for names in (sorted(together), sorted(together, reverse=True)):
            sets += bool(names)
            wrong += [(number, tuple(names), pod) for pod in waiting_after_removal(random_cluster(number), names)]
    with capsys.disabled():
        print(f"{fitting} workers fit, {sets} sets fit, {refused} do not; {len(careful)} of these could be emptied")
    assert wrong == []
    assert fitting and refused and sets
    if tier.whole:  # a share of few clusters says little
        assert fitting > 500 and refused > 200 and sets > 100
        assert len(careful) <= 0.05 * refused, careful
