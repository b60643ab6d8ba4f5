"""Joining: by provider id, usable, and what is known when the time is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.assembly import BLOCKING_TAINT_KEYS
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_up.join import (
    NO_NODE_LIST,
    JoinProgress,
    NodeList,
    back_off_key,
    close_unjoined,
    completed_sentence,
    console_end,
    final_join_progress,
    join_alerts,
    join_progress,
    needs_another_round,
    scale_up_failure,
    update_slots,
)
from tests.support.inspected_nodes import machine
from tests.support.launches import NOW, node, operation, slot

ONE = f"i-{1:017x}"
TWO = f"i-{2:017x}"
LIMIT = 300


def machines(states: dict[str, str]) -> dict[str, Instance]:
    return {i: machine(i, state=state) for i, state in states.items() if state != "gone"}


def outcomes(found: object) -> list[str]:
    return [s.outcome for s in found.slots]  # type: ignore[attr-defined]


def test_a_usable_node_with_that_provider_id_has_joined() -> None:
    found = update_slots(operation(slot(1)), instances=machines({ONE: "running"}), nodes=[node(1)], now=NOW + 70)
    assert outcomes(found) == ["joined"] and found.slots[0].joined_at == NOW + 70


def test_the_record_of_a_worker_that_joined_has_the_time_in_which_its_images_were_pulled() -> None:
    pulled = {ONE: machine(ONE, images="4 of 4 in 45 s")}
    found = update_slots(operation(slot(1)), instances=pulled, nodes=[node(1)], now=NOW + 70)
    detail = join_progress(found, now=NOW + 70, limit_seconds=LIMIT).detail
    assert detail == f"{ONE} usable after 70 s (images: 4 of 4 in 45 s)"
    assert completed_sentence(found, workers_after=3).endswith(f"1 of 1 usable; images pulled: {ONE} 4 of 4 in 45 s")
    started = update_slots(operation(slot(1, standby=ONE)), instances=pulled, nodes=[node(1)], now=NOW + 40)
    assert "images" not in completed_sentence(started, workers_after=3), "it pulled them in its first life"


@pytest.mark.parametrize(("joined", "end"), [(3, "i-2 1 of 1 in 9 s"), (4, "i-2 1 of 1 in 9 s, and 1 more")])
def test_the_sentence_of_a_scale_up_names_the_pull_time_of_three_workers(joined: int, end: str) -> None:
    slots = [replace(slot(n), instance_id=f"i-{n}", outcome="joined", detail="1 of 1 in 9 s") for n in range(joined)]
    assert completed_sentence(operation(*slots), workers_after=9).endswith(end)


@pytest.mark.parametrize(
    "changes",
    [
        *({"provider_id": text} for text in ("", "aws:///a/i-0other", f"k3s://{ONE}", f"gce:///a/{ONE}")),
        {"ready": False},
        {"unschedulable": True},
    ],
)
def test_a_node_of_another_provider_id_or_that_takes_no_pods_is_not_the_workers(changes: dict[str, Any]) -> None:
    found = update_slots(operation(slot(1)), instances=machines({ONE: "running"}), nodes=[node(1, **changes)], now=NOW)
    assert outcomes(found) == ["launched"]


@pytest.mark.parametrize("key", sorted(BLOCKING_TAINT_KEYS))
def test_a_ready_node_with_a_taint_that_keeps_pods_away_has_not_joined(key: str) -> None:
    tainted = node(1, blocking_taints=(f"{key}=true:NoSchedule",))
    found = update_slots(operation(slot(1)), instances=machines({ONE: "running"}), nodes=[tainted], now=NOW + 299)
    assert outcomes(found) == ["launched"]
    over = close_unjoined(found, NodeList(nodes=(tainted,), source="server"), now=NOW + LIMIT, limit_seconds=LIMIT)
    assert outcomes(over) == ["unjoined"]
    shown = f"server shows its node Ready, but closed to pods ({key}=true:NoSchedule), 300 s after its launch"
    assert over.slots[0].detail == shown


@pytest.mark.parametrize(("age", "expected"), [(0, "launched"), (2, "launched"), (119, "launched"), (120, "failed")])
def test_an_id_that_ec2_does_not_know_yet_is_not_yet_and_later_gone(age: int, expected: str) -> None:
    found = update_slots(operation(slot(1)), instances=machines({ONE: "gone"}), nodes=[], now=NOW + age)
    assert outcomes(found) == [expected]


def test_one_fresh_id_does_not_hold_up_the_others() -> None:
    states = {ONE: "gone", TWO: "running"}
    assert outcomes(
        update_slots(operation(slot(1), slot(2)), instances=machines(states), nodes=[node(2)], now=NOW + 60)
    ) == [
        "launched",
        "joined",
    ]


@pytest.mark.parametrize("state", ["shutting-down", "terminated", "stopping", "stopped"])
def test_a_machine_that_ended_before_it_joined_is_failed_even_with_a_node(state: str) -> None:
    found = update_slots(operation(slot(1)), instances=machines({ONE: state}), nodes=[node(1)], now=NOW + 10)
    assert outcomes(found) == ["failed"] and state in found.slots[0].detail


@pytest.mark.parametrize(("age", "status"), [(0, "waiting"), (299, "waiting"), (300, "timeout"), (301, "timeout")])
def test_the_wait_ends_at_the_limit_exactly_also_for_the_rest_of_a_partial_join(age: int, status: str) -> None:
    partial = operation(slot(1, outcome="joined", joined_at=NOW + 60), slot(2))
    for found in (operation(slot(1)), partial):
        assert join_progress(found, now=NOW + age, limit_seconds=LIMIT).status == status


def test_all_joined_tells_how_long_the_slowest_took() -> None:
    found = operation(slot(1, outcome="joined", joined_at=NOW + 60), slot(2, outcome="joined", joined_at=NOW + 95))
    join = join_progress(found, now=NOW + 95, limit_seconds=LIMIT, pods_waiting=3)
    assert (join.status, join.seconds, join.pods_waiting) == ("joined", 95, 3)


def test_unknown_is_not_unjoined() -> None:
    found = close_unjoined(operation(slot(1)), NO_NODE_LIST, now=NOW + 10_000, limit_seconds=LIMIT)
    assert outcomes(found) == ["launched"]
    assert final_join_progress(found, now=NOW + 10_000, pods_waiting=None).status == "partial"
    assert [a.kind for a in join_alerts(found, keep_unjoined=False)] == ["join_unknown"]


@pytest.mark.parametrize("source", ["server", "prometheus"])
def test_what_is_known_to_be_missing_after_the_limit_is_given_up(source: str) -> None:
    node_list = NodeList(nodes=(node(9),), source=source)  # type: ignore[arg-type]
    found = close_unjoined(operation(slot(1)), node_list, now=NOW + LIMIT, limit_seconds=LIMIT)
    assert outcomes(found) == ["unjoined"] and source in found.slots[0].detail
    assert final_join_progress(found, now=NOW + LIMIT, pods_waiting=None).status == "timeout"


def test_no_instance_is_given_up_before_the_limit_even_when_an_old_operation_is_closed() -> None:
    node_list = NodeList(nodes=(node(9),), source="server")
    found = close_unjoined(
        operation(slot(1, launched_at=NOW + 700), slot(2, outcome="planned"), started_at=NOW),
        node_list,
        now=NOW + 900,
        limit_seconds=LIMIT,
    )
    assert outcomes(found) == ["launched", "failed"]


@pytest.mark.parametrize(("keep", "word"), [(False, "terminates what never joins"), (True, "kept for inspection")])
def test_the_alert_names_instance_zone_and_fate(keep: bool, word: str) -> None:
    lost = operation(slot(1, outcome="unjoined", detail="no usable node after 300 s"))
    (alert,) = join_alerts(lost, keep_unjoined=keep)
    assert alert.kind == "join_failed" and ONE in alert.text and " a" in alert.text and word in alert.text


def test_a_partial_success_says_what_is_missing() -> None:
    found = operation(
        slot(1, outcome="joined", joined_at=NOW + 60), slot(2, outcome="unjoined", detail="no usable node after 300 s")
    )
    text = "scaled up from 2 to 3 workers: 1 of 2 usable"
    assert completed_sentence(found, workers_after=3) == f"{text}; missing: {TWO} no usable node after 300 s"
    kept = found.with_slot(slot(2))
    assert completed_sentence(kept, workers_after=3) == f"{text}; kept, join unknown: {TWO}"
    whole = operation(found.slots[0], requested=2)
    assert completed_sentence(whole, workers_after=3) == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (slot(1), "waiting for 70 s"),
        (slot(1, detail="2 Nodes claim it", disputed=True), "2 Nodes claim it"),
        (slot(1, outcome="joined", joined_at=NOW + 60), "usable after 60 s"),
        (slot(1, outcome="failed", detail="EC2 reports stopped"), "EC2 reports stopped"),
        (slot(1, outcome="unjoined"), "unjoined"),
    ],
)
def test_the_progress_has_the_words_of_each_slot_and_its_counts(given: LaunchSlot, words: str) -> None:
    planned = slot(2, outcome="planned")
    found = join_progress(operation(given, planned), now=NOW + 70, limit_seconds=LIMIT)
    assert (found.detail, found.wanted) == (f"{given.instance_id} {words}; slot 2 planned", 2)
    assert found.joined == (given.outcome == "joined")
    assert found.seconds == (60 if found.joined else None)


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        ("InsufficientInstanceCapacity", "", "partial"),
        ("InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "partial"),
        ("InsufficientInstanceCapacity", "InternalError", "timeout"),
        ("", "", "timeout"),
        ("UserInitiatedShutdown", "UserInitiatedShutdown", "timeout"),
    ],
)
def test_a_join_without_a_worker_is_partial_only_when_another_pool_can_replace_each_end(
    first: str, second: str, status: str
) -> None:
    codes = {"InsufficientInstanceCapacity": "Server.", "": ""}
    slots = [
        slot(number, outcome="failed", end_code=f"{codes.get(code, 'Client.')}{code}")
        for number, code in enumerate((first, second), start=1)
    ]
    assert final_join_progress(operation(*slots), now=NOW, pods_waiting=4).status == status
    assert final_join_progress(operation(*slots), now=NOW, pods_waiting=4).pods_waiting == 4


def test_an_instance_with_a_disputed_node_stays_launched_and_is_reported_apart() -> None:
    claims = [node(1), node(1, node_name="other")]
    found = update_slots(
        operation(slot(1), slot(2)), instances=machines({ONE: "running", TWO: "running"}), nodes=claims, now=NOW
    )
    assert [(s.outcome, s.disputed) for s in found.slots] == [("launched", True), ("launched", False)]
    assert "2 Nodes claim it" in found.slots[0].detail and found.slots[1].detail == ""
    without_list = update_slots(found, instances=machines({ONE: "running", TWO: "running"}), nodes=None, now=NOW)
    assert without_list == found
    closed = close_unjoined(found, NodeList(nodes=tuple(claims), source="server"), now=NOW + LIMIT, limit_seconds=LIMIT)
    assert outcomes(closed) == ["launched", "unjoined"]
    assert closed.slots[1].detail == "server shows no usable node for it 300 s after its launch"
    alerts = join_alerts(closed, keep_unjoined=False)
    assert [alert.kind for alert in alerts] == ["join_failed", f"node_disputed:{ONE}"]
    assert alerts[0].text.startswith(f"1 launched worker never joined the cluster: {TWO} in a: server shows")


@pytest.mark.parametrize(
    ("pods", "round_number", "again"), [(3, 1, True), (3, 2, True), (3, 3, False), (0, 1, False), (None, 1, False)]
)
def test_another_round_needs_waiting_pods_and_at_most_three(pods: int | None, round_number: int, again: bool) -> None:
    join = JoinProgress(status="joined", joined=1, wanted=1, detail="", pods_waiting=pods)
    assert needs_another_round(join, round_number=round_number, max_rounds=3) is again


@pytest.mark.parametrize(
    ("failure", "slots", "error", "key"),
    [
        ({"Error": "QuotaExceededError", "Cause": "q"}, (), "QuotaExceededError", "scale_up"),
        ({"Error": "PausedError", "Cause": "p"}, (slot(1),), "PausedError", ""),
        ({"Error": "LeaseLostError", "Cause": "p"}, (), "LeaseLostError", ""),
        (None, (slot(1, outcome="unjoined"),), "NothingJoinedError", "join"),
        (None, (), None, ""),
    ],
)
def test_a_failure_adds_to_the_back_off_of_what_failed(
    failure: dict[str, str] | None, slots: tuple[object, ...], error: str | None, key: str
) -> None:
    found = scale_up_failure(failure, operation(*slots))  # type: ignore[arg-type]
    assert (found and found["error"]) == error
    assert back_off_key(found) == key


def test_the_end_of_a_console_shows_no_secret_also_where_it_is_cut() -> None:
    token = f"K10{'ab' * 32}::server:{'c' * 40}"
    shown = console_end(f"+ k3s agent --token={token}\njoin {token}\nPassword: hunter2 {'x' * 250}")
    assert "ab" * 8 not in shown and "ccc" not in shown and "hunter2" not in shown
    assert "join [removed] | [removed]" in shown


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("", ""),
        ("one  word\n\n two \n", "one word | two"),
        ("\n".join("1234567"), "3 | 4 | 5 | 6 | 7"),
        ("x" * 299 + "yz", "x" * 298 + "yz"),
    ],
    ids=["empty", "short", "seven lines", "long"],
)
def test_of_a_console_the_last_five_lines_and_300_characters_are_shown(output: str, shown: str) -> None:
    assert console_end(output) == shown
