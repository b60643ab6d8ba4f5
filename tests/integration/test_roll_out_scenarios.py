"""The scenarios of new images: the fleet never has fewer usable workers than at the start, and a broken image stops."""

from __future__ import annotations

from tests.support.scenario_watch import FleetWatch, watched


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
