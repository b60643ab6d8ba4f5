"""The scenarios of new images: the fleet never has fewer usable workers than at the start, and a broken image stops."""

from __future__ import annotations

import itertools

import pytest

from tests.support.scenario_watch import FleetWatch, watched

pytestmark = pytest.mark.sampled(1)  # with --all, every one

HOUR = 3600


def images(watch: FleetWatch) -> list[str]:
    return sorted(str(watch.sim.deployment.cloud.ec2.instance(i).image_id) for i in watch.workers)


def never_fewer_than_at_the_start(watch: FleetWatch) -> None:
    start = watch.sim.scenario.worker_count
    assert min(point.workers_usable for point in watch.sim.points) == start
    assert max(len(watch.workers), *(point.workers_usable for point in watch.sim.points)) <= start + 1
    assert max(point.unschedulable_pods for point in watch.sim.points) == 0
    watch.checker.assert_only_safe_removals()


def test_all_workers_are_replaced_one_by_one() -> None:
    with watched("image-rollout") as good:
        assert images(good) == ["ami-good"] * 6
        assert not set(good.sim.starting_ids) & good.workers
        assert len(good.launched) == 6 and not good.never_joined
        never_fewer_than_at_the_start(good)


def test_a_broken_image_stops_after_one_worker_and_the_fleet_is_whole() -> None:
    with watched("image-rollout-bad") as bad:
        assert set(bad.sim.starting_ids) == bad.workers
        assert len(bad.launched) == 1 == len(bad.never_joined)
        never_fewer_than_at_the_start(bad)
        alerts = [m["Message"] for m in bad.sim.deployment.messages if "the roll-out is stopped" in m["Message"]]
        assert len(alerts) == 1
        assert "never joined" in alerts[0] and "version 1 of the launch template" in alerts[0]


@pytest.mark.whole
def test_a_fleet_of_one_launch_expires_spread_out_one_at_a_time_and_outside_the_closed_window() -> None:
    with watched("expiry-storm") as watch:
        start = watch.sim.scenario.start_at
        removed = sorted(visit.entered_at - start for visit in watch.visits("TerminateNodes"))
        assert not set(watch.sim.starting_ids) & watch.workers
        assert len(watch.workers) in (20, 21)
        assert not [at for at in removed if 4 * HOUR <= at < 5 * HOUR]
        assert removed[0] < 2.5 * HOUR and removed[9] > 3 * HOUR
        assert min(b - a for a, b in itertools.pairwise(removed)) >= 240
        assert min(point.workers_usable for point in watch.sim.points) == 20
        assert max(point.unschedulable_pods for point in watch.sim.points) == 0
        watch.checker.assert_only_safe_removals()
