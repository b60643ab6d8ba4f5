"""Off at night in the adapters: the order in the state item, the machine of the server, and the query that forbids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.errors import Ec2Error, LeaseLostError, MetricsUnavailableError, ServerNotFoundError
from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.domain.model.run import Run
from simulator.aws.faults import FaultRule
from tests.support import fake_prometheus
from tests.support.handlers.bench import MOTO_IMAGE, START, Bench, bench


@pytest.fixture(scope="module")
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def run(name: str, **changes: int) -> Run:
    return Run(execution_id=name, trigger="manual", started_at=START, **{"scheduled_at": 0, **changes})


def server(fleet: Bench) -> str:
    """A new server, and no other."""
    ec2 = fleet.cloud.client("ec2")
    for one in fleet.cloud.ec2.instances():
        ec2.terminate_instances(InstanceIds=[one.id])
    tags = [{"Key": "Role", "Value": "k3s-master"}, {"Key": "Cluster", "Value": "test"}]
    kinds = [{"ResourceType": "instance", "Tags": tags}]
    answer = ec2.run_instances(ImageId=MOTO_IMAGE, MinCount=1, MaxCount=1, TagSpecifications=kinds)
    return str(answer["Instances"][0]["InstanceId"])


def test_no_run_takes_the_lock_before_the_next_check_unless_an_order_came_since(fleet: Bench) -> None:
    state, now = fleet.tools.state, int(fleet.clock.now())
    order = Order(kind="sleep", by="ana", since=now, until=now + 9000)
    assert state.set_hibernate_order(order).hibernate_order == order
    held = replace(run("a"), fence=state.acquire(run("a")).state.fence)
    off = Hibernation(phase="off", since=now, idle_until=now + 600, order_seen=now, detail="it is on again at noon")
    state.save_hibernation(held, off)
    assert state.load().hibernation == off
    state.release(held)
    refused = state.acquire(run("b"))
    assert (refused.status, refused.state.hibernation) == ("off", off)
    assert refused.detail.startswith("the fleet is off; it is on again at noon; next check at 2026-09-21")
    fleet.clock.advance(599)
    assert state.acquire(run("b")).status == "off"
    fleet.clock.advance(1)
    taken = state.acquire(run("b"))
    assert taken.status == "acquired"
    later = replace(run("b"), fence=taken.state.fence)
    state.save_hibernation(later, replace(off, idle_until=now + 9000), replace(order, by="node-fleet"))
    assert state.load().hibernate_order == replace(order, by="node-fleet")
    state.release(later)
    assert state.acquire(run("c")).status == "off"
    state.set_hibernate_order(replace(order, kind="wake", since=now + 1))
    assert state.acquire(run("c")).status == "acquired"
    with pytest.raises(LeaseLostError):
        state.save_hibernation(later, off)


@pytest.mark.parametrize(
    "damaged",
    [
        {"S": "off"},
        {"M": {"phase": {"S": "off"}, "idle_until": {"S": "tomorrow"}}},
        {"M": {"phase": {"S": "nowhere"}, "idle_until": {"N": "9999999999"}}},
    ],
)
def test_a_damaged_record_holds_no_run_and_counts_as_off(fleet: Bench, damaged: Any) -> None:
    state, client = fleet.tools.state, fleet.cloud.client("dynamodb")
    client.update_item(
        TableName=fleet.tools.settings.state_table,
        Key={"cluster_id": {"S": fleet.tools.settings.cluster_id}},
        UpdateExpression="SET hibernation = :damaged, hibernate_order = :damaged REMOVE lock_owner, lock_expires_at",
        ExpressionAttributeValues={":damaged": damaged},
    )
    taken = state.acquire(run("d"))
    assert (taken.status, taken.state.hibernation.phase, taken.state.hibernate_order) == ("acquired", "off", None)


def test_the_server_is_found_stopped_and_stopping_or_starting_it_twice_changes_nothing(fleet: Bench) -> None:
    ec2, found = fleet.tools.ec2, server(fleet)
    fleet.clock.advance(60)
    assert (ec2.server_machine().instance_id, ec2.server_machine().state) == (found, "running")
    for _ in range(2):
        ec2.stop(found)
        assert ec2.server_machine().state == "stopping"
    with pytest.raises(ServerNotFoundError, match="is stopping, not running; start it in EC2 when it is stopped"):
        ec2.server()
    fleet.clock.advance(60)
    assert ec2.server_machine().state == "stopped"
    with pytest.raises(ServerNotFoundError, match=r"the K3s server i-\w+ is stopped, not running; start it in EC2"):
        ec2.server()
    ec2.start(found)
    assert ec2.server_machine().state == "pending"
    with pytest.raises(ServerNotFoundError, match="is pending, not running; EC2 starts it, and the next run asks"):
        ec2.server()
    fleet.clock.advance(60)
    ec2.start(found)
    assert ec2.server().instance_id == found


def test_a_refused_start_and_a_server_that_is_gone_are_named(fleet: Bench) -> None:
    ec2, found = fleet.tools.ec2, server(fleet)
    rule = FaultRule(service="ec2", operation="StartInstances", code="InsufficientInstanceCapacity", count=1)
    fleet.cloud.faults.inject(rule)
    with pytest.raises(Ec2Error, match=f"start the server {found}: InsufficientInstanceCapacity"):
        ec2.start(found)
    fleet.cloud.client("ec2").terminate_instances(InstanceIds=[found])
    with pytest.raises(ServerNotFoundError, match="no instance carries the tag Role=k3s-master"):
        ec2.server_machine()
    with pytest.raises(Ec2Error, match="stop the server i-00000000"):
        ec2.stop("i-00000000")


def test_the_values_of_a_query_are_those_of_its_series() -> None:
    found = fake_prometheus.bench()
    found.session.texts = {"jobs": [({"a": "1"}, 2.0), ({"a": "2"}, 0.0)]}
    assert found.reader.values("hibernate_unless", "jobs", fake_prometheus.NOW) == (2.0, 0.0)


def test_a_query_that_prometheus_refuses_has_no_value() -> None:
    found = fake_prometheus.bench()
    found.session.refuses = {"jobs"}
    with pytest.raises(MetricsUnavailableError, match="refuses query hibernate_unless"):
        found.reader.values("hibernate_unless", "jobs", fake_prometheus.NOW)
