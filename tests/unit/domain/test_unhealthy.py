"""Repair: how long a bad condition must last, what replaces the worker, and when the cause is likely shared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import STATUS_CHECK, Worker
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.outdated import outdated_workers
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.domain.scaling.unhealthy import with_status_checks
from tests.support.decisions import START, TICK, snapshot, worker, workers

POLICY = Policy(unhealthy_seconds=1800)


def ill(number: int, *conditions: str, **changes: Any) -> Worker:
    return worker(number, node_name=f"i-{number:04}", conditions=conditions or ("DiskPressure",), **changes)


def since(seconds: int, *numbers: int) -> Memory:
    """A memory in which these workers have had a bad condition for that long, up to the tick before."""
    begun = START - seconds
    return Memory(since={f"unhealthy:i-{n:04}": Streak(since=begun, last=START - TICK, readings=9) for n in numbers})


def decided(seen: tuple[Worker, ...], memory: Memory, policy: Policy = POLICY, **more: Any) -> Decision:
    return decide(snapshot(workers=seen, **more), memory, policy, START)


@pytest.mark.parametrize(("seconds", "action"), [(1799, "none"), (1800, "replace")])
def test_a_condition_must_last_for_the_whole_time(seconds: int, action: str) -> None:
    decision = decided((*workers(3), ill(9)), since(seconds, 9))
    assert decision.action == action
    if action == "replace":
        assert (decision.rule, decision.replace) == ("unhealthy", "i-0009")
        assert decision.sentence.startswith("i-0009 unhealthy: DiskPressure for 1800 s -> replace 1")


@pytest.mark.parametrize(("source", "reported"), [("live", True), ("cached", False)])
def test_many_unhealthy_workers_are_reported_from_a_live_reading_alone(source: str, reported: bool) -> None:
    seen = (*workers(2), ill(8, STATUS_CHECK), ill(9, STATUS_CHECK))
    decision = decided(seen, Memory(), source=source)
    assert ("many_unhealthy" in [alert.kind for alert in decision.alerts]) is reported


def test_a_cached_reading_shows_no_condition_for_longer() -> None:
    before = since(900, 9)
    after = decided((*workers(3), ill(9)), before, source="cached").memory
    assert after.since["unhealthy:i-0009"] == before.since["unhealthy:i-0009"]


def test_a_condition_that_ended_in_between_begins_again() -> None:
    first = decided((*workers(3), worker(9)), since(1800, 9))
    assert "unhealthy:i-0009" not in first.memory.since
    again = decided((*workers(3), ill(9)), first.memory)
    assert again.action == "none" and again.memory.since["unhealthy:i-0009"].since == START


def test_only_the_workers_that_ec2_names_have_a_failed_status_check() -> None:
    seen = snapshot(workers=(worker(1), ill(2), ill(3)))
    found = with_status_checks(seen, dict.fromkeys(("i-0002", "i-0009"), STATUS_CHECK))
    assert [w.conditions for w in found.workers] == [(), ("DiskPressure", STATUS_CHECK), ("DiskPressure",)]


def test_an_impaired_status_check_counts_at_once_because_ec2_knows_its_age() -> None:
    assert decided((*workers(3), ill(9, STATUS_CHECK)), Memory()).replace == "i-0009"


def test_it_comes_before_drift_and_is_repaired_while_a_roll_out_is_stopped() -> None:
    memory = since(1800, 9)
    stopped = replace(memory.roll_out, stopped="x", stopped_version="2", good_version="1")
    seen = (worker(1, drift="image a, today b"), *workers(3)[2:], worker(5), worker(6), ill(9))
    decision = decided(seen, replace(memory, roll_out=stopped), template_version="2")
    assert (decision.action, decision.replace) == ("replace", "i-0009")


def test_a_worker_that_accepts_no_pods_for_lack_of_a_network_is_repaired() -> None:
    seen = (*workers(4), ill(9, "NetworkUnavailable", phase="unjoined"))
    assert decided(seen, since(1800, 9)).replace == "i-0009"


def test_repair_can_be_turned_off() -> None:
    assert decided((*workers(3), ill(9)), since(9000, 9), replace(POLICY, repair=False)).action == "none"


@pytest.mark.parametrize(
    ("bad", "total", "repaired"), [(1, 1, True), (1, 2, True), (2, 10, True), (2, 9, False), (3, 14, False)]
)
def test_above_a_fifth_and_from_two_on_none_is_repaired_and_one_alert_says_why(
    bad: int, total: int, repaired: bool
) -> None:
    seen = (*workers(total - bad), *(ill(50 + n) for n in range(bad)))
    memory = since(1800 + TICK, *(50 + n for n in range(bad)))
    tick = make_tick(snapshot(workers=seen), memory, POLICY, START)
    assert bool(outdated_workers(tick)) is repaired
    decision = decide(snapshot(workers=seen), memory, replace(POLICY, min_workers=1, max_workers=50), START)
    alerts = [a for a in decision.alerts if a.kind == "many_unhealthy"]
    assert len(alerts) == (0 if repaired else 1)
    if alerts:
        assert f"{bad} of {total} workers unhealthy, over 20 %" in alerts[0].text
        assert "the cause is likely shared" in alerts[0].text
        again = decide(snapshot(workers=seen), decision.memory, POLICY, START)
        assert not [a for a in again.alerts if a.kind == "many_unhealthy"]


def test_workers_that_are_not_ready_for_long_count_and_are_not_removed_either() -> None:
    lost = worker(8, "not_ready", not_ready_seconds=1200)
    decision = decided((*workers(5), lost, ill(9)), since(1800, 9))
    assert decision.action == "none"
    assert any("2 of 7 workers unhealthy, over 20 %: none is repaired" in c.text for c in decision.evidence)
    assert decided((*workers(5), lost), Memory()).replace == "i-0008"


def test_without_live_data_no_condition_is_judged() -> None:
    decision = decided((*workers(3), ill(9)), since(1800, 9), source="cached")
    assert decision.action == "none"
    assert decision.memory.since["unhealthy:i-0009"].last == START - TICK
