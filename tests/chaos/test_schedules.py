"""Random schedules: ticks, faults, interruptions, runs by hand, pauses and operators in any order; then clean ticks.

500 schedules here; NODE_FLEET_CHAOS_RUNS=20000 makes it a long run. A schedule that breaks an invariant shrinks to the
fewest steps that still do, and hypothesis prints them as a program.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from node_fleet.domain.state import Pause
from tests.chaos.blows import FAULTS, Fault
from tests.chaos.cell import FAILED_AFTER_SECONDS, not_home, not_settled
from tests.chaos.invariants import Watch
from tests.chaos.theatre import theatre
from tests.chaos.workflow import AUTOSCALER, TASKS

RUNS = int(os.environ.get("NODE_FLEET_CHAOS_RUNS", "500"))
SHARDS = 10
STEPS = 8
BOOTED_SECONDS = 30
IDLE, BUSY, FLOOD = 20, 420, 900
DONE = {"schedules": 0, "steps": 0}
TOLD: list[int] = []
"""The shards that broke: the first one is shrunk to a short story, which takes minutes; the others only fail."""

states = st.sampled_from(list(TASKS))
faults = st.sampled_from(FAULTS)


class Schedules(RuleBasedStateMachine):
    """Three workers, one of them Spot by the fleet's own choice later; at least two, at most five."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.fleet = self.stack.enter_context(
            theatre(workers=3, market="spot", interruption_settle_seconds=60, join_limit_seconds=120)
        )
        self.laptop = self.fleet.laptop
        self.laptop.clock.advance(BOOTED_SECONDS)
        self.watch = Watch(self.fleet)
        self.watch.begin()
        self.cordoned_by_hand: set[str] = set()
        self.to_the_minimum = False
        DONE["schedules"] += 1

    @initialize(shrinks=st.sampled_from([False] * 7 + [True]))
    def one_in_eight_is_watched_to_its_minimum(self, shrinks: bool) -> None:
        """Each scale-down costs more than the whole schedule before it."""
        self.to_the_minimum = shrinks

    # what happens --------------------------------------------------------------------------------------------------

    @rule()
    def tick(self) -> None:
        self._step()
        self.fleet.tick()

    @rule(seconds=st.integers(1, 90))
    def time_passes(self, seconds: int) -> None:
        self._step()
        self.laptop.clock.advance(seconds)

    @rule(rate=st.sampled_from([IDLE, BUSY, FLOOD]))
    def load_changes(self, rate: int) -> None:
        self._step()
        self.fleet.load(rate)

    @rule(state=states, fault=faults)
    def fault(self, state: str, fault: Fault) -> None:
        """It strikes when that state's function runs next, if it ever does."""
        self._step()
        if fault.name == "loses its lease" and (TASKS[state] != AUTOSCALER or state == "AcquireLock"):
            return
        fault.aim(self.fleet, state)

    @rule(choice=st.integers(0, 4), taken=st.booleans())
    def notice(self, choice: int, taken: bool) -> None:
        workers = sorted(self.fleet.workers())
        if workers:
            self._step()
            self.fleet.cloud.ec2.warn_spot(workers[choice % len(workers)], reclaim=taken)

    @rule(choice=st.integers(0, 4))
    def worker_dies(self, choice: int) -> None:
        workers = sorted(self.fleet.workers())
        if workers:
            self._step()
            self.fleet.cloud.ec2.reclaim(workers[choice % len(workers)])

    # what people do ------------------------------------------------------------------------------------------------

    @rule(trigger=st.sampled_from(["manual", "alert"]), dry_run=st.booleans())
    def run_by_hand(self, trigger: str, dry_run: bool) -> None:
        self._step()
        self.laptop.start_workflow({"trigger": trigger, "dry_run": dry_run})

    @rule()
    def the_same_tick_again(self) -> None:
        if self.laptop.ticks:
            self._step()
            self.laptop.tick(scheduled_at=self.laptop.ticks[-1])

    @rule(seconds=st.integers(1, 600))
    def pause(self, seconds: int) -> None:
        self._step()
        now = self.fleet.now()
        self.fleet.store.set_pause(Pause(reason="a look", by="mira", since=now, until=now + seconds))

    @rule()
    def resume(self) -> None:
        self._step()
        self.fleet.store.clear_pause()

    @rule()
    def unlock(self) -> None:
        lease = self.fleet.store.load().lease
        if lease is not None:
            self._step()
            self.fleet.store.force_unlock(lease)

    @precondition(lambda self: self.fleet.cloud.runner.running())
    @rule(choice=st.integers(0, 3))
    def stop_a_run(self, choice: int) -> None:
        running = self.fleet.cloud.runner.running()
        self._step()
        self.fleet.stop(running[choice % len(running)].arn)

    @rule(choice=st.integers(0, 4))
    def cordon_by_hand(self, choice: int) -> None:
        nodes = [n.name for n in self.fleet.sim.world.nodes() if n.role != "server" and not n.unschedulable]
        if nodes:
            self._step()
            self.fleet.sim.world.cordon(nodes[choice % len(nodes)], actor="mira")
            self.cordoned_by_hand.add(nodes[choice % len(nodes)])

    # what must hold ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.watch.broken == []

    def teardown(self) -> None:
        try:
            self._clean_ticks()
        finally:
            self.stack.close()

    def _step(self) -> None:
        DONE["steps"] += 1
        self.watch.disturbed()

    def _clean_ticks(self) -> None:
        """No more faults, nobody's hand, little load: the fleet settles in time, and shrinks to its minimum."""
        self._calm()
        settings = self.fleet.settings
        limit = settings.lease_seconds + FAILED_AFTER_SECONDS + settings.cooldown_up_seconds
        self._tick_until(limit, lambda: not_settled(self.fleet))
        if self.to_the_minimum:
            self._tick_until(limit, lambda: not_home(self.fleet, settings.min_workers))
        self.watch.finish()
        assert self.watch.broken == [], self._story()

    def _tick_until(self, limit_seconds: float, still: Callable[[], str]) -> None:
        begun, told = self.laptop.clock.now(), "no tick yet"
        while told and self.laptop.clock.now() - begun <= limit_seconds:
            self.fleet.tick()
            told = still()
        assert told == "", f"after {limit_seconds:.0f} s of clean ticks: {told}\n{self._story()}"

    def _calm(self) -> None:
        self.fleet.mend()
        self.fleet.cloud.faults.rules.clear()
        self.fleet.cloud.lambdas.faults.clear()
        self.fleet.cloud.commands.offline.clear()
        self.fleet.cloud.commands.lost.clear()
        self.laptop.transport.fault = ""
        self.laptop.transport.slack_answers.clear()
        self.fleet.store.clear_pause()
        self.fleet.load(IDLE)
        for name in sorted(self.cordoned_by_hand & {n.name for n in self.fleet.sim.world.nodes()}):
            self.fleet.sim.world.uncordon(name, actor="mira")
        self.watch.disturbed()

    def _story(self) -> str:
        runs = [e for e in self.fleet.sim.executions if e.path[-1:] != ["ReleaseLock"] or len(e.path) > 6]
        return "\n".join(
            f"{e.started_at:.0f} {e.machine} {e.status} {e.error or ''}: {' > '.join(e.path)}" for e in runs
        )


@pytest.mark.parametrize("shard", range(SHARDS))
def test_any_schedule_keeps_every_invariant(shard: int, record_property: pytest.RecordProperty) -> None:
    begun, before = time.process_time(), dict(DONE)
    machine: Any = type(f"Schedules{shard}", (Schedules,), {})
    if "NODE_FLEET_CHAOS_SEED" not in os.environ:
        hypothesis.seed(shard)(machine)
    chosen = hypothesis.settings(
        max_examples=max(1, RUNS // SHARDS),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.generate] if TOLD else [Phase.generate, Phase.shrink],
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except BaseException:
        TOLD.append(shard)
        raise
    schedules, steps = DONE["schedules"] - before["schedules"], DONE["steps"] - before["steps"]
    seconds = time.process_time() - begun
    record_property("figures", f"schedules: {schedules} of {steps} steps in {seconds:.0f} s of processor time")
