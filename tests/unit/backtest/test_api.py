"""The interface for simulators of other people: it decides as the deployed autoscaler, and needs nothing else."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtest import api
from backtest.api import Answer, Autoscaler, InvalidSettingsError, ModelError, Reading, WaitingPods, WorkerReading
from backtest.deployed import Deployed
from backtest.fleet import Fleet, Machine
from backtest.measures import Action
from backtest.replay import replay
from node_fleet.settings import Settings
from tests.support.backtest_loads import CAPACITY, START, load_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "backtest.md"
WAVES = [2.0, 2.0, 5.0, 6.5, 6.5, 3.0, 2.0, 2.0, 4.0, 7.0, 7.0, 3.0, 1.0, 1.0, 1.0, 1.0]


def worker(name: str, **changes: object) -> WorkerReading:
    """A usable worker with seven pods of 250m, which is full."""
    full = WorkerReading(
        id=name,
        launched_at=START - 9000,
        cpu_percent=60,
        memory_percent=50,
        cpu_requested_milli=1770,
        memory_requested_mib=928,
        pods=7,
    )
    return replace(full, **changes)  # type: ignore[arg-type]


def reading(at: int, *workers: WorkerReading, waiting: int = 0) -> Reading:
    pods = (WaitingPods(cpu_milli=250, memory_mib=128, count=waiting, oldest_seconds=60),) if waiting else ()
    return Reading(at=START + at, workers=workers, waiting=pods)


class Outsider:
    """A policy of the back-test that asks the public interface at every tick and does what it answers."""

    name = "outsider"

    def __init__(self, **settings: object) -> None:
        self.autoscaler = Autoscaler(settings)
        self.actions: list[Action] = []
        self.tick = 0

    def start(self, fleet: Fleet) -> None:
        self.tick = fleet.now

    def wakes_at(self) -> int:
        return self.tick

    def act(self, fleet: Fleet) -> None:
        if fleet.now < self.tick:
            return
        self.tick = fleet.now + 120
        waiting = WaitingPods(
            cpu_milli=CAPACITY.pod_cpu_milli,
            memory_mib=CAPACITY.pod_memory_mib,
            count=fleet.pending,
            oldest_seconds=fleet.oldest_seconds(),
        )
        workers = tuple(self.of(machine, fleet.now) for machine in fleet.machines)
        answer = self.autoscaler.decide(
            Reading(at=fleet.now, workers=workers, waiting=(waiting,) if fleet.pending else ())
        )
        for launch in answer.launches:
            fleet.launch(zone=launch.zone, market=launch.market)
        for machine in [m for m in fleet.machines if m.instance_id in answer.removals]:
            fleet.drain(machine)
        if answer.launches or answer.removals:
            change = len(answer.launches) - len(answer.removals)
            self.actions.append(Action(at=fleet.now, change=change, rule=answer.rule))

    @staticmethod
    def of(machine: Machine, now: int) -> WorkerReading:
        return WorkerReading(
            id=machine.instance_id,
            launched_at=machine.launched_at,
            state=machine.state,
            cpu_percent=machine.cpu_milli(now) / (CAPACITY.vcpus * 10),
            memory_percent=100 * (CAPACITY.system_memory_mib + machine.pods * CAPACITY.pod_memory_used_mib) / 2048,
            cpu_requested_milli=CAPACITY.daemon_cpu_milli + machine.pods * CAPACITY.pod_cpu_milli,
            memory_requested_mib=CAPACITY.daemon_memory_mib + machine.pods * CAPACITY.pod_memory_mib,
            pods=machine.pods,
            market=machine.market,
            zone=machine.zone,
        )


@pytest.mark.parametrize("preset", ["node-fleet", "adaptive"])
def test_an_outsider_s_fleet_costs_and_waits_as_the_deployed_one(preset: str) -> None:
    load = load_of(WAVES, step=3600)
    deployed = Deployed(Settings.from_mapping({"preset": preset}).policy(), CAPACITY)
    ours, theirs = replay(load, CAPACITY, deployed), replay(load, CAPACITY, Outsider(preset=preset))
    assert theirs.worker_hours == pytest.approx(ours.worker_hours, rel=0.05)
    assert {a.rule for a in theirs.actions} == {a.rule for a in ours.actions}
    assert len(theirs.actions) >= 4
    assert theirs.pending_pod_minutes >= ours.pending_pod_minutes  # without the alert, which comes between two ticks


def test_nothing_is_decided_until_the_launched_workers_have_joined() -> None:
    autoscaler, old = Autoscaler(), (worker("a"), worker("b"))
    first = autoscaler.decide(reading(0, *old, waiting=4))
    assert (len(first.launches), first.rule, first.removals) == (1, "pending", ())
    joining = worker("c", launched_at=START + 10, state="joining")
    during = autoscaler.decide(reading(120, *old, joining, waiting=9))
    assert during == Answer(reason="0 of 1 launched workers have joined")
    after = autoscaler.decide(reading(240, *old, worker("c", launched_at=START + 10), waiting=9))
    assert after.rule in ("pending", "none") and "joined" not in after.reason


def fail_to_join(autoscaler: Autoscaler, at: int) -> int:
    """One launch of which no worker joins; the time after its removal."""
    old, limit = (worker("a"), worker("b")), Settings().policy().join_limit_seconds
    assert len(autoscaler.decide(reading(at, *old, waiting=4)).launches) == 1
    joining = worker(f"c{at}", launched_at=START + at, state="joining")
    assert autoscaler.decide(reading(at + limit - 1, *old, joining, waiting=4)).removals == ()
    late = autoscaler.decide(reading(at + limit, *old, joining, waiting=4))
    assert (late.removals, late.rule) == ((joining.id,), "unjoined")
    assert late.reason == f"not joined within {limit} s of the launch: {joining.id}"
    return at + limit + 60


def test_workers_that_do_not_join_in_time_are_removed_and_after_some_failures_in_a_row_nothing_is_launched() -> None:
    autoscaler, at = Autoscaler(), 0
    for _ in range(Settings().policy().join_failures_to_open):
        at = fail_to_join(autoscaler, at)
    last = autoscaler.decide(reading(at, worker("a"), worker("b"), waiting=4))
    assert last.launches == ()
    assert "circuit breaker open" in last.reason


def test_a_worker_that_joins_ends_the_row_of_failures() -> None:
    autoscaler, at, old = Autoscaler(), 0, (worker("a"), worker("b"))
    for _ in range(Settings().policy().join_failures_to_open - 1):
        at = fail_to_join(autoscaler, at)
    assert len(autoscaler.decide(reading(at, *old, waiting=4)).launches) == 1
    autoscaler.decide(reading(at + 60, *old, worker("c", launched_at=START + at)))
    at = fail_to_join(autoscaler, at + 1000)
    assert len(autoscaler.decide(reading(at, *old, waiting=4)).launches) == 1


def idle_fleet(*names: str) -> tuple[WorkerReading, ...]:
    return tuple(
        worker(n, cpu_percent=3, memory_percent=20, cpu_requested_milli=20, memory_requested_mib=32, pods=0)
        for n in names
    )


def test_a_removal_runs_until_its_worker_is_gone_and_a_withdrawn_one_is_not_chosen_again() -> None:
    settings = {"idle_seconds": 0, "cooldown_down_seconds": 0}
    autoscaler, fleet = Autoscaler(settings), idle_fleet("a", "b", "c")
    answers = [autoscaler.decide(reading(120 * n, *fleet)) for n in range(8)]
    first = next(n for n, answer in enumerate(answers) if answer.removals)
    (gone,) = answers[first].removals
    assert answers[first].rule == "idle"
    assert {answer.reason for answer in answers[first + 1 :]} == {f"the removal of {gone} is in progress"}
    autoscaler.withdraw(gone, START + 960)
    later = [autoscaler.decide(reading(1000 + 120 * n, *fleet)) for n in range(4)]
    assert {name for answer in later for name in answer.removals} & {gone} == set()


def test_a_fleet_without_its_removed_worker_is_decided_again() -> None:
    autoscaler = Autoscaler({"idle_seconds": 0, "cooldown_down_seconds": 0})
    for n in range(8):
        answer = autoscaler.decide(reading(120 * n, *idle_fleet("a", "b", "c")))
        if answer.removals:
            break
    left = [one for one in idle_fleet("a", "b", "c") if one.id not in answer.removals]
    assert "in progress" not in autoscaler.decide(reading(2000, *left)).reason


@given(sizes=st.lists(st.integers(0, 7), min_size=2, max_size=8))
def test_workers_leave_together_only_if_their_pods_fit_on_the_others(sizes: list[int]) -> None:
    fleet = [
        worker(f"w{n}", pods=pods, cpu_requested_milli=20 + 250 * pods, memory_requested_mib=32 + 128 * pods)
        for n, pods in enumerate(sizes)
    ]
    together = api._fit_together([api._worker(one) for one in fleet])
    leaving = sum(pods for n, pods in enumerate(sizes) if f"w{n}" in together)
    room = sum(7 - pods for n, pods in enumerate(sizes) if f"w{n}" not in together)
    assert leaving <= room
    assert len(together) != 1


def test_an_unknown_setting_and_a_wrong_reading_are_named() -> None:
    with pytest.raises(InvalidSettingsError, match="max_worker"):
        Autoscaler({"max_worker": 5})
    autoscaler = Autoscaler()
    with pytest.raises(ModelError, match="worker 'a' is in the reading twice, expected each worker once"):
        autoscaler.decide(reading(0, worker("a"), worker("a")))
    with pytest.raises(ModelError, match=r"size of 'x9\.huge' is not known"):
        autoscaler.decide(reading(0, worker("a", instance_type="x9.huge")))
    autoscaler.decide(reading(1, worker("a"), worker("b")))
    with pytest.raises(ModelError, match=f"at is {START + 1}, expected more than {START + 1}"):
        autoscaler.decide(reading(1, worker("a"), worker("b")))


def test_a_wrong_reading_changes_nothing() -> None:
    one, other = Autoscaler(), Autoscaler()
    with pytest.raises(ModelError):
        one.decide(reading(0, worker("a", instance_type="x9.huge")))
    good = reading(0, worker("a"), worker("b"), waiting=3)
    assert one.decide(good) == other.decide(good)


def test_the_example_in_the_documentation_prints_what_it_says() -> None:
    code, printed = re.findall(
        r"```(?:python|text)\n(.*?)```", PAGE.read_text().partition("## Your own simulator")[2], re.DOTALL
    )[:2]
    assert "node_fleet" not in code
    found = io.StringIO()
    with contextlib.redirect_stdout(found):
        exec(compile(code, "example", "exec"), {})
    assert found.getvalue() == printed
