"""Workers that are not Ready: when one is removed, when one is replaced, and how many at once mean a shared cause."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.decision import Decision, decide
from tests.support.decisions import START, TICK, Fleet, pods, snapshot, worker, workers

POLICY = Policy()


class TestNotReady:
    @staticmethod
    def decided(seen: tuple[Worker, ...], memory: Memory | None = None, **changes: Any) -> Decision:
        return decide(snapshot(workers=seen, **changes), memory or Memory(), POLICY, START)

    @pytest.mark.parametrize(("seconds", "action"), [(1199, "none"), (1200, "scale_down")])
    def test_a_worker_not_ready_for_20_minutes_is_removed(self, seconds: int, action: str) -> None:
        decision = self.decided((*workers(3), worker(9, "not_ready", not_ready_seconds=seconds)))
        assert decision.action == action
        assert decision.replace == ("i-0009" if action == "scale_down" else "")
        assert [a.kind for a in decision.alerts] == (["not_ready:i-0009"] if action == "scale_down" else [])

    def test_its_replacement_comes_first(self) -> None:
        decision = self.decided((*workers(1), worker(9, "not_ready", not_ready_seconds=5000)))
        assert (decision.action, decision.rule) == ("scale_up", "minimum")
        joining = worker(10, "joining", launched_at=START - 30)
        waits = self.decided((*workers(1), joining, worker(9, "not_ready", not_ready_seconds=5000)))
        assert waits.action == "none" and "waits for its replacement" in waits.sentence

    def test_load_comes_before_it(self) -> None:
        seen = (*workers(3), worker(9, "not_ready", not_ready_seconds=5000))
        assert self.decided(seen, pending=pods(1)).action == "scale_up"

    def test_at_the_maximum_its_removal_makes_place_for_the_launch_that_its_evicted_pods_wait_for(self) -> None:
        seen = (*workers(9), worker(9, "not_ready", not_ready_seconds=5000))
        decision = self.decided(seen, pending=pods(1))
        assert (decision.action, decision.replace) == ("scale_down", "i-0009")
        assert {a.kind for a in decision.alerts} == {"at_maximum", "not_ready:i-0009"}

    @pytest.mark.parametrize(
        ("not_ready", "total", "action"),
        [(1, 3, "scale_down"), (2, 10, "scale_down"), (2, 9, "none"), (3, 15, "scale_down")],
    )
    def test_never_when_more_than_a_third_or_two_and_a_fifth_are_not_ready(
        self, not_ready: int, total: int, action: str
    ) -> None:
        bad = tuple(worker(20 + k, "not_ready", not_ready_seconds=1300 + k) for k in range(not_ready))
        decision = self.decided((*workers(total - not_ready), *bad))
        assert decision.action == action
        assert decision.count == (1 if action == "scale_down" else 0)

    def test_the_one_that_is_not_ready_longest_is_removed_first(self) -> None:
        bad = tuple(worker(20 + k, "not_ready", not_ready_seconds=1300 + k) for k in range(2))
        assert self.decided((*workers(8), *bad)).replace == "i-0021"

    def test_one_whose_drain_failed_a_short_time_ago_is_left_alone(self) -> None:
        seen = (*workers(3), worker(9, "not_ready", not_ready_seconds=5000))
        memory = Memory(back_offs=(BackOff(key="node:i-0009", failures=1, until=START + 1),))
        assert self.decided(seen, memory).action == "none"

    def test_the_cooldown_holds_for_it_too(self) -> None:
        seen = (*workers(3), worker(9, "not_ready", not_ready_seconds=5000))
        assert self.decided(seen, Memory(last_action="scale_up", last_action_at=START - 599)).blocked_by == (
            "cooldown",
        )

    def test_stale_data_removes_nobody(self) -> None:
        seen = (*workers(3), worker(9, "not_ready", not_ready_seconds=5000))
        for changes in ({"source": "cached"}, {"read_at": START - 300}, {"source": "none"}):
            assert self.decided(seen, **changes).action == "none"


class TestManyWorkersNotReadyInOneReading:
    """Their instances run, so one reading is no proof that they are lost."""

    def decided(self, fleet: Fleet, at: int, not_ready: int, total: int = 4, **changes: Any) -> Decision:
        lost = tuple(worker(20 + k, "not_ready", not_ready_seconds=60) for k in range(not_ready))
        return fleet.tick(snapshot(at, workers=(*workers(total - not_ready), *lost), **changes))

    @pytest.mark.parametrize(
        ("not_ready", "total", "launched"), [(4, 4, 0), (2, 4, 0), (2, 2, 0), (2, 6, 2), (1, 1, 1), (1, 2, 1)]
    )
    def test_the_first_reading_launches_no_worker(self, not_ready: int, total: int, launched: int) -> None:
        decision = self.decided(Fleet(Policy(min_workers=total)), START, not_ready, total)
        assert decision.count == launched
        assert [a.kind for a in decision.alerts] == ([] if launched else ["many_not_ready"])
        assert ("many_not_ready" in decision.blocked_by) is (not launched)
        found = [(c.readings, c.needed) for c in decision.evidence if c.name == "many_not_ready"]
        assert found == ([] if launched else [(1, 2)])

    @pytest.mark.parametrize(("seconds", "launched"), [(10, 0), (89, 0), (90, 4), (TICK, 4)])
    def test_a_second_reading_a_tick_later_launches_without_a_second_message(self, seconds: int, launched: int) -> None:
        fleet = Fleet(Policy(min_workers=4))
        self.decided(fleet, START, 4)
        decision = self.decided(fleet, START + seconds, 4)
        assert (decision.count, decision.alerts) == (launched, ())

    def test_workers_that_are_ready_again_in_the_next_reading_are_not_replaced(self) -> None:
        fleet = Fleet(Policy(min_workers=4))
        counts = [self.decided(fleet, START + TICK * n, lost).count for n, lost in enumerate((0, 4, 0, 4, 0))]
        assert counts == [0] * 5

    @pytest.mark.parametrize("source", ["live", "cached"])
    def test_pods_that_wait_because_of_it_bring_no_launch_either(self, source: str) -> None:
        fleet = Fleet(Policy(min_workers=1))
        for at in (START, START + TICK):
            seen = {"source": source, "read_at": START} if source == "cached" else {}
            decision = self.decided(fleet, at, 2, pending=pods(6), **seen)
            assert (decision.action == "none") is (at == START or source == "cached")

    def test_without_a_reading_it_is_not_judged(self) -> None:
        fleet = Fleet(Policy(min_workers=4))
        decision = self.decided(fleet, START, 4, source="none", problem="gone")
        assert (decision.count, [a.kind for a in decision.alerts]) == (0, ["metrics_unavailable"])
