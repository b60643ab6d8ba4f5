"""The state item against DynamoDB's own expression engine (moto): lease, fence, reservations, notices, pause."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from node_fleet.adapters.dynamodb import to_attributes
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import LeaseLostError, PausedError, StateStoreError
from node_fleet.domain.model.fleet_state import FleetState, Lease, Notice, Pause, Protection, Reservation
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.text import utc
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.domain.model.weight import Weight
from node_fleet.payload import to_payload
from node_fleet.settings import Settings

START = 1_790_000_000
SETTINGS = Settings()


class SteppedClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> int:
        return self.time


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def store(dynamo: Any, clock: SteppedClock) -> StateStore:
    return StateStore(dynamo, SETTINGS, clock)


def a_run(name: str = "a", *, tick: int = START) -> Run:
    return Run(execution_id=name, trigger="schedule", scheduled_at=tick, started_at=START)


def manual(name: str) -> Run:
    return Run(execution_id=name, trigger="manual", scheduled_at=0, started_at=START)


def held(store: StateStore, run: Run) -> Run:
    acquired = store.acquire(run)
    assert acquired.status == "acquired", acquired
    return replace(run, fence=acquired.state.fence)


def an_operation(name: str = "op-1") -> Operation:
    return Operation(
        operation_id=name,
        kind="scale_up",
        phase="begin",
        started_at=START,
        requested=1,
        reason="pending 3",
        execution_id="a",
    )


def put(dynamo: Any, **attributes: Any) -> None:
    item = {"cluster_id": SETTINGS.cluster_id, **attributes}
    dynamo.put_item(TableName=SETTINGS.state_table, Item=to_attributes(item))


def test_of_the_memory_of_another_version_what_this_one_cannot_read_counts_as_not_stored(
    store: StateStore, dynamo: Any
) -> None:
    stored = to_payload(Memory(last_action="scale_up", last_action_at=START, rebooted={"i-1": START}))
    stored |= {"forecast": [1, 2], "roll_out": {"current": None, "wave": 2}}
    key = to_attributes({"cluster_id": SETTINGS.cluster_id})
    item = key | to_attributes({"memory": json.dumps(stored)})
    dynamo.put_item(TableName=SETTINGS.state_table, Item=item)
    state = store.load()
    assert state.memory == Memory(last_action="scale_up", last_action_at=START, rebooted={"i-1": START})
    assert state.problems == tuple(
        f"the memory has the field {name}, which this version cannot read and leaves out"
        for name in ("roll_out", "forecast")
    )
    assert store.acquire(a_run()).status == "acquired"


def test_acquiring_is_one_conditional_update_and_nothing_else(dynamo: Any, clock: SteppedClock) -> None:
    calls: list[tuple[str, Any]] = []
    events = "before-parameter-build.dynamodb"
    dynamo.meta.events.register(events, lambda params, model, **_: calls.append((model.name, dict(params))))
    assert StateStore(dynamo, SETTINGS, clock).acquire(a_run()).status == "acquired"
    assert [name for name, _ in calls] == ["UpdateItem"]
    assert "ConditionExpression" in calls[0][1]


def test_a_held_lock_is_an_answer_that_names_its_owner_and_its_end(store: StateStore) -> None:
    held(store, a_run("arn:aws:states:x:1:execution:autoscaler:first"))
    answer = store.acquire(manual("second"))
    end = utc(START + SETTINGS.lease_seconds)
    assert (answer.status, answer.detail) == ("held", f"the lock is held by first (fence 1) until {end}")
    assert end.startswith("20") and end.endswith(" UTC")


def test_a_pause_and_a_tick_that_is_not_newer_are_answers_with_times_that_people_read(store: StateStore) -> None:
    store.release(held(store, a_run(tick=START)))
    stale = store.acquire(a_run("b", tick=START))
    assert stale.detail == f"the tick of {utc(START)} is not newer than the last one ({utc(START)})"
    store.set_pause(Pause(reason="kernel", by="ana", since=START, until=START + 60))
    assert store.acquire(manual("c")).detail == f"paused by ana until {utc(START + 60)}: kernel"


def test_the_same_execution_acquires_twice_and_its_fence_grows(store: StateStore) -> None:
    first = held(store, a_run())
    again = held(store, a_run())
    assert again.fence == first.fence + 1


@pytest.mark.parametrize(
    ("after_expiry_seconds", "status"),
    [(-1, "held"), (0, "held"), (SETTINGS.lease_skew_seconds, "held"), (SETTINGS.lease_skew_seconds + 1, "acquired")],
)
def test_an_expired_lock_is_taken_on_the_first_try_after_the_skew_margin(
    store: StateStore, clock: SteppedClock, after_expiry_seconds: int, status: str
) -> None:
    held(store, a_run("dead"))
    clock.time += SETTINGS.lease_seconds + after_expiry_seconds
    answer = store.acquire(manual("next"))
    assert answer.status == status
    assert ("dead" in answer.detail) is True


@pytest.mark.parametrize(
    "expires_at",
    [(START + 86_401), 1_790_000_000_000, "soon", None],
    ids=["over a day ahead", "milliseconds", "text", "absent"],
)
def test_a_corrupt_expiry_is_taken_over_and_reported(dynamo: Any, store: StateStore, expires_at: Any) -> None:
    attributes = {"lock_owner": "broken", "lock_fence": 7, "lock_acquired_at": START}
    put(dynamo, **attributes, **({} if expires_at is None else {"lock_expires_at": expires_at}))
    answer = store.acquire(manual("next"))
    assert (answer.status, answer.state.fence) == ("acquired", 8)
    assert "corrupt" in answer.detail


def test_a_held_lock_whose_fence_is_no_number_is_read_with_fence_0(dynamo: Any, store: StateStore) -> None:
    put(dynamo, lock_owner="x", lock_fence="seven", lock_acquired_at=START, lock_expires_at=START + 900)
    assert store.load().fence == 0 and store.acquire(manual("next")).status == "held"


def test_an_expiry_exactly_a_day_ahead_is_not_corrupt(dynamo: Any, store: StateStore) -> None:
    put(dynamo, lock_owner="x", lock_fence=1, lock_acquired_at=START, lock_expires_at=START + 86_400)
    assert store.acquire(manual("next")).status == "held"


def test_the_fence_survives_release_and_never_repeats(store: StateStore) -> None:
    fences = []
    for name in ("a", "b", "c"):
        run = held(store, manual(name))
        fences.append(run.fence)
        assert store.release(run) is True
    assert fences == [1, 2, 3]


@pytest.mark.parametrize(
    ("second", "status"),
    [
        (a_run("second", tick=START - 120), "stale"),
        (a_run("second", tick=START), "stale"),
        (a_run("second", tick=START + 1), "acquired"),
        (manual("second"), "acquired"),
    ],
)
def test_only_a_tick_that_is_not_newer_than_the_last_one_does_nothing(
    store: StateStore, second: Run, status: str
) -> None:
    store.release(held(store, a_run("first", tick=START)))
    assert store.acquire(second).status == status


@pytest.mark.parametrize(("until", "status"), [(START + 1, "paused"), (START, "acquired"), (START - 1, "acquired")])
def test_a_pause_in_force_ends_the_run_before_it_holds_the_lock(store: StateStore, until: int, status: str) -> None:
    store.set_pause(Pause(reason="database move", by="mira", since=START - 60, until=until))
    answer = store.acquire(a_run())
    assert answer.status == status
    if status == "paused":
        assert "database move" in answer.detail
        assert store.load().lease is None


def test_renewing_extends_the_lease_and_refuses_while_paused(store: StateStore, clock: SteppedClock) -> None:
    run = held(store, a_run())
    clock.time += 100
    assert store.renew(run).lease == Lease(
        owner="a", fence=run.fence, acquired_at=START, expires_at=START + 100 + SETTINGS.lease_seconds
    )
    store.set_pause(Pause(reason="stop", by="mira", since=clock.time, until=clock.time + 60))
    with pytest.raises(PausedError, match="stop"):
        store.renew(run)
    assert store.renew(run, even_paused=True).pause is not None


def test_a_deposed_owner_changes_and_releases_nothing(store: StateStore, clock: SteppedClock) -> None:
    old = held(store, a_run("old"))
    clock.time += SETTINGS.lease_seconds + SETTINGS.lease_skew_seconds + 1
    new = held(store, manual("new"))
    before = store.load()
    for change in (
        lambda: store.renew(old),
        lambda: store.save_operation(old, an_operation()),
        lambda: store.close_operation(old, Memory()),
    ):
        with pytest.raises(LeaseLostError, match="new"):
            change()
    assert store.release(old, Memory(last_action="scale_up")) is False
    assert store.load() == before
    assert store.release(new) is True


def test_an_earlier_fence_of_the_same_execution_is_refused(store: StateStore) -> None:
    first = held(store, a_run())
    held(store, a_run())
    with pytest.raises(LeaseLostError):
        store.renew(first)


def test_without_an_item_no_execution_holds_the_lock(store: StateStore) -> None:
    text = r"cannot renew the lease: no execution holds the lock \(fence 0\), not a \(fence 3\)"
    with pytest.raises(LeaseLostError, match=text):
        store.renew(replace(a_run(), fence=3))


def test_an_operation_is_recorded_resumed_and_closed_with_what_was_learned(store: StateStore) -> None:
    run = held(store, a_run())
    store.save_operation(run, an_operation())
    store.save_operation(run, replace(an_operation(), phase="record"))
    assert store.load().operation == replace(an_operation(), phase="record")
    store.close_operation(run, Memory(last_action="scale_up", last_action_at=START), node_count=3)
    state = store.load()
    assert (state.operation, state.memory.last_action, state.node_count) == (None, "scale_up", 3)
    assert store.load(with_memory=False) == replace(state, memory=Memory())


def test_a_second_operation_is_refused_while_one_is_open(store: StateStore) -> None:
    run = held(store, a_run())
    store.save_operation(run, an_operation("op-1"))
    with pytest.raises(LeaseLostError, match="op-1 is still open"):
        store.save_operation(run, an_operation("op-2"))


def test_reservations_count_until_the_maximum_and_are_given_back(store: StateStore, clock: SteppedClock) -> None:
    def count(state: Any) -> int:
        return len(state.reservations)

    until = clock.time + 600
    first, second, third = (store.reserve(k, count, maximum=2, until=until) for k in ("a", "b", "c"))
    assert first and second and third is None
    assert store.reserve("a", count, maximum=2, until=until) == first
    clock.time += 5
    store.confirm("a", "i-0aaa", pool="zone/type/spot")
    assert [(r.key, r.instance_id, r.pool, r.at - clock.time) for r in store.load().reservations] == [
        ("a", "i-0aaa", "zone/type/spot", 0),
        ("b", "", "", -5),
    ]
    store.unreserve(["a", "unknown"])
    assert store.reserve("c", count, maximum=2, until=until)
    assert [r.key for r in store.load().reservations] == ["b", "c"]


def test_a_reservation_made_in_between_is_seen_before_the_next_is_granted(dynamo: Any, clock: SteppedClock) -> None:
    """The count happens between the read and the write: a rival's reservation there must not be passed over."""
    store, rival = StateStore(dynamo, SETTINGS, clock), StateStore(dynamo, SETTINGS, clock)
    rival_moves = iter([True])

    def count(state: Any) -> int:
        if next(rival_moves, False):
            assert rival.reserve("rival", lambda s: len(s.reservations), maximum=1, until=START + 600)
        return len(state.reservations)

    assert store.reserve("mine", count, maximum=1, until=START + 600) is None
    assert [r.key for r in store.load().reservations] == ["rival"]


def test_a_reservation_keeps_the_most_that_it_may_become_until_it_is_known_what_it_became(store: StateStore) -> None:
    def weigh(state: FleetState) -> Weight | None:
        free = 8 - sum(r.weight.vcpu for r in state.reservations)
        return Weight(micro_usd=5, vcpu=4) if free >= 4 else None

    def reserve(key: str) -> Reservation | None:
        return store.reserve(key, lambda state: 0, maximum=9, until=START + 600, weigh=weigh)

    assert [bool(reserve(key)) for key in ("a", "b", "c", "a")] == [True, True, False, True]
    assert [r.weight for r in store.load().reservations] == [Weight(micro_usd=5, vcpu=4)] * 2
    store.confirm("a", "i-0aaa", pool="zone/type/spot")
    assert [r.weight for r in store.load().reservations] == [Weight(), Weight(micro_usd=5, vcpu=4)]
    assert reserve("c")


@pytest.mark.parametrize(
    ("change", "after"),
    [
        (lambda store: store.reserve("b", lambda state: 0, maximum=9, until=START + 600), {"a": "", "b": ""}),
        (lambda store: store.confirm("a", "i-0aaa"), {"a": "i-0aaa"}),
        (lambda store: store.unreserve(["a"]), {}),
    ],
    ids=["reserve", "confirm", "unreserve"],
)
def test_ten_tries_to_change_reservations_beside_other_writers_are_made_before_an_error(
    change: Callable[[StateStore], object], after: dict[str, str], dynamo: Any, clock: SteppedClock
) -> None:
    class BesideARival(StateStore):
        moves = 0

        def load(self) -> FleetState:
            state = super().load()
            if self.moves:
                self.moves -= 1
                values = {"slots_version": state.slots_version + 1, "reservations": to_payload(state.reservations)}
                put(dynamo, **values)
            return state

    store = BesideARival(dynamo, SETTINGS, clock)
    store.reserve("a", lambda state: 0, maximum=9, until=START + 600)
    store.moves = 10
    with pytest.raises(StateStoreError, match="other writers changed the reservations during each of 10 tries"):
        change(store)
    assert {r.key: r.instance_id for r in store.load().reservations} == {"a": ""}
    store.moves = 9
    change(store)
    assert {r.key: r.instance_id for r in store.load().reservations} == after


def an_order(name: str) -> TimedMinimum:
    return TimedMinimum(name=name, workers=5, since=START, until=START + 60, by="ana", reason="a <sale>")


def test_orders_for_a_time_are_changed_from_what_is_stored_and_a_refused_change_stores_nothing(
    store: StateStore,
) -> None:
    assert store.load().timed_minimums == ()
    assert store.change_timed_minimums(lambda state: (an_order("a"),)) == (an_order("a"),)
    store.change_timed_minimums(lambda state: (*state.timed_minimums, an_order("b")))
    assert store.load().timed_minimums == (an_order("a"), an_order("b"))
    with pytest.raises(PausedError):
        store.change_timed_minimums(lambda state: (_ for _ in ()).throw(PausedError("no")))
    store.change_timed_minimums(lambda state: state.timed_minimums[1:])
    assert store.load().timed_minimums == (an_order("b"),)
    store.change_timed_minimums(lambda state: ())
    assert store.load().timed_minimums == ()


def test_two_people_who_order_at_once_both_get_their_order_and_a_storm_of_them_ends_with_an_error(
    store: StateStore,
) -> None:
    rivals = iter(range(100))

    def beside_rivals(state: FleetState, limit: int) -> tuple[TimedMinimum, ...]:
        if (number := next(rivals)) < limit:
            store.change_timed_minimums(lambda other: (*other.timed_minimums, an_order(f"rival-{number}")))
        return (*state.timed_minimums, an_order("mine"))

    store.change_timed_minimums(lambda state: beside_rivals(state, 2))
    assert [o.name for o in store.load().timed_minimums] == ["rival-0", "rival-1", "mine"]
    with pytest.raises(StateStoreError, match="other writers changed the orders for a time during each of 10 tries"):
        store.change_timed_minimums(lambda state: beside_rivals(state, 100))


def test_a_notice_is_claimed_once_for_each_instance(store: StateStore) -> None:
    notice = Notice(instance_id="i-0abc", kind="spot", at=START, deadline=START + 120)
    assert [store.add_notice(notice), store.add_notice(notice)] == [True, False]
    assert store.load().notices == (notice,)
    store.drop_notice("i-0abc")
    assert store.load().notices == ()


def test_a_notice_is_lifted_by_the_execution_that_answers_it_and_by_no_other(store: StateStore) -> None:
    notice = Notice(instance_id="i-0abc", kind="spot", at=START, deadline=START + 120, claimed_by="second")
    assert store.add_notice(notice)
    assert store.remove_notice("i-0abc", claimed_by="first") is False
    assert store.load().notices == (notice,)
    assert [store.remove_notice("i-0abc", claimed_by=who) for who in ("second", "second", "first")] == [True] * 3
    assert store.load().notices == ()


def test_a_notice_written_before_changes_had_names_is_still_read(store: StateStore, dynamo: Any) -> None:
    store.add_notice(Notice(instance_id="i-0abc", kind="spot", at=START, event="arn:1"))
    dynamo.update_item(
        TableName=SETTINGS.state_table,
        Key={"cluster_id": {"S": SETTINGS.cluster_id}},
        UpdateExpression="REMOVE #notice.#event",
        ExpressionAttributeNames={"#notice": "notice#i-0abc", "#event": "event"},
    )
    assert store.load().notices[0].event == ""


def test_the_clean_up_takes_over_only_from_the_dead_owner(store: StateStore) -> None:
    dead = held(store, a_run("dead"))
    assert store.take_over("another owner", "clean-up") is None
    taken = store.take_over("dead", "clean-up")
    assert taken is not None
    assert taken.fence == dead.fence + 1
    with pytest.raises(LeaseLostError):
        store.renew(dead)
    assert store.take_over("dead", "clean-up") is not None, "delivered twice"


def test_unlocking_by_hand_frees_exactly_the_lease_that_was_shown(store: StateStore) -> None:
    held(store, a_run("a"))
    lease = store.load().lease
    assert lease is not None
    assert store.force_unlock(replace(lease, fence=lease.fence + 1)) is False
    assert store.force_unlock(lease) is True
    assert store.load().lease is None


def test_a_missing_table_is_one_clear_error(dynamo: Any, clock: SteppedClock) -> None:
    lost = StateStore(dynamo, Settings(state_table="no-such-table"), clock)
    with pytest.raises(StateStoreError, match="table no-such-table does not exist: cannot lock"):
        lost.acquire(a_run())


def test_a_dry_run_neither_stores_its_tick_nor_is_refused_by_a_later_one(store: StateStore) -> None:
    later = replace(a_run("dry", tick=START + 50), dry_run=True)
    store.release(held(store, later))
    assert store.load().last_tick == 0
    store.release(held(store, a_run("tick", tick=START)))
    store.release(held(store, replace(later, execution_id="again", scheduled_at=START - 120)))
    assert store.load().last_tick == START


@pytest.mark.parametrize(("ahead", "status"), [(60, "stale"), (61, "acquired"), (250_000_000_000, "acquired")])
def test_a_stored_tick_in_the_future_is_corrupt_and_stops_no_run(
    store: StateStore, dynamo: Any, ahead: int, status: str
) -> None:
    store.release(held(store, a_run("first", tick=START + ahead)))
    assert store.acquire(a_run("second", tick=START)).status == status


def a_removal(instance_id: str = "i-1", **changes: Any) -> SetAside:
    fields: dict[str, Any] = {"kind": "termination", "since": START, "detail": "EC2 state shutting-down", **changes}
    return SetAside(instance_id=instance_id, node_name=instance_id, operation_id="op-1", **fields)


def test_a_removal_is_set_aside_in_the_write_that_records_or_closes_its_operation(store: StateStore) -> None:
    run = held(store, a_run())
    store.save_operation(run, an_operation(), a_removal())
    assert (store.load().operation, store.load().set_aside) == (an_operation(), (a_removal(),))
    store.close_operation(run, Memory(), set_aside=a_removal("i-2", kind="rollback", command_id="c-1"))
    assert store.load().operation is None
    assert [(r.instance_id, r.kind, r.command_id) for r in store.load().set_aside] == [
        ("i-1", "termination", ""),
        ("i-2", "rollback", "c-1"),
    ]
    assert store.load().ids_set_aside == {"i-1", "i-2"}


def test_a_removal_that_is_set_aside_outlives_the_lock_and_is_changed_and_dropped_by_its_instance_id(
    store: StateStore,
) -> None:
    first = held(store, a_run())
    store.save_operation(first, an_operation(), a_removal())
    store.close_operation(first, Memory(), set_aside=a_removal("i-2"))
    store.release(first)
    second = held(store, manual("b"))
    store.update_set_aside(second, a_removal("i-2", tried_at=9))
    store.drop_set_aside(second, "i-1")
    store.drop_set_aside(second, "i-1")
    assert store.load().set_aside == (a_removal("i-2", tried_at=9),)


def test_only_the_run_that_holds_the_lock_changes_what_is_set_aside(store: StateStore) -> None:
    run = held(store, a_run())
    store.save_operation(run, an_operation(), a_removal())
    late = replace(run, fence=run.fence - 1)
    writes: list[Callable[[], None]] = [
        lambda: store.save_operation(late, an_operation(), a_removal("i-2")),
        lambda: store.close_operation(late, Memory(), set_aside=a_removal("i-2")),
        lambda: store.update_set_aside(late, a_removal(tried_at=9)),
        lambda: store.drop_set_aside(late, "i-1"),
    ]
    for write in writes:
        with pytest.raises(LeaseLostError):
            write()
    assert (store.load().set_aside, store.load().operation) == ((a_removal(),), an_operation())


def test_the_state_is_read_consistently(store: StateStore, dynamo: Any) -> None:
    """A read that may be old could show a lease or a pause that has changed."""
    asked: list[dict[str, Any]] = []
    dynamo.meta.events.register("provide-client-params.dynamodb.GetItem", lambda params, **_: asked.append(params))
    held(store, a_run())
    store.load()
    assert asked and all(params["ConsistentRead"] is True for params in asked)


def a_protection(instance_id: str = "i-1", *, until: int = START + 600) -> Protection:
    return Protection(instance_id=instance_id, by="ana", since=START, until=until, reason="a long job")


def removing(name: str = "down-1", phase: Any = "drained") -> Operation:
    targets = (Target(instance_id="i-1", node_name="i-1", phase=phase),)
    return replace(an_operation(name), kind="scale_down", phase="draining", targets=targets)


def test_a_protection_is_stored_replaced_and_ended(store: StateStore) -> None:
    store.protect(a_protection())
    assert store.protect(a_protection(until=START + 900)).protections == (a_protection(until=START + 900),)
    assert set(store.load().active_protections(START + 899)) == {"i-1"}
    assert store.load().active_protections(START + 900) == {}
    store.end_protection("i-1")
    store.end_protection("i-1")
    assert store.load().protections == ()


def test_protections_that_have_ended_are_dropped_with_the_next_one(store: StateStore, clock: SteppedClock) -> None:
    for name, until in (("i-1", 60), ("i-2", 61), ("i-3", 600)):
        store.protect(a_protection(name, until=START + until))
    clock.time += 60
    assert {p.instance_id for p in store.protect(a_protection("i-4")).protections} == {"i-2", "i-3", "i-4"}
    clock.time += 1
    assert {p.instance_id for p in store.protect(a_protection("i-2")).protections} == {"i-2", "i-3", "i-4"}


def test_a_protection_before_the_termination_begins_forbids_it(store: StateStore, clock: SteppedClock) -> None:
    run = held(store, manual("a"))
    store.save_operation(run, removing())
    store.protect(a_protection())
    with pytest.raises(PausedError, match="worker i-1 was not terminated: it is protected by ana until"):
        store.begin_termination(run, removing(phase="terminating"), "i-1")
    assert store.load().operation == removing()
    store.begin_termination(run, removing(phase="terminating"), "i-2")
    assert store.load().operation == removing(phase="terminating"), "it concerns no other worker"


def test_a_protection_forbids_a_reboot_as_well(store: StateStore, clock: SteppedClock) -> None:
    run, operation = held(store, manual("a")), replace(removing(), reboot=True)
    store.save_operation(run, operation)
    store.protect(a_protection())
    with pytest.raises(PausedError, match="worker i-1 was not rebooted: it is protected by ana until"):
        store.begin_termination(run, operation, "i-1")


def test_a_protection_that_has_ended_forbids_nothing(store: StateStore, clock: SteppedClock) -> None:
    run = held(store, manual("a"))
    store.save_operation(run, removing())
    store.protect(a_protection())
    clock.time += 600
    store.begin_termination(run, removing(phase="terminating"), "i-1")
    assert store.load().operation == removing(phase="terminating")


def test_a_protection_after_the_termination_has_begun_sees_it(store: StateStore) -> None:
    run = held(store, manual("a"))
    store.save_operation(run, removing())
    store.begin_termination(run, removing(phase="terminating"), "i-1")
    after = store.protect(a_protection())
    assert after.operation is not None and after.operation.targets[0].phase == "terminating"


@pytest.mark.parametrize("protected", [False, True])
def test_a_run_that_lost_the_lock_begins_no_termination(
    store: StateStore, clock: SteppedClock, protected: bool
) -> None:
    old = held(store, manual("a"))
    store.save_operation(old, removing())
    clock.time += 1000
    held(store, manual("b"))
    if protected:
        store.protect(a_protection(until=START + 9000))
    with pytest.raises(LeaseLostError):
        store.begin_termination(old, removing(phase="terminating"), "i-1")
    assert store.load().operation == removing()


def test_a_termination_of_another_operation_is_refused(store: StateStore) -> None:
    run = held(store, manual("a"))
    store.save_operation(run, removing("down-1"))
    with pytest.raises(LeaseLostError, match="operation down-1 is still open"):
        store.begin_termination(run, removing("down-2", "terminating"), "i-1")


def test_without_an_item_and_with_an_empty_one_every_value_is_that_of_a_new_fleet(
    dynamo: Any, store: StateStore
) -> None:
    new = FleetState(cluster_id=SETTINGS.cluster_id)
    assert store.load() == new
    dynamo.put_item(TableName=SETTINGS.state_table, Item={"cluster_id": {"S": SETTINGS.cluster_id}})
    assert store.load() == new
    assert (new.fence, new.last_tick, new.slots_version, new.node_count) == (0, 0, 0, 0)


def test_a_lost_lease_names_the_holder_and_both_fences(store: StateStore) -> None:
    one, other = replace(a_run(), fence=4), manual("b")
    with pytest.raises(LeaseLostError, match=r"no execution holds the lock \(fence 0\), not a \(fence 4\)"):
        store.renew(one)
    held(store, other)
    with pytest.raises(LeaseLostError, match=r"b holds the lock \(fence 1\), not a \(fence 4\)"):
        store.renew(one)


def test_the_state_that_acquire_returns_is_the_stored_one(store: StateStore, clock: SteppedClock) -> None:
    for name, wait in (("a", 0), ("b", SETTINGS.lease_seconds + SETTINGS.lease_skew_seconds + 1)):
        clock.time += wait
        acquired = store.acquire(manual(name))
        assert (acquired.status, acquired.state) == ("acquired", store.load())
        lease = acquired.state.lease
        assert lease is not None
        assert (lease.owner, lease.acquired_at, lease.expires_at - clock.time) == (
            name,
            clock.time,
            SETTINGS.lease_seconds,
        )
