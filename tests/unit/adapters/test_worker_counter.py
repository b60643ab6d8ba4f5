"""How many workers count against the maximum, and when EC2 lists its instances for that."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from node_fleet.adapters.launcher import InstanceListing, WorkerCounter, check_slots
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_up.join import NodeList
from node_fleet.settings import Settings
from tests.support.launches import NOW, instance, operation, slot

CLOCK = SimpleNamespace(now=lambda: NOW)


class Ec2:
    """Lists two instances and records what is asked."""

    def __init__(self, *found: Instance) -> None:
        self.found = {one.instance_id: one for one in found}
        self.listings = 0
        self.ended: list[str] = []

    def instances(self) -> tuple[Instance, ...]:
        self.listings += 1
        return instance(1), instance(2)

    def find(self, ids: object) -> dict[str, Instance]:
        return self.found

    def end_reasons(self, ids: list[str]) -> dict[str, tuple[str, str]]:
        self.ended += ids
        return {}


def at_version(version: int) -> FleetState:
    return FleetState(cluster_id="c", slots_version=version)


@pytest.mark.parametrize("version", [0, 1, 5])
def test_without_a_listing_ec2_is_asked_whatever_the_version(version: int) -> None:
    ec2 = Ec2()
    assert WorkerCounter(ec2, CLOCK)(at_version(version)) == 2  # type: ignore[arg-type]
    assert ec2.listings == 1


@pytest.mark.parametrize(("version", "workers", "listings"), [(3, 2, 1), (4, 1, 0), (5, 2, 1)])
def test_a_listing_serves_the_version_of_its_reservations_only(version: int, workers: int, listings: int) -> None:
    ec2 = Ec2()
    count = WorkerCounter(ec2, CLOCK, InstanceListing(instances=(instance(1),), version=4))  # type: ignore[arg-type]
    assert (count(at_version(version)), ec2.listings) == (workers, listings)


def test_a_listing_serves_the_next_version_after_a_reservation_of_this_execution_and_no_other() -> None:
    ec2 = Ec2()
    count = WorkerCounter(ec2, CLOCK)  # type: ignore[arg-type]
    count(at_version(4))
    count.reserved()
    count(at_version(5))
    assert ec2.listings == 1
    count(at_version(5))
    assert ec2.listings == 2, "without a reservation in between the count was refused"
    count.reserved()
    count(at_version(7))
    assert ec2.listings == 3


def test_a_reservation_that_exists_already_leaves_the_listing_valid_for_its_version() -> None:
    ec2 = Ec2()
    count = WorkerCounter(ec2, CLOCK, InstanceListing(instances=(instance(1),), version=4))  # type: ignore[arg-type]
    count.reserved()
    assert (count(at_version(4)), ec2.listings) == (1, 0)


def test_ec2_is_asked_only_for_the_end_of_instances_that_ended_since_the_last_check() -> None:
    begun = operation(slot(1, outcome="failed"), slot(2), slot(3))
    ec2 = Ec2(instance(2, state="terminated"), instance(3))
    services = SimpleNamespace(clock=CLOCK, settings=Settings(), ec2=ec2)
    found = check_slots(services, begun, NodeList(nodes=(), source="prometheus"))
    assert [s.outcome for s in found.slots] == ["failed", "failed", "launched"]
    assert ec2.ended == [slot(2).instance_id]


def test_an_instance_that_ended_before_the_last_check_prolongs_no_back_off() -> None:
    begun = operation(slot(1, outcome="failed", end_code="Server.InsufficientInstanceCapacity"), slot(2))
    services = SimpleNamespace(clock=CLOCK, settings=Settings(), ec2=Ec2(instance(2)))
    assert check_slots(services, begun, NodeList(nodes=(), source="prometheus")) == begun
