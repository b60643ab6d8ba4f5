"""The EC2 adapter on moto with injected faults: truth by tag, refusals as answers, changes that may be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.domain.model.errors import Ec2Error, LaunchConfigurationError, ServerNotFoundError
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.settings import Settings
from simulator.aws.faults import FaultRule
from tests.support.handlers.bench import MOTO_IMAGE, ZONES, Bench, bench

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


def slot(made: Bench, number: int = 1, *, market: str = "spot", zone: str = ZONES[0]) -> LaunchSlot:
    return LaunchSlot(
        number=number,
        zone=zone,
        subnet_id=made.settings.zones[zone],
        instance_type="t3.small",
        market="spot" if market == "spot" else "on-demand",
    )


def launch(made: Bench, number: int = 1, **more: Any) -> str:
    answer = made.tools.ec2.launch(slot(made, number, **more), operation_id="up-1", token=f"{id(made)}-{number}-{more}")
    assert answer.instance_id, answer
    return answer.instance_id


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
def test_39_only_pending_and_running_count(fleet: Bench, state: str) -> None:
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
def test_39_every_page_is_read(fleet: Bench, page_size: int) -> None:
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
def test_38_a_machine_without_all_our_tags_is_not_ours(fleet: Bench, tags: dict[str, str]) -> None:
    other = foreign(fleet, **tags)
    assert fleet.instances() == ()
    assert fleet.tools.ec2.find_worker(other) is None


@pytest.mark.parametrize("price", ["", "0.02"])
def test_38_spot_is_asked_for_once_and_ends_by_termination(fleet: Bench, price: str) -> None:
    settings = Settings.from_env({**fleet.environment(), **({"SPOT_MAX_PRICE": price} if price else {})})
    Ec2Fleet(fleet.cloud.client("ec2"), settings).launch(slot(fleet), operation_id="up-1", token=f"price{price}")
    options = fleet.cloud.recorder.of("RunInstances")[-1].parameters["InstanceMarketOptions"]
    expected = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    assert options == {"MarketType": "spot", "SpotOptions": {**expected, **({"MaxPrice": price} if price else {})}}


@pytest.mark.parametrize("version", ["1", "2", "17"])
def test_42_the_explicit_version_is_asked_for_and_tagged(fleet: Bench, version: str) -> None:
    client = fleet.cloud.client("ec2")
    known = client.describe_launch_template_versions(LaunchTemplateId=fleet.settings.launch_template_id)
    for _ in range(len(known["LaunchTemplateVersions"]), int(version)):
        client.create_launch_template_version(
            LaunchTemplateId=fleet.settings.launch_template_id, LaunchTemplateData={"ImageId": MOTO_IMAGE}
        )
    settings = Settings.from_env({**fleet.environment(), "LAUNCH_TEMPLATE_VERSION": version})
    answer = Ec2Fleet(client, settings).launch(slot(fleet), operation_id="up-1", token=f"version{version}")
    asked = fleet.cloud.recorder.of("RunInstances")[-1].parameters
    assert asked["LaunchTemplate"] == {"LaunchTemplateId": fleet.settings.launch_template_id, "Version": version}
    tags = {t["Key"]: t["Value"] for t in asked["TagSpecifications"][0]["Tags"]}
    assert tags["TemplateVersion"] == version and answer.instance_id


def test_one_instance_is_asked_for_at_a_time(fleet: Bench) -> None:
    launch(fleet)
    asked = fleet.cloud.recorder.of("RunInstances")[-1].parameters
    assert (asked["MinCount"], asked["MaxCount"]) == (1, 1)


@pytest.mark.parametrize("market", ["spot", "on-demand"])
@pytest.mark.parametrize("code", sorted(REFUSALS))
def test_a_refusal_is_an_answer_asked_for_once(fleet: Bench, code: str, market: str) -> None:
    rule = FaultRule(operation="RunInstances", code=code, status=REFUSALS[code], message="EC2's own words")
    fleet.cloud.faults.inject(rule)
    answer = fleet.tools.ec2.launch(slot(fleet, market=market), operation_id="up-1", token="refused")
    assert (answer.code, answer.message, answer.instance_id) == (code, "EC2's own words", "")
    assert rule.hits == 1


def test_a_lost_answer_is_told_apart_from_a_refusal(fleet: Bench) -> None:
    fleet.cloud.faults.inject(FaultRule(operation="RunInstances", code="ReplyLost", count=1))
    first = fleet.tools.ec2.launch(slot(fleet), operation_id="up-1", token="lost")
    assert first.code == "ConnectionError"
    second = fleet.tools.ec2.launch(slot(fleet), operation_id="up-1", token="lost")
    assert [i.instance_id for i in fleet.instances()] == [second.instance_id]


def test_a_missing_template_setting_is_named(fleet: Bench) -> None:
    with pytest.raises(LaunchConfigurationError, match="LAUNCH_TEMPLATE_ID"):
        Ec2Fleet(fleet.cloud.client("ec2"), Settings()).launch(slot(fleet), operation_id="up-1", token="x")


@pytest.mark.parametrize("known", [0, 1, 3])
def test_34_one_unknown_id_never_fails_the_question_about_the_others(fleet: Bench, known: int) -> None:
    ids = [launch(fleet, n) for n in range(1, known + 1)]
    unknown = f"i-{0:017x}"
    states = fleet.tools.ec2.states([unknown, *ids])
    assert states == {unknown: "gone", **dict.fromkeys(ids, "pending")}


def test_more_ids_than_one_filter_takes_are_asked_for_in_parts(fleet: Bench) -> None:
    ids = [f"i-{n:017x}" for n in range(450)]
    assert set(fleet.tools.ec2.states(ids).values()) == {"gone"}
    assert len(fleet.cloud.recorder.of("DescribeInstances")) == 3


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


def test_40_what_an_operation_launched_is_found_by_its_tags_in_whatever_state(fleet: Bench) -> None:
    first, second = launch(fleet, 1), launch(fleet, 2)
    fleet.tools.ec2.terminate([second])
    found = fleet.tools.ec2.launched_by("up-1")
    assert {n: f.instance_id for n, f in found.items()} == {1: first, 2: second}
    assert found[2].state in ("shutting-down", "terminated")
    assert fleet.tools.ec2.launched_by("up-2") == {}


@pytest.mark.parametrize("live_first", [True, False])
def test_of_two_instances_in_one_slot_the_one_that_lives_is_found_in_whichever_order_ec2_lists_them(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch, live_first: bool
) -> None:
    dead = launch(fleet, zone=ZONES[0])
    fleet.tools.ec2.terminate([dead])
    live = launch(fleet, zone=ZONES[1])
    describe = Ec2Fleet._describe

    def listed(ec2: Ec2Fleet, filters: Any) -> list[Any]:
        return sorted(describe(ec2, filters), key=lambda raw: (raw["InstanceId"] == live) is not live_first)

    monkeypatch.setattr(Ec2Fleet, "_describe", listed)
    assert fleet.tools.ec2.launched_by("up-1")[1].instance_id == live
