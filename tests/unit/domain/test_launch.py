"""What a refused launch means: what is tried next, what is remembered, which error and alert follow."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.fleet_state import FleetState, Notice, Reservation
from node_fleet.domain.model.memory import BackOff, Memory, PoolBackOff
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import Market
from node_fleet.domain.scale_up.launch import (
    circuit_breaker_alert,
    count_workers,
    failure_alert,
    mark_under_notice,
    merge_pool_back_offs,
    operation_id_of,
    record_launched,
    reservations_to_release,
    retry_pause_seconds,
    with_promised,
)
from node_fleet.domain.scale_up.placement import Pool, pools_in_back_off
from node_fleet.domain.scale_up.refusals import Refusal, launch_error, pools_closed_by, refusal_alerts
from node_fleet.domain.scale_up.requests import open_pools
from tests.support.launches import NOW, ZONES, codes_that_close, instance, operation, placement, slot

SPOT_A = Pool("a", "t3.small", "spot")
NO_SPOT_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


def refusal(code: str, pool: Pool = SPOT_A) -> Refusal:
    return Refusal(pool=pool, code=code, message=f"{code} from EC2")


def test_the_operation_of_a_round_has_the_same_name_however_often_the_step_runs() -> None:
    assert operation_id_of("exec", 1) == operation_id_of("exec", 1)
    assert len({operation_id_of(e, r) for e in ("x", "y") for r in (1, 2, 3)}) == 6


@pytest.mark.parametrize("code", codes_that_close("every pool of the market"))
@pytest.mark.parametrize(("market", "other"), [("spot", "on-demand"), ("on-demand", "spot")])
def test_a_quota_of_one_market_closes_its_pools_and_the_other_market_is_next(
    market: Market, other: Market, code: str
) -> None:
    dry = pools_closed_by(refusal(code, Pool("a", "t3.small", market)), placement(), NOW + 600)
    assert {d.market for d in dry} == {market} and len(dry) == 6
    following = open_pools(
        slot(outcome="planned", market=market), placement(), tuple(ZONES), pools_in_back_off(dry, NOW)
    )
    assert {pool.market for pool in following} == {other}


def test_an_account_that_never_used_spot_is_told_which_role_is_missing() -> None:
    assert "AWSServiceRoleForEC2Spot" in refusal(NO_SPOT_ROLE).sentence


def test_a_subnet_without_addresses_closes_its_zone_for_every_type_and_market() -> None:
    dry = pools_closed_by(refusal("InsufficientFreeAddressesInSubnet"), placement(), NOW + 600)
    assert {(d.zone, d.instance_type, d.market) for d in dry} == {
        ("a", t, m) for t in ("t3.small", "t3a.small") for m in ("spot", "on-demand")
    }


@pytest.mark.parametrize("code", codes_that_close(""))
def test_other_refusals_say_nothing_about_a_pool(code: str) -> None:
    assert pools_closed_by(refusal(code), placement(), NOW + 600) == ()


@pytest.mark.parametrize(
    ("code", "error", "alert"),
    [
        ("VcpuLimitExceeded", "QuotaExceededError", "quota_exceeded"),
        ("InstanceLimitExceeded", "QuotaExceededError", "quota_exceeded"),
        ("MaxSpotInstanceCountExceeded", "NoCapacityError", "quota_exceeded"),
        ("InsufficientInstanceCapacity", "NoCapacityError", ""),
        ("InvalidLaunchTemplateId.NotFound", "LaunchConfigurationError", "launch_configuration"),
        ("InvalidLaunchTemplateId.VersionNotFound", "LaunchConfigurationError", "launch_configuration"),
        ("UnauthorizedOperation", "LaunchConfigurationError", "launch_configuration"),
        (NO_SPOT_ROLE, "NoCapacityError", "quota_exceeded"),
        ("InvalidParameterValue", "LaunchConfigurationError", "launch_configuration"),
        ("RequestLimitExceeded", "LaunchError", ""),
        ("SomethingNewAtAws", "LaunchError", ""),
    ],
)
def test_the_error_tells_who_must_act_and_the_alert_names_it(code: str, error: str, alert: str) -> None:
    raised = launch_error([refusal(code)])
    assert type(raised).__name__ == error
    assert code in str(raised) and "t3.small spot in a" in str(raised)
    assert [a.kind for a in refusal_alerts([refusal(code)])] == ([alert] if alert else [])


def test_a_final_refusal_outweighs_the_pools_that_ran_dry_before_it() -> None:
    raised = launch_error([refusal("InsufficientInstanceCapacity"), refusal("VcpuLimitExceeded")])
    assert type(raised).__name__ == "QuotaExceededError" and "L-1216C47A" in str(raised)


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded"])
def test_the_quota_is_named_as_the_console_names_it(code: str) -> None:
    (alert,) = refusal_alerts([refusal(code)])
    assert "L-" in alert.text and code in alert.text


def test_of_two_memories_of_one_pool_the_later_counts_and_the_past_is_dropped() -> None:
    def pool(until: int, zone: str = "a") -> PoolBackOff:
        return PoolBackOff(zone=zone, instance_type="t3.small", market="spot", until=until)

    assert merge_pool_back_offs([pool(NOW + 5), pool(NOW, "b")], [pool(NOW + 3), pool(NOW + 9, "c")], NOW) == (
        pool(NOW + 5),
        pool(NOW + 9, "c"),
    )


def test_pauses_double_are_capped_and_differ_between_operations() -> None:
    pauses = [retry_pause_seconds("up-1", n) for n in range(8)]
    assert all(b > a for a, b in itertools.pairwise(pauses[:4])) and max(pauses) <= 8
    assert retry_pause_seconds("up-2", 3) != pauses[3]


@pytest.mark.parametrize(
    ("reservations", "notices", "expected"),
    [
        ([], [], 2),
        ([("up-1:1", "", 1)], [], 3),
        ([("up-0:7", "", 1)], [], 2),
        ([("up-1:1", "1", 1)], [], 2),
        ([("up-1:1", "9", 1)], [], 3),
        ([("up-1:1", "", 0)], [], 2),
        ([], ["1"], 1),
        ([("up-1:1", "9", 1)], ["9"], 2),
    ],
)
def test_promised_workers_count_until_ec2_lists_them_and_those_under_notice_do_not(
    reservations: list[tuple[str, str, int]], notices: list[str], expected: int
) -> None:
    def full(number: str) -> str:
        return f"i-{int(number):017x}" if number else ""

    state = FleetState(
        cluster_id="c",
        reservations=tuple(Reservation(key=k, instance_id=full(i), until=NOW + u) for k, i, u in reservations),
        notices=tuple(Notice(instance_id=full(n), kind="spot", at=NOW) for n in notices),
    )
    assert count_workers([instance(1, operation_id="up-0", slot="7"), instance(2)], state, NOW) == expected


@given(st.integers(1, 6), st.data())
def test_each_slot_of_a_request_counts_once_whatever_of_it_is_listed_or_recorded(
    slots: int, data: st.DataObject
) -> None:
    launched = data.draw(st.integers(0, slots))
    listed = data.draw(st.sets(st.integers(1, launched))) if launched else set()
    recorded = data.draw(st.sets(st.integers(1, launched))) if launched else set()
    tag = " ".join(map(str, range(1, slots + 1)))
    held = tuple(
        Reservation(
            key=f"up-1:{number}", instance_id=instance(number).instance_id if number in recorded else "", until=NOW + 1
        )
        for number in range(1, slots + 1)
    )
    found = [instance(number, operation_id="up-1", slot=tag) for number in listed]
    assert count_workers(found, FleetState(cluster_id="c", reservations=held), NOW) == slots


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"instance_id": ""}, True),
        ({"at": NOW - 119}, True),
        ({"at": NOW - 120}, False),
        ({"until": NOW}, False),
        ({"pool": ""}, False),
        ({"instance_id": f"i-{1:017x}"}, False),
    ],
)
def test_a_promised_instance_counts_as_a_pending_worker_while_ec2_may_not_list_it(
    changes: dict[str, Any], counts: bool
) -> None:
    promised = Reservation(key="int-1:1", instance_id="i-0a", until=NOW + 900, pool="zone-b/t3.small/spot", at=NOW)
    state = FleetState(cluster_id="c", reservations=(replace(promised, **changes),))
    found = with_promised([instance(1)], state, NOW)
    assert found[0] == instance(1) and len(found) == 1 + counts
    for new in found[1:]:
        assert (new.zone, new.instance_type, new.market, new.state) == ("zone-b", "t3.small", "spot", "pending")
        assert new.instance_id == (changes.get("instance_id", "i-0a") or "int-1:1")


@pytest.mark.parametrize(("lives", "outcome"), [(True, "launched"), (False, "failed")])
def test_what_was_launched_before_a_death_is_taken_up_from_ec2(lives: bool, outcome: str) -> None:
    planned = operation(slot(1, outcome="planned"), slot(2, outcome="planned"), slot(3))
    state = "running" if lives else "terminated"
    found = record_launched(planned, [instance(9, state=state, slot="2"), instance(8, slot="3")])
    assert [s.outcome for s in found.slots] == ["planned", outcome, "launched"]
    assert found.slots[1].instance_id == f"i-{9:017x}" and found.slots[2].instance_id == f"i-{3:017x}"


def test_a_closed_operation_keeps_only_the_room_of_instances_that_ec2_may_not_list_yet() -> None:
    closed = operation(slot(1, outcome="failed"), slot(2), slot(3, launched_at=NOW - 120))
    assert reservations_to_release(closed, NOW) == ("up-1:1", "up-1:3")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("QuotaExceededError", "quota_exceeded"),
        ("NoCapacityError", "no_capacity"),
        ("LaunchError", "scale_up_failed"),
        ("PausedError", ""),
        ("LeaseLostError", ""),
        ("NothingJoinedError", ""),
    ],
)
def test_only_faults_are_alerted(error: str, kind: str) -> None:
    alert = failure_alert(error, "why")
    assert (alert.kind if alert else "") == kind


@pytest.mark.parametrize(("failures", "opens"), [(1, False), (2, False), (3, True), (4, True), (9, True)])
def test_joins_that_fail_in_a_row_open_the_breaker_with_one_alert(failures: int, opens: bool) -> None:
    memory = Memory(back_offs=(BackOff(key="join", failures=failures, until=NOW + 900),))
    alert = circuit_breaker_alert(memory, "join", Policy(), NOW)
    assert (alert is not None) is opens
    if alert:
        assert "15 minutes" in alert.text and f"{failures} scale-ups" in alert.text


def test_what_is_reserved_for_an_instance_whose_removal_is_set_aside_counts_nowhere() -> None:
    held = Reservation(key="up-1:1", instance_id="i-0a", until=NOW + 900, pool="zone-b/t3.small/spot", at=NOW)
    removal = SetAside(
        instance_id="i-0a", node_name="i-0a", kind="termination", operation_id="down-1", since=NOW, detail="it is stuck"
    )
    state = FleetState(cluster_id="c", reservations=(held,), set_aside=(removal,))
    assert (count_workers([instance(1)], state, NOW), with_promised([instance(1)], state, NOW)) == (1, (instance(1),))


def test_the_instances_with_a_notice_are_under_notice_and_the_others_are_not() -> None:
    notices = [Notice(instance_id=instance(2).instance_id, kind="spot", at=NOW)]
    found = mark_under_notice([instance(1), instance(2)], notices)
    assert [i.under_notice for i in found] == [False, True]


@given(st.text(max_size=20), st.integers(0, 9))
def test_a_pause_is_between_half_of_its_longest_and_all_of_it(operation_id: str, attempt: int) -> None:
    longest = min(8, 2**attempt)
    assert longest / 2 <= retry_pause_seconds(operation_id, attempt) <= longest
