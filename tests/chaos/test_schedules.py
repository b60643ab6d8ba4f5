"""Random schedules: ticks, faults, interruptions, runs by hand, pauses and operators in any order; then clean ticks.

`--schedules 20000` makes it a long run. A schedule that breaks an invariant shrinks to the fewest steps that still do,
and hypothesis prints them as a program.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from node_fleet.domain.model.hibernation import OrderKind
from tests.support.chaos.budgets import DrawnBudget, DrawnRules
from tests.support.chaos.faults import FAULTS, Fault
from tests.support.chaos.hostile import DISGUISES, FIGURES, FORGERS, LIES, SERIES, VALUES
from tests.support.chaos.schedule import BUSY, FLOOD, IDLE, Play, PreparedFleet, Step
from tests.support.chaos.task_states import AUTOSCALER, TASKS
from tests.support.tiers import Tier, tier_of

SHARDS = 10
STEPS = 8
DONE = {"schedules": 0, "steps": 0}
SHRUNK: list[int] = []
"""The shards that broke: the first one is shrunk to a short story, which takes minutes; the others only fail."""

states = st.sampled_from(list(TASKS))
faults = st.sampled_from(FAULTS)


spans = st.tuples(st.integers(-30, 60), st.integers(1, 60))
"""Minutes from the start of a schedule to a window, and the length of the window."""
budgets = st.builds(
    lambda nodes, reasons, span: DrawnBudget(
        nodes=nodes, reasons=reasons, begins=span and span[0], minutes=span[1] if span else 0
    ),
    st.sampled_from(["0", "1", "2", "1%", "34%", "50%", "100%"]),
    st.sampled_from([(), ("idle",), ("drifted",), ("expired", "drifted"), ("unhealthy",), ("on-demand",)]),
    st.none() | spans,
)
rules = st.just(DrawnRules()) | st.builds(
    DrawnRules,
    budgets=st.lists(budgets, max_size=3).map(tuple),
    only=st.none() | spans,
    never=st.none() | spans,
)


class Schedules(RuleBasedStateMachine):
    """Writes a schedule; when hypothesis has ended it, it is played on a copy of the prepared fleet."""

    prepared: PreparedFleet
    is_long: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.schedule: list[Step] = []
        self.to_the_minimum = False

    @initialize(shrinks=st.sampled_from([False] * 7 + [True]))
    def one_in_eight_is_watched_to_its_minimum(self, shrinks: bool) -> None:
        """Each scale-down costs more than the whole schedule before it."""
        self.to_the_minimum = shrinks

    @initialize(rules=rules)
    def budgets_and_windows_are_drawn(self, rules: DrawnRules) -> None:
        self.schedule.append(lambda play: play.budgets_are_deployed(rules))

    @initialize(mode=st.sampled_from(["off", "avoid", "return", "return"]))
    def spot_learning_is_drawn(self, mode: str) -> None:
        self.schedule.append(lambda play: play.spot_is_learned(mode))

    @initialize(vcpu=st.sampled_from([0, 6, 8]))
    def a_limit_is_drawn(self, vcpu: int) -> None:
        self.schedule.append(lambda play: play.limit_is_deployed(vcpu))

    # what happens --------------------------------------------------------------------------------------------------

    @rule()
    def tick(self) -> None:
        self.schedule.append(Play.tick)

    @rule(seconds=st.integers(1, 90))
    def time_passes(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.time_passes(seconds))

    @precondition(lambda self: self.is_long)
    @rule(seconds=st.sampled_from([3700, 8000]))
    def hours_pass(self, seconds: int) -> None:
        """Long enough for a quiet time, or for a noisy pool to be used again; each hour costs as much as a schedule."""
        self.schedule.append(lambda play: play.time_passes(seconds))

    @rule(rate=st.sampled_from([IDLE, BUSY, FLOOD]))
    def load_changes(self, rate: int) -> None:
        self.schedule.append(lambda play: play.load_changes(rate))

    @rule(number=st.sampled_from([0, 1, 1, 2]))
    def standby_workers_are_deployed(self, number: int) -> None:
        self.schedule.append(lambda play: play.standby_workers_are_deployed(number))

    @rule()
    def standby_is_started_by_hand(self) -> None:
        self.schedule.append(Play.standby_is_started_by_hand)

    @rule(code=st.sampled_from(["InsufficientInstanceCapacity", "InternalError", "UnauthorizedOperation"]))
    def starts_are_refused(self, code: str) -> None:
        self.schedule.append(lambda play: play.starts_are_refused(code, 300))

    @rule()
    def standby_drifts(self) -> None:
        self.schedule.append(Play.standby_drifts)

    @rule(state=states, fault=faults)
    def fault(self, state: str, fault: Fault) -> None:
        """It strikes when that state's function runs next, if it ever does."""
        if fault.name == "loses its lease" and (TASKS[state] != AUTOSCALER or state == "AcquireLock"):
            return
        self.schedule.append(lambda play: fault.aim(play.fleet, state))

    @rule(choice=st.integers(0, 4), taken=st.booleans())
    def notice(self, choice: int, taken: bool) -> None:
        self.schedule.append(lambda play: play.notice(choice, taken))

    @rule(choice=st.integers(0, 4))
    def worker_dies(self, choice: int) -> None:
        self.schedule.append(lambda play: play.worker_dies(choice))

    @rule(choice=st.integers(0, 4), heals=st.booleans())
    def worker_falls_silent(self, choice: int, heals: bool) -> None:
        self.schedule.append(lambda play: play.worker_falls_silent(choice, heals))

    @rule(choice=st.integers(0, 4))
    def rebalance(self, choice: int) -> None:
        self.schedule.append(lambda play: play.rebalance(choice))

    @rule(choice=st.integers(0, 4), seconds=st.integers(60, 900))
    def scheduled_change(self, choice: int, seconds: int) -> None:
        self.schedule.append(lambda play: play.scheduled_change(choice, seconds))

    @rule(choice=st.integers(0, 4))
    def worker_drifts(self, choice: int) -> None:
        self.schedule.append(lambda play: play.worker_drifts(choice))

    @rule(choice=st.integers(0, 4))
    def worker_expires(self, choice: int) -> None:
        self.schedule.append(lambda play: play.worker_expires(choice))

    @rule(seconds=st.sampled_from([20, 200, 900]))
    def instances_end_late(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.instances_end_late(seconds))

    @rule(seconds=st.sampled_from([0, 10, 30]))
    def instances_are_listed_late(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.instances_are_listed_late(seconds))

    @rule(seconds=st.sampled_from([-90, 0, 90]))
    def server_clock_is_off(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.server_clock_is_off(seconds))

    @rule(seconds=st.sampled_from([1, 40]))
    def single_replica_appears(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.single_replica_appears(seconds))

    @rule(wait=st.sampled_from([30, 200]), pull=st.sampled_from([5, 60, 900]))
    def workers_pull_images(self, wait: int, pull: int) -> None:
        """The second limit is longer than that of the join: such a worker is given up when its pull takes so long."""
        self.schedule.append(lambda play: play.workers_pull_images(wait, pull))

    # what people do ------------------------------------------------------------------------------------------------

    @rule(trigger=st.sampled_from(["manual", "alert"]), dry_run=st.booleans())
    def run_by_hand(self, trigger: str, dry_run: bool) -> None:
        self.schedule.append(lambda play: play.run_by_hand(trigger, dry_run))

    @rule()
    def the_same_tick_again(self) -> None:
        self.schedule.append(Play.the_same_tick_again)

    @rule(seconds=st.integers(1, 600))
    def pause(self, seconds: int) -> None:
        self.schedule.append(lambda play: play.pause(seconds))

    @rule()
    def resume(self) -> None:
        self.schedule.append(Play.resume)

    @rule(choice=st.integers(0, 4), seconds=st.sampled_from([60, 600, 7200]))
    def protect(self, choice: int, seconds: int) -> None:
        self.schedule.append(lambda play: play.protect(choice, seconds))

    @rule(workers=st.integers(3, 6), ahead=st.sampled_from([0, 90]), seconds=st.sampled_from([120, 900]))
    def order_capacity(self, workers: int, ahead: int, seconds: int) -> None:
        self.schedule.append(lambda play: play.order_capacity(workers, ahead, seconds))

    @rule()
    def withdraw_capacity(self) -> None:
        self.schedule.append(Play.withdraw_capacity)

    @rule(kind=st.sampled_from(["sleep", "wake"]), seconds=st.sampled_from([600, 3600, 36000]))
    def order(self, kind: OrderKind, seconds: int) -> None:
        self.schedule.append(lambda play: play.order(kind, seconds))

    @rule()
    def start_server_by_hand(self) -> None:
        self.schedule.append(Play.start_server_by_hand)

    @rule()
    def unlock(self) -> None:
        self.schedule.append(Play.unlock)

    @rule(choice=st.integers(0, 3))
    def stop_a_run(self, choice: int) -> None:
        self.schedule.append(lambda play: play.stop_a_run(choice))

    @rule(choice=st.integers(0, 4))
    def cordon_by_hand(self, choice: int) -> None:
        self.schedule.append(lambda play: play.cordon_by_hand(choice))

    # what hostile workers state ------------------------------------------------------------------------------------

    @rule(choice=st.integers(0, 4), disguise=st.sampled_from(list(DISGUISES)))
    def register_false_node(self, choice: int, disguise: str) -> None:
        self.schedule.append(lambda play: play.register_false_node(choice, disguise))

    @rule(choice=st.integers(0, 4), figure=st.sampled_from(FIGURES), value=st.sampled_from(VALUES))
    def state_figure(self, choice: int, figure: str, value: float) -> None:
        self.schedule.append(lambda play: play.state_figure(choice, figure, value))

    @rule(choice=st.integers(0, 4), lie=st.sampled_from(list(LIES)))
    def state_node(self, choice: int, lie: str) -> None:
        self.schedule.append(lambda play: play.state_node(choice, lie))

    @rule(
        choice=st.integers(0, 4),
        job=st.sampled_from(FORGERS),
        figure=st.sampled_from(list(SERIES)),
        value=st.sampled_from(VALUES),
    )
    def forge_series(self, choice: int, job: str, figure: str, value: float) -> None:
        self.schedule.append(lambda play: play.forge_series(choice, job, figure, value))

    def teardown(self) -> None:
        if sys.exception() is None:  # hypothesis gives some schedules up while it writes them
            DONE["schedules"] += 1
            DONE["steps"] += len(self.schedule)
            self.prepared.perform(self.schedule, to_the_minimum=self.to_the_minimum)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A shard ends with its first broken schedule, so a long run has more of them: one for a hundred schedules."""
    if "shard" in metafunc.fixturenames:
        metafunc.parametrize("shard", range(max(SHARDS, tier_of(metafunc.config).schedules // 100)))


def test_any_schedule_keeps_every_invariant(
    shard: int, tier: Tier, prepared: PreparedFleet, record_property: pytest.RecordProperty
) -> None:
    begun, before = processor_seconds(), dict(DONE)
    machine: Any = type(f"Schedules{shard}", (Schedules,), {"prepared": prepared, "is_long": tier.whole})
    hypothesis.seed(tier.seed * 1000 + shard)(machine)
    chosen = hypothesis.settings(
        max_examples=max(1, tier.schedules // max(SHARDS, tier.schedules // 100)),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.generate] if SHRUNK else [Phase.generate, Phase.shrink],
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except BaseException:
        SHRUNK.append(shard)
        raise
    schedules, steps = DONE["schedules"] - before["schedules"], DONE["steps"] - before["steps"]
    seconds = processor_seconds() - begun
    record_property("figures", f"schedules: {schedules} of {steps} steps in {seconds:.0f} s of processor time")


def processor_seconds() -> float:
    """This process's and those that it has ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
