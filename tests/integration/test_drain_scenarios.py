"""Whole removals: the deployed workflow, the shipped scripts, virtual time, and an independent budget checker."""

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
from tests.integration.test_scenarios_up import NAMES
from tests.support.budget_checker import BudgetChecker

pytestmark = pytest.mark.sampled(8)  # with --all, every one


@dataclass
class Story:
    """One scenario that was simulated."""

    simulation: Simulation
    checker: BudgetChecker

    @property
    def removals(self) -> list[Execution]:
        """Executions that looked for workers to remove, or continued a removal."""
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


@pytest.fixture(scope="module")
def template() -> Template:
    return synthesised_template()


Act = Callable[..., Story]


def acting(template: Template) -> Iterator[Act]:
    """Simulate a scenario, whole or for some minutes; `before` prepares the simulation."""
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


@pytest.mark.whole
def test_a_quiet_night_removes_eight_of_ten_workers(act: Act) -> None:
    story = act("quiet-night")
    assert story.workers() == 2
    assert len(story.terminated()) == 8
    assert_removed_without_a_trace(story)


def assert_removed_without_a_trace(story: Story) -> None:
    """No broken budget, no failed run, no cordon, and neither the nodes of removed workers nor their passwords."""
    story.checker.assert_only_safe_removals()
    removed = story.terminated()
    assert len(removed) == len(set(removed)) > 0
    assert story.cordoned() == []
    assert {e.status for e in story.simulation.executions} == {"SUCCEEDED"}
    names = {n.name for n in story.simulation.cluster.nodes()}
    secrets = {s["metadata"]["name"] for s in story.simulation.cluster.objects("secrets", "kube-system")}
    assert set(removed) & names == set()
    assert {f"{i}.node-password.k3s" for i in removed} & secrets == set()


def test_each_worker_with_a_blocker_stays_and_its_reason_is_reported(act: Act) -> None:
    story = act("blocked-everywhere", minutes=20)
    assert story.removals
    kept = story.removals[-1].output_of("SelectNodes")["selection"]["kept"]
    assert len(kept) == 5
    assert any("uses a volume that exists on this node only" in k for k in kept)
    assert (story.terminated(), story.commands("DrainNode"), story.cordoned()) == ([], [], [])


def test_a_drain_that_times_out_reinstates_the_worker_with_a_growing_back_off(act: Act) -> None:
    story = act("drain-times-out")
    story.checker.assert_only_safe_removals()
    failed = [e for e in story.removals if "UndoDrain" in e.path]
    assert len(failed) >= 2
    assert story.terminated() == []
    assert story.cordoned() == []
    assert {e.error for e in failed} == {"DrainFailedError"}
    drains: dict[str, list[float]] = {}
    for run in story.commands("DrainNode"):
        drains.setdefault(run.parameters["NodeName"][0], []).append(run.sent_at)
    for times in drains.values():
        back_offs = [b - a for a, b in pairwise(times)]
        assert all(b > a >= 600 for a, b in pairwise(back_offs)) or len(back_offs) < 2


def test_an_unreachable_server_stops_terminations_and_scaling_continues_afterwards(act: Act) -> None:
    story = act("server-unreachable")
    story.checker.assert_only_safe_removals()
    start = story.simulation.scenario.start_at
    away = [(12.5 * 60, 24.5 * 60), (40 * 60, 50 * 60)]
    calls = story.simulation.deployment.cloud.recorder.calls
    moments = [c.at - start for c in calls if c.operation == "TerminateInstances"]
    assert not [m for m in moments for begin, end in away if begin + 60 < m < end]
    assert story.workers() == 2
    assert story.cordoned() == []


def test_load_that_returns_during_a_drain_withdraws_it_and_the_worker_serves_again(act: Act) -> None:
    story = act("load-returns-mid-drain", minutes=30)
    story.checker.assert_only_safe_removals()
    withdrawn = [e for e in story.removals if "UndoDrain" in e.path]
    assert withdrawn
    assert withdrawn[0].status == "SUCCEEDED"
    assert "were unschedulable during the drain" in story.notes()
    assert withdrawn[0].output_of("UndoDrain")["memory"]["back_offs"] in ([], {"columns": [], "rows": []})
    assert story.cordoned() == []
    assert story.terminated() == []


NOT_READY_WORKER = """
name: not-ready-worker
description: The kubelet of one worker stops; after twenty minutes it is replaced.
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dies_at", [2, 6, 11])
def test_a_worker_that_is_not_ready_for_long_is_removed_although_its_pods_never_confirm(act: Act, dies_at: int) -> None:
    dead: list[str] = []

    def kill(simulation: Simulation) -> None:
        dead.append(simulation.starting_ids[0])
        at = simulation.deployment.clock.now() + dies_at * 60
        simulation.deployment.clock.at(at, lambda: simulation.cluster.fail_node(dead[0]))

    story = act(parse_scenario(NOT_READY_WORKER.format(minutes=dies_at + 30)), before=kill)
    assert dead[0] in story.terminated()
    assert dead[0] not in {n.name for n in story.simulation.cluster.nodes()}
    [drain] = [r for r in story.commands("DrainNode") if r.parameters["NodeName"] == dead]
    assert drain.parameters["DrainMode"] == ["not-ready"]
    ends = [c.at for c in story.simulation.deployment.cloud.recorder.calls if c.operation == "TerminateInstances"]
    assert ends[0] - drain.sent_at < 300
    assert story.checker.violations == []


SIX_WORKERS = """
name: six-workers
description: Two pods on six workers, of which one operation may remove five.
duration: 30m
seed: 5
settings: {max_targets: 5}
workers:
  - {count: 6}
applications:
  - name: web
    replicas: 2
    load: {constant: 1}
    budget: {max_unavailable: 1}
"""


def test_several_targets_in_one_operation_hold_the_minimum_on_the_whole_set(act: Act) -> None:
    story = act(parse_scenario(SIX_WORKERS))
    assert [e.path.count("StartDrain") for e in story.removals] == [4]
    assert min(p.workers_usable for p in story.simulation.points) == story.workers() == 2
    assert_removed_without_a_trace(story)


def test_a_command_that_ssm_shows_late_is_waited_for(act: Act) -> None:
    def slow(simulation: Simulation) -> None:
        simulation.deployment.cloud.commands.delays.unknown_seconds = 8.0
        simulation.deployment.cloud.commands.delays.delayed_seconds = 9.0

    story = act("quiet-night", minutes=30, before=slow)
    story.checker.assert_only_safe_removals()
    assert story.terminated()
    assert {e.status for e in story.simulation.executions} == {"SUCCEEDED"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("minutes", [2, 10, 30])
def test_a_drain_that_is_delivered_after_an_absence_of_the_agent_changes_nothing(act: Act, minutes: int) -> None:
    """SSM delivers the commands that many minutes late, and they run."""

    def away(simulation: Simulation) -> None:
        deployment = simulation.deployment
        deployment.cloud.commands.delays.late_delivery_seconds = minutes * 60

        def watch() -> None:
            if any(r.document.endswith("InspectNodes") and r.final for r in deployment.cloud.commands.runs):
                deployment.cloud.commands.offline.add(deployment.server_id)

        deployment.clock.every(0.25, watch)

    story = act("quiet-night", minutes=26 + minutes, before=away)
    late = [r for r in story.commands("DrainNode") if r.thread is not None]
    assert late
    assert {r.stdout.splitlines()[-1].split()[1] for r in late} <= {"too-late", "undone"}
    assert (story.terminated(), story.cordoned(), story.checker.removals) == ([], [], [])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("polls", [1, 3, 12])
def test_an_abandoned_run_leaves_no_cordon(act: Act, polls: int) -> None:
    """Another user stops the execution during a drain: the clean-up cancels the drain and reinstates the worker."""
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
    story.checker.assert_only_safe_removals()
    drain = story.commands("DrainNode")[0]
    assert drain.status == "Cancelled"
    assert story.cordoned() == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("minutes", [5, 20, 60])
def test_an_unmanaged_server_is_reported_and_no_worker_is_removed(act: Act, minutes: int) -> None:
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


@pytest.mark.whole
def test_a_day_and_a_night_break_no_budget(act: Act) -> None:
    act("day-and-night").checker.assert_only_safe_removals()


def test_every_scenario_without_interruptions_is_watched_by_the_budget_checker() -> None:
    here = {"quiet-night", "blocked-everywhere", "drain-times-out", "server-unreachable", "load-returns-mid-drain"}
    rolled = {"image-rollout", "image-rollout-bad", "expiry-storm"}  # test_roll_out_scenarios.py
    upgraded = {"k3s-upgrade", "k3s-rollback"}  # test_k3s_upgrade.py
    repaired = {"impaired-workers"}  # test_repair_scenario.py
    restarted = {"single-replicas"}  # test_single_replicas.py
    learned = {"noisy-pool"}  # test_noisy_pool.py
    pulled = {"images-ready"}  # test_images_ready.py; it removes no worker
    off = {"off-at-night"}  # test_off_at_night.py
    stopped = {"standby"}  # test_standby_scenario.py
    other = {*rolled, *upgraded, *repaired, *restarted, *learned, *pulled, *off, *stopped}
    assert {*scenario_names()} == {*here, "day-and-night", *NAMES, *other}
