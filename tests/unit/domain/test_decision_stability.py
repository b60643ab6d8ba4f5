"""Decisions stay stable: when removals wait, under a load that alternates, and with the Spot share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.decision import Decision, decide
from tests.support.decisions import START, TICK, Fleet, idle, snapshot, workers

POLICY = Policy()


class TestRemoval:
    """A worker is removed only when the others can carry its load."""

    @staticmethod
    def after_idle(policy: Policy, count: int, **load: Any) -> Decision:
        memory = Memory(since={"idle": Streak(since=START - 600, last=START - TICK, readings=6)})
        seen = idle(workers=workers(count, cpu_requested_milli=100, memory_requested_mib=50), **load)
        return decide(seen, memory, policy, START)

    def test_needs_workers_that_carry_the_load(self) -> None:
        policy = replace(POLICY, cpu_up_percent=80.0, cpu_down_percent=70.0)
        decision = self.after_idle(policy, 3, cpu_percent=(80 + 80 + 40) / 3)
        assert decision.action == "none"
        assert "CPU would be 100.0 %, not under 70 %" in decision.sentence

    @given(count=st.integers(3, 10), cpu=st.floats(0, 60), memory=st.floats(0, 49), down=st.floats(20, 60))
    @settings(deadline=None)
    def test_after_a_removal_the_load_is_under_the_threshold_by_the_margin(
        self, count: int, cpu: float, memory: float, down: float
    ) -> None:
        policy = replace(POLICY, cpu_down_percent=down)
        decision = self.after_idle(policy, count, cpu_percent=cpu, memory_percent=memory)
        goes = cpu < down and cpu * count / (count - 1) < 60 and memory * count / (count - 1) < 65
        assert (decision.action == "scale_down") == goes


class TestAlternatingLoad:
    """A load that comes and goes does not make the fleet grow and shrink all day."""

    def test_does_not_change_the_fleet_all_day(self) -> None:
        """Demand for 15 or 16 workers of 20 m5.xlarge cores: CPU moves at the border; nothing is removed."""
        policy = replace(POLICY, max_workers=20)
        memory = Memory(last_action="scale_up", last_action_at=START - 120)
        fleet = Fleet(policy, memory)
        for k, desired in enumerate((15, 16, 15, 15, 16, 15, 15, 16)):
            decision = fleet.tick(idle(START + k * TICK, cpu_percent=desired * 29.9 / 15, workers=workers(16)))
            assert decision.action == "none"

    @pytest.mark.parametrize("every", [2, 3, 5])
    def test_a_short_job_again_and_again_causes_no_removal(self, every: int) -> None:
        fleet = Fleet(takes=60)
        actions = [
            fleet.tick(idle(START + k * TICK, cpu_percent=90.0 if k % every == 0 else 10.0, workers=workers(4))).action
            for k in range(720)
        ]
        assert set(actions) == {"none"}

    @pytest.mark.parametrize("border", [30.0, 70.0])
    def test_a_value_at_the_border_causes_nothing(self, border: float) -> None:
        fleet = Fleet()
        actions = {
            fleet.tick(snapshot(START + k * TICK, cpu_percent=border + (0.1 if k % 2 else -0.1))).action
            for k in range(720)
        }
        assert actions == {"none"}
