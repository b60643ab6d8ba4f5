"""Counts what a simulation used of AWS's billed units: transitions, invocations, GB-seconds, DynamoDB units, logs.

Counted from the histories, the invocations and the recorded calls. It knows no price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from node_fleet.domain.model.value_class import value_class
from simulator.aws.recorder import AwsCall
from simulator.report.control_plane_cost import RunUsage
from simulator.report.story import changed_something
from simulator.runner import Execution
from simulator.simulation import Simulation

REAL_SECONDS_PER_INVOCATION = 0.35
"""What a function takes besides its virtual waits: a warm call of AWS or Prometheus, measured in tenths of a second."""
KIB = 1024
WRITES = ("PutItem", "UpdateItem", "DeleteItem")
READS = ("GetItem", "Query")
READ_UNIT = 4 * KIB


@value_class
class Counted:
    """The average run of each kind, and how many of each there were."""

    profiles: Mapping[str, RunUsage]
    runs: Mapping[str, int]


def counted(simulation: Simulation) -> Counted:
    """Profiles of quiet runs, early ends, scale-ups and scale-downs, from their own spans of time."""
    groups: dict[str, list[Execution]] = {"quiet": [], "early": [], "scale_up": [], "scale_down": []}
    for execution in simulation.executions:
        if "autoscaler" in execution.machine and execution.ended_at is not None:
            groups[kind_of(execution)].append(execution)
    return Counted(
        profiles={kind: _average([_profile(simulation, one) for one in runs]) for kind, runs in groups.items() if runs},
        runs={kind: len(runs) for kind, runs in groups.items()},
    )


def kind_of(execution: Execution) -> str:
    """quiet, early (held, paused, stale), scale_up or scale_down."""
    if not changed_something(execution):
        return "quiet" if "CollectMetrics" in execution.path else "early"
    return "scale_up" if "LaunchNodes" in execution.path else "scale_down"


def _profile(simulation: Simulation, execution: Execution) -> RunUsage:
    """Every function of a run ends before its state does, so the time separates the runs; two never hold the lock."""
    start, end = execution.started_at, execution.ended_at or execution.started_at
    lambdas = simulation.deployment.cloud.lambdas
    names = {visit.name for visit in execution.history if visit.type == "Task"}
    mine = [one for one in lambdas.invocations if one.state in names and start <= one.started_at <= end]
    memory = {name: function.memory_mib for name, function in lambdas.functions.items()}
    functions = {one.function for one in mine}
    calls = [
        call
        for call in simulation.deployment.cloud.recorder.calls
        if call.function in functions and start <= call.at <= end and call.error is None
    ]
    return RunUsage(
        transitions=len(execution.path),
        invocations=len(mine),
        gb_seconds=sum(
            (REAL_SECONDS_PER_INVOCATION + one.ended_at - one.started_at) * memory[one.function] / KIB for one in mine
        ),
        write_units=sum(math.ceil(size_of(call) / KIB) for call in calls if call.operation in WRITES),
        read_units=sum(max(1, math.ceil(size_of(call) / READ_UNIT)) for call in calls if call.operation in READS),
        log_kb=sum(len(line.text) for line in lambdas.logs if line.function in functions and start <= line.at <= end)
        / 1000,
        messages=sum(call.operation == "Publish" for call in calls),
        secret_reads=sum(call.operation == "GetSecretValue" for call in calls),
    )


def size_of(call: AwsCall) -> int:
    """The item that a call carries, in bytes; replies of reads are not kept, so a read counts its smallest unit."""
    return len(str(call.parameters.get("Item") or call.parameters.get("ExpressionAttributeValues") or ""))


def _average(profiles: Iterable[RunUsage]) -> RunUsage:
    found = list(profiles)
    means: dict[str, Any] = {
        one.name: round(sum(float(getattr(p, one.name)) for p in found) / len(found), 2) for one in fields(RunUsage)
    }
    return RunUsage(**means)
