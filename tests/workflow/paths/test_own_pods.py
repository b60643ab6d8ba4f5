"""A drain that pods of the drained worker withdraw, because they found no other place, is not tried again for hours."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from node_fleet.domain.model.operation import Operation
from node_fleet.payload import from_payload, packed_lines, unpacked
from simulator.runner import Execution
from simulator.scenario.files import parse_scenario
from simulator.simulation import Simulation
from tests.support.workflow_harness import Stage, template
from tests.support.workflow_paths import nothing_left_behind

SCENARIO = """
name: large-pods
description: Three workers, each filled by one pod of a Deployment.
duration: 10h
workers:
  - {count: 3, market: on-demand}
settings: {min_workers: 1, idle_seconds: 240, cooldown_down_seconds: 0}
applications:
  - {name: large, replicas: 3, cpu_milli: 1000, memory_mib: 64, load: {constant: 0}}
"""
VIRTUAL_MINUTES = 150
BLOCKERS = 11
"""The field of a worker's line in the inspection."""


@contextmanager
def large_pods() -> Iterator[Stage]:
    with Simulation(parse_scenario(SCENARIO, source="large pods"), template=template(), alerts=False) as sim:
        yield Stage(sim)


def judge_no_fit(event: dict[str, Any]) -> dict[str, Any]:
    """The inspection of a server that judges wrongly: every pod fits on another worker."""
    lines = unpacked(event["inspection"]["lines"])[:-1]
    for number, line in enumerate(lines):
        words = line.split(" ")
        if words[0] == "w" and ":f=" in words[BLOCKERS]:
            lines[number] = " ".join([*words[:BLOCKERS], "-", *words[BLOCKERS + 1 :]])
    end = f"end {len(lines)} {zlib.crc32(chr(10).join(lines).encode()):08x}"
    return {**event, "inspection": {**event["inspection"], "lines": packed_lines("\n".join([*lines, end]))}}


def drains(executions: list[Execution]) -> list[str]:
    """The workers that were drained, in order."""
    begun = [e.output_of("StartDrain")["operation"] for e in executions if "StartDrain" in e.path]
    return [from_payload(Operation, operation).targets[0].instance_id for operation in begun]


def play(fleet: Stage) -> list[Execution]:
    return fleet.ticks(VIRTUAL_MINUTES * 60 // fleet.settings.interval_seconds)


@pytest.mark.whole
def test_workers_whose_pods_fit_nowhere_else_are_never_drained() -> None:
    with large_pods() as fleet:
        runs = play(fleet)
        assert any("InspectNodes" in run.path for run in runs)
        assert drains(runs) == [] and not any("LaunchNodes" in run.path for run in runs)
        nothing_left_behind(fleet)


@pytest.mark.whole
def test_a_drain_that_own_pods_withdraw_is_not_repeated_although_the_inspection_judges_wrongly() -> None:
    with large_pods() as fleet:
        fleet.answer_state("InspectNodes", judge_no_fit)
        runs = play(fleet)
        drained = drains(runs)
        assert drained and len(set(drained)) == len(drained)
        assert {b.key: b.failures for b in fleet.state().memory.back_offs} == {f"node:{i}": 5 for i in drained}
        assert not any("TerminateNodes" in run.path for run in runs)
        assert {run.status for run in runs} == {"SUCCEEDED"}
        messages = "\n".join(record["Message"] for record in fleet.deployment.messages)
        kinds = [row[0] for m in messages.splitlines() for row in (json.loads(m)["alerts"] or {"rows": []})["rows"]]
        assert sorted(kinds) == sorted(f"own_pods_waiting:{i}" for i in drained)
        nothing_left_behind(fleet)
