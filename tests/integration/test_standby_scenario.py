"""The scenario of standby workers: made in quiet time, started in a sale, refused once, renewed one at a time."""

from __future__ import annotations

import pytest

from tests.support.scenario_watch import FleetWatch, watched

MINUTE = 60
MAKING, FIRST, SECOND, RENEWING = (0, 40), (40, 60), (130, 150), (190, 300)


def called(watch: FleetWatch, operation: str, span: tuple[int, int]) -> list[str]:
    """The instances of these calls of node-fleet that succeeded within some minutes of the scenario."""
    start = watch.sim.scenario.start_at
    calls = [c for c in watch.sim.deployment.cloud.recorder.of(operation) if c.function and c.error is None]
    return [i for c in calls if span[0] <= (c.at - start) / MINUTE < span[1] for i in c.parameters["InstanceIds"]]


def standby(watch: FleetWatch) -> set[str]:
    found = watch.sim.deployment.cloud.ec2.instances()
    tags = {i.id: {tag["key"]: tag["value"] for tag in i.get_tags()} for i in found if i.state == "stopped"}
    return {instance_id for instance_id, own in tags.items() if own.get("Standby") == "ready"}


@pytest.mark.whole
def test_standby_workers_are_made_started_refilled_and_renewed() -> None:
    with watched("standby") as watch:
        made = called(watch, "StopInstances", MAKING)
        assert len(made) == len(set(made)) == 2
        assert called(watch, "StartInstances", MAKING) == []
        assert set(called(watch, "StartInstances", FIRST)) == set(made)
        joins = {i: watch.usable_at[i] for i in watch.usable_at if i not in made}
        assert joins, "others were launched beside them"
        second = called(watch, "StartInstances", SECOND)
        assert second, "the worker in the other zone is started"
        refused = [c for c in watch.sim.deployment.cloud.recorder.of("StartInstances") if c.error]
        assert refused, "EC2 has no capacity in one zone"
        assert {e.status for e in watch.sim.executions} == {"SUCCEEDED"}
        renewed = called(watch, "TerminateInstances", RENEWING)
        assert set(made) <= set(renewed) or len(renewed) >= 2
        assert len(standby(watch)) == 2
        assert not standby(watch) & set(renewed)
        assert watch.over_maximum == []
        nodes = {node.instance_id for node in watch.sim.cluster.nodes()}
        assert not nodes & standby(watch), "a stopped worker has no Node"
        watch.checker.assert_only_safe_removals()
