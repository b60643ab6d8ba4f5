"""The EC2 adapter on moto with injected faults: truth by tag, refusals as answers, changes that may be repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.ec2_instances import instance_of
from node_fleet.adapters.fleet_request import fleet_request
from node_fleet.domain.model.errors import Ec2Error, LaunchConfigurationError, ServerNotFoundError
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.model.snapshot import STATUS_CHECK, SYSTEM_CHECK, Instance, Market
from node_fleet.domain.scale_up.placement import Pool
from node_fleet.settings import Settings
from simulator.aws.faults import FaultRule
from tests.support.handlers.bench import MOTO_IMAGE, ZONES, Bench, bench
from tests.support.launches import request

REFUSALS = {
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "UnfulfillableCapacity": 500,
    "SpotMaxPriceTooLow": 400,
    "InsufficientFreeAddressesInSubnet": 400,
    "Unsupported": 400,
    "MaxSpotInstanceCountExceeded": 400,
    "VcpuLimitExceeded": 400,
    "InstanceLimitExceeded": 400,
    "RequestLimitExceeded": 503,
    "IdempotentParameterMismatch": 400,
    "UnauthorizedOperation": 403,
    "InvalidLaunchTemplateId.NotFound": 400,
}


@pytest.fixture(scope="module")
def module_bench() -> Iterator[Bench]:
    with bench() as made:
        yield made


@pytest.fixture
def fleet(module_bench: Bench) -> Iterator[Bench]:
    module_bench.cloud.faults.rules.clear()
    module_bench.cloud.recorder.forget()
    yield module_bench
    module_bench.cloud.faults.rules.clear()
    module_bench.cloud.ec2.page_size = None
    ids = [i.id for i in module_bench.cloud.ec2.instances() if i.state in ("pending", "running", "stopped")]
    if ids:
        module_bench.cloud.client("ec2").terminate_instances(InstanceIds=ids)
    module_bench.clock.advance(4000)


def wanted(made: Bench, *numbers: int, market: Market = "spot", zone: str = ZONES[0], **more: Any) -> LaunchRequest:
    return request(*numbers, zone=zone, subnet_id=made.settings.zones[zone], market=market, **more)


attempts = itertools.count()


def launch(made: Bench, number: int = 1, **more: Any) -> str:
    """One instance, by a request that was not sent before."""
    answer = made.tools.ec2.launch(wanted(made, number, attempt=next(attempts), **more), operation_id="up-1")
    (instance_id,) = answer.launched
    return instance_id


def foreign(made: Bench, **tags: str) -> str:
    pairs = [{"Key": k, "Value": v} for k, v in tags.items()]
    answer = made.cloud.client("ec2").run_instances(
        ImageId=MOTO_IMAGE,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": pairs}] if pairs else [],
    )
    instance_id: str = answer["Instances"][0]["InstanceId"]
    return instance_id


def test_an_instance_is_read_with_its_zone_market_and_operation(fleet: Bench) -> None:
    spot, demand = launch(fleet, 1), launch(fleet, 2, market="on-demand", zone=ZONES[1])
    found = {i.instance_id: i for i in fleet.instances()}
    assert (found[spot].market, found[spot].zone, found[spot].operation_id) == ("spot", ZONES[0], "up-1")
    assert (found[demand].market, found[demand].zone) == ("on-demand", ZONES[1])
    assert found[spot].launched_at <= int(fleet.clock.now())


@pytest.mark.parametrize("rule", ["instance-id", "private-dns-name"])
def test_an_instance_is_read_with_its_addresses_and_the_names_that_its_node_may_have(fleet: Bench, rule: Any) -> None:
    client, instance_id = fleet.cloud.client("ec2"), launch(fleet, 1)
    raw = client.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]
    found = Ec2Fleet(client, Settings(cluster_id="test", node_name_rule=rule)).find(
        [instance_id, "i-0ffffffffffffffff"]
    )
    dns_name = raw["PrivateDnsName"]
    allowed = (instance_id,) if rule == "instance-id" else (dns_name, dns_name.partition(".")[0])
    assert found.keys() == {instance_id}
    assert found[instance_id].node_names == allowed and found[instance_id].addresses == (raw["PrivateIpAddress"],)


@pytest.mark.parametrize("state", ["stopped", "shutting-down", "terminated"])
def test_only_pending_and_running_count(fleet: Bench, state: str) -> None:
    pending = launch(fleet, 1)
    running, other = launch(fleet, 2), launch(fleet, 3)
    client = fleet.cloud.client("ec2")
    fleet.clock.advance(60)
    if state == "stopped":
        client.stop_instances(InstanceIds=[other])
    else:
        client.terminate_instances(InstanceIds=[other])
        fleet.clock.advance(0 if state == "shutting-down" else 60)
    assert {i.instance_id for i in fleet.instances()} == {pending, running}


@pytest.mark.parametrize("page_size", [1, 2, 5])
def test_every_page_is_read(fleet: Bench, page_size: int) -> None:
    ids = {launch(fleet, n) for n in range(1, 8)}
    fleet.cloud.ec2.page_size = page_size
    assert {i.instance_id for i in fleet.instances()} == ids


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"ManagedBy": "node-fleet"},
        {"ManagedBy": "node-fleet", "Role": "k3s-worker", "Cluster": "another"},
        {"ManagedBy": "terraform", "Role": "k3s-worker", "Cluster": "test"},
        {"ManagedBy": "node-fleet", "Role": "k3s-master", "Cluster": "test"},
    ],
)
def test_a_machine_without_all_our_tags_is_not_ours(fleet: Bench, tags: dict[str, str]) -> None:
    other = foreign(fleet, **tags)
    assert fleet.instances() == ()
    assert fleet.tools.ec2.find_worker(other) is None


@pytest.mark.parametrize("price", ["", "0.02"])
def test_spot_is_asked_for_once_and_ends_by_termination(fleet: Bench, price: str) -> None:
    settings = Settings.from_env({**fleet.environment(), **({"SPOT_MAX_PRICE": price} if price else {})})
    asking = wanted(fleet, types=("t3.small", "t3a.small"), attempt=next(attempts))
    Ec2Fleet(fleet.cloud.client("ec2"), settings).launch(asking, operation_id="up-1")
    asked = fleet.cloud.recorder.of("CreateFleet")[-1].parameters
    assert (asked["Type"], asked["TargetCapacitySpecification"]["DefaultTargetCapacityType"]) == ("instant", "spot")
    assert asked["SpotOptions"] == {
        "AllocationStrategy": "price-capacity-optimized",
        "InstanceInterruptionBehavior": "terminate",
    }
    (config,) = asked["LaunchTemplateConfigs"]
    most = {"MaxPrice": price} if price else {}
    assert config["Overrides"] == [
        {"InstanceType": kind, "SubnetId": asking.subnet_id, **most} for kind in ("t3.small", "t3a.small")
    ]


@pytest.mark.parametrize("version", ["1", "2", "17"])
def test_the_explicit_version_is_asked_for_and_tagged(fleet: Bench, version: str) -> None:
    client = fleet.cloud.client("ec2")
    known = client.describe_launch_template_versions(LaunchTemplateId=fleet.settings.launch_template_id)
    for _ in range(len(known["LaunchTemplateVersions"]), int(version)):
        client.create_launch_template_version(
            LaunchTemplateId=fleet.settings.launch_template_id, LaunchTemplateData={"ImageId": MOTO_IMAGE}
        )
    settings = Settings.from_env({**fleet.environment(), "LAUNCH_TEMPLATE_VERSION": version})
    answer = Ec2Fleet(client, settings).launch(wanted(fleet, attempt=next(attempts)), operation_id="up-1")
    asked = fleet.cloud.recorder.of("CreateFleet")[-1].parameters
    assert asked["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"] == {
        "LaunchTemplateId": fleet.settings.launch_template_id,
        "Version": version,
    }
    tags = {t["Key"]: t["Value"] for t in asked["TagSpecifications"][0]["Tags"]}
    assert tags["TemplateVersion"] == version and len(answer.launched) == 1
    (launched,) = fleet.tools.ec2.find(answer.launched).values()
    assert launched.template_version == version


@pytest.mark.parametrize(
    ("version", "named"), [("", {"v1.35.4+k3s1", "0a1b2c3d"}), ("3", {"v1.35.4+k3s1", "0a1b2c3d"}), ("2", set())]
)
def test_what_an_earlier_version_of_the_launch_template_installs_is_not_tagged(version: str, named: set[str]) -> None:
    settings = Settings(
        launch_template_id="lt-1", launch_template_version="3", k3s_version="v1.35.4+k3s1", bootstrap_hash="0a1b2c3d"
    )
    asked = fleet_request(settings, request(1), "up-1", version)
    tags = {t["Key"]: t["Value"] for t in asked["TagSpecifications"][0]["Tags"]}
    assert tags["TemplateVersion"] == (version or "3")
    assert {tags[key] for key in ("K3sVersion", "Bootstrap") if key in tags} == named


@pytest.mark.parametrize("types", [("t3.small", "t3a.small"), ("t3a.small", "t3.small")])
def test_an_on_demand_instance_is_of_the_first_type_that_has_capacity(fleet: Bench, types: tuple[str, ...]) -> None:
    asking = wanted(fleet, 1, 2, market="on-demand", types=types, attempt=next(attempts))
    assert set(fleet.tools.ec2.launch(asking, operation_id="up-1").launched.values()) == {types[0]}
    asked = fleet.cloud.recorder.of("CreateFleet")[-1].parameters
    assert (asked["OnDemandOptions"], "SpotOptions" in asked) == ({"AllocationStrategy": "prioritized"}, False)


def test_what_ec2_does_not_launch_is_refused_by_type_beside_what_it_launches(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(instance_type="t3a.small")
    left = iter((False, False, True))
    fleet.cloud.ec2.dry_pool(instance_type="t3.small", code="VcpuLimitExceeded", when=lambda: next(left))
    asking = wanted(fleet, 1, 2, 3, types=("t3.small", "t3a.small"), attempt=next(attempts))
    answer = fleet.tools.ec2.launch(asking, operation_id="up-1")
    assert (set(answer.launched.values()), set(answer.launched)) == ({"t3.small"}, fleet.ids())
    assert [(r.pool, r.code) for r in answer.refusals] == [
        (Pool(ZONES[0], "t3a.small", "spot"), "InsufficientInstanceCapacity"),
        (Pool(ZONES[0], "t3.small", "spot"), "VcpuLimitExceeded"),
    ]
    assert {i.slot_numbers for i in fleet.instances()} == {(1, 2, 3)}


def test_an_error_that_names_no_type_concerns_each_type_of_the_request(fleet: Bench) -> None:
    errors = [{"ErrorCode": "UnfulfillableCapacity", "ErrorMessage": "why", "Lifecycle": "spot"}] * 2
    client = SimpleNamespace(create_fleet=lambda **_: {"FleetId": "fleet-1", "Errors": errors})
    answer = Ec2Fleet(client, fleet.settings).launch(
        wanted(fleet, types=("t3.small", "t3a.small")), operation_id="up-1"
    )
    assert [(r.pool.instance_type, r.message) for r in answer.refusals] == [("t3.small", "why"), ("t3a.small", "why")]


@pytest.mark.parametrize("market", ["spot", "on-demand"])
@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_a_refusal_is_an_answer_asked_for_once(fleet: Bench, code: str, market: Market) -> None:
    rule = FaultRule(operation="CreateFleet", code=code, status=REFUSALS[code], message="EC2's own words")
    fleet.cloud.faults.inject(rule)
    answer = fleet.tools.ec2.launch(wanted(fleet, market=market), operation_id="up-1")
    assert (answer.code, answer.message, answer.launched) == (code, "EC2's own words", {})
    assert rule.hits == 1


def test_a_lost_answer_is_told_apart_from_a_refusal(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="CreateFleet", code="ReplyLost", count=1))
    asking = wanted(fleet, 1, 2, attempt=next(attempts))
    first = fleet.tools.ec2.launch(asking, operation_id="up-1")
    assert first.code == "ConnectionError"
    second = fleet.tools.ec2.launch(asking, operation_id="up-1")
    assert fleet.ids() == set(second.launched)


def test_a_missing_template_setting_is_named(fleet: Bench) -> None:
    with pytest.raises(LaunchConfigurationError, match="launch_template_id is empty"):
        Ec2Fleet(fleet.cloud.client("ec2"), Settings()).launch(wanted(fleet), operation_id="up-1")


@pytest.mark.parametrize("known", [0, 1, 3])
def test_one_unknown_id_never_fails_the_question_about_the_others(fleet: Bench, known: int) -> None:
    ids = [launch(fleet, n) for n in range(1, known + 1)]
    unknown = f"i-{0:017x}"
    states = fleet.tools.ec2.states([unknown, *ids])
    assert states == {unknown: "gone", **dict.fromkeys(ids, "pending")}


def test_more_ids_than_one_filter_takes_are_asked_for_in_parts(fleet: Bench) -> None:
    ids = [f"i-{n:017x}" for n in range(450)]
    assert set(fleet.tools.ec2.states(ids).values()) == {"gone"}
    asked = fleet.cloud.recorder.of("DescribeInstances")
    assert [len(call.parameters["Filters"][0]["Values"]) for call in asked] == [200, 200, 50]


def test_terminating_twice_or_what_is_gone_succeeds(fleet: Bench) -> None:
    running = launch(fleet)
    fleet.tools.ec2.terminate([f"i-{1:017x}", running])
    fleet.tools.ec2.terminate([running])
    assert fleet.instances() == ()


@pytest.mark.parametrize("operation", ["TerminateInstances", "CreateTags", "DescribeInstances"])
def test_other_faults_of_ec2_are_one_sentence(fleet: Bench, operation: str) -> None:
    running = launch(fleet)
    fleet.cloud.faults.inject(FaultRule(operation=operation, code="UnauthorizedOperation", status=403))
    act = {
        "TerminateInstances": lambda: fleet.tools.ec2.terminate([running]),
        "CreateTags": lambda: fleet.tools.ec2.tag([running], {"JoinFailed": "true"}),
        "DescribeInstances": fleet.instances,
    }[operation]
    with pytest.raises(Ec2Error, match="UnauthorizedOperation"):
        act()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("OperationNotPermitted", "TerminationRefusedError"),
        ("UnauthorizedOperation", "TerminationRefusedError"),
        ("RequestLimitExceeded", "Ec2Error"),
    ],
)
def test_only_a_permanent_refusal_of_a_termination_is_final(fleet: Bench, code: str, error: str) -> None:
    running = launch(fleet)
    fleet.cloud.faults.inject(FaultRule(operation="TerminateInstances", code=code, status=400))
    with pytest.raises(Ec2Error, match=code) as caught:
        fleet.tools.ec2.terminate([running])
    assert type(caught.value).__name__ == error


def test_tags_show_and_a_machine_that_is_gone_needs_none(fleet: Bench) -> None:
    running = launch(fleet)
    fleet.tools.ec2.tag([f"i-{1:017x}", running], {"JoinFailed": "true"})
    assert [i.join_failed for i in fleet.instances()] == [True]


@pytest.mark.parametrize("count", [0, 2])
def test_no_server_or_an_ambiguous_one_is_refused_by_name(fleet: Bench, count: int) -> None:
    ids = [foreign(fleet, Role="k3s-master") for _ in range(count)]
    fleet.clock.advance(30)
    with pytest.raises(ServerNotFoundError, match=ids[0] if ids else "Role=k3s-master"):
        fleet.tools.ec2.server()


def test_of_two_servers_the_one_of_this_cluster_is_taken(fleet: Bench) -> None:
    foreign(fleet, Role="k3s-master")
    ours = foreign(fleet, Role="k3s-master", Cluster="test")
    fleet.clock.advance(30)
    assert fleet.tools.ec2.server().instance_id == ours


def test_another_clusters_server_is_never_taken_for_ours(fleet: Bench) -> None:
    foreign(fleet, Role="k3s-master", Cluster="another")
    fleet.clock.advance(30)
    with pytest.raises(ServerNotFoundError, match="Role=k3s-master"):
        fleet.tools.ec2.server()


def test_what_an_operation_launched_is_found_by_its_tags_in_whatever_state(fleet: Bench) -> None:
    first, second = launch(fleet, 1), launch(fleet, 2)
    fleet.tools.ec2.terminate([second])
    found = {instance.instance_id: instance for instance in fleet.tools.ec2.launched_by("up-1")}
    assert {i: one.slot_numbers for i, one in found.items()} == {first: (1,), second: (2,)}
    assert found[second].state in ("shutting-down", "terminated")
    assert fleet.tools.ec2.launched_by("up-2") == ()


def test_what_a_worker_was_launched_from_is_read_from_its_tags_and_from_ec2(fleet: Bench) -> None:
    settings = Settings.from_env({**fleet.environment(), "BOOTSTRAP_HASH": "b1", "K3S_VERSION": "v1.35.5+k3s1"})
    ec2 = Ec2Fleet(fleet.cloud.client("ec2"), settings)
    (instance_id,) = ec2.launch(wanted(fleet, attempt=next(attempts)), operation_id="up-1").launched
    found = ec2.find_worker(instance_id)
    assert found is not None
    assert (found.template_version, found.bootstrap_hash, found.k3s_version) == ("1", "b1", "v1.35.5+k3s1")
    assert (found.template_id, found.image_id) == (settings.launch_template_id, MOTO_IMAGE)
    assert found.subnet_id == settings.zones[ZONES[0]] and found.rotate == ""
    ec2.tag([instance_id], {"Rotate": "ana"})
    assert (again := ec2.find_worker(instance_id)) is not None and again.rotate == "ana"


def shown_with(fleet: Bench, settings: Settings, **changes: Any) -> Instance:
    """A worker that EC2 describes with these changes."""
    answer = fleet.cloud.client("ec2").describe_instances(InstanceIds=[launch(fleet)])
    answer["Reservations"][0]["Instances"][0].update(changes)
    client = mock.Mock()
    client.get_paginator.return_value.paginate.return_value = [answer]
    (found,) = Ec2Fleet(client, settings).instances()
    return found


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("", ()), ("ip-10-0-0-1", ("ip-10-0-0-1",)), ("ip-10-0-0-1.x.y", ("ip-10-0-0-1.x.y", "ip-10-0-0-1"))],
)
def test_a_node_has_the_private_dns_name_or_its_first_label_once_ec2_knows_it(
    fleet: Bench, name: str, allowed: tuple[str, ...]
) -> None:
    settings = replace(fleet.settings, node_name_rule="private-dns-name")
    assert shown_with(fleet, settings, PrivateDnsName=name).node_names == allowed


@pytest.mark.parametrize(
    ("tags", "version"),
    [
        ({"TemplateVersion": "3"}, "3"),
        ({"aws:ec2launchtemplate:version": "2"}, "2"),
        ({"TemplateVersion": "3", "aws:ec2launchtemplate:version": "2"}, "3"),
        ({}, ""),
    ],
)
def test_the_version_that_was_asked_for_comes_before_the_one_that_ec2_notes(
    fleet: Bench, tags: dict[str, str], version: str
) -> None:
    """EC2 notes the version that a CreateFleet request resolves to only for some requests."""
    every = [{"Key": key, "Value": value} for key, value in tags.items()]
    assert shown_with(fleet, fleet.settings, Tags=every).template_version == version


def test_the_image_of_a_template_version_is_read_and_an_unresolved_parameter_is_unknown(fleet: Bench) -> None:
    assert fleet.tools.ec2.launch_image("1") == MOTO_IMAGE
    answer = fleet.cloud.client("ec2").create_launch_template_version(
        LaunchTemplateId=fleet.settings.launch_template_id,
        LaunchTemplateData={"ImageId": "resolve:ssm:/aws/service/x"},
    )
    assert fleet.tools.ec2.launch_image(str(answer["LaunchTemplateVersion"]["VersionNumber"])) == ""
    assert fleet.cloud.recorder.of("DescribeLaunchTemplateVersions")[-1].parameters["ResolveAlias"] is True
    fleet.cloud.faults.inject(FaultRule(operation="DescribeLaunchTemplateVersions", code="UnauthorizedOperation"))
    with pytest.raises(Ec2Error, match="read version 1 of the launch template"):
        fleet.tools.ec2.launch_image("1")


def test_instances_whose_status_check_is_impaired_for_long_are_found_on_every_page() -> None:
    def status(instance_id: str, check: str, since: int | None) -> dict[str, Any]:
        detail = {"Name": "reachability", "Status": "failed"}
        when = {"ImpairedSince": datetime.fromtimestamp(since, UTC)} if since else {}
        return {"InstanceId": instance_id, check: {"Status": "impaired", "Details": [{**detail, **when}]}}

    pages = {
        "instance-status.status": [[status("i-1", "InstanceStatus", 100)], [status("i-2", "InstanceStatus", 101)]],
        "system-status.status": [[status("i-3", "SystemStatus", 100), status("i-4", "SystemStatus", None)]],
    }

    def paginate(Filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (wanted,) = Filters
        assert wanted["Values"] == ["impaired"]
        return [{"InstanceStatuses": page} for page in pages[wanted["Name"]]]

    client = SimpleNamespace(get_paginator=lambda name: SimpleNamespace(paginate=paginate))
    assert Ec2Fleet(client, Settings()).impaired(100) == {"i-1": STATUS_CHECK, "i-3": SYSTEM_CHECK}


@pytest.mark.parametrize(("raw", "text"), [({"Output": "k3s: exit 1"}, "k3s: exit 1"), ({}, "")])
def test_the_console_of_an_instance_is_read_and_may_be_empty(raw: dict[str, str], text: str) -> None:
    client = SimpleNamespace(get_console_output=lambda InstanceId: raw)
    assert Ec2Fleet(client, Settings()).console_output("i-1") == text


def test_a_reboot_is_asked_once_and_a_refusal_is_an_error() -> None:
    asked: list[Any] = []
    quiet = SimpleNamespace(reboot_instances=lambda **given: asked.append(given))
    Ec2Fleet(SimpleNamespace(), Settings(), launcher=quiet).reboot("i-1")
    assert asked == [{"InstanceIds": ["i-1"]}]


def test_a_refused_reboot_is_not_repeated(fleet: Bench) -> None:
    worker = fleet.running()
    fleet.cloud.faults.inject(FaultRule(operation="RebootInstances", code="RequestLimitExceeded", status=503))
    with pytest.raises(Ec2Error, match=f"cannot reboot {worker.instance_id}: RequestLimitExceeded"):
        fleet.tools.ec2.reboot(worker.instance_id)
    (call,) = fleet.cloud.recorder.of("RebootInstances")
    assert call.attempts == 1


@pytest.mark.parametrize(("text", "read"), [("4 of 4 in 45 s", "4 of 4 in 45 s"), ("4 of 4 in 45 s <b>", ""), ("", "")])
def test_a_worker_reports_its_images_in_one_form_only(text: str, read: str) -> None:
    raw = {"InstanceId": "i-1", "InstanceType": "t3.small", "Placement": {"AvailabilityZone": "a"}}
    raw |= {"State": {"Name": "running"}, "LaunchTime": datetime.now(UTC)}
    assert instance_of({**raw, "Tags": [{"Key": "ImagePull", "Value": text}]}, "instance-id").images == read
