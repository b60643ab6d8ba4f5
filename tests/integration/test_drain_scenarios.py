"""Removals acted out whole: the deployed workflow, the shipped shell, virtual time, and an independent judge."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from simulator.aws.template import Template
from simulator.runner import Execution
from simulator.scenario.files import load_scenario, parse_scenario, scenario_names
from simulator.scenario.model import Scenario
from simulator.simulation import Simulation, synthesised_template
from tests.support.budget_checker import BudgetChecker


@dataclass
class Story:
    """One scenario that was acted out."""

    simulation: Simulation
    checker: BudgetChecker

    @property
    def removals(self) -> list[Execution]:
        """Executions that looked for somebody to remove, or went on with it."""
        return [e for e in self.simulation.executions if set(e.path) & {"InspectNodes", "UndoDrain", "ForgetNodes"}]

    def notes(self) -> str:
        outputs = [e.output for e in self.simulation.executions if e.output]
        return " ".join(text for o in outputs for text in (o.get("sentence", ""), *o.get("notes", ())))

    def workers(self) -> int:
        return self.simulation.points[-1].workers_usable

    def cordoned(self) -> list[str]:
        return [n.name for n in self.simulation.cluster.nodes() if n.unschedulable]

    def commands(self, document: str) -> list[Any]:
        return [r for r in self.simulation.deployment.cloud.commands.runs if r.document.endswith(document)]

    def terminated(self) -> list[str]:
        calls = self.simulation.deployment.cloud.recorder.calls
        return [i for c in calls if c.operation == "TerminateInstances" for i in c.parameters["InstanceIds"]]

    def assert_nobody_was_hurt(self) -> None:
        assert self.checker.violations == []
        assert [r for r in self.checker.removals if r.is_node_bound or r.owner_kind in ("StatefulSet", "")] == []
        assert [r for r in self.checker.removals if r.act == "terminated with its machine"] == []


@pytest.fixture(scope="module")
def template() -> Template:
    return synthesised_template()


Act = Callable[..., Story]


def acting(template: Template) -> Iterator[Act]:
    """Act a scenario out, whole or for some minutes; `before` may prepare the simulation."""
    with contextlib.ExitStack() as stack:

        def run(
            name: str | Scenario,
            *,
            minutes: float | None = None,
            settings: dict[str, Any] | None = None,
            before: Callable[[Simulation], None] | None = None,
        ) -> Story:
            scenario = load_scenario(name) if isinstance(name, str) else name
            if minutes:
                scenario = scenario.model_copy(update={"duration_seconds": minutes * 60})
            scenario = scenario.model_copy(update={"settings": {**scenario.settings, **(settings or {})}})
            simulation = stack.enter_context(Simulation(scenario, template=template))
            checker = BudgetChecker(simulation.cluster)
            if before:
                before(simulation)
            simulation.run()
            return Story(simulation, checker)

        yield run


@pytest.fixture
def act(template: Template) -> Iterator[Act]:
    yield from acting(template)


def test_quiet_night_goes_from_ten_to_two_without_breaking_a_budget_or_leaving_anything(act: Act) -> None:
    """Also cases 1 and 2: neither dead nodes nor their passwords are left."""
    story = act("quiet-night")
    assert story.workers() == 2
    story.assert_nobody_was_hurt()
    gone = story.terminated()
    assert len(gone) == len(set(gone)) == 8
    assert story.cordoned() == []
    assert {e.status for e in story.simulation.executions} == {"SUCCEEDED"}
    names = {n.name for n in story.simulation.cluster.nodes()}
    secrets = {s["metadata"]["name"] for s in story.simulation.cluster.objects("secrets", "kube-system")}
    assert set(gone) & names == set()
    assert {f"{i}.node-password.k3s" for i in gone} & secrets == set()


def test_blocked_everywhere_says_why_each_worker_stays(act: Act) -> None:
    story = act("blocked-everywhere", minutes=20)
    assert story.removals
    kept = story.removals[-1].output_of("SelectNodes")["selection"]["kept"]
    assert len(kept) == 5
    assert any("uses a volume that exists on this node only" in k for k in kept)
    assert (story.terminated(), story.commands("DrainNode"), story.cordoned()) == ([], [], [])


def test_case_10_drain_times_out_gives_the_worker_back_and_waits_longer_each_time(act: Act) -> None:
    story = act("drain-times-out")
    story.assert_nobody_was_hurt()
    failed = [e for e in story.removals if "UndoDrain" in e.path]
    assert len(failed) >= 2
    assert story.terminated() == []
    assert story.cordoned() == []
    assert {e.error for e in failed} == {"DrainFailedError"}
    drains: dict[str, list[float]] = {}
    for run in story.commands("DrainNode"):
        drains.setdefault(run.parameters["NodeName"][0], []).append(run.sent_at)
    for times in drains.values():
        rests = [b - a for a, b in pairwise(times)]
        assert all(b > a >= 600 for a, b in pairwise(rests)) or len(rests) < 2


def test_server_unreachable_terminates_nobody_blindly_and_work_goes_on_afterwards(act: Act) -> None:
    story = act("server-unreachable")
    story.assert_nobody_was_hurt()
    start = story.simulation.scenario.start_at
    away = [(12.5 * 60, 24.5 * 60), (40 * 60, 50 * 60)]
    calls = story.simulation.deployment.cloud.recorder.calls
    moments = [c.at - start for c in calls if c.operation == "TerminateInstances"]
    assert not [m for m in moments for begin, end in away if begin + 60 < m < end]
    assert story.workers() == 2
    assert story.cordoned() == []


def test_load_returns_mid_drain_withdraws_it_and_the_worker_serves_again(act: Act) -> None:
    story = act("load-returns-mid-drain", minutes=30)
    story.assert_nobody_was_hurt()
    withdrawn = [e for e in story.removals if "UndoDrain" in e.path]
    assert withdrawn
    assert withdrawn[0].status == "SUCCEEDED"
    assert "became unschedulable while it was drained" in story.notes()
    assert withdrawn[0].output_of("UndoDrain")["memory"]["back_offs"] in ([], {"columns": [], "rows": []})
    assert story.cordoned() == []
    assert story.terminated() == []


DEAD_WORKER = """
name: dead-worker
description: The kubelet of one worker dies; after twenty minutes it is replaced.
duration: {minutes}m
seed: 53
workers:
  - {{count: 3}}
applications:
  - name: web
    replicas: 6
    load: {{constant: 30}}
    budget: {{max_unavailable: 1}}
  - name: orders
    kind: StatefulSet
    replicas: 3
    cpu_milli: 100
"""


@pytest.mark.parametrize("dies_at", [2, 6, 11])
def test_case_15_a_worker_that_is_not_ready_for_long_is_removed_though_its_pods_never_confirm(
    act: Act, dies_at: int
) -> None:
    dead: list[str] = []

    def kill(simulation: Simulation) -> None:
        dead.append(simulation.starting_ids[0])
        at = simulation.deployment.clock.now() + dies_at * 60
        simulation.deployment.clock.at(at, lambda: simulation.cluster.fail_node(dead[0]))

    story = act(parse_scenario(DEAD_WORKER.format(minutes=dies_at + 30)), before=kill)
    assert dead[0] in story.terminated()
    assert dead[0] not in {n.name for n in story.simulation.cluster.nodes()}
    [drain] = [r for r in story.commands("DrainNode") if r.parameters["NodeName"] == dead]
    assert drain.parameters["DrainMode"] == ["not-ready"]
    ends = [c.at for c in story.simulation.deployment.cloud.recorder.calls if c.operation == "TerminateInstances"]
    assert ends[0] - drain.sent_at < 300
    assert story.checker.violations == []


def test_several_targets_in_one_operation_hold_the_minimum_on_the_whole_set(act: Act) -> None:
    story = act("quiet-night", minutes=60, settings={"max_targets": 3})
    story.assert_nobody_was_hurt()
    assert min(p.workers_usable for p in story.simulation.points) >= 2
    assert story.cordoned() == []


@pytest.mark.parametrize("delay", [0.0, 20.0, 29.0])
def test_case_43_a_command_that_ssm_shows_late_is_waited_for(act: Act, delay: float) -> None:
    def slow(simulation: Simulation) -> None:
        simulation.deployment.cloud.commands.delays.unknown_seconds = min(delay, 8.0)
        simulation.deployment.cloud.commands.delays.delayed_seconds = min(delay, 9.0)

    story = act("quiet-night", minutes=30, before=slow)
    story.assert_nobody_was_hurt()
    assert story.terminated()
    assert {e.status for e in story.simulation.executions} == {"SUCCEEDED"}


@pytest.mark.parametrize("minutes", [2, 10, 30])
def test_case_46_a_drain_that_arrives_after_the_agent_was_away_does_nothing(act: Act, minutes: int) -> None:
    """Everything SSM could not deliver runs all the same, that many minutes late."""

    def away(simulation: Simulation) -> None:
        deployment = simulation.deployment
        deployment.cloud.commands.delays.late_delivery_seconds = minutes * 60

        def watch() -> None:
            if any(r.document.endswith("InspectNodes") and r.final for r in deployment.cloud.commands.runs):
                deployment.cloud.commands.offline.add(deployment.server_id)

        deployment.clock.every(0.25, watch)

    story = act("quiet-night", minutes=26 + minutes, before=away)
    late = [r for r in story.commands("DrainNode") if r.ran]
    assert late
    assert {r.stdout.splitlines()[-1].split()[1] for r in late} <= {"too-late", "undone"}
    assert (story.terminated(), story.cordoned(), story.checker.removals) == ([], [], [])


@pytest.mark.parametrize("polls", [1, 3, 12])
def test_an_abandoned_run_leaves_no_cordon(act: Act, polls: int) -> None:
    """Somebody stops the execution in mid-drain: the clean-up stops the drain and gives the worker back."""
    stopped: list[str] = []

    def abandon(simulation: Simulation) -> None:
        runner = simulation.deployment.cloud.runner

        def watch() -> None:
            for e in runner.executions:
                if e.running and not stopped and e.path.count("WaitForDrain") == polls:
                    stopped.append(e.name)
                    runner.stop(e)

        simulation.deployment.clock.every(1.0, watch)

    story = act("drain-times-out", minutes=18, before=abandon)
    assert stopped
    story.assert_nobody_was_hurt()
    drain = story.commands("DrainNode")[0]
    assert drain.status == "Cancelled"
    assert story.cordoned() == []


@pytest.mark.parametrize("minutes", [5, 20, 60])
def test_case_47_an_unmanaged_server_is_named_and_nobody_is_removed(act: Act, minutes: int) -> None:
    def unmanaged(simulation: Simulation) -> None:
        commands = simulation.deployment.cloud.commands
        until = simulation.deployment.clock.now() + minutes * 60
        commands.is_managed = lambda _i: simulation.deployment.clock.now() >= until

    story = act("quiet-night", minutes=40, before=unmanaged)
    tried = [e for e in story.removals if "SelectNodes" in e.path]
    early = [e for e in tried if e.started_at < story.simulation.scenario.start_at + minutes * 60]
    assert all("server_not_managed" in e.output_of("SelectNodes")["selection"]["detail"] for e in early)
    assert bool(story.terminated()) is (minutes < 40)
    assert story.commands("DrainNode") == [] or minutes < 40


INTERRUPTIONS = {"spot_interruption", "rebalance", "scheduled_change", "kill_worker"}
OWN_TEST = {"quiet-night", "blocked-everywhere", "drain-times-out", "server-unreachable", "load-returns-mid-drain"}


def without_interruptions() -> list[str]:
    names = [n for n in scenario_names() if n not in OWN_TEST]
    return [n for n in names if not {e.action for e in load_scenario(n).events} & INTERRUPTIONS]


@pytest.mark.parametrize("name", without_interruptions())
def test_in_no_scenario_without_interruptions_do_we_break_a_budget(act: Act, name: str) -> None:
    act(name).assert_nobody_was_hurt()
