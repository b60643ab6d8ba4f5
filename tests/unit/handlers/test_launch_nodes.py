"""LaunchNodes: launches exactly what was planned, however often and wherever it dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from handlers.launch_nodes import handler
from node_fleet.domain.model.errors import (
    LaunchConfigurationError,
    NoCapacityError,
    PausedError,
    QuotaExceededError,
)
from node_fleet.domain.model.fleet_state import Pause
from simulator.aws.faults import FaultRule
from tests.support.handlers.scale_up import ZONES, Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=10) as made:
        yield made


def test_launches_the_planned_workers_and_records_each(fleet: Bench) -> None:
    payload = handler(fleet.event(fleet.begin(), 3), None)
    operation = fleet.state().operation
    assert payload["launch"]["status"] == "launched"
    assert operation is not None and operation.phase == "verify"
    assert set(operation.instance_ids) == {i.instance_id for i in fleet.instances()}
    assert Counter(i.zone for i in fleet.instances()) == Counter(ZONES)


def test_a_repeated_step_launches_nothing_more(fleet: Bench) -> None:
    event = fleet.event(fleet.begin(), 2)
    first, second = handler(event, None), handler(event, None)
    assert first["operation"] == second["operation"]
    assert len(fleet.instances()) == 2


def test_every_instance_carries_its_tags_from_the_first_moment(fleet: Bench) -> None:
    handler(fleet.event(fleet.begin(), 2), None)
    calls = fleet.cloud.recorder.of("RunInstances")
    assert not fleet.cloud.recorder.of("CreateTags")
    for call in calls:
        tags = {t["Key"]: t["Value"] for t in call.parameters["TagSpecifications"][0]["Tags"]}
        assert {"Project", "Role", "ManagedBy", "Cluster", "Operation", "Slot", "Name", "TemplateVersion"} == set(tags)
        assert (tags["ManagedBy"], tags["Role"], tags["Cluster"]) == ("node-fleet", "k3s-worker", "test")
        assert call.parameters["LaunchTemplate"]["Version"] == "1"


def test_a_dry_run_plans_and_changes_nothing(fleet: Bench) -> None:
    run = fleet.begin(dry_run=True)
    before = fleet.state()
    payload = handler(fleet.event(run, 2), None)
    assert payload["launch"]["status"] == "dry_run"
    assert "would launch 2" in payload["outcome"]["text"]
    assert fleet.state() == before and not fleet.instances()


def test_a_pause_stops_it_before_the_first_launch(fleet: Bench) -> None:
    run = fleet.begin()
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + 600))
    with pytest.raises(PausedError, match="ann"):
        handler(fleet.event(run, 2), None)
    assert not fleet.instances()


def test_a_fleet_at_its_maximum_gets_only_what_fits(fleet: Bench) -> None:
    run = fleet.begin()
    handler(fleet.event(run, 8), None)
    fleet.tools.state.close_operation(run, fleet.state().memory)
    second = handler(fleet.event(fleet.begin(round=2), 4), None)
    assert len(fleet.instances()) == 10
    assert [s.outcome for s in fleet.operation(second).slots] == ["launched", "launched", "failed", "failed"]
    assert any("maximum" in note for note in second["notes"])


def test_a_partial_success_is_kept_when_the_quota_ends_it(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(code="VcpuLimitExceeded", az=ZONES[1])
    payload = handler(fleet.event(fleet.begin(), 3), None)
    assert payload["launch"]["status"] == "launched"
    assert len(fleet.instances()) == 1
    assert "L-1216C47A" in payload["alerts"]["rows"][0][1]


def test_nothing_launched_raises_the_class_that_says_who_must_act(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(code="VcpuLimitExceeded")
    with pytest.raises(QuotaExceededError, match="L-1216C47A"):
        handler(fleet.event(fleet.begin(), 2), None)
    assert rule.hits == 1


def test_every_pool_dry_is_said_and_remembered(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool()
    with pytest.raises(NoCapacityError, match="no capacity"):
        handler(fleet.event(fleet.begin(), 1), None)
    operation = fleet.state().operation
    assert operation is not None and len(operation.dry_pools) == 6


def test_a_missing_launch_template_is_named(fleet: Bench) -> None:
    lost = fleet.settings.launch_template_id
    text = f"The specified launch template, with template ID {lost}, does not exist."
    fleet.cloud.faults.inject(
        FaultRule(operation="RunInstances", code="InvalidLaunchTemplateId.NotFound", message=text)
    )
    with pytest.raises(LaunchConfigurationError, match=lost):
        handler(fleet.event(fleet.begin(), 1), None)


def test_ten_launches_beside_a_fleet_take_one_listing_of_instances(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.cloud.recorder.calls.clear()
    handler(fleet.event(run, 10), None)
    assert len(fleet.instances()) == 10
    assert len(fleet.cloud.recorder.of("DescribeInstances")) == 2, "one by the handler, one by this test"
