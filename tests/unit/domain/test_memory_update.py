"""What a decision leaves for the next one, and which of its alerts are sent."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import BackOff, Memory, ReadingPoint, ShapeLaunch, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scaling.alerts import at_maximum, missing_names, new_alerts
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.memory_update import newly_usable
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, pods, snapshot, worker, workers

POLICY = Policy()
ALERT = Alert(kind="k", text="t")


CHANGED = {"since", "readings", "predictive_hold_until", "predictive_hold_workers", "predicted_hour", "launched_for"}
CHANGED |= {"not_helped", "plain_owners", "back_offs", "fresh", "alerted", "learned", "launch_image", "roll_out"}
CHANGED |= {"rebooted", "spot_pools", "spot_at"}
"""The fields of the memory that a decision fills."""
STORED: dict[type, Any] = {str: "stored", int: 7, tuple: ("stored",), dict: {"stored": 7}}


def test_a_decision_keeps_every_other_field_of_the_memory() -> None:
    """It makes the memory field by field, so that one which is added later can be forgotten."""
    kept = {f.name: STORED[type(getattr(Memory(), f.name))] for f in fields(Memory) if f.name not in CHANGED}
    found = decide(snapshot(), Memory(**kept), POLICY, START).memory
    assert {name: getattr(found, name) for name in kept} == kept


@pytest.mark.parametrize(("ago", "is_new"), [(None, True), (0, False), (3600, False), (3601, True)])
def test_a_cause_is_reported_again_only_after_it_was_absent_for_the_quiet_time(ago: int | None, is_new: bool) -> None:
    memory = Memory(alerted={} if ago is None else {"k": START - ago})
    new, alerted = new_alerts(make_tick(snapshot(), memory, POLICY, START), [("k", ALERT)])
    assert (new, alerted) == ((ALERT,) if is_new else (), {"k": START})


def test_a_cause_that_is_absent_is_remembered_for_the_quiet_time() -> None:
    memory = Memory(alerted={"kept": START - 3600, "over": START - 3601})
    assert new_alerts(make_tick(snapshot(), memory, POLICY, START), []) == ((), {"kept": START - 3600})


@pytest.mark.parametrize(
    ("seen", "policy", "names"),
    [
        ({}, POLICY, []),
        ({"cpu_percent": None, "memory_percent": float("inf")}, POLICY, ["cpu_percent", "memory_percent"]),
        ({"cpu_percent": None, "memory_percent": None}, replace(POLICY, use_memory=False), ["cpu_percent"]),
        ({"pending": None, "missing": ("nodes", "custom:queue")}, POLICY, ["nodes", "pending"]),
        ({"missing": ("memory_max",)}, replace(POLICY, use_memory=False), []),
        ({"missing": ("memory_max",)}, POLICY, ["memory_max"]),
    ],
    ids=str,
)
def test_the_names_of_missing_data_are_those_that_the_settings_use(
    seen: dict[str, Any], policy: Policy, names: list[str]
) -> None:
    assert missing_names(make_tick(snapshot(**seen), Memory(), policy, START)) == names


def test_data_that_is_missing_for_two_readings_is_reported() -> None:
    found = []
    memory = Memory()
    for number in range(3):
        at = START + number * TICK
        decision = decide(snapshot(at, cpu_percent=None), memory, POLICY, at)
        memory = decision.memory
        found.append([alert.text for alert in decision.alerts])
    text = "cpu_percent missing for 2 readings; no worker is removed until the data is back"
    assert found == [[], [text], []]


def test_the_alert_at_the_maximum_names_what_asks_and_the_setting() -> None:
    tick = make_tick(snapshot(workers=workers(10)), Memory(), POLICY, START)
    key, alert = at_maximum(tick, "pending 3", 2, tick.launchable(()))
    text = "at the maximum: pending 3, but 10 of 10 workers run; raise max_workers to allow more"
    assert (key, alert) == ("at_maximum", Alert(kind="at_maximum", text=text))


def test_an_exporter_that_is_stale_is_reported_while_readings_are_live() -> None:
    stale = decide(snapshot(problem="kube-state-metrics is stale"), Memory(), POLICY, START)
    assert [alert.kind for alert in stale.alerts] == ["exporter_stale"]
    cached = decide(snapshot(START - 30, source="cached", problem="no answer"), Memory(), POLICY, START)
    assert cached.alerts == ()


@pytest.mark.parametrize("seen", [{"source": "none"}, {"read_at": START - POLICY.cached_reading_seconds}])
def test_pods_of_an_unusable_reading_are_neither_counted_nor_reported(seen: dict[str, Any]) -> None:
    launched = (ShapeLaunch(shape="9m/9Mi", at=START - 60, count=3),)
    memory = Memory(launched_for=launched, not_helped={"9m/9Mi": START + 9})
    found = decide(snapshot(pending=pods(1, 99_000), **seen), memory, POLICY, START)
    assert [alert.kind for alert in found.alerts] == ["metrics_unavailable"]
    assert (found.memory.launched_for, found.memory.not_helped) == (launched, memory.not_helped)
    assert not any(check.name.startswith("pod") for check in found.evidence)


@pytest.mark.parametrize(("action", "at"), [("scale_up", START), ("none", None)])
def test_only_a_launch_remembers_the_pods_that_it_is_for(action: str, at: int | None) -> None:
    maximum = 10 if action == "scale_up" else 4
    found = decide(snapshot(pending=pods(2, 1500)), Memory(), replace(POLICY, max_workers=maximum), START)
    assert found.action == action
    assert [(one.shape, one.at, one.count) for one in found.memory.launched_for] == (
        [("1500m/256Mi", at, 2)] if at else []
    )
    assert (found.new_workers == ()) is (action == "none")


@pytest.mark.parametrize(("waiting", "inspected"), [(0, "i-0009"), (1, "")])
def test_a_run_without_an_action_inspects_the_first_worker_that_never_joined(waiting: int, inspected: str) -> None:
    crew = (*workers(4), worker(9, "unjoined"), worker(10, "unjoined"))
    found = decide(snapshot(workers=crew, pending=pods(waiting, 1500)), Memory(), POLICY, START)
    assert (found.action, found.replace) == ("scale_up" if waiting else "none", inspected)
    assert decide(snapshot(), Memory(), POLICY, START).replace == ""


def test_without_a_reading_streaks_stay_until_the_gap_and_the_idle_time_starts_again() -> None:
    since = {
        "idle": Streak(since=START - 600, last=START - 10, readings=5),
        "cpu": Streak(since=START - 600, last=START - POLICY.reading_gap_seconds, readings=5),
        "memory": Streak(since=START - 600, last=START - POLICY.reading_gap_seconds - 1, readings=5),
    }
    found = decide(snapshot(source="none"), Memory(since=since), POLICY, START)
    assert found.memory.since == {"cpu": since["cpu"]}


def test_back_offs_of_workers_that_exist_and_of_actions_are_kept() -> None:
    kept = [BackOff(key=key, failures=1, until=START + 9) for key in ("join", "node:i-0001")]
    gone = BackOff(key="node:i-0099", failures=1, until=START + 9)
    found = decide(snapshot(), Memory(back_offs=(*kept, gone)), POLICY, START)
    assert list(found.memory.back_offs) == kept


@pytest.mark.parametrize(("launched_ago", "is_new"), [(630, True), (631, False)])
def test_a_worker_is_newly_usable_until_its_join_limit_the_grace_and_a_gap_are_over(
    launched_ago: int, is_new: bool
) -> None:
    crew = (worker(1, launched_at=START - launched_ago), worker(2, launched_at=START - 99, phase="joining"))
    tick = make_tick(snapshot(workers=crew), Memory(), POLICY, START)
    assert newly_usable(tick) == ({"i-0001": START} if is_new else {})
    seen_before = replace(tick, memory=Memory(fresh={"i-0001": START - 50, "i-0009": 1}))
    assert newly_usable(seen_before) == ({"i-0001": START - 50} if is_new else {})


@pytest.mark.parametrize(
    ("seen", "past_at", "kept"),
    [
        ({}, START - 120, 2),
        ({}, START, 1),
        ({"source": "cached"}, START - 120, 1),
        ({"source": "none"}, START - 120, 1),
    ],
)
def test_each_live_reading_is_kept_once(seen: dict[str, Any], past_at: int, kept: int) -> None:
    past = ReadingPoint(at=past_at, cpu_percent=1.0, memory_percent=1.0, pending=0, usable=1)
    found = decide(snapshot(pending=pods(3), **seen), Memory(readings=(past,)), POLICY, START).memory.readings
    assert len(found) == kept and found[0] == past
    if kept == 2:
        assert found[1] == ReadingPoint(at=START, cpu_percent=50.0, memory_percent=40.0, pending=3, usable=4)


def test_only_the_newest_readings_are_kept() -> None:
    past = tuple(ReadingPoint(at=n, cpu_percent=1.0, memory_percent=1.0, pending=0, usable=1) for n in range(1, 4))
    found = decide(snapshot(), Memory(readings=past), replace(POLICY, readings_kept=3), START).memory.readings
    assert [one.at for one in found] == [2, 3, START]
