"""The roll-out: when an outdated worker is replaced, how its replacement proves itself, and what stops everything."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.errors import LaunchConfigurationError
from node_fleet.domain.model.k3s_version import is_newer
from node_fleet.domain.model.memory import BackOff, Memory, Replacement, RollOut, newest_memory
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.weight import LimitUse
from node_fleet.domain.scale_down.eligibility import Eligibility, Kept
from node_fleet.domain.scale_down.selection import choose_replaced
from node_fleet.domain.scaling import roll_out_hold
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.launch_version import launch_hold, version_to_launch
from node_fleet.domain.scaling.memory_update import record_replaced, record_replacement
from node_fleet.domain.scaling.roll_out import removed_in_vain
from node_fleet.domain.scaling.roll_out_hold import replaceable_workers
from node_fleet.domain.scaling.roll_out_stop import join_failure, resumed, stop, stopped_alert
from node_fleet.domain.scaling.tick import make_tick
from tests.support.decisions import START, idle, pods, snapshot, worker, workers

POLICY = Policy(bake_seconds=300)
OLD = "launch template version 1, today 2"
NEW = {"template_version": "2"}
NOT_LIVE: list[dict[str, Any]] = [{"source": "cached"}, {"read_at": START - 300}, {"source": "none"}]
RISING = ["v1.35.5+k3s1", "v1.36.1+k3s1", "v1.36.2+k3s1", "v1.36.2+k3s2", "v1.37.0+k3s1"]


def fleet(outdated: int = 2, current: int = 2, **changes: Any) -> tuple[Worker, ...]:
    """That many drifted workers, then workers as they would be launched today."""
    old = tuple(worker(n, drift=OLD, template_version="1", launched_at=START - 9000 + n) for n in range(outdated))
    return (*old, *(worker(50 + n, **{**NEW, **changes}) for n in range(current)))


def decided(seen: tuple[Worker, ...], memory: Memory | None = None, policy: Policy = POLICY, **more: Any) -> Decision:
    return decide(snapshot(workers=seen, template_version="2", **more), memory or Memory(), policy, START)


def step(**changes: Any) -> Memory:
    """A worker that is replaced since `since` by i-0050."""
    values: dict[str, Any] = {"worker": "i-0000", "reason": "drifted", "replacement": "i-0050", "since": START - 300}
    return Memory(roll_out=RollOut(current=Replacement(**{**values, **changes})))


def a_removal(instance_id: str) -> SetAside:
    """A removal that is set aside."""
    return SetAside(
        instance_id=instance_id, node_name=instance_id, operation_id="down-1", kind="termination", since=1, detail="x"
    )


def held(decision: Decision) -> str:
    """Why the roll-out does nothing."""
    assert decision.action == "none"
    return next(c.text for c in decision.evidence if c.name.startswith("roll_out:"))


class TestTheFirstStep:
    def test_the_oldest_drifted_worker_is_replaced_and_the_size_stays(self) -> None:
        decision = decided(fleet())
        assert (decision.action, decision.rule, decision.count) == ("replace", "drifted", 1)
        assert (decision.replace, decision.workers_before, decision.workers_after) == ("i-0000", 4, 4)
        assert decision.sentence.startswith(f"i-0000 drifted: {OLD} -> replace 1")
        assert decision.notify

    @pytest.mark.parametrize(
        ("phase", "changes", "is_replaced"),
        [
            ("usable", {"drift": OLD}, True),
            ("unjoined", {"drift": OLD}, False),
            ("cordoned", {"drift": OLD}, False),
            ("unjoined", {"conditions": ("InstanceStatusImpaired",)}, True),
            ("unjoined", {"conditions": ("InstanceStatusImpaired",), "node_name": ""}, False),
            ("cordoned", {"conditions": ("InstanceStatusImpaired",)}, False),
        ],
    )
    def test_only_an_unhealthy_worker_is_replaced_although_it_accepts_no_pods(
        self, phase: Any, changes: dict[str, Any], is_replaced: bool
    ) -> None:
        seen = (worker(7, phase, **{"node_name": "i-0007", **NEW, **changes}), *fleet(0, 4))
        tick = make_tick(snapshot(workers=seen, template_version="2"), Memory(), POLICY, START)
        assert [found for found, _ in replaceable_workers(tick)] == ["i-0007"] * is_replaced

    def test_a_current_fleet_is_left_alone(self) -> None:
        decision = decided(fleet(0, 4))
        assert decision.action == "none" and not [c for c in decision.evidence if c.name.startswith("roll_out")]

    @pytest.mark.parametrize(("mode", "action"), [("replace", "replace"), ("report", "none"), ("off", "none")])
    def test_the_settings_may_only_report_drift(self, mode: Any, action: str) -> None:
        assert decided(fleet(), policy=replace(POLICY, drift=mode)).action == action

    def test_a_worker_that_an_operator_has_marked_is_replaced_even_where_drift_is_only_reported(self) -> None:
        seen = (*workers(3), worker(9, drift="marked for rotation by ana"))
        assert decided(seen, policy=replace(POLICY, drift="off")).replace == "i-0009"

    def test_an_expired_worker_is_replaced_even_where_drift_is_only_reported(self) -> None:
        policy = replace(POLICY, drift="report", expire_after_seconds=3600, expire_jitter_percent=0)
        seen = (worker(1, launched_at=START - 3600), *fleet(1, 2, launched_at=START - 3599))
        decision = decided(tuple(replace(w, launched_at=max(w.launched_at, START - 3600)) for w in seen), policy=policy)
        assert (decision.action, decision.rule, decision.replace) == ("replace", "expired", "i-0001")

    def test_no_cooldown_holds_it(self) -> None:
        memory = Memory(last_action="scale_up", last_action_at=START - 1)
        assert decided(fleet(), memory).action == "replace"

    @pytest.mark.parametrize(
        ("changes", "memory", "why"),
        [
            ({"pending": pods(1, lasting=False, problem="its claim is not bound")}, Memory(), ""),
            ({"pending": None}, Memory(), "unknown which pods are pending"),
            ({}, Memory(back_offs=(BackOff(key="join", failures=3, until=START + 9),)), "circuit breaker open"),
            ({}, Memory(back_offs=(BackOff(key="scale_up", failures=1, until=START + 9),)), "next try in 9 s"),
            ({}, Memory(back_offs=(BackOff(key="removal", failures=1, until=START + 9),)), "next removal in 9 s"),
            ({}, Memory(roll_out=RollOut(retry_at=START + 1)), "next inspection in 1 s"),
            (
                {"set_aside": tuple(a_removal(f"i-9{n}") for n in range(2))},
                Memory(),
                "2 removals set aside",
            ),
        ],
    )
    def test_what_holds_every_replacement(self, changes: dict[str, Any], memory: Memory, why: str) -> None:
        decision = decided(fleet(), memory, **changes)
        if why:
            assert why in held(decision)
        else:
            assert decision.action == "replace"

    def test_a_joining_or_a_pending_worker_comes_first(self) -> None:
        joining = worker(60, "joining", launched_at=START - 30)
        assert "1 worker joining" in held(decided((*fleet(), joining)))
        assert decided(fleet(), pending=pods(1, cpu_milli=1900)).action == "scale_up"

    def test_pods_that_wait_and_need_no_worker_yet_hold_it(self) -> None:
        policy = replace(POLICY, pending_readings=2)
        assert held(decided(fleet(), policy=policy, pending=pods(2))).endswith("2 pods pending")

    @pytest.mark.parametrize(("not_ready", "total", "action"), [(1, 5, "replace"), (1, 4, "none"), (2, 10, "replace")])
    def test_never_while_more_than_a_fifth_of_the_fleet_is_not_ready(
        self, not_ready: int, total: int, action: str
    ) -> None:
        lost = tuple(worker(80 + n, "not_ready", not_ready_seconds=60) for n in range(not_ready))
        assert decided((*fleet(2, total - 2 - not_ready), *lost)).action == action

    def test_one_whose_drain_failed_waits_and_the_next_is_replaced(self) -> None:
        memory = Memory(back_offs=(BackOff(key="node:i-0000", failures=1, until=START + 1),))
        assert decided(fleet(), memory).replace == "i-0001"

    @pytest.mark.parametrize(
        ("workers", "minimum", "maximum", "action"),
        [(4, 4, 4, "none"), (4, 3, 4, "replace"), (4, 4, 5, "replace"), (3, 2, 3, "replace"), (2, 2, 2, "none")],
    )
    def test_where_the_maximum_is_the_minimum_no_worker_is_replaced_and_the_decision_says_why(
        self, workers: int, minimum: int, maximum: int, action: str
    ) -> None:
        rules = replace(POLICY, min_workers=minimum, max_workers=maximum)
        decision = decided(fleet(1, workers - 1), policy=rules)
        assert decision.action == action
        if action == "none":
            (held,) = [c for c in decision.evidence if c.name == "roll_out:drifted"]
            assert (held.verdict, held.setting) == ("hold", "max_workers")
            assert f"the maximum of {maximum} allows no launch before its removal" in held.text
            assert held.text.endswith("raise max_workers") and "not replaced: " in decision.sentence

    @pytest.mark.parametrize(("used", "minimum", "action"), [(6, 4, "replace"), (7, 3, "replace"), (7, 4, "none")])
    def test_a_limit_in_vcpus_holds_a_replacement_back_as_the_maximum_does(
        self, used: int, minimum: int, action: str
    ) -> None:
        limit = LimitUse(name="max_vcpu", most=8, used=used, of_kind={"t3.small/spot": 2})
        decision = decided(fleet(), policy=replace(POLICY, min_workers=minimum), limits=(limit,))
        assert decision.action == action
        if action == "none":
            (held,) = [c for c in decision.evidence if c.name == "roll_out:drifted"]
            assert "the limit max_vcpu allows no launch before its removal" in held.text
            assert held.text.endswith("raise max_vcpu") and held.setting == "max_vcpu"

    def test_an_unhealthy_worker_that_does_not_serve_may_still_be_removed_first(self) -> None:
        ill = worker(7, "unjoined", node_name="i-0007", conditions=("InstanceStatusImpaired",), **NEW)
        decision = decided((*fleet(0, 4), ill), policy=replace(POLICY, min_workers=4, max_workers=5))
        assert (decision.action, decision.replace) == ("replace", "i-0007")

    def test_a_budget_holds_it_and_is_named(self) -> None:
        policy = replace(POLICY, disruption_budgets=(Budget(nodes="0", reasons=("drifted",)),))
        assert "at most 0 workers (drifted)" in held(decided(fleet(), policy=policy))

    def test_a_budget_of_drifted_workers_holds_no_expired_one(self) -> None:
        budget = Budget(nodes="0", reasons=("drifted",))
        policy = replace(POLICY, expire_after_seconds=900_000, expire_jitter_percent=0, disruption_budgets=(budget,))
        expired = worker(7, launched_at=START - 900_000)
        decision = decided((*fleet(), expired), policy=policy)
        assert (decision.action, decision.rule, decision.replace) == ("replace", "expired", "i-0007")

    def test_without_budgets_an_unhealthy_worker_is_replaced_although_no_worker_has_joined(self) -> None:
        ill = worker(7, "unjoined", node_name="i-0007", conditions=("InstanceStatusImpaired",), **NEW)
        tick = make_tick(snapshot(workers=(ill,), template_version="2"), Memory(), POLICY, START)
        assert replaceable_workers(tick) == [("i-0007", "unhealthy")]

    def test_each_reason_asks_the_budgets_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr(roll_out_hold, "budget_hold", lambda tick, reason: asked.append(reason) or "")
        tick = make_tick(snapshot(workers=fleet(20, 20), template_version="2"), Memory(), POLICY, START)
        assert len(replaceable_workers(tick)) == 20 and asked == ["drifted"]

    def test_a_budget_of_idle_workers_does_not_hold_it(self) -> None:
        policy = replace(POLICY, idle_seconds=0, disruption_budgets=(Budget(nodes="0", reasons=("idle",)),))
        decision = decide(idle(workers=fleet(), template_version="2"), Memory(), policy, START)
        assert decision.action == "replace"

    def test_an_idle_removal_comes_first_and_needs_no_replacement(self) -> None:
        policy = replace(POLICY, idle_seconds=0, cooldown_down_seconds=0)
        decision = decide(idle(workers=fleet(), template_version="2"), Memory(), policy, START)
        assert (decision.action, decision.rule) == ("scale_down", "idle")

    def test_after_an_inspection_that_allowed_no_idle_removal_the_roll_out_does_not_wait_for_one(self) -> None:
        policy = replace(POLICY, idle_seconds=0, cooldown_down_seconds=0)
        memory = removed_in_vain(Memory(), policy, START)
        assert decide(idle(workers=fleet(), template_version="2"), memory, policy, START).action == "replace"
        assert decide(idle(workers=fleet(0, 4), template_version="2"), memory, policy, START).rule == "idle"
        later = START + policy.drain_back_off_seconds
        seen = idle(workers=fleet(), template_version="2", at=later, read_at=later)
        assert decide(seen, memory, policy, later).rule == "idle"

    @pytest.mark.parametrize("changes", NOT_LIVE)
    def test_without_live_data_nothing_is_replaced(self, changes: dict[str, Any]) -> None:
        assert decided(fleet(), **changes).action == "none"


class TestTheReplacementProvesItself:
    @pytest.mark.parametrize(("since", "action"), [(START - 299, "none"), (START - 300, "scale_down")])
    def test_the_old_worker_is_removed_after_the_bake_time(self, since: int, action: str) -> None:
        decision = decided(fleet(2, 3), step(since=since))
        assert decision.action == action
        if action == "none":
            assert held(decision) == "i-0050 replaces i-0000, Ready 299 of 300 s"
            assert decision.memory.roll_out.current is not None
        else:
            assert (decision.rule, decision.replace, decision.workers_after) == ("drifted", "i-0000", 4)

    def test_the_bake_time_counts_from_the_time_at_which_it_was_first_seen_usable(self) -> None:
        seen = fleet(2, 3, launched_at=START - 320)
        assert held(decided(seen, step())) == "i-0050 replaces i-0000, Ready 0 of 300 s"
        known = replace(step(), fresh={"i-0050": START - 299})
        assert held(decided(seen, known)) == "i-0050 replaces i-0000, Ready 299 of 300 s"
        assert decided(seen, replace(step(), fresh={"i-0050": START - 300})).replace == "i-0000"

    def test_the_surplus_worker_does_not_make_the_fleet_idle_above_its_minimum(self) -> None:
        policy = replace(POLICY, idle_seconds=0, cooldown_down_seconds=0, min_workers=4)
        seen = idle(workers=fleet(2, 3), template_version="2")
        assert decide(seen, Memory(), policy, START).rule == "idle"
        assert decide(seen, step(since=START), policy, START).action == "none"

    @pytest.mark.parametrize("phase", ["joining", "unknown", "cordoned"])
    def test_while_its_state_is_open_nothing_happens(self, phase: Any) -> None:
        decision = decided((*fleet(2, 0), worker(50, phase, **NEW), worker(51, **NEW)), step())
        assert f"is {phase}" in held(decision)

    @pytest.mark.parametrize("phase", ["not_ready", "unjoined"])
    def test_one_that_loses_ready_stops_the_roll_out(self, phase: Any) -> None:
        memory = replace(step(), roll_out=replace(step().roll_out, good_version="1"))
        seen = (*fleet(3, 0), worker(50, phase, not_ready_seconds=60, **NEW), *workers(2, template_version="1"))
        decision = decided(seen, memory)
        after = decision.memory.roll_out
        assert decision.action == "none" and after.current is None
        assert after.is_stopped("2") and not after.is_stopped("3")
        assert (after.launch_version("2"), after.launch_version("3")) == ("1", "3")
        (alert,) = [a for a in decision.alerts if a.kind == "roll_out_stopped"]
        for words in ("i-0050", "i-0000 is kept", "version 1 of the launch template", "resume --roll-out"):
            assert words in alert.text
        again = decided(seen, decision.memory)
        assert again.action == "none" and not [a for a in again.alerts if a.kind == "roll_out_stopped"]

    @pytest.mark.parametrize(("phase", "words"), [("not_ready", "lost Ready"), ("unjoined", "did not join")])
    @pytest.mark.parametrize("console", ["", "k3s: exit 1"])
    def test_a_stop_says_what_became_of_the_replacement_and_ends_with_its_console(
        self, phase: Any, words: str, console: str
    ) -> None:
        seen = (*fleet(3, 0), worker(50, phase, not_ready_seconds=60, **NEW), *workers(2))
        why = f"i-0050, which replaces i-0000, {words}; i-0000 is kept"
        stopped = decided(seen, step(), console=console).memory.roll_out.stopped
        assert stopped == (f"{why}; its console ends with: {console}" if console else why)

    def test_each_stop_is_reported_also_soon_after_another(self) -> None:
        memory = replace(step(), alerted={"roll_out_stopped": START - 60, f"roll_out_stopped:{START - 60}": START - 60})
        decision = decided((*fleet(3, 0), worker(50, "not_ready", not_ready_seconds=60, **NEW), *workers(2)), memory)
        assert [a.kind for a in decision.alerts if a.kind == "roll_out_stopped"] == ["roll_out_stopped"]

    def test_when_other_workers_lost_ready_too_it_waits(self) -> None:
        lost = (worker(50, "not_ready", not_ready_seconds=60), worker(51, "not_ready", not_ready_seconds=60))
        decision = decided((*fleet(8, 0), *lost), step())
        assert "1 other worker NotReady" in held(decision)
        assert decision.memory.roll_out.current is not None

    def test_one_lost_replacement_is_no_failure_and_two_in_a_row_are(self) -> None:
        first = decided(fleet(2, 0) + workers(2), replace(step(replacement="i-0099")))
        assert first.action == "replace" and first.memory.roll_out.lost == 1
        current = Replacement(worker="i-0000", reason="drifted", replacement="i-0098")
        second = decided(fleet(2, 0) + workers(2), Memory(roll_out=replace(first.memory.roll_out, current=current)))
        assert second.action == "none" and second.memory.roll_out.is_stopped("2")

    def test_a_replacement_under_notice_is_forgotten_and_another_worker_replaces(self) -> None:
        decision = decided((*fleet(2, 0), worker(50, under_notice=True, **NEW), *workers(2, **NEW)), step())
        assert decision.action == "replace" and decision.memory.roll_out.lost == 0

    def test_when_the_old_worker_has_ended_the_next_one_follows(self) -> None:
        decision = decided(fleet(3, 2)[1:], step())
        assert (decision.action, decision.replace) == ("replace", "i-0001")

    def test_a_worker_that_is_current_again_is_not_removed(self) -> None:
        seen = tuple(replace(w, drift="") for w in fleet(2, 3))
        decision = decided(seen, step())
        assert decision.action == "none" and decision.memory.roll_out.current is None

    def test_the_minimum_holds_the_removal(self) -> None:
        policy = replace(POLICY, min_workers=5)
        assert "effective minimum of 5" in held(decided(fleet(2, 3), step(), policy))

    def test_a_worker_that_accepts_no_pods_does_not_count_for_the_minimum_that_holds_its_removal(self) -> None:
        ill = worker(7, "unjoined", conditions=("InstanceStatusImpaired",), **NEW)
        decision = decided(
            (ill, *fleet(0, 4)), step(worker="i-0007", reason="unhealthy"), replace(POLICY, min_workers=4)
        )
        assert (decision.action, decision.replace) == ("scale_down", "i-0007")
        assert "effective minimum of 4" in held(decided(fleet(1, 3), step(), replace(POLICY, min_workers=4)))

    def test_a_removal_that_failed_is_tried_again_and_given_up_after_three(self) -> None:
        def failed(times: int) -> Decision:
            back_offs = (BackOff(key="node:i-0000", failures=times, until=START + 60),)
            begun = replace(step().roll_out, lost=1)
            return decided(fleet(1, 3), replace(step(), back_offs=back_offs, roll_out=begun))

        assert "next try in 60 s" in held(failed(2))
        assert (failed(3).action, failed(2).memory.roll_out.lost) == ("none", 1)
        assert (failed(3).memory.roll_out.current, failed(3).memory.roll_out.lost) == (None, 0)

    def test_pending_pods_hold_the_removal(self) -> None:
        seen = pods(1, cpu_milli=10)
        decision = decided((*fleet(2, 2), worker(70, "joining", launched_at=START)), step(), pending=seen)
        assert decision.action == "none"

    @pytest.mark.parametrize(("usable", "removed"), [(("a", "b"), True), (("a", "i-7"), False), (("a",), False)])
    def test_the_removal_leaves_the_minimum_of_usable_workers(self, usable: tuple[str, ...], removed: bool) -> None:
        candidate: Any = SimpleNamespace(instance=SimpleNamespace(instance_id="i-7"))
        found = Eligibility(candidates=(candidate,), kept=(), usable=usable)
        plan = choose_replaced(found, [("i-7", "unhealthy")], minimum=2, removed="i-7")
        assert bool(plan.targets) is removed and ("at_min" in plan.sentence) is not removed

    @pytest.mark.parametrize(("removed", "words"), [("", "worker i-7: kept, it is busy"), ("i-8", "it does not exist")])
    def test_without_an_eligible_worker_the_reason_is_that_of_an_outdated_one(self, removed: str, words: str) -> None:
        kept = tuple(Kept(instance_id=i, reason=r) for i, r in (("i-1", "it is the server"), ("i-7", "it is busy")))
        found = Eligibility(candidates=(), kept=kept, usable=("i-1", "i-7"))
        plan = choose_replaced(found, [("i-7", "expired")], minimum=1, removed=removed)
        assert plan.sentence == f"no outdated worker can be replaced now: {words}"

    @pytest.mark.parametrize("removed", ["", "i-7"])
    def test_an_outdated_worker_that_is_not_eligible_is_passed_over(self, removed: str) -> None:
        candidate: Any = SimpleNamespace(instance=SimpleNamespace(instance_id="i-7"))
        found = Eligibility(candidates=(candidate,), kept=(), usable=("i-1", "i-7"))
        plan = choose_replaced(found, [("i-1", "drifted"), ("i-7", "expired")], minimum=1, removed=removed)
        assert (plan.replaces, plan.reason, len(plan.targets)) == ("i-7", "expired", 1 if removed else 0)


class TestTheMaximum:
    def test_a_worker_that_was_removed_first_is_replaced_without_another_inspection(self) -> None:
        decision = decided(fleet(2, 2)[1:], step(replacement=""))
        assert (decision.action, decision.rule, decision.count, decision.replace) == (
            "scale_up",
            "drifted",
            1,
            "i-0000",
        )

    def test_while_launches_are_in_back_off_its_replacement_waits(self) -> None:
        waiting = replace(step(replacement=""), back_offs=(BackOff(key="scale_up", failures=1, until=START + 60),))
        decision = decided(fleet(2, 2)[1:], waiting)
        assert held(decision).startswith(
            "i-0000 is removed, its replacement is not launched now: scale-up failed 1 time in"
        )
        assert decision.memory.roll_out.current == waiting.roll_out.current

    def test_the_replacement_of_the_only_worker_is_launched(self) -> None:
        decision = decided((), step(replacement=""), replace(POLICY, min_workers=0, max_workers=1))
        assert (decision.action, decision.rule, decision.count) == ("scale_up", "drifted", 1)

    def test_a_removal_that_did_not_happen_ends_the_step(self) -> None:
        assert decided(fleet(2, 2), step(replacement="")).action == "replace"

    def test_a_launch_for_another_reason_takes_its_place_and_the_next_worker_follows(self) -> None:
        decision = decided(fleet(2, 2)[1:], step(replacement=""), replace(POLICY, max_workers=3))
        assert (decision.action, decision.replace) == ("replace", "i-0001")
        assert decision.memory.roll_out.current is None


class TestTheGoodVersion:
    @pytest.mark.parametrize(("seen", "version"), [(START - 299, ""), (START - 300, "2")])
    def test_a_version_is_good_when_one_of_its_workers_was_usable_for_the_bake_time(
        self, seen: int, version: str
    ) -> None:
        new = worker(50, template_version="2", launched_at=START - 400)
        decision = decided((new, *workers(3)), Memory(fresh={"i-0050": seen}))
        assert decision.memory.roll_out.good_version == version

    def test_before_the_new_version_is_proven_the_old_one_is_the_good_one_and_stays_it_when_stopped(self) -> None:
        decision = decided(fleet(4, 0), Memory(roll_out=RollOut(retry_at=START + 60)))
        assert decision.memory.roll_out.good_version == "1"
        stopped = RollOut(good_version="1", stopped="x", stopped_version="2")
        assert decided(fleet(2, 2), Memory(roll_out=stopped)).memory.roll_out.good_version == "1"

    def test_the_versions_of_another_launch_template_are_forgotten(self) -> None:
        old = RollOut(good_version="12", stopped="x", stopped_version="2", template_id="lt-0")
        seen, today = fleet(2, 0), {"template_id": "lt-1"}
        after = decided(seen, Memory(roll_out=old), **today).memory.roll_out
        assert (after.template_id, after.good_version, after.stopped) == ("lt-1", "1", "")
        first = decided(seen, Memory(roll_out=replace(old, template_id="")), **today).memory.roll_out
        assert (first.template_id, first.good_version, first.stopped) == ("lt-1", "12", "x")

    @pytest.mark.parametrize("changes", NOT_LIVE)
    @pytest.mark.parametrize("known", [RollOut(), RollOut(good_version="12", stopped="x", template_id="lt-0")])
    def test_without_live_data_no_version_becomes_good_or_is_forgotten(
        self, known: RollOut, changes: dict[str, Any]
    ) -> None:
        decision = decided(fleet(2, 2), Memory(roll_out=known), template_id="lt-1", **changes)
        assert decision.memory.roll_out == known

    def test_a_stopped_roll_out_names_its_cause_and_ends_with_a_newer_version_or_by_hand(self) -> None:
        stopped = RollOut(good_version="1", stopped="i-9 never joined", stopped_version="2")
        assert "the roll-out is stopped: i-9 never joined" in held(decided(fleet(), Memory(roll_out=stopped)))
        newer = decide(snapshot(workers=fleet(), template_version="3"), Memory(roll_out=stopped), POLICY, START)
        assert newer.action == "replace"
        assert decided(fleet(), Memory(roll_out=resumed(stopped))).action == "replace"
        waiting = replace(stopped, good_version="1", retry_at=START + 60)
        assert resumed(waiting) == RollOut(good_version="1")
        begun = replace(step().roll_out, good_version="1", lost=1)
        assert stop(begun, "x" * 901, "2") == RollOut(good_version="1", stopped="x" * 900, stopped_version="2")

    def test_a_stopped_roll_out_replaces_unhealthy_workers_only(self) -> None:
        stopped = RollOut(stopped="i-9 never joined", stopped_version="2")
        ill = worker(90, conditions=("InstanceStatusImpaired",), **NEW)
        seen = snapshot(workers=(*fleet(4, 4), ill), template_version="2")
        assert replaceable_workers(make_tick(seen, Memory(roll_out=stopped), POLICY, START)) == [
            ("i-0090", "unhealthy")
        ]


class TestAFailedRun:
    """What is stored when a step fails after it closed its operation: the payload then lacks what it recorded."""

    def test_a_recorded_replacement_is_kept(self) -> None:
        assert newest_memory(step(), Memory()).roll_out == step().roll_out
        assert newest_memory(Memory(), step()).roll_out == step().roll_out

    def test_a_stop_is_kept_whoever_recorded_it(self) -> None:
        stopped = Memory(roll_out=stop(RollOut(), "it failed", "2"))
        assert newest_memory(stopped, Memory()).roll_out == stopped.roll_out
        assert newest_memory(step(), stopped).roll_out == stopped.roll_out
        later = Memory(roll_out=stop(RollOut(), "it failed again", "3"))
        assert newest_memory(stopped, later).roll_out == later.roll_out, "of two stops that of the run"


def launched(outcome: Any, **changes: Any) -> Operation:
    slot = LaunchSlot(
        number=1,
        zone="a",
        subnet_id="subnet-1",
        instance_type="t3.small",
        market="spot",
        outcome=outcome,
        instance_id="i-0050",
        joined_at=START if outcome == "joined" else 0,
        detail="server shows no usable node for it 300 s after its launch",
        console=changes.pop("console", ""),
    )
    values: dict[str, Any] = {"replaces": "i-0000", "replace_reason": "drifted", "template_version": "2", **changes}
    return Operation(
        operation_id="up-1",
        kind="scale_up",
        phase="verify",
        started_at=START,
        requested=1,
        reason="drifted",
        execution_id="run-1",
        slots=(slot,),
        **values,
    )


class TestTheEndOfALaunch:
    @pytest.mark.parametrize("outcome", ["joined", "launched"])
    def test_a_launched_replacement_is_remembered_and_starts_no_cooldown(self, outcome: str) -> None:
        after = record_replacement(Memory(), launched(outcome), START)
        assert after.roll_out.current == Replacement(
            worker="i-0000", reason="drifted", replacement="i-0050", since=START
        )
        assert after.last_action == ""
        assert after.fresh == ({"i-0050": START} if outcome == "joined" else {})

    @pytest.mark.parametrize(
        ("outcome", "left"), [("joined", ["node:i-1"]), ("launched", ["join", "scale_up", "node:i-1"])]
    )
    def test_a_replacement_that_joined_ends_the_back_offs_of_launches(self, outcome: str, left: list[str]) -> None:
        keys = ("join", "scale_up", "node:i-1")
        memory = Memory(back_offs=tuple(BackOff(key=key, failures=1, until=START + 60) for key in keys))
        after = record_replacement(memory, launched(outcome), START)
        assert [b.key for b in after.back_offs] == left

    def test_a_launch_without_an_instance_changes_nothing(self) -> None:
        assert record_replacement(Memory(), launched("failed"), START) == Memory()

    def test_a_removal_without_a_replacement_so_far_is_remembered_as_one(self) -> None:
        operation = replace(launched("planned"), slots=())
        assert record_replaced(Memory(), operation, START).roll_out.current == Replacement(
            worker="i-0000", reason="drifted", since=START
        )
        assert record_replaced(step(), operation, START).roll_out == step().roll_out

    @pytest.mark.parametrize(
        ("operation", "good", "stops"),
        [
            (launched("unjoined"), "1", True),
            (launched("unjoined"), "2", True),
            (launched("unjoined", replaces=""), "1", True),
            (launched("unjoined", replaces=""), "2", False),
            (launched("unjoined", replaces=""), "", False),
            (launched("failed"), "1", False),
            (launched("joined"), "1", False),
        ],
    )
    def test_a_version_whose_worker_never_joins_stops_the_roll_out(
        self, operation: Operation, good: str, stops: bool
    ) -> None:
        assert bool(join_failure(RollOut(good_version=good), operation)) is stops

    def test_a_failure_of_the_good_version_does_not_allow_the_stopped_one_again(self) -> None:
        stopped = RollOut(good_version="1", stopped="x", stopped_version="2")
        assert not join_failure(stopped, launched("unjoined", template_version="1"), "2")
        assert join_failure(stopped, launched("unjoined", template_version="2"), "2")
        assert join_failure(stopped, launched("unjoined", template_version="3"), "3")

    def test_a_standby_worker_that_does_not_join_says_nothing_about_the_version_of_today(self) -> None:
        growth = launched("unjoined", replaces="")
        assert join_failure(RollOut(good_version="1"), growth)
        begun = replace(growth, slots=tuple(replace(s, standby=s.instance_id) for s in growth.slots))
        assert not join_failure(RollOut(good_version="1"), begun)

    def test_the_reason_has_the_end_of_the_console_and_the_kept_worker(self) -> None:
        why = join_failure(RollOut(), launched("unjoined", console="k3s: exit 1"))
        assert "i-0050 of version 2 of the launch template never joined; i-0000 is kept" in why
        assert why.endswith("its console ends with: k3s: exit 1")
        assert join_failure(RollOut(), launched("unjoined")).endswith("EC2 shows no output of its console")
        growth = join_failure(RollOut(good_version="1"), launched("unjoined", replaces=""))
        assert "launch template never joined; server shows no usable node" in growth and "is kept" not in growth

    def test_the_alert_names_the_version_of_the_next_launches(self) -> None:
        after = stop(RollOut(good_version="1"), "it failed", "2")
        assert "from version 1 of the launch template, whose workers joined" in stopped_alert(after, "2").text
        same = stop(RollOut(good_version="2"), "it failed", "2")
        assert "still launched from version 2" in stopped_alert(same, "2").text


class TestTheServerComesFirst:
    """The configured version of the launch template installs v1.36.2+k3s1."""

    NEWER = "v1.36.2+k3s1"

    @pytest.mark.parametrize(
        ("server", "version"),
        [("v1.35.5+k3s1", "1"), ("v1.36.2+k3s1", "2"), ("v1.36.4+k3s1", "2"), ("v1.36.1+k3s1", "1"), ("", "2")],
    )
    def test_workers_are_launched_from_the_last_good_version_until_the_server_has_theirs(
        self, server: str, version: str
    ) -> None:
        known = RollOut(good_version="1", server_version=server)
        assert known.launch_version("2", self.NEWER) == version == version_to_launch(known, "2", self.NEWER)
        assert bool(launch_hold(known, "2", self.NEWER)) is (version == "1")

    def test_without_an_earlier_version_no_newer_worker_is_launched(self) -> None:
        assert RollOut(server_version="v1.35.5+k3s1").launch_version("2", self.NEWER) == ""
        with pytest.raises(LaunchConfigurationError, match=r"v1\.36\.2\+k3s1, which is newer than v1\.35\.5\+k3s1"):
            version_to_launch(RollOut(server_version="v1.35.5+k3s1"), "2", self.NEWER)

    def test_a_version_that_waits_becomes_no_good_one(self) -> None:
        seen = (*fleet(1, 1), *workers(2, template_version="1", launched_at=START - 9000))
        assert decided(seen, launch_hold="version 2 waits").memory.roll_out.good_version == "1"
        assert decided(seen).memory.roll_out.good_version == "2"

    def test_the_configured_version_is_no_way_around_itself(self) -> None:
        """The server was restored to an earlier release after the workers had followed."""
        restored = RollOut(good_version="2", server_version="v1.35.5+k3s1")
        assert restored.launch_version("2", self.NEWER) == ""
        with pytest.raises(LaunchConfigurationError, match=r"What you can do: node-fleet upgrade$"):
            version_to_launch(restored, "2", self.NEWER)

    @pytest.mark.parametrize(
        ("fleet_now", "good"), [((), ""), (fleet(0, 2), ""), (fleet(2, 2), "1")], ids=["empty", "new", "old and new"]
    )
    def test_a_server_that_went_back_leaves_only_versions_good_whose_workers_run_and_are_not_newer(
        self, fleet_now: tuple[Worker, ...], good: str
    ) -> None:
        before = Memory(roll_out=RollOut(good_version="2", server_version=self.NEWER))
        seen = [replace(w, kubelet_version=self.NEWER) if w.template_version == "2" else w for w in fleet_now]
        for hold in ("version 2 waits", ""):
            after = decided(tuple(seen), before, server_version="v1.35.5+k3s1", launch_hold=hold).memory.roll_out
            assert (after.good_version, after.server_version) == (good, "v1.35.5+k3s1")

    @pytest.mark.parametrize("read", ["", "v1.36.2+k3s1", "v1.36.4+k3s1"])
    def test_a_server_that_did_not_go_back_leaves_the_good_version(self, read: str) -> None:
        before = Memory(roll_out=RollOut(good_version="2", server_version=self.NEWER))
        assert decided((), before, server_version=read).memory.roll_out.good_version == "2"

    @pytest.mark.parametrize(("kubelet", "good"), [("v1.35.6+k3s1", ""), ("v1.35.5+k3s1", "1"), ("", "1")])
    def test_a_version_whose_workers_are_newer_than_the_server_becomes_no_good_one(
        self, kubelet: str, good: str
    ) -> None:
        seen = workers(2, template_version="1", launched_at=START - 9000, kubelet_version=kubelet)
        memory = Memory(roll_out=RollOut(stopped="x", stopped_version="2", server_version="v1.35.5+k3s1"))
        assert decided(seen, memory).memory.roll_out.good_version == good

    def test_the_decision_says_what_the_launches_wait_for(self) -> None:
        (check,) = [c for c in decided(fleet(0, 3), launch_hold="version 2 waits").evidence if c.name == "k3s"]
        assert (check.text, check.setting, check.aside) == ("version 2 waits", "k3s_version", True)
        assert not [c for c in decided(fleet(0, 3)).evidence if c.name == "k3s"]

    def test_the_server_version_is_remembered_when_a_reading_does_not_show_it(self) -> None:
        first = decided(fleet(0, 3), server_version="v1.35.5+k3s1").memory
        assert first.roll_out.server_version == "v1.35.5+k3s1"
        assert decided(fleet(0, 3), first).memory.roll_out.server_version == "v1.35.5+k3s1"
        assert decided(fleet(0, 3), first, server_version="v1.36.2+k3s1").memory.roll_out.server_version == self.NEWER

    @given(server=st.sampled_from(RISING), wanted=st.sampled_from(RISING), good=st.sampled_from(["", "1", "2"]))
    def test_no_launch_from_the_configured_version_is_newer_than_the_server(
        self, server: str, wanted: str, good: str
    ) -> None:
        known = RollOut(good_version=good, server_version=server)
        try:
            version = version_to_launch(known, "2", wanted)
        except LaunchConfigurationError:
            assert good != "1" and is_newer(wanted, server)
        else:
            assert version == "1" or not is_newer(wanted, server)
