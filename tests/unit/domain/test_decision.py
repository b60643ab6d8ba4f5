"""The order of the rules and their exact boundaries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import BackOff, Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.decision import decide
from node_fleet.domain.scaling.explain import leading_check, sentence
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, TICK, Fleet, at_ticks, idle, pods, snapshot, worker, workers

POLICY = Policy()
LONG_IDLE = Memory(since={"idle": Streak(since=START - 600, last=START - 120, readings=5)})


def acted(action: str, seconds_ago: int, **more: Any) -> Memory:
    return Memory(last_action=action, last_action_at=START - seconds_ago, **more)


class TestMinimum:
    @pytest.mark.parametrize(("usable", "joining", "count"), [(0, 0, 2), (1, 0, 1), (1, 1, 0), (2, 0, 0), (0, 2, 0)])
    def test_usable_and_joining_workers_are_brought_to_the_minimum(self, usable: int, joining: int, count: int) -> None:
        seen = workers(usable) + tuple(worker(f"j{k}", "joining", launched_at=START - 60) for k in range(joining))
        decision = decide(snapshot(workers=seen), Memory(), POLICY, START)
        assert (decision.count, decision.action == "scale_up") == (count, count > 0)

    @pytest.mark.parametrize(
        "change", [{"phase": "cordoned"}, {"phase": "not_ready"}, {"phase": "unjoined"}, {"under_notice": True}]
    )
    def test_a_worker_that_takes_no_pods_or_is_under_notice_does_not_count(self, change: dict[str, Any]) -> None:
        seen = (*workers(1), worker(8, **change))
        decision = decide(snapshot(workers=seen), Memory(), POLICY, START)
        assert (decision.action, decision.count, decision.rule) == ("scale_up", 1, "minimum")

    def test_an_unknown_worker_is_not_replaced_while_nobody_knows(self) -> None:
        seen = (*workers(1), worker(8, "unknown"))
        assert decide(snapshot(workers=seen), Memory(), POLICY, START).action == "none"

    def test_below_the_minimum_the_cooldown_is_not_waited_for(self) -> None:
        decision = decide(snapshot(workers=workers(1)), acted("scale_up", 1), POLICY, START)
        assert decision.action == "scale_up"

    @pytest.mark.parametrize(
        ("cpu", "cooldown"),
        [
            (20.0, "cooldown 540 s left of 600 s [cooldown_down_seconds]"),
            (75.0, "cooldown 240 s left of 300 s [cooldown_up_seconds]"),
        ],
    )
    def test_without_a_change_the_cooldown_is_that_of_the_action_that_came_nearest(
        self, cpu: float, cooldown: str
    ) -> None:
        decision = decide(snapshot(workers=workers(4), cpu_percent=cpu), acted("scale_up", 60), POLICY, START)
        assert (decision.action, decision.reasons[1:]) == ("none", (cooldown,))

    def test_the_launch_stays_within_headroom(self) -> None:
        seen = (*workers(1), *(worker(k, "unjoined") for k in range(10, 18)))
        policy = replace(POLICY, min_workers=5)
        decision = decide(snapshot(workers=seen), Memory(), policy, START)
        assert (decision.count, decision.workers_before, decision.workers_after) == (1, 9, 10)

    def test_without_headroom_nothing_is_launched_and_an_alert_is_sent(self) -> None:
        seen = tuple(worker(k, "unjoined") for k in range(10))
        decision = decide(snapshot(workers=seen), Memory(), POLICY, START)
        assert (decision.action, decision.blocked_by) == ("none", ("maximum",))
        assert [a.kind for a in decision.alerts] == ["at_maximum"]

    def test_without_metrics_every_instance_counts_and_only_the_minimum_is_enforced(self) -> None:
        enough = snapshot(source="none", workers=workers(2), cpu_percent=99.0, pending=pods(9))
        assert decide(enough, LONG_IDLE, POLICY, START).action == "none"
        seen = snapshot(source="none", workers=(worker(1, "unknown"),), cpu_percent=99.0, pending=pods(9))
        decision = decide(seen, Memory(), POLICY, START)
        assert (decision.action, decision.count, decision.rule) == ("scale_up", 1, "minimum")
        assert [a.kind for a in decision.alerts] == ["metrics_unavailable"]


class TestUp:
    @pytest.mark.parametrize(("count", "launched"), [(0, 0), (1, 1), (5, 1), (6, 2), (60, 2)])
    def test_unschedulable_pods_count_at_once_and_more_than_five_are_urgent(self, count: int, launched: int) -> None:
        assert decide(snapshot(pending=pods(count)), Memory(), POLICY, START).count == launched

    @pytest.mark.parametrize(("cpu", "action"), [(70.0, "none"), (70.1, "scale_up"), (99.0, "scale_up")])
    def test_cpu_must_be_over_its_mark_for_two_readings(self, cpu: float, action: str) -> None:
        fleet = Fleet()
        first, second = at_ticks([{"cpu_percent": cpu}] * 2)
        assert fleet.tick(first).action == "none"
        assert fleet.tick(second).action == action

    @pytest.mark.parametrize(("memory", "action"), [(75.0, "none"), (75.1, "scale_up")])
    def test_memory_must_be_over_its_mark_for_two_readings(self, memory: float, action: str) -> None:
        fleet = Fleet()
        assert fleet.ticks(*at_ticks([{"memory_percent": memory}] * 2)).action == action

    @pytest.mark.parametrize(("cpu", "count"), [(85.0, 1), (85.1, 2)])
    def test_cpu_over_85_takes_two(self, cpu: float, count: int) -> None:
        assert Fleet().ticks(*at_ticks([{"cpu_percent": cpu}] * 2)).count == count

    def test_a_first_spike_is_recorded_and_waits(self) -> None:
        decision = Fleet().tick(snapshot(cpu_percent=95.0))
        assert (decision.action, decision.memory.since["cpu"].readings) == ("none", 1)
        assert decision.sentence.startswith("CPU 95.0 % over 70 %, reading 1 of 2 -> no change")

    @pytest.mark.parametrize(("between", "action"), [(60.0, "none"), (None, "scale_up")])
    def test_a_reading_under_the_mark_ends_the_run_and_a_missing_one_does_not(
        self, between: float | None, action: str
    ) -> None:
        readings: list[dict[str, Any]] = [{"cpu_percent": c} for c in (80.0, between, 80.0)]
        assert Fleet().ticks(*at_ticks(readings)).action == action

    @pytest.mark.parametrize(
        ("seconds", "action"),
        [(10, "none"), (89, "none"), (90, "scale_up"), (120, "scale_up"), (300, "scale_up"), (301, "none")],
    )
    def test_two_readings_in_a_burst_or_with_a_gap_between_are_not_sustained_load(
        self, seconds: int, action: str
    ) -> None:
        first, second = (snapshot(at, cpu_percent=80.0) for at in (START, START + seconds))
        assert Fleet().ticks(first, second).action == action

    def test_the_same_reading_seen_twice_counts_once(self) -> None:
        fleet = Fleet()
        fleet.tick(snapshot(START, cpu_percent=80.0))
        again = fleet.tick(snapshot(START + TICK, cpu_percent=80.0, read_at=START, source="cached"))
        assert (again.action, again.memory.since["cpu"].readings) == ("none", 1)

    def test_at_the_maximum_nothing_is_launched_and_an_alert_is_sent_once(self) -> None:
        fleet = Fleet()
        full = {"pending": pods(3), "workers": workers(10)}
        decisions = [fleet.tick(seen) for seen in at_ticks([full] * 3)]
        assert [d.action for d in decisions] == ["none"] * 3
        assert [[a.kind for a in d.alerts] for d in decisions] == [["at_maximum"], [], []]
        assert [d.notify for d in decisions] == [True, False, False]

    @pytest.mark.parametrize(("running", "count"), [(8, 2), (9, 1), (10, 0)])
    def test_a_launch_never_passes_the_maximum(self, running: int, count: int) -> None:
        assert decide(snapshot(pending=pods(9), workers=workers(running)), Memory(), POLICY, START).count == count

    def test_instances_that_never_joined_use_up_headroom(self) -> None:
        seen = (*workers(4), *(worker(k, "unjoined") for k in range(20, 26)))
        assert decide(snapshot(pending=pods(9), workers=seen), Memory(), POLICY, START).blocked_by == ("maximum",)

    def test_one_under_notice_frees_its_place(self) -> None:
        seen = (*workers(9), worker(30, under_notice=True))
        assert decide(snapshot(pending=pods(9), workers=seen), Memory(), POLICY, START).count == 1


class TestJoining:
    @pytest.mark.parametrize(("cpu", "launched"), [(80.0, 0), (99.0, 1)])
    def test_only_cpu_that_joining_workers_cannot_relieve_asks_for_one_more(self, cpu: float, launched: int) -> None:
        joining = worker("j", "joining", launched_at=START - 60)
        decision = Fleet().ticks(*at_ticks([{"cpu_percent": cpu, "workers": (*workers(3), joining)}] * 2))
        assert decision.count == launched
        relieved = "CPU 80.0 % over 70 %, but 60.0 % with 1 joining worker"
        assert (relieved in decision.sentence) is (launched == 0)


class TestCooldown:
    READINGS = Memory(since={"cpu": Streak(since=START - 120, last=START - 120, readings=1)})

    @pytest.mark.parametrize("last", ["scale_up", "scale_down"])
    @pytest.mark.parametrize(("ago", "action"), [(299, "none"), (300, "scale_up")])
    def test_a_scale_up_needs_300_s_since_either_kind(self, last: str, ago: int, action: str) -> None:
        memory = replace(self.READINGS, last_action=last, last_action_at=START - ago)
        decision = decide(snapshot(cpu_percent=80.0), memory, POLICY, START)
        assert decision.action == action
        assert (decision.blocked_by == ("cooldown",)) == (action == "none")

    @pytest.mark.parametrize("last", ["scale_up", "scale_down"])
    @pytest.mark.parametrize(("ago", "action"), [(599, "none"), (600, "scale_down")])
    def test_a_scale_down_needs_600_s_since_either_kind(self, last: str, ago: int, action: str) -> None:
        memory = acted(last, ago, since=LONG_IDLE.since)
        assert decide(idle(), memory, POLICY, START).action == action

    @pytest.mark.parametrize("bypass", [True, False])
    def test_unschedulable_pods_wait_for_it_only_when_the_setting_says_so(self, bypass: bool) -> None:
        policy = replace(POLICY, pending_bypasses_cooldown=bypass)
        decision = decide(snapshot(pending=pods(1)), acted("scale_up", 10), policy, START)
        assert (decision.action, decision.blocked_by) == (("scale_up", ()) if bypass else ("none", ("cooldown",)))
        assert ("cooldown 290 s left of 300 s, not required" in decision.sentence) is bypass

    def test_pods_that_joining_workers_will_hold_bypass_nothing(self) -> None:
        joining = worker("j", "joining", launched_at=START - 60)
        seen = snapshot(pending=pods(2), workers=(*workers(3), joining))
        assert decide(seen, acted("scale_up", 10), POLICY, START).action == "none"

    @pytest.mark.parametrize(("last", "ago", "action"), [("scale_up", 300, "scale_down"), ("scale_down", 599, "none")])
    def test_by_the_last_action_when_the_setting_says_so(self, last: str, ago: int, action: str) -> None:
        policy = replace(POLICY, cooldown_by="last")
        assert decide(idle(), acted(last, ago, since=LONG_IDLE.since), policy, START).action == action


class TestBackOff:
    def test_the_open_circuit_breaker_keeps_every_launch_back_and_says_so(self) -> None:
        memory = Memory(back_offs=(BackOff(key="join", failures=3, until=START + 500),))
        for seen in (snapshot(pending=pods(6)), snapshot(workers=workers(1))):
            decision = decide(seen, memory, POLICY, START)
            assert (decision.action, decision.blocked_by) == ("none", ("circuit_breaker",))
            assert (
                "circuit breaker open: 3 scale-ups in a row without a join, next launch in 8 min" in decision.sentence
            )
            assert [a.kind for a in decision.alerts] == ["circuit_breaker"]

    @pytest.mark.parametrize(("until", "action"), [(START, "scale_up"), (START + 1, "none")])
    def test_a_failed_scale_up_is_in_back_off_to_the_second(self, until: int, action: str) -> None:
        memory = Memory(back_offs=(BackOff(key="scale_up", failures=1, until=until),))
        assert decide(snapshot(pending=pods(1)), memory, POLICY, START).action == action

    def test_two_failures_in_a_row_do_not_open_the_breaker(self) -> None:
        memory = Memory(back_offs=(BackOff(key="join", failures=2, until=0),))
        assert decide(snapshot(pending=pods(1)), memory, POLICY, START).action == "scale_up"

    @pytest.mark.parametrize(("until", "action"), [(START + 1, "none"), (START, "scale_down")])
    def test_a_refused_termination_pauses_removals_and_no_launch(self, until: int, action: str) -> None:
        memory = replace(LONG_IDLE, back_offs=(BackOff(key="removal", failures=1, until=until),))
        decision = decide(idle(), memory, POLICY, START)
        assert (decision.action, decision.blocked_by) == (action, ("removal_back_off",) if action == "none" else ())
        assert any(c.name == "removal_back_off" for c in decision.evidence) is (action == "none")
        assert decide(snapshot(pending=pods(3)), memory, POLICY, START).action == "scale_up"

    def test_the_back_off_of_a_worker_that_no_longer_exists_is_removed(self) -> None:
        offs = tuple(BackOff(key=f"node:{i}", failures=1, until=START + 9) for i in ("i-0001", "i-gone"))
        after = decide(snapshot(), Memory(back_offs=offs), POLICY, START).memory
        assert [b.key for b in after.back_offs] == ["node:i-0001"]


class TestDown:
    def test_after_ten_idle_minutes_one_worker_is_removed(self) -> None:
        fleet = Fleet()
        decisions = [fleet.tick(idle(START + k * TICK)) for k in range(6)]
        assert [d.action for d in decisions] == ["none"] * 5 + ["scale_down"]
        assert (decisions[-1].count, decisions[-1].rule) == (1, "idle")

    @pytest.mark.parametrize(
        "changes",
        [
            {"cpu_percent": 30.0},
            {"memory_percent": 50.0},
            {"pending": pods(1)},
            {"cpu_percent": None},
            {"cpu_percent": float("nan")},
            {"memory_percent": None},
            {"memory_percent": float("inf")},
            {"pending": None},
            {"missing": ("nodes",)},
            {"missing": ("cpu_percent:i-0001",)},
            {"source": "cached"},
            {"read_at": START - 300},
            {"source": "none"},
            {"workers": (*workers(4), worker(9, "unknown"))},
        ],
    )
    def test_one_condition_not_met_or_not_known_resets_the_idle_clock(self, changes: dict[str, Any]) -> None:
        decision = decide(idle(**changes), LONG_IDLE, POLICY, START)
        assert decision.action != "scale_down"
        assert "idle" not in decision.memory.since

    @pytest.mark.parametrize("changes", [{"cpu_percent": 29.9}, {"memory_percent": 48.0}])
    def test_just_under_every_threshold_a_worker_is_removed(self, changes: dict[str, Any]) -> None:
        assert decide(idle(**changes), LONG_IDLE, POLICY, START).action == "scale_down"

    @pytest.mark.parametrize(("usable", "action"), [(2, "none"), (3, "scale_down")])
    def test_usable_workers_must_be_more_than_the_minimum(self, usable: int, action: str) -> None:
        seen = (*workers(usable), worker(20, "joining", launched_at=START), worker(21, "cordoned"))
        assert decide(idle(workers=seen), LONG_IDLE, POLICY, START).action == action

    def test_a_reading_that_lacks_only_a_metric_of_ones_own_still_counts(self) -> None:
        assert decide(idle(missing=("custom:queue_depth",)), LONG_IDLE, POLICY, START).action == "scale_down"

    def test_unused_memory_may_be_missing(self) -> None:
        policy = replace(POLICY, use_memory=False)
        seen = idle(memory_percent=None, missing=("memory_percent", "memory_percent:i-0001"))
        assert decide(seen, LONG_IDLE, policy, START).action == "scale_down"

    def test_a_removal_does_not_reset_the_idle_clock(self) -> None:
        fleet = Fleet()
        actions = [fleet.tick(idle(START + k * TICK)).action for k in range(11)]
        assert [k for k, action in enumerate(actions) if action == "scale_down"] == [5, 10]

    @pytest.mark.parametrize(("wanted", "usable", "count"), [(1, 9, 1), (3, 9, 3), (3, 4, 2)])
    def test_as_many_are_removed_as_the_setting_and_the_minimum_allow(
        self, wanted: int, usable: int, count: int
    ) -> None:
        policy = replace(POLICY, max_targets=wanted)
        light = workers(usable, cpu_requested_milli=200, memory_requested_mib=100)
        decision = decide(idle(workers=light), LONG_IDLE, policy, START)
        assert (decision.action, decision.count) == ("scale_down", count)

    def test_fewer_go_when_the_rest_could_not_carry_the_load_of_all(self) -> None:
        decision = decide(idle(workers=workers(4)), LONG_IDLE, replace(POLICY, max_targets=3), START)
        assert decision.count == 1


class TestProjection:
    @pytest.mark.parametrize(
        ("usable", "memory", "action"),
        [(3, 43.3, "scale_down"), (3, 43.4, "none"), (4, 48.7, "scale_down"), (4, 48.8, "none")],
    )
    def test_memory_after_the_removal_stays_ten_points_under_its_mark(
        self, usable: int, memory: float, action: str
    ) -> None:
        seen = idle(workers=workers(usable), memory_percent=memory)
        assert decide(seen, LONG_IDLE, POLICY, START).action == action

    @pytest.mark.parametrize(("requested", "action"), [(1200, "scale_down"), (1201, "none")])
    def test_the_requests_of_the_pods_that_move_must_fit_on_the_rest(self, requested: int, action: str) -> None:
        seen = idle(workers=workers(3, cpu_requested_milli=requested))
        decision = decide(seen, LONG_IDLE, POLICY, START)
        assert decision.action == action
        assert ("requests would be 90.1 %, over 90 %" in decision.sentence) == (action == "none")

    def test_requests_known_of_some_workers_only_are_missing(self) -> None:
        seen = idle(workers=(*workers(3), worker(7, cpu_requested_milli=None)))
        assert decide(seen, LONG_IDLE, POLICY, START).action == "none"

    def test_the_last_worker_stays(self) -> None:
        policy = replace(POLICY, min_workers=0)
        assert decide(idle(workers=workers(1)), LONG_IDLE, policy, START).action == "none"


class TestCached:
    @pytest.mark.parametrize(
        ("age", "action", "alerts"), [(299, "scale_up", []), (300, "none", ["metrics_unavailable"])]
    )
    def test_only_a_young_cached_reading_justifies_a_scale_up(self, age: int, action: str, alerts: list[str]) -> None:
        seen = snapshot(source="cached", read_at=START - age, pending=pods(2))
        decision = decide(seen, Memory(), POLICY, START)
        assert decision.action == action
        assert [a.kind for a in decision.alerts] == alerts


def test_a_quiet_tick_names_the_unjoined_instance_to_look_for_and_an_active_one_does_not() -> None:
    lost = worker(9, "unjoined")
    quiet = decide(snapshot(workers=(*workers(2), lost)), Memory(), POLICY, START)
    assert (quiet.action, quiet.replace) == ("none", lost.instance_id)
    active = decide(snapshot(workers=(lost,)), Memory(), POLICY, START)
    assert (active.action, active.replace) == ("scale_up", "")


def test_only_the_last_readings_are_kept() -> None:
    fleet = Fleet()
    for k in range(14):
        fleet.tick(snapshot(START + k * TICK, cpu_percent=float(k)))
    assert [r.cpu_percent for r in fleet.memory.readings] == [float(k) for k in range(4, 14)]


def test_an_alert_is_sent_again_only_after_its_cause_was_absent_for_an_hour() -> None:
    fleet = Fleet()
    full = {"pending": pods(3), "workers": workers(10)}
    assert fleet.tick(snapshot(START, **full)).alerts
    assert not fleet.tick(snapshot(START + 3600, **full)).alerts
    assert not fleet.tick(snapshot(START + 7200, **full)).alerts
    assert fleet.tick(snapshot(START + 7200 + 3601, **full)).alerts


class TestWords:
    ORDER: tuple[Verdict, ...] = ("up", "blocked", "waiting", "hold", "missing", "down", "ok")

    @pytest.mark.parametrize("place", range(6))
    def test_the_check_that_came_nearest_to_an_action_leads(self, place: int) -> None:
        nearer, farther, other = (Check(name=v, verdict=v, text=v) for v in (*self.ORDER[place : place + 2], "ok"))
        assert leading_check([farther, nearer, other]) is nearer

    def test_of_equal_checks_the_first_leads(self) -> None:
        first, second = (Check(name=name, verdict="hold", text=name) for name in ("cpu", "memory"))
        assert leading_check([first, second]) is first

    def test_the_sentence_has_the_leading_check_then_what_blocks_and_leaves_out_what_is_aside(self) -> None:
        lead, *_ = checks = (
            Check(name="pending", verdict="up", text="pending 3"),
            Check(name="cpu", verdict="down", text="CPU 10 %"),
            Check(name="idle", verdict="hold", text="not idle", aside=True),
            Check(name="custom:low", verdict="down", text="low"),
            Check(name="custom:high", verdict="ok", text="queue 5"),
            Check(name="cooldown", verdict="blocked", text="cooldown 10 s left"),
        )
        tick = make_tick(snapshot(workers=(*workers(3), worker(8, under_notice=True))), Memory(), POLICY, START)
        text = sentence(tick, "none", 0, lead, checks)
        assert text == (
            "pending 3 -> no change; cooldown 10 s left; CPU 10 %; queue 5; workers 3 of 10, 1 under notice"
        )
        assert sentence(tick, "scale_up", 2, lead, [lead]).startswith("pending 3 -> +2; workers 3")
        assert sentence(tick, "scale_down", 1, lead, [lead]).startswith("pending 3 -> -1; workers 3")

    @pytest.mark.parametrize(("source", "is_named"), [("live", False), ("cached", True), ("none", False)])
    def test_the_sentence_names_the_age_of_a_cached_reading(self, source: str, is_named: bool) -> None:
        tick = make_tick(snapshot(START - 30, source=source), Memory(), POLICY, START)
        lead = Check(name="cpu", verdict="ok", text="CPU 50 %")
        assert ("; on a reading 30 s old; workers" in sentence(tick, "none", 0, lead, [lead])) is is_named
