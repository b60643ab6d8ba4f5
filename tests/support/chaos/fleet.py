"""A small fleet in the simulator in which every function can be interfered with, and every caller is known.

It drives and looks. What may never happen is said in `invariants`, what is done to the fleet in `faults`.
"""

from __future__ import annotations

import contextvars
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

from moto.dynamodb.models import dynamodb_backends
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from simulator.aws.lambdas import LambdaFunction
from simulator.aws.recorder import current_function
from simulator.runner import Execution
from simulator.scenario.files import parse_scenario
from simulator.simulation import Simulation
from tests.support.workflow_harness import SHIPPED, Stage, template

Handler = Callable[[Any, Any], Any]

SCENARIO = """
name: chaos
description: A small web shop that things happen to.
duration: 30h
workers:
  - {{count: {workers}, market: {market}}}
settings: {{{settings}}}
applications:
  - name: web
    replicas: 4
    cpu_milli: 250
    memory_mib: 128
    load: {{constant: 20}}
    autoscale: {{min: 4, max: 60, target_percent: 70}}
    budget: {{max_unavailable: 1}}
{boot}
"""
PRESET = os.environ.get("NODE_FLEET_CHAOS_PRESET", "node-fleet")
"""The rule set under which all of this is played."""
QUICK = {
    "preset": PRESET,
    "min_workers": 2,
    "max_workers": 5,
    "spot_percent": 50,
    "idle_seconds": 60,
    "cooldown_down_seconds": 0,
    "cooldown_up_seconds": 60,
    "join_poll_seconds": 20,
    "terminate_poll_seconds": 20,
}

acting: contextvars.ContextVar[str] = contextvars.ContextVar("acting", default="")
"""The execution on whose behalf a function runs; empty outside functions."""


class Fleet(Stage):
    """The stage of the workflow tests, with every call traced to its execution."""

    def __init__(self, sim: Simulation) -> None:
        super().__init__(sim)
        self.functions = self.cloud.lambdas.functions
        for key, function in list(self.functions.items()):
            self.functions[key] = replace(function, handler=_traced(function.handler))
        self._traced = dict(self.functions)

    def function(self, state: str) -> LambdaFunction:
        """The function of a task state."""
        return next(f for key, f in self.functions.items() if key.endswith(f"-{state}"))

    def surround(self, state: str, around: Callable[[Handler, Any, Any], Any]) -> None:
        """Let `around` run a state's handler, or not."""
        function = self.function(state)
        inner = function.handler
        self.functions[function.name] = replace(function, handler=lambda event, context: around(inner, event, context))

    def clear_faults(self) -> None:
        self.functions.update(self._traced)

    def set_environment(self, values: Mapping[str, str]) -> None:
        """A deployment with other settings: every function reads them from its next call on."""
        for functions in (self.functions, self._traced):
            for key, function in list(functions.items()):
                functions[key] = replace(function, environment={**function.environment, **values})

    def state_of(self, function_name: str | None) -> str:
        """The state that a function belongs to."""
        return (function_name or "").rpartition("-")[2]

    def tick(self) -> Execution | None:  # type: ignore[override]
        """The next scheduled run, to the end of all that runs; None when the autoscaler did not start.

        A worker that was not reclaimed may wait hours for capacity, which later ticks free; this does not wait for it.
        """
        known = len(self.deployment.executions)
        wanted = len(self.deployment.ticks) + 1
        self.deployment.run_until(lambda: len(self.deployment.ticks) >= wanted, limit_seconds=600)
        self.deployment.run_until(self._nothing_moves)
        mine = [e for e in self.deployment.executions[known:] if e.machine.endswith("autoscaler")]
        return mine[0] if mine else None

    def _nothing_moves(self) -> bool:
        return all(execution.path[-1:] == ["WaitForCapacity"] for execution in self.cloud.runner.running())

    def raw(self) -> dict[str, Any]:
        """The state item as the table holds it, read past every client, fault and recorder."""
        return next(iter(self.rows(self.settings.state_table)), {})

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All items of a table, in plain values."""
        items = dynamodb_backends[self.cloud.account][self.cloud.region].tables[table].all_items()
        return [{name: plain(value.to_regular_json()) for name, value in item.attrs.items()} for item in items]

    def standby(self) -> list[str]:
        """The stopped instances that are marked as standby workers, past the product's own reading."""
        tags = {i.id: {t["key"]: t["value"] for t in i.get_tags()} for i in self.stopped()}
        return [instance_id for instance_id, own in tags.items() if own.get("Standby") in ("ready", "failed")]

    def stopped(self) -> list[Any]:
        """moto's instances that are stopped or stopping, without the server."""
        server = self.deployment.server_id
        return [i for i in self.cloud.ec2.instances() if i.state in ("stopped", "stopping") and i.id != server]

    def execution(self, arn: str) -> Execution | None:
        return next((e for e in reversed(self.deployment.executions) if e.arn == arn), None)

    def stop(self, arn: str) -> None:
        """An operator stops an execution in the console."""
        with by_hand():
            self.cloud.runner.stop(next(e for e in self.deployment.executions if e.arn == arn), error="stopped by hand")

    def time_out(self, arn: str) -> None:
        """The machine's own TimeoutSeconds is over at this instant."""
        machines = stepfunctions_parser_backends[self.cloud.account][self.cloud.region].state_machines
        execution = next(e for machine in machines for e in machine.executions if e.execution_arn == arn)
        execution.exec_worker.env.set_timed_out()


@contextmanager
def by_hand() -> Iterator[None]:
    """What happens inside is a person's doing, although a function waits for it."""
    function, execution = current_function.set(None), acting.set("")
    try:
        yield
    finally:
        current_function.reset(function)
        acting.reset(execution)


def plain(value: Mapping[str, Any]) -> Any:
    """One attribute as DynamoDB sends it, as a plain value; this package's own reading, not the product's."""
    ((kind, inner),) = value.items()
    if kind == "N":
        number = Decimal(inner)
        return int(number) if number == int(number) else float(number)
    if kind == "M":
        return {name: plain(each) for name, each in inner.items()}
    if kind == "L":
        return [plain(each) for each in inner]
    return None if kind == "NULL" else inner


def execution_of(event: Any) -> str:
    """The execution that an event of a task state, or of the clean-up, belongs to."""
    if not isinstance(event, dict):
        return ""
    if "execution_id" in event:
        return str(event["execution_id"])
    if "run" in event:
        return str(event["run"].get("execution_id", ""))
    if "interruption" in event:
        return str(event["interruption"].get("claimed_by", ""))
    if event.get("detail-type", "").startswith("Step Functions"):
        return f"clean-up:{event['id']}"
    return ""


def _traced(handler: Handler) -> Handler:
    def traced(event: Any, context: Any) -> Any:
        token = acting.set(execution_of(event))
        try:
            return handler(event, context)
        finally:
            acting.reset(token)

    return traced


@contextmanager
def simulated_fleet(
    *, workers: int = 2, market: str = "on-demand", boot: tuple[str, ...] = (), **settings: Any
) -> Iterator[Fleet]:
    """A fleet of that many workers, before its first tick."""
    text = SCENARIO.format(
        workers=workers,
        market=market,
        settings=", ".join(f"{name}: {value}" for name, value in {**QUICK, **settings}.items()),
        boot="\n".join(["boot:", *(f"  - {rule}" for rule in boot)]) if boot else "",
    )
    with Simulation(parse_scenario(text, source="chaos"), template=template()) as sim:
        fleet = Fleet(sim)
        SHIPPED[id(fleet)] = dict(fleet.functions)
        yield fleet
        del SHIPPED[id(fleet)]


def module_of(state: str) -> str:
    """The handler module of a state."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", state).lower()
