"""Compares what a simulation did with the back-test of its scenario.

Only scenarios with one autoscaled application and workers of one type can be run by both.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtest.compare import Assumptions
from backtest.deployed import Deployed, Workflow
from backtest.load import plan_load
from backtest.model import STEP_SECONDS, Capacity, ModelError, Scaling
from backtest.replay import replay
from backtest.trace import Trace, from_rows
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.value_class import value_class
from node_fleet.payload import from_payload
from node_fleet.settings import Settings
from simulator.cluster.machines import machine_type
from simulator.report.figures import stays_of
from simulator.report.story import operations_of
from simulator.scenario.model import Scenario
from simulator.simulation import Simulation

WITHIN = 0.03
CONTEXT = json.loads((Path(__file__).parents[2] / "cdk.json").read_text(encoding="utf-8"))["context"]
SHIPPED = CONTEXT["clusters"][0]["settings"]
LAUNCH_APART, REMOVAL_APART = 60, 125
"""Seconds. A removal may come one tick later."""
ALERT_SECONDS = 10
DAEMON_CPU_MILLI, DAEMON_MEMORY_MIB = 20, 32
DAEMON_USES_CPU_MILLI, DAEMON_USES_MEMORY_MIB = 8, 20


@value_class
class Outcome:
    """The outcome of a scenario: (second, change of the worker count) of each change, and the worker-hours."""

    changes: tuple[tuple[int, int], ...]
    worker_hours: float

    @property
    def steps(self) -> tuple[int, ...]:
        """The changes alone."""
        return tuple(change for _, change in self.changes)


def assert_model_agrees(simulation: Simulation) -> None:
    """The back-test has the same actions at nearly the same times, and nearly the same worker-hours."""
    model, full = by_model(simulation.scenario), outcome_of(simulation)
    assert model.steps == full.steps
    assert model.worker_hours == pytest.approx(full.worker_hours, rel=WITHIN)
    for (ours, change), (theirs, _) in zip(model.changes, full.changes, strict=True):
        assert abs(ours - theirs) <= (LAUNCH_APART if change > 0 else REMOVAL_APART)


def by_model(scenario: Scenario) -> Outcome:
    """The scenario as a back-test."""
    settings = Settings.from_mapping({**SHIPPED, **scenario.settings})
    assumptions = assumptions_of(scenario)
    load = plan_load(
        load_trace(scenario),
        assumptions.capacity,
        assumptions.scaling,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
    )
    sizer = Deployed(settings.policy(), assumptions.capacity, assumptions.workflow)
    found = replay(load, assumptions.capacity, sizer, start_workers=scenario.worker_count)
    start = load.phases[0].start
    return Outcome(changes=tuple((a.at - start, a.change) for a in found.actions), worker_hours=found.worker_hours)


def outcome_of(simulation: Simulation) -> Outcome:
    """What the shipped state machine and handlers did; worker-hours up to the end of the scenario."""
    scenario = simulation.scenario
    end = scenario.start_at + scenario.duration_seconds
    hours = sum(max(0.0, min(stay.ended_at, end) - stay.begun_at) for stay in stays_of(simulation)) / 3600
    changes: dict[str, tuple[int, int]] = {}
    for execution in simulation.executions:
        for record in operations_of(execution):
            operation: Operation = from_payload(Operation, record, path="operation")
            if change := len(operation.joined) - len(operation.removed):
                began = operation.started_at - int(scenario.start_at)
                changes[operation.operation_id] = (began, change)
    return Outcome(changes=tuple(sorted(changes.values())), worker_hours=hours)


def load_trace(scenario: Scenario) -> Trace:
    """The application's requests per second as the simulated cluster samples them."""
    curve, step = scenario.applications[0].spec().curve, int(scenario.cluster.load_step_seconds)
    start, seconds = int(scenario.start_at), int(scenario.duration_seconds)
    return from_rows([(start + at, curve(float(at))) for at in range(0, seconds, step)], name=scenario.name)


def assumptions_of(scenario: Scenario) -> Assumptions:
    """The assumptions with the numbers of the scenario; raises ModelError for one that the model does not support."""
    if len(scenario.applications) != 1 or scenario.applications[0].autoscale is None:
        raise ModelError(f"scenario {scenario.name}: the model supports one application with an autoscaler")
    app, cluster = scenario.applications[0].spec(), scenario.cluster_settings()
    autoscale, kind = app.autoscale, machine_type(scenario.workers[0].instance_type)
    assert autoscale is not None
    capacity = Capacity(
        instance_type=kind.name,
        vcpus=kind.vcpus,
        memory_mib=kind.memory_mib,
        allocatable_cpu_milli=kind.allocatable_cpu_milli,
        allocatable_memory_mib=kind.allocatable_memory_mib,
        daemon_cpu_milli=DAEMON_CPU_MILLI,
        daemon_memory_mib=DAEMON_MEMORY_MIB,
        system_cpu_milli=cluster.system_cpu_milli + DAEMON_USES_CPU_MILLI,
        system_memory_mib=cluster.system_memory_mib + DAEMON_USES_MEMORY_MIB,
        pod_cpu_milli=app.cpu_request_milli,
        pod_memory_mib=app.memory_request_mib,
        pod_cpu_limit_milli=app.cpu_limit_milli,
        pod_memory_used_mib=int(app.memory_usage_mib or app.memory_request_mib * 0.8),
        pod_idle_cpu_milli=int(app.idle_cpu_milli),
        boot_seconds=int(cluster.boot_seconds) // STEP_SECONDS * STEP_SECONDS,
        drain_seconds=60,
        alert_seconds=ALERT_SECONDS,
    )
    scaling = Scaling(
        milli_per_unit=app.cpu_milli_per_request,
        interpolation="jump",
        target_percent=autoscale.target_percent,
        tolerance_percent=10.0,
        stabilization_seconds=int(autoscale.scale_down_stabilisation_seconds),
        min_replicas=autoscale.min_replicas,
        max_replicas=autoscale.max_replicas,
    )
    return Assumptions(capacity=capacity, scaling=scaling, workflow=Workflow())
