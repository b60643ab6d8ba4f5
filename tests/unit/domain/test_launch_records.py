"""What a launch leaves in the record: promised workers, ended instances, pools in back-off, and the sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_fleet.domain.model.fleet_state import FleetState, Reservation
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_up.launch import (
    dry_run_sentence,
    ended_launches,
    launch_notes,
    launch_sentence,
    operation_id_of,
    record_ends,
    record_launched,
    with_promised,
)
from tests.support.launches import NOW, instance, operation, placement, slot

ONE, TWO = (f"i-{n:017x}" for n in (1, 2))
DRY = "Server.InsufficientInstanceCapacity"


def test_the_name_of_an_operation_stays_the_same_in_every_version() -> None:
    """A run of a new version finds the instances of an older one by it."""
    assert operation_id_of("exec-1", 1) == "up-005e5a000055"


@pytest.mark.parametrize(("market", "shown"), [("spot", "spot"), ("on-demand", "on-demand")])
def test_a_promised_worker_has_the_place_of_its_launch(market: str, shown: str) -> None:
    reservation = Reservation(key="up-1:1", until=NOW + 9, pool=f"b/t3a.small/{market}", at=NOW - 5)
    state = FleetState(cluster_id="c", reservations=(reservation,))
    (promised,) = with_promised((), state, NOW)
    assert promised == Instance(
        instance_id="up-1:1",
        zone="b",
        instance_type="t3a.small",
        market=shown,  # type: ignore[arg-type]
        state="pending",
        launched_at=NOW - 5,
    )
    named = replace(state, reservations=(replace(reservation, instance_id=ONE),))
    assert [one.instance_id for one in with_promised((), named, NOW)] == [ONE]


def ended(reasons: dict[str, tuple[str, str]], *, detail: str = "EC2 reports terminated") -> Operation:
    slots = (slot(1, outcome="failed", detail=detail), slot(2))
    return record_ends(operation(*slots), reasons, placement(), now=NOW, until=NOW + 600)


def test_an_ended_instance_gets_ec2s_reason_and_closes_its_pool() -> None:
    found = ended({ONE: (DRY, "no capacity")})
    first, second = found.slots
    assert (first.end_code, first.end_message) == (DRY, "no capacity")
    assert first.detail == "EC2 reports terminated: no capacity"
    assert second == slot(2)
    assert [(r.code, r.instance_id) for r in ended_launches(found)] == [(DRY, ONE)]
    assert found.dry_pools == (PoolBackOff(zone="a", instance_type="t3.small", market="spot", until=NOW + 600),)


@pytest.mark.parametrize("message", ["", "the user ended it"])
def test_an_end_for_another_reason_closes_no_pool(message: str) -> None:
    found = ended({ONE: ("Client.UserInitiatedShutdown", message)})
    assert found.slots[0].detail == f"EC2 reports terminated: {message or 'Client.UserInitiatedShutdown'}"
    assert (ended_launches(found), found.dry_pools) == ((), ())


def test_long_reasons_are_cut() -> None:
    first = ended({ONE: (DRY, "x" * 999)}).slots[0]
    assert (len(first.end_message), len(first.detail)) == (300, 300)


@pytest.mark.parametrize("state", ["pending", "running", "shutting-down", "terminated"])
def test_an_instance_of_an_interrupted_step_takes_the_first_planned_slot_of_its_request(state: str) -> None:
    planned = operation(slot(1, outcome="planned"), slot(2, outcome="planned"), slot(3, outcome="planned"))
    found = record_launched(planned, [instance(1, slot="2 3", state=state, instance_type="t3.large")])
    lives = state in ("pending", "running")
    assert [s.outcome for s in found.slots] == ["planned", "launched" if lives else "failed", "planned"]
    taken = found.slots[1]
    assert (taken.instance_id, taken.instance_type, taken.launched_at) == (ONE, "t3.large", NOW - 3600)
    assert taken.detail == ("" if lives else "the instance was terminated before it joined")
    assert record_launched(found, [instance(1, slot="2 3", state=state)]) == found


def test_of_two_instances_for_one_slot_the_one_that_runs_counts() -> None:
    planned = operation(slot(1, outcome="planned"))
    dead, alive = instance(1, slot="1", state="terminated"), instance(2, slot="1")
    assert record_launched(planned, [dead, alive]).slots[0].instance_id == TWO
    assert record_launched(planned, [alive, dead]).slots[0].instance_id == TWO


def test_the_sentences_name_each_instance_and_each_slot_without_one() -> None:
    mixed = operation(slot(1), slot(2, outcome="failed", instance_id="", detail="no capacity"))
    assert launch_sentence(mixed) == f"1 of 2 launched: {ONE} (t3.small spot in a)"
    assert launch_sentence(operation(mixed.slots[1])) == "0 of 1 launched"
    assert launch_notes(mixed, ()) == ("slot 2 was not launched: no capacity",)
    assert dry_run_sentence(mixed.slots) == "dry run: would launch 2: t3.small spot in a, t3.small spot in a"
