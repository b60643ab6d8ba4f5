"""LaunchNodes: launches exactly what is planned, however often it is repeated and wherever it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from handlers.fail_scale_up import handler as fail_scale_up
from handlers.launch_nodes import handler
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import (
    LaunchConfigurationError,
    NoCapacityError,
    PausedError,
    QuotaExceededError,
)
from node_fleet.domain.model.memory import Memory, RollOut
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.model.weight import Weight
from node_fleet.domain.scale_up.requests import LaunchAnswer
from node_fleet.payload import to_payload
from simulator.aws.faults import FaultRule
from tests.support.handlers.bench import ZONES, Bench


def test_launches_the_planned_workers_and_records_each(fleet: Bench) -> None:
    payload = handler(fleet.event(fleet.begin(), 3), None)
    operation = fleet.state().operation
    assert payload["launch"]["status"] == "launched"
    assert operation is not None and operation.phase == "verify"
    assert set(operation.instance_ids) == fleet.ids()
    assert Counter(i.zone for i in fleet.instances()) == Counter(ZONES)


def test_before_each_request_the_item_names_it_and_after_a_pause_or_a_death_every_instance(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker needs a second pool; the pause comes with its launch, before the second worker's request."""
    fleet.cloud.ec2.dry_pool(az=ZONES[0])
    launch, asked = Ec2Fleet.launch, []

    def launched(ec2: Ec2Fleet, request: LaunchRequest, *, operation_id: str, **more: Any) -> LaunchAnswer:
        operation = fleet.state().operation
        assert operation is not None and operation.request == request
        asked.append(request.zone)
        answer = launch(ec2, request, operation_id=operation_id, **more)
        if answer.launched:
            fleet.pause()
        return answer

    monkeypatch.setattr(Ec2Fleet, "launch", launched)
    with pytest.raises(PausedError):
        handler(fleet.event(fleet.begin(), 2), None)
    operation = fleet.state().operation
    assert operation is not None
    assert (asked, set(operation.instance_ids)) == ([ZONES[0], ZONES[1]], fleet.ids())
    assert len(fleet.ids()) == 1


def test_a_pause_before_the_first_request_leaves_no_reservation_once_the_run_has_failed(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = StateStore.reserve

    def reserved(store: StateStore, *words: Any, **options: Any) -> bool:
        fleet.pause()
        return reserve(store, *words, **options)

    monkeypatch.setattr(StateStore, "reserve", reserved)
    event = fleet.event(fleet.begin(), 2)
    with pytest.raises(PausedError):
        handler(event, None)
    assert [len(fleet.state().reservations), fleet.ids()] == [2, set()]
    fail_scale_up({**event, "failure": {"Error": "PausedError", "Cause": "paused"}}, None)
    assert (fleet.state().operation, fleet.state().reservations) == (None, ())


def test_every_instance_carries_its_tags_from_its_launch(fleet: Bench) -> None:
    handler(fleet.event(fleet.begin(), 2), None)
    assert not fleet.cloud.recorder.of("CreateTags")
    for call in fleet.cloud.recorder.of("CreateFleet"):
        tagged = {each["ResourceType"] for each in call.parameters["TagSpecifications"]}
        assert tagged == {"fleet", "instance", "volume"}
        tags = {t["Key"]: t["Value"] for t in call.parameters["TagSpecifications"][0]["Tags"]}
        assert {"Project", "Role", "ManagedBy", "Cluster", "Operation", "Slot", "Name", "TemplateVersion"} == set(tags)
        assert (tags["ManagedBy"], tags["Role"], tags["Cluster"]) == ("node-fleet", "k3s-worker", "test")
        (config,) = call.parameters["LaunchTemplateConfigs"]
        assert config["LaunchTemplateSpecification"]["Version"] == "1"
    described = fleet.cloud.client("ec2").describe_instances(InstanceIds=sorted(fleet.ids()))["Reservations"]
    for instance in (one for reservation in described for one in reservation["Instances"]):
        assert {t["Key"] for t in instance["Tags"]} >= set(tags)


def test_a_dry_run_plans_and_changes_nothing(fleet: Bench) -> None:
    run = fleet.begin(dry_run=True)
    before = fleet.state()
    payload = handler(fleet.event(run, 2), None)
    assert payload["launch"]["status"] == "dry_run"
    assert "would launch 2" in payload["outcome"]["text"]
    assert fleet.state() == before and not fleet.instances()


@pytest.mark.settings(max_workers=10)
def test_a_fleet_at_its_maximum_gets_only_what_fits(fleet: Bench) -> None:
    run = fleet.begin()
    handler(fleet.event(run, 8), None)
    fleet.tools.state.close_operation(run, fleet.state().memory)
    second = handler(fleet.event(fleet.begin(round=2), 4), None)
    assert len(fleet.instances()) == 10
    assert [s.outcome for s in fleet.operation(second).slots] == ["launched", "launched", "failed", "failed"]
    assert any("maximum" in note for note in second["notes"])


@pytest.mark.settings(min_workers=1, max_workers=1)
def test_capacity_that_is_used_meanwhile_leaves_nothing_to_launch(fleet: Bench) -> None:
    fleet.running()
    assert handler(fleet.event(fleet.begin(), 1), None)["launch"]["status"] == "none"


@pytest.mark.settings(max_usd_per_hour=0.12, max_workers=10, spot_percent=0, instance_types=("t3.small", "t3.medium"))
def test_in_a_fleet_near_its_limit_only_types_are_asked_that_fit_and_what_was_reserved_becomes_what_was_launched(
    fleet: Bench,
) -> None:
    """An hour costs 0.0264 or 0.0528 USD, and 0.0076 for volume and address: 3 small ones fit, 1 medium and 1 small."""
    run = fleet.begin()
    first = handler(fleet.event(run, 1), None)
    asked = [
        [o["InstanceType"] for o in call.parameters["LaunchTemplateConfigs"][0]["Overrides"]]
        for call in fleet.cloud.recorder.of("CreateFleet")
    ]
    assert asked == [["t3.small", "t3.medium"]]
    (slot,) = fleet.operation(first).slots
    assert slot.weight.micro_usd == 60_430, "the dearer type was reserved"
    assert [r.weight for r in fleet.state().reservations] == [Weight()]
    fleet.tools.state.close_operation(run, fleet.state().memory)
    second = handler(fleet.event(fleet.begin(round=2), 4), None)
    assert [s.outcome for s in fleet.operation(second).slots] == ["launched", "launched", "failed", "failed"]
    assert {i.instance_type for i in fleet.instances()} == {"t3.small"} and len(fleet.instances()) == 3
    assert any("max_usd_per_hour: 0.1021 of 0.12 USD an hour" in note for note in second["notes"])


def test_a_partial_success_is_kept_when_a_quota_of_both_markets_ends_it(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(code="VolumeLimitExceeded", az=ZONES[1])
    payload = handler(fleet.event(fleet.begin(), 3), None)
    assert payload["launch"]["status"] == "launched"
    assert len(fleet.instances()) == 1
    assert "L-7A658B76" in payload["alerts"]["rows"][0][1]


def test_with_the_on_demand_quota_used_up_the_same_step_launches_spot(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(code="VcpuLimitExceeded", market="on-demand")
    payload = handler(fleet.event(fleet.begin(), 4), None)
    assert [(i.market, i.state) for i in fleet.instances()] == [("spot", "pending")] * 4
    assert rule.hits == 1 and payload["alerts"]["rows"][0][0] == "quota_exceeded"


def test_nothing_launched_raises_the_class_that_says_what_an_operator_must_do(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(code="VcpuLimitExceeded")
    with pytest.raises(QuotaExceededError, match="L-1216C47A"):
        handler(fleet.event(fleet.begin(), 2), None)
    assert rule.hits == 2


def test_every_pool_without_capacity_is_recorded_and_not_asked_while_in_back_off(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool()
    run = fleet.begin()
    with pytest.raises(NoCapacityError, match="no capacity"):
        handler(fleet.event(run, 1), None)
    operation = fleet.state().operation
    assert operation is not None and len(operation.dry_pools) == 6
    ended = replace(operation.dry_pools[0], instance_type="m5.large", until=int(fleet.clock.now()))
    memory = Memory(dry_pools=(ended, *operation.dry_pools))
    fleet.tools.state.close_operation(run, memory)
    fleet.cloud.recorder.forget()
    with pytest.raises(NoCapacityError, match="asks the first of them again in 10 min"):
        handler({**fleet.event(run, 1), "memory": to_payload(memory)}, None)
    assert fleet.cloud.recorder.of("CreateFleet") == []


def test_a_missing_launch_template_is_named(fleet: Bench) -> None:
    lost = fleet.settings.launch_template_id
    text = f"The specified launch template, with template ID {lost}, does not exist."
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="InvalidLaunchTemplateId.NotFound", message=text))
    with pytest.raises(LaunchConfigurationError, match=lost):
        handler(fleet.event(fleet.begin(), 1), None)


@pytest.mark.settings(max_workers=10)
def test_ten_launches_beside_a_fleet_take_one_listing_of_instances(fleet: Bench) -> None:
    run = fleet.begin()
    fleet.cloud.recorder.forget()
    handler(fleet.event(run, 10), None)
    assert len(fleet.instances()) == 10
    assert len(fleet.cloud.recorder.of("DescribeInstances")) == 2, "one by the handler, one by this test"


@pytest.mark.settings(k3s_version="v1.36.2+k3s1", launch_template_version="2")
def test_no_worker_is_launched_with_a_newer_k3s_than_the_server_has(fleet: Bench) -> None:
    run = fleet.begin()
    older = RollOut(server_version="v1.35.5+k3s1")
    with pytest.raises(LaunchConfigurationError, match="node-fleet upgrade"):
        handler({**fleet.event(run, 1), "memory": to_payload(Memory(roll_out=older))}, None)
    assert fleet.cloud.recorder.of("CreateFleet") == [] and fleet.state().operation is None
    known = Memory(roll_out=replace(older, good_version="1"))
    handler({**fleet.event(run, 1), "memory": to_payload(known)}, None)
    operation = fleet.state().operation
    assert operation is not None and operation.template_version == "1"
