"""The launcher on the simulated EC2: what is tried next after each refusal, what is kept, how patient it is."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from handlers.launch_nodes import handler as launch_nodes
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.launcher import Launcher, launch_facts, placement_from
from node_fleet.domain.model.errors import LaunchError, NoCapacityError, NodeFleetError
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchRequest, Operation
from node_fleet.domain.model.snapshot import Instance, LaunchImage, Market
from node_fleet.domain.scale_up.requests import LaunchAnswer
from node_fleet.settings import Settings
from simulator.aws.faults import FaultRule
from simulator.aws.recorder import AwsCall
from tests.support.handlers.bench import ZONES, Bench, bench
from tests.support.launches import codes_that_close

TYPES = ("t3.small", "t3a.small")


@pytest.fixture(scope="module")
def module_bench() -> Iterator[Bench]:
    with bench(max_workers=10, instance_types=",".join(TYPES), spot_percent=100) as made:
        yield made


@pytest.fixture
def fleet(module_bench: Bench) -> Iterator[Bench]:
    module_bench.cloud.recorder.forget()
    yield module_bench
    module_bench.cloud.faults.rules.clear()
    ids = [i.instance_id for i in module_bench.instances()]
    if ids:
        module_bench.cloud.client("ec2").terminate_instances(InstanceIds=ids)
    module_bench.clock.advance(4000)
    module_bench.cloud.client("dynamodb").delete_item(
        TableName=module_bench.settings.state_table, Key={"cluster_id": {"S": "test"}}
    )


names = itertools.count()


def launch(made: Bench, count: int = 1) -> dict[str, Any]:
    return launch_nodes(made.event(made.begin(f"exec-{next(names)}"), count), None)


def asked(made: Bench) -> list[AwsCall]:
    return made.cloud.recorder.of("CreateFleet")


def places(made: Bench) -> list[tuple[str, Market, tuple[str, ...], int]]:
    """Zone, market, types and number of instances of each request."""
    zones = {subnet: zone for zone, subnet in made.settings.zones.items()}
    found = []
    for call in asked(made):
        overrides = call.parameters["LaunchTemplateConfigs"][0]["Overrides"]
        capacity = call.parameters["TargetCapacitySpecification"]
        (zone,) = {zones[override["SubnetId"]] for override in overrides}
        types = tuple(override["InstanceType"] for override in overrides)
        found.append((zone, capacity["DefaultTargetCapacityType"], types, capacity["TotalTargetCapacity"]))
    return found


@pytest.mark.parametrize("code", [code for code in codes_that_close("the pool") if code != "InsufficientCapacity"])
def test_a_dry_spot_pool_is_asked_once_and_the_next_zone_takes_over(fleet: Bench, code: str) -> None:
    fleet.cloud.ec2.dry_pool(az=ZONES[0], market="spot", code=code)
    answer = launch(fleet)
    assert places(fleet) == [(zone, "spot", TYPES, 1) for zone in ZONES[:2]]
    assert all(call.attempts == 1 for call in asked(fleet))
    until = int(fleet.clock.now()) + fleet.settings.pool_back_off_seconds
    assert {(dry.zone, dry.instance_type, dry.until) for dry in fleet.operation(answer).dry_pools} == {
        (ZONES[0], kind, until) for kind in TYPES
    }
    assert any("no capacity" in note and ZONES[0] in note for note in answer["notes"])


def test_a_zone_in_which_ec2_does_not_offer_the_types_as_spot_is_no_fault_of_the_template(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(az=ZONES[0], market="spot", code="InvalidFleetConfiguration")
    answer = launch(fleet)
    assert places(fleet) == [(zone, "spot", TYPES, 1) for zone in ZONES[:2]]
    assert (len(fleet.instances()), answer["alerts"]) == (1, [])


def test_types_then_zones_then_on_demand(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(market="spot")
    launch(fleet)
    assert places(fleet) == [
        *[(zone, "spot", TYPES, 1) for zone in ZONES],
        (ZONES[2], "on-demand", TYPES, 1),
    ]
    assert len({call.parameters["ClientToken"] for call in asked(fleet)}) == 4


def test_of_a_type_without_capacity_a_dear_one_and_a_cheap_one_the_cheap_one_is_launched(fleet: Bench) -> None:
    fleet.cloud.fleets.prices.update({"t3.small": 0.02, "t3a.small": 0.01})
    launch(fleet)
    fleet.cloud.fleets.prices.clear()
    assert [i.instance_type for i in fleet.instances()] == ["t3a.small"]


@pytest.mark.parametrize("count", [1, 4, 6])
def test_slots_of_one_zone_are_one_request(fleet: Bench, count: int) -> None:
    launch(fleet, count)
    sizes = [len(range(n, count, 3)) for n in range(min(count, 3))]
    assert places(fleet) == [(zone, "spot", TYPES, size) for zone, size in zip(ZONES, sizes, strict=False)]


def test_of_a_partial_answer_what_was_launched_is_kept_and_the_rest_is_tried_elsewhere(fleet: Bench) -> None:
    left = itertools.chain([False], itertools.repeat(True))
    fleet.cloud.ec2.dry_pool(az=ZONES[0], when=lambda: next(left))
    answer = launch(fleet, 4)
    assert places(fleet) == [
        (ZONES[0], "spot", TYPES, 2),
        (ZONES[1], "spot", TYPES, 1),
        (ZONES[2], "spot", TYPES, 1),
        (ZONES[1], "spot", TYPES, 1),
    ]
    assert Counter(i.zone for i in fleet.instances()) == {ZONES[0]: 1, ZONES[1]: 2, ZONES[2]: 1}
    assert set(fleet.operation(answer).instance_ids) == fleet.ids()


def test_instances_that_an_answer_does_not_name_are_found_by_their_tag(fleet: Bench) -> None:
    real = Ec2Fleet.launch

    def empty(ec2: Ec2Fleet, asking: LaunchRequest, *, operation_id: str, **more: Any) -> LaunchAnswer:
        real(ec2, asking, operation_id=operation_id, **more)
        return LaunchAnswer()

    with mock.patch.object(Ec2Fleet, "launch", empty):
        answer = launch(fleet, 2)
    assert set(fleet.operation(answer).instance_ids) == fleet.ids() and len(fleet.ids()) == 2
    assert answer["notes"] == []


def test_an_answer_without_instances_or_errors_closes_the_pools_that_were_offered(fleet: Bench) -> None:
    with (
        mock.patch.object(Ec2Fleet, "launch", lambda *_, **__: LaunchAnswer()),
        pytest.raises(NoCapacityError, match=r"UnfulfillableCapacity for t3a\.small spot"),
    ):
        launch(fleet)


@pytest.mark.parametrize("times", [1, 3])
def test_a_type_that_ec2_throttles_is_requested_again_with_a_new_token(fleet: Bench, times: int) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="RunInstances", code="RequestLimitExceeded", count=2 * times))
    launch(fleet)
    assert places(fleet) == [(ZONES[0], "spot", TYPES, 1)] * (times + 1)
    assert len({call.parameters["ClientToken"] for call in asked(fleet)}) == times + 1
    assert len(fleet.instances()) == 1


def test_types_that_ec2_throttles_without_end_are_given_up_within_the_time_of_the_step(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="RunInstances", code="RequestLimitExceeded"))
    began = fleet.clock.now()
    with pytest.raises(LaunchError, match="throttles"):
        launch(fleet, 3)
    assert fleet.clock.now() - began <= fleet.settings.launch_time_seconds + 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_spot_quota_is_met_once_and_the_rest_goes_on_demand(fleet: Bench, count: int) -> None:
    fleet.cloud.ec2.dry_pool(market="spot", code="MaxSpotInstanceCountExceeded")
    answer = launch(fleet, count)
    assert [market for _, market, _, _ in places(fleet)] == ["spot", *["on-demand"] * min(count, 3)]
    assert Counter(i.zone for i in fleet.instances()) == {
        z: len(range(n, count, 3)) for n, z in enumerate(ZONES[:count])
    }
    assert answer["alerts"]["rows"][0][0] == "quota_exceeded" and "L-34B43A08" in answer["alerts"]["rows"][0][1]


def test_a_pool_that_ran_dry_for_one_slot_is_not_asked_for_the_next(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(az=ZONES[0], instance_type="t3a.small")
    launch(fleet, 6)
    assert rule.hits == 1 and len(fleet.instances()) == 6


def test_a_full_subnet_closes_its_zone(fleet: Bench) -> None:
    rule = fleet.cloud.ec2.dry_pool(az=ZONES[0], code="InsufficientFreeAddressesInSubnet")
    launch(fleet, 4)
    assert [zone for zone, *_ in places(fleet)].count(ZONES[0]) == 1 and rule.hits == len(TYPES)
    assert {i.zone for i in fleet.instances()} == {ZONES[1], ZONES[2]}


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "InstanceLimitExceeded"])
@pytest.mark.parametrize("lucky", [0, 1, 3])
def test_a_quota_of_both_markets_ends_the_run_and_keeps_what_was_launched(fleet: Bench, code: str, lucky: int) -> None:
    count = iter(range(100))
    fleet.cloud.faults.inject(FaultRule(operation="RunInstances", code=code, when=lambda _: next(count) >= lucky))
    if lucky:
        answer = launch(fleet, 4)
        assert answer["launch"]["status"] == "launched" and "L-1216C47A" in answer["alerts"]["rows"][0][1]
        assert Counter(s.outcome for s in fleet.operation(answer).slots) == {"launched": lucky, "failed": 4 - lucky}
    else:
        with pytest.raises(NodeFleetError, match="L-1216C47A"):
            launch(fleet, 4)
    assert len(fleet.instances()) == lucky
    markets = [market for _, market, _, _ in places(fleet)]
    assert markets.count("on-demand") == 1 and markets.index("on-demand") == len(markets) - 1
    held = {r.instance_id for r in fleet.state().reservations}
    assert held == {i.instance_id for i in fleet.instances()}


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "InternalError", "Unavailable"])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_throttling_is_waited_out_with_the_same_token(fleet: Bench, code: str, times: int) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code=code, status=503, count=times))
    launch(fleet)
    calls = asked(fleet)
    assert len(calls) == times + 1 and len({c.parameters["ClientToken"] for c in calls}) == 1
    pauses = [b.at - a.at for a, b in itertools.pairwise(calls)]
    assert all(later > earlier for earlier, later in itertools.pairwise(pauses))
    assert len(fleet.instances()) == 1


def test_throttling_without_end_is_given_up_within_the_step_s_time(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="RequestLimitExceeded", status=503))
    began = fleet.clock.now()
    with pytest.raises(LaunchError, match="throttles"):
        launch(fleet, 3)
    assert fleet.clock.now() - began <= fleet.settings.launch_time_seconds + 1


@pytest.mark.parametrize("lost", ["ReplyLost", "ConnectionRefused"])
def test_an_answer_that_got_lost_launches_nothing_twice(fleet: Bench, lost: str) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code=lost, count=1))
    launch(fleet, 2)
    assert len(fleet.instances()) == 2


def test_without_any_answer_the_request_keeps_its_token_and_no_other_follows(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="ReplyLost"))
    with pytest.raises(LaunchError, match="does not answer"):
        launch(fleet, 2)
    assert len(asked(fleet)) > 2 and len({call.parameters["ClientToken"] for call in asked(fleet)}) == 1
    assert len(fleet.instances()) == 1


def test_a_token_used_before_with_other_parameters_is_looked_up_by_tag(fleet: Bench) -> None:
    run = fleet.begin("mismatch")
    event = fleet.event(run, 1)
    fleet.cloud.ec2.delays.invisible_seconds = 1.0
    first = launch_nodes(event, None)
    fleet.cloud.ec2.delays.invisible_seconds = 0.0
    operation = fleet.operation(first)
    slot = replace(operation.slots[0], outcome="planned", instance_id="", launched_at=0)
    fleet.tools.state.save_operation(run, operation.with_slot(slot))
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="IdempotentParameterMismatch"))
    begun = fleet.clock.now()
    second = launch_nodes(event, None)
    assert fleet.clock.now() - begun < 6, "what is found is not searched again"
    assert fleet.operation(second).slots[0].instance_id == operation.slots[0].instance_id
    assert (len(fleet.instances()), second["notes"]) == (1, [])


def test_a_recorded_request_is_sent_again_as_it_was_although_a_pool_is_in_back_off_meanwhile(fleet: Bench) -> None:
    run = fleet.begin("repeated")
    event = fleet.event(run, 2)
    first = fleet.operation(launch_nodes(event, None))
    (sent, *_) = asked(fleet)
    slots = tuple(replace(s, outcome="planned", instance_id="", launched_at=0, attempt=0) for s in first.slots)
    until = int(fleet.clock.now()) + 600
    dry = PoolBackOff(zone=ZONES[0], instance_type=TYPES[0], market="spot", until=until)
    request = LaunchRequest(
        slots=(1,), zone=ZONES[0], subnet_id=fleet.settings.zones[ZONES[0]], market="spot", types=TYPES
    )
    unrecorded = replace(first, phase="begin", slots=slots, request=request, dry_pools=(dry,))
    fleet.tools.state.save_operation(run, unrecorded)
    with mock.patch.object(Ec2Fleet, "launched_by", lambda *_: ()):
        second = fleet.operation(launch_nodes(event, None))
    assert asked(fleet)[2].parameters == sent.parameters
    assert set(second.instance_ids) == set(first.instance_ids) == fleet.ids()


def test_a_token_used_before_fails_the_slot_when_no_instance_has_its_tag(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="IdempotentParameterMismatch"))
    began, searches = fleet.clock.now(), list[float]()

    def search(*_: object) -> tuple[Instance, ...]:
        searches.append(round(fleet.clock.now() - began))
        return ()

    with (
        mock.patch.object(Ec2Fleet, "launched_by", search),
        pytest.raises(NodeFleetError, match="IdempotentParameterMismatch"),
    ):
        launch(fleet, 1)
    assert (fleet.instances(), searches) == ((), [0, 2, 6])


@pytest.mark.parametrize(
    "code", ["UnauthorizedOperation", "InvalidLaunchTemplateId.VersionNotFound", "InvalidSubnetID.NotFound"]
)
def test_a_request_that_can_never_succeed_is_asked_once(fleet: Bench, code: str) -> None:
    rule = fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code=code, message="EC2's own words"))
    with pytest.raises(NodeFleetError, match="EC2's own words"):
        launch(fleet, 3)
    assert rule.hits == 1


def test_the_wishes_come_from_the_settings() -> None:
    settings = Settings.from_mapping({"placement": "round-robin", "on_demand_minimum": 1, "subnets": "a=subnet-1"})
    placement = placement_from(settings)
    assert (placement.order, placement.on_demand_minimum, placement.zones) == ("round-robin", 1, {"a": "subnet-1"})


@pytest.mark.parametrize(
    ("changes", "version", "expected"),
    [
        ({}, "4", ("lt-1", "4", "ami-1", "b1", "v1.35.5+k3s1")),
        ({}, "5", ("lt-1", "5", "", "", "")),
        ({"launch_template_version": "5"}, "4", ("lt-1", "4", "ami-1", "", "")),
        ({"launch_template_id": ""}, "4", ("", "", "ami-1", "b1", "v1.35.5+k3s1")),
        ({"drift": "off"}, "4", ("", "", "", "", "")),
    ],
    ids=["configured", "another version", "an older version", "no template", "off"],
)
def test_what_a_worker_would_be_launched_from_is_known_for_the_configured_version(
    changes: dict[str, str], version: str, expected: tuple[str, ...]
) -> None:
    configured = {
        "launch_template_id": "lt-1", "launch_template_version": "4", "bootstrap_hash": "b1",
        "k3s_version": "v1.35.5+k3s1", "subnets": "a=subnet-1, b=subnet-2", "instance_types": "t3.small,t3a.small",
    }  # fmt: skip
    settings = Settings.from_mapping(configured | changes)
    today = launch_facts(settings, LaunchImage(version="4", image_id="ami-1", at=9, answered_at=7), version)
    found = (today.template_id, today.template_version, today.image_id, today.bootstrap_hash, today.k3s_version)
    assert found == expected
    is_on = settings.drift != "off"
    assert (today.image_at, today.subnet_ids) == ((7, ("subnet-1", "subnet-2")) if is_on else (0, ()))
    assert today.instance_types == (TYPES if is_on else ())


def launcher(made: Bench) -> Launcher:
    """One that records nothing."""

    def nothing(operation: Operation) -> None: ...

    return Launcher(
        ec2=made.tools.ec2, state=made.tools.state, clock=made.tools.clock, settings=made.settings, guard=nothing,
        record=nothing,
    )  # fmt: skip


def test_a_request_whose_instances_are_all_known_is_not_sent_again(fleet: Bench) -> None:
    operation = fleet.operation(launch(fleet, 2))
    fleet.cloud.recorder.forget()
    (first, second) = operation.slots
    request = LaunchRequest(slots=(1,), zone=first.zone, subnet_id=first.subnet_id, market="spot", types=TYPES)
    assert launcher(fleet).launch(replace(operation, request=request)) == operation and operation.request is None
    waiting = replace(operation, slots=(first, replace(second, outcome="planned", instance_id="")))
    found = launcher(fleet).launch(replace(waiting, request=replace(request, slots=(2,), attempt=9)))
    assert [call.parameters["TargetCapacitySpecification"]["TotalTargetCapacity"] for call in asked(fleet)] == [1]
    assert [slot.outcome for slot in found.slots] == ["launched", "launched"]


def test_a_slot_whose_zone_a_deployment_removed_is_launched_in_another_zone(fleet: Bench) -> None:
    operation = fleet.operation(launch(fleet))
    slot = replace(operation.slots[0], outcome="planned", instance_id="", zone="removed", subnet_id="gone", attempt=1)
    (found,) = launcher(fleet).launch(operation.with_slot(slot)).slots
    assert (found.outcome, found.zone in ZONES, found.subnet_id) == ("launched", True, fleet.settings.zones[found.zone])


def test_capacity_is_reserved_for_planned_slots_alone(fleet: Bench) -> None:
    operation = fleet.operation(launch(fleet, 3))
    slots = tuple(
        replace(slot, outcome=outcome, instance_id="")
        for slot, outcome in zip(operation.slots, ("planned", "failed", "planned"), strict=True)
    )
    before = {one.key for one in fleet.state().reservations}
    new = replace(operation, operation_id="up-new", slots=slots)
    assert launcher(fleet).reserve(new) == new
    assert {one.key for one in fleet.state().reservations} - before == {"up-new:1", "up-new:3"}


@pytest.mark.parametrize(("pause", "requests"), [(30.0, 3), (30.5, 2), (60.0, 2), (60.5, 1)])
def test_a_throttled_request_is_repeated_while_the_next_pause_ends_within_the_launch_time(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch, pause: float, requests: int
) -> None:
    """The launch time is 60 s."""
    monkeypatch.setattr("node_fleet.adapters.launcher.retry_pause_seconds", lambda *_, **__: pause)
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="RequestLimitExceeded"))
    with pytest.raises(LaunchError):
        launch(fleet)
    assert len(asked(fleet)) == requests
