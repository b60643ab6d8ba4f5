"""Standby workers: which step a quiet tick makes, which slot one serves, and which removed worker becomes one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.disruption.drift import LaunchFacts, with_standby_workers
from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.memory import BackOff, Memory, Replacement, RollOut
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import Dispute, Instance, Snapshot, StandbyWorker
from node_fleet.domain.model.weight import LimitUse
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility, Kept
from node_fleet.domain.scale_down.selection import Plan, choose_stopped, to_standby
from node_fleet.domain.scale_up.join import back_off_key, final_join_progress, update_slots
from node_fleet.domain.scale_up.placement import Placement, Pool
from node_fleet.domain.scale_up.standby import (
    not_started,
    refill_pools,
    refused_refill,
    started,
    tags_after,
    with_standby,
)
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.standby import evaluate_standby
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.settings import Settings
from tests.support.decisions import START, pods, snapshot, worker, workers
from tests.support.inspected_nodes import inspected_node
from tests.support.tiers import examples

POLICY = Policy(standby_workers=2, min_workers=2)
ZONES = {"a": "subnet-a", "b": "subnet-b"}
PLACEMENT = Placement(zones=ZONES, instance_types=("t3.small", "t3.medium"))


def stopped(number: int, **changes: Any) -> StandbyWorker:
    fields = {"instance_id": f"i-s{number}", "zone": "a", "instance_type": "t3.small", "launched_at": START - 5000}
    return StandbyWorker(**{**fields, **changes})


def decided(*standby: StandbyWorker, policy: Policy = POLICY, memory: Memory | None = None, **changes: Any) -> Decision:
    """The decision of a quiet tick of four workers with these standby workers."""
    seen = snapshot(standby=standby, **{"workers": workers(4, market="on-demand"), **changes})
    return decide(seen, memory or Memory(), policy, START)


def new_worker(age: int) -> tuple[Any, ...]:
    """Four workers, and one of that age that was launched to become a standby worker."""
    return (*workers(4), worker("new", refill=True, market="on-demand", launched_at=START - age))


def text_of(decision: Decision) -> str:
    return next((check.text for check in decision.evidence if check.name == "standby"), "")


# which step -------------------------------------------------------------------------------------------------------


def test_without_standby_workers_nothing_is_checked_and_without_one_wanted_the_rest_ends() -> None:
    none = replace(POLICY, standby_workers=0)
    assert text_of(decided(policy=none)) == ""
    decision = decided(stopped(1), policy=none)
    assert (decision.action, decision.rule, decision.replace) == ("none", "standby", "i-s1")


@pytest.mark.parametrize(("have", "action", "count"), [(0, "scale_up", 1), (1, "scale_up", 1), (2, "none", 0)])
def test_a_quiet_tick_launches_one_at_a_time_until_all_are_there(have: int, action: str, count: int) -> None:
    decision = decided(*(stopped(n) for n in range(have)))
    assert (decision.action, decision.count, decision.replace) == (action, count, "")
    assert decision.rule == ("standby" if count else "none")
    assert f"{have} of 2 standby workers" in text_of(decision)


NOT_QUIET: dict[str, dict[str, Any]] = {
    "waits until every worker has joined": {"workers": (*workers(3), worker(9, "not_ready"))},
    "waits for a complete reading": {"workers": (*workers(3), worker(9, "unknown"))},
    "waits while a removal is set aside": {
        "set_aside": (
            SetAside(instance_id="i-9", node_name="i-9", kind="termination", operation_id="o", since=0, detail=""),
        )
    },
    "waits while workers are launched from an earlier version": {"launch_hold": "the server is older"},
    "waits: at the maximum of 4 workers": {"policy": replace(POLICY, max_workers=4)},
    "waits: the limit allows no further worker (max_vcpu: 8 of 9 vCPU)": {
        "limits": (LimitUse(name="max_vcpu", most=9, used=8, of_kind={"t3.small/on-demand": 2, "t3.small/spot": 1}),)
    },
    "the last one was not launched or not stopped, next try in 1 s": {
        "memory": Memory(back_offs=(BackOff(key="standby", failures=1, until=START + 1),))
    },
    "scale-up failed 1 time in a row": {
        "memory": Memory(back_offs=(BackOff(key="scale_up", failures=1, until=START + 1),))
    },
    "EC2 refuses to terminate workers": {
        "memory": Memory(back_offs=(BackOff(key="removal", failures=1, until=START + 1),))
    },
    "cooldown 1 s left": {"memory": Memory(last_action="scale_up", last_action_at=START - 299)},
    "no idle worker is removed": {"policy": replace(POLICY, disruption_budgets=(Budget(nodes="0"),))},
    "waits for an idle worker": {"cpu_percent": 10.0, "memory_percent": 20.0},
}


@pytest.mark.parametrize("why", NOT_QUIET)
def test_outside_quiet_time_no_standby_worker_is_launched(why: str) -> None:
    decision = decided(**NOT_QUIET[why])
    assert decision.rule != "standby"
    assert why in text_of(decision)


def test_the_smallest_change_makes_the_time_quiet_again() -> None:
    over = Memory(
        last_action="scale_up",
        last_action_at=START - 300,
        back_offs=tuple(BackOff(key=key, failures=1, until=START) for key in ("standby", "scale_up", "removal")),
    )
    assert decided(memory=over, policy=replace(POLICY, max_workers=5)).action == "scale_up"
    disputed = Dispute(instance_id="i-0009", node_names=("x",), reason="two Nodes claim it")
    assert decided(workers=(*workers(3), worker(9, "unknown")), disputes=(disputed,)).action == "scale_up"
    lone = replace(POLICY, min_workers=4)
    assert decided(policy=lone, cpu_percent=10.0, memory_percent=20.0).action == "scale_up"


def test_a_replacement_and_demand_come_first() -> None:
    for waiting, action in ((0, "refill"), (1, "none")):
        tick = make_tick(snapshot(), Memory(), POLICY, START)
        step = evaluate_standby(tick, PendingPods(waiting=waiting), 2, [])
        assert step is not None and step.action == action
    current = Replacement(worker="i-0000", reason="drifted", replacement="i-0001", since=START)
    assert "waits for a replacement" in text_of(decided(memory=Memory(roll_out=RollOut(current=current))))
    assert decided(cpu_percent=None, memory_percent=None, pending=None).rule != "standby"
    busy = decided(pending=pods(9, 1000), workers=new_worker(60))
    assert (busy.action, busy.rule) == ("scale_up", "pending")


@pytest.mark.parametrize(
    ("age", "action", "shown"),
    [
        (1799, "scale_down", "i-0new has joined and is stopped"),
        (1800, "none", "i-0new was not stopped and serves"),
        (86_399, "none", "i-0new was not stopped and serves"),
        (86_400, "scale_up", "quiet"),
    ],
)
def test_a_worker_that_was_launched_for_it_is_stopped_or_blocks_the_next_launch_for_a_day(
    age: int, action: str, shown: str
) -> None:
    failed = Memory(back_offs=(BackOff(key="node:i-0new", failures=1, until=START),))
    decision = decided(workers=new_worker(age), memory=failed)
    assert (decision.action, shown in text_of(decision)) == (action, True)
    assert decision.replace == ("i-0new" if action == "scale_down" else "")
    kept = [alert.kind for alert in decision.alerts]
    assert kept == (["standby_kept:i-0new"] if 1800 <= age < 86_400 else [])


@pytest.mark.parametrize(("least", "action"), [(5, "scale_up"), (4, "none")])
def test_no_alert_claims_a_failed_drain_of_a_worker_that_was_never_drained(least: int, action: str) -> None:
    """One that the minimum needs is a usual worker, and another is launched. Any other may have an unknown cause."""
    decision = decided(workers=new_worker(1800), policy=replace(POLICY, min_workers=least, max_workers=9))
    assert (decision.action, decision.alerts) == (action, ())


@pytest.mark.parametrize(("standby", "action", "ended"), [((), "scale_up", ""), ((1, 2, 3), "none", "i-s3")])
def test_idle_workers_that_no_inspection_allows_to_remove_keep_no_standby_worker_away(
    standby: tuple[int, ...], action: str, ended: str
) -> None:
    low = {"cpu_percent": 10.0, "memory_percent": 20.0, "policy": replace(POLICY, idle_seconds=0)}
    have = tuple(stopped(n) for n in standby)
    assert decided(*have, **low).rule == "idle"
    until = Memory(roll_out=RollOut(first_until=START + 1))
    decision = decided(*have, memory=until, **low)
    assert (decision.action, decision.rule, decision.replace) == (action, "standby", ended)
    assert decided(*have, memory=Memory(roll_out=RollOut(first_until=START)), **low).rule == "idle"


def test_one_that_ec2_refused_to_terminate_waits_and_is_remembered_while_others_go_on() -> None:
    three = (stopped(1), stopped(2), stopped(3))
    refused = Memory(back_offs=(BackOff(key="node:i-s3", failures=1, until=START + 1),))
    decision = decided(*three, memory=refused)
    assert decision.replace == "i-s2"
    assert [b.key for b in decision.memory.back_offs] == ["node:i-s3"]
    broken = stopped(3, is_broken=True)
    assert decided(broken, memory=refused).action == "scale_up"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": replace(POLICY, min_workers=5, max_workers=9)}, "5 usable workers, minimum 5"),
        (
            {"memory": Memory(back_offs=(BackOff(key="node:i-0new", failures=1, until=START + 5),))},
            "could not be drained, next try in 5 s",
        ),
        (
            {"memory": Memory(back_offs=(BackOff(key="removal", failures=1, until=START + 5),))},
            "EC2 refuses to terminate workers",
        ),
        ({"policy": replace(POLICY, disruption_budgets=(Budget(nodes="0"),))}, "no idle worker is removed"),
    ],
)
def test_the_new_worker_is_not_stopped_while_it_is_needed_or_may_not_be_drained(
    changes: dict[str, Any], why: str
) -> None:
    decision = decided(workers=new_worker(60), **changes)
    assert decision.action == "none"
    assert why in text_of(decision)


def test_the_new_worker_is_stopped_before_an_idle_one_is_removed_unless_no_place_is_left() -> None:
    low = {"cpu_percent": 10.0, "memory_percent": 20.0, "workers": new_worker(60)}
    policy = replace(POLICY, idle_seconds=0)
    first = decided(policy=policy, **low)
    assert (first.action, first.rule, first.replace) == ("scale_down", "standby", "i-0new")
    second = decided(stopped(1), stopped(2), policy=policy, **low)
    assert (second.action, second.rule, second.replace) == ("scale_down", "idle", "")


RENEWED = [
    ((stopped(1, unfit="image"), stopped(2)), "i-s1"),
    ((stopped(1), stopped(2), stopped(3)), "i-s3"),
    ((stopped(1), stopped(2, unfit="image"), stopped(3)), "i-s2"),
    ((stopped(1), stopped(2, is_broken=True, unfit="it did not join")), "i-s2"),
    ((stopped(1), stopped(2), stopped(3, is_stopping=True)), "i-s2"),
    ((stopped(1, unfit="image"),), ""),
    ((stopped(1), stopped(2, unfit="image", is_stopping=True)), ""),
    ((stopped(1), stopped(2)), ""),
]


@pytest.mark.parametrize(("standby", "ended"), RENEWED)
def test_one_that_differs_ends_only_while_no_other_is_missing(standby: tuple[StandbyWorker, ...], ended: str) -> None:
    decision = decided(*standby)
    assert decision.replace == ended
    assert decision.action == ("scale_up" if len(standby) == 1 else "none")


def test_no_standby_worker_counts_as_capacity_or_against_the_maximum() -> None:
    with_them, without = decided(stopped(1), stopped(2)), decided(policy=replace(POLICY, standby_workers=0))
    assert (with_them.workers_before, with_them.workers_after) == (without.workers_before, without.workers_after)
    below = decided(stopped(1), stopped(2), workers=workers(1))
    assert (below.action, below.count, below.rule) == ("scale_up", 1, "minimum")


@pytest.mark.parametrize(
    ("given_", "problem"),
    [
        ({"standby_workers": 3, "min_workers": 2, "max_workers": 5}, ""),
        ({"standby_workers": 4, "min_workers": 2, "max_workers": 5}, "expected at most 3"),
        ({"standby_workers": 1, "min_workers": 2, "max_workers": 2}, "expected at most 0"),
        ({"standby_workers": -1}, "standby_workers=-1"),
    ],
)
def test_more_standby_workers_than_could_be_started_are_refused(given_: dict[str, Any], problem: str) -> None:
    try:
        Settings.from_mapping(given_)
        assert not problem
    except InvalidSettingsError as error:
        assert problem and len(error.problems) == 1 and problem in error.problems[0]


# what is different ------------------------------------------------------------------------------------------------


def instance(number: int, **changes: Any) -> Instance:
    fields = {
        "instance_id": f"i-{number}",
        "zone": "a",
        "instance_type": "t3.small",
        "market": "on-demand",
        "state": "stopped",
        "launched_at": 1000 + number,
        "standby": "ready",
        "subnet_id": "subnet-a",
    }
    return Instance(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "policy", "unfit"),
    [
        ({}, {}, ""),
        ({"bootstrap_hash": "old"}, {}, "bootstrap old, today new"),
        ({"bootstrap_hash": "old"}, {"drift": "report"}, ""),
        ({"rotate": "ana", "bootstrap_hash": "old"}, {"drift": "report"}, "marked for rotation by ana; bootstrap old"),
        ({"instance_type": "t2.micro"}, {"drift": "off"}, "it cannot be started: t2.micro is not a configured"),
        ({"zone": "c"}, {"drift": "report", "subnets": ("b=subnet-b",)}, "it cannot be started: c is not a configured"),
        ({"zone": "b"}, {"drift": "report", "subnets": ("b=subnet-b",)}, ""),
        ({"rotate": "ana"}, {"drift": "off"}, "marked for rotation by ana"),
        ({"standby": "failed"}, {}, "it did not join again after its start"),
        ({}, {"expire_after_seconds": 8999, "expire_jitter_percent": 0.0}, "it has reached its age limit"),
        ({}, {"expire_after_seconds": 9000, "expire_jitter_percent": 0.0}, ""),
    ],
)
def test_why_a_standby_worker_is_renewed(changes: dict[str, Any], policy: dict[str, Any], unfit: str) -> None:
    seen = Snapshot(at=10_000, source="live")
    found = with_standby_workers(seen, [instance(1, **changes)], LaunchFacts(bootstrap_hash="new"), Policy(**policy))
    (one,) = found.standby
    assert one.unfit.startswith(unfit) and bool(one.unfit) == bool(unfit)
    assert (one.is_broken, one.is_stopping) == (changes.get("standby") == "failed", False)


@pytest.mark.parametrize(
    ("state", "tag", "is_one"),
    [
        ("stopped", "ready", True),
        ("stopping", "ready", True),
        ("stopped", "failed", True),
        ("stopped", "started", False),
        ("stopped", "", False),
        ("running", "ready", False),
    ],
)
def test_a_worker_that_a_person_stops_is_no_standby_worker(state: str, tag: str, is_one: bool) -> None:
    assert instance(1, state=state, standby=tag).is_standby is is_one
    assert not instance(1, state=state, standby=tag, join_failed=True).is_standby


@pytest.mark.parametrize(
    ("state", "age", "outcome"),
    [("stopped", 29, "launched"), ("stopped", 30, "failed"), ("stopping", 0, "failed"), ("pending", 30, "launched")],
)
def test_an_old_answer_of_ec2_does_not_make_a_started_worker_a_failed_one(state: str, age: int, outcome: str) -> None:
    for standby, expected in ((True, outcome), (False, "failed" if state == "stopped" else outcome)):
        begun = operation("launched", standby=standby)
        seen = {"i-1": instance(1, state=state)}
        assert update_slots(begun, instances=seen, nodes=(), now=1 + age).slots[0].outcome == expected


# which slot -------------------------------------------------------------------------------------------------------


def slot(number: int, **changes: Any) -> LaunchSlot:
    fields = {"zone": "b", "subnet_id": "subnet-b", "instance_type": "t3.small", "market": "spot"}
    return LaunchSlot(number=number, **{**fields, **changes})


def served(slots: list[LaunchSlot], standby: list[Instance], **options: Any) -> dict[int, str]:
    return {
        s.number: s.standby
        for s in with_standby(slots, standby, PLACEMENT, **{"closed": frozenset(), **options})
        if s.standby
    }


def test_on_demand_slots_and_the_newest_worker_come_first() -> None:
    slots = [slot(1), slot(2, market="on-demand"), slot(3)]
    assert served(slots, [instance(1), instance(2)]) == {1: "i-1", 2: "i-2"}
    (first, *_) = with_standby(slots, [instance(1)], PLACEMENT, closed=frozenset())
    assert first == slots[0]


@pytest.mark.parametrize(
    ("wanted", "worker_changes", "options", "is_served"),
    [
        ({}, {}, {}, True),
        ({"pools": ("a/t3.small/on-demand",)}, {}, {}, True),
        ({"pools": ("a/t3.small/spot", "b/t3.small/on-demand")}, {}, {}, False),
        ({"types": ("t3.medium",)}, {}, {}, False),
        ({"types": ("t3.medium", "t3.small")}, {}, {}, True),
        ({}, {"instance_type": "m5.large"}, {}, False),
        ({}, {"zone": "c"}, {}, False),
        ({}, {"state": "stopping"}, {}, False),
        ({}, {"standby": "failed"}, {}, False),
        ({}, {}, {"closed": frozenset({Pool("a", "t3.small", "on-demand")})}, False),
        ({}, {}, {"closed": frozenset({Pool("a", "t3.small", "spot")})}, True),
        ({}, {}, {"avoid": ("i-1",)}, False),
    ],
)
def test_a_standby_worker_serves_only_what_it_suits(
    wanted: dict[str, Any], worker_changes: dict[str, Any], options: dict[str, Any], is_served: bool
) -> None:
    assert served([slot(1, **wanted)], [instance(1, **worker_changes)], **options) == ({1: "i-1"} if is_served else {})


@examples(40)
@given(
    slots=st.lists(st.sampled_from([{}, {"market": "on-demand"}, {"types": ("t3.medium",)}]), max_size=5),
    standby=st.lists(st.sampled_from([{}, {"zone": "b"}, {"instance_type": "t3.medium"}, {"state": "stopping"}])),
)
def test_no_standby_worker_serves_two_slots_and_no_slot_is_lost(
    slots: list[dict[str, Any]], standby: list[dict[str, Any]]
) -> None:
    planned = [slot(n, **changes) for n, changes in enumerate(slots, 1)]
    found = with_standby(planned, [instance(n, **each) for n, each in enumerate(standby)], PLACEMENT, closed=())
    used = [one.standby for one in found if one.standby]
    assert len(used) == len(set(used)) <= sum("state" not in each for each in standby)
    assert [not_started(one, PLACEMENT) if one.standby else one for one in found] == planned


def test_a_refused_start_leaves_the_launch_as_it_was_planned() -> None:
    planned = slot(1)
    (chosen,) = with_standby([planned], [instance(1)], PLACEMENT, closed=frozenset())
    assert (chosen.zone, chosen.market, chosen.subnet_id) == ("a", "on-demand", "subnet-a")
    assert not_started(chosen, PLACEMENT) == planned
    assert (started(chosen, 77).instance_id, started(chosen, 77).launched_at) == ("i-1", 77)


def operation(*outcomes: str, standby: bool = True) -> Operation:
    slots = tuple(
        slot(n, standby=f"i-{n}" if standby else "", instance_id=f"i-{n}", outcome=outcome, launched_at=1)
        for n, outcome in enumerate(outcomes, 1)
    )
    return Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="verify",
        started_at=0,
        requested=len(slots),
        reason="",
        execution_id="e",
        slots=slots,
    )


def test_the_tag_after_a_start() -> None:
    found = tags_after(operation("joined", "failed", "unjoined", "launched"))
    assert found == {"i-1": "started", "i-2": "failed", "i-3": "failed"}
    assert tags_after(operation("joined", standby=False)) == {}


@pytest.mark.parametrize(
    ("outcomes", "standby", "status"),
    [
        (("failed",), True, "partial"),
        (("failed",), False, "timeout"),
        (("failed", "unjoined"), True, "timeout"),
        (("unjoined",), True, "timeout"),
    ],
)
def test_a_start_that_failed_midway_shows_nothing_about_launches(
    outcomes: tuple[str, ...], standby: bool, status: str
) -> None:
    assert final_join_progress(operation(*outcomes, standby=standby), now=9, pods_waiting=0).status == status


def test_a_refill_is_launched_on_demand_where_the_fewest_are() -> None:
    assert refill_pools(PLACEMENT, ["a"]).pools == ("b/t3.small/on-demand", "b/t3.medium/on-demand")
    assert len(refill_pools(PLACEMENT, ["a", "b"]).pools) == 4


@pytest.mark.parametrize(
    ("error", "is_refill", "key", "is_alert"),
    [
        ("NoCapacityError", True, "standby", True),
        ("QuotaExceededError", True, "standby", True),
        ("LaunchConfigurationError", True, "standby", False),
        ("NothingJoinedError", True, "join", False),
        ("NoCapacityError", False, "scale_up", False),
        ("PausedError", True, "", False),
    ],
)
def test_a_refused_refill_delays_no_launch_that_the_load_needs(
    error: str, is_refill: bool, key: str, is_alert: bool
) -> None:
    assert back_off_key(None, is_refill=True) == "standby"
    failure = {"error": error, "cause": "EC2 said no"}
    assert back_off_key(failure, is_refill=is_refill) == key
    memory = Memory(back_offs=(BackOff(key="standby", failures=1, until=700),))
    alert = refused_refill(failure, memory, key, 100)
    assert (alert.text if alert else "") == (
        "no standby worker was launched, next try in 10 min: EC2 said no" if is_alert else ""
    )


# which removal ----------------------------------------------------------------------------------------------------


def candidate(number: int, market: str = "on-demand") -> Candidate:
    node = inspected_node(f"i-{number}", pods_to_move=0)
    return Candidate(instance=instance(number, market=market, state="running", standby=""), node=node)


@pytest.mark.parametrize(
    ("places", "outdated", "changes", "kept"),
    [
        (0, set(), {}, set()),
        (-1, set(), {}, set()),
        (1, set(), {}, {"i-1"}),
        (2, set(), {}, {"i-1", "i-3"}),
        (9, set(), {}, {"i-1", "i-3"}),
        (1, {"i-1"}, {}, {"i-3"}),
        (2, set(), {"not_ready": True}, set()),
        (2, set(), {"replaces": "i-1", "reason": "drifted"}, set()),
        (2, set(), {"replaces": "i-1", "reason": "on-demand"}, {"i-1", "i-3"}),
        (2, set(), {"reboot": True}, set()),
    ],
)
def test_a_removed_on_demand_worker_becomes_a_standby_worker_while_a_place_is_free(
    places: int, outdated: set[str], changes: dict[str, Any], kept: set[str]
) -> None:
    plan = Plan(targets=(candidate(1), candidate(2, "spot"), candidate(3)), sentence="", **changes)
    assert to_standby(plan, places=places, outdated=outdated) == kept


@pytest.mark.parametrize(
    ("usable", "minimum", "targets", "why"),
    [
        (("i-1", "i-2"), 1, ["i-1"], "i-1: becomes a standby worker"),
        (("i-1", "i-2"), 2, [], "at_min: 2 usable workers, minimum 2"),
        (("i-2", "i-3"), 1, [], "worker i-1: kept, a Job runs"),
        (("i-3",), 1, [], "worker i-1: kept, a Job runs"),
    ],
)
def test_the_worker_to_stop_is_that_one_and_the_minimum_stays(
    usable: tuple[str, ...], minimum: int, targets: list[str], why: str
) -> None:
    kept = (Kept(instance_id="i-1", reason="a Job runs"),) if "i-1" not in usable else ()
    candidates = tuple(candidate(int(i[2:])) for i in usable)
    plan = choose_stopped(Eligibility(candidates=candidates, kept=kept, usable=usable), "i-1", minimum=minimum)
    assert [c.instance.instance_id for c in plan.targets] == targets
    assert plan.sentence == why
