"""A small fleet in the simulator, with the shipped workflow, that a test drives tick by tick."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from node_fleet.adapters.records import Records
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.fleet_state import FleetState
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.settings import Settings
from simulator.aws.template import Template
from simulator.cluster.boot import BootRule
from simulator.runner import Execution
from simulator.scenario.files import parse_scenario
from simulator.simulation import Simulation, launch_worker, synthesised_template
from tests.support.recorded_calls import LEDGER

SCENARIO = """
name: stage
description: A small web shop.
duration: 10h
workers:
  - {{count: {workers}, market: {market}}}
settings: {{{settings}}}
applications:
  - name: web
    replicas: 4
    cpu_milli: 250
    memory_mib: 128
    load: {{constant: {load}}}
    autoscale: {{min: 4, max: 60, target_percent: 70}}
    budget: {{max_unavailable: 1}}
    shutdown: {shutdown}s
{more}
"""
IDLE, BUSY = 20, 420
WARM_UP_TICKS = 4
IDLE_TICKS_LIMIT = 12


@functools.cache
def template() -> Template:
    return synthesised_template()


class Stage:
    """The simulation with what tests ask of it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.deployment = sim.deployment
        self.cloud = sim.deployment.cloud
        environment = next(
            f.environment for f in self.cloud.lambdas.functions.values() if "CLUSTER_ID" in f.environment
        )
        self.settings = Settings.from_env(environment)
        self.store = StateStore(self.cloud.client("dynamodb"), self.settings, _WholeClock(self.deployment.clock.now))
        self.records = Records(self.cloud.client("dynamodb"), self.settings)

    # driving -----------------------------------------------------------------------------------------------------

    def tick(self) -> Execution:
        """The next scheduled run of the autoscaler, to its end."""
        return next(e for e in self.deployment.run_ticks(1) if e.machine.endswith("autoscaler"))

    def ticks(self, count: int) -> list[Execution]:
        return [self.tick() for _ in range(count)]

    def tick_until(self, done: Callable[[Execution], bool], limit: int = IDLE_TICKS_LIMIT) -> Execution:
        """Tick until a run satisfies `done`; fails with every path walked when none does."""
        seen = []
        for _ in range(limit):
            run = self.tick()
            if done(run):
                return run
            seen.append(f"{run.status}: {' > '.join(run.path)}")
        raise AssertionError("none of these runs did it:\n" + "\n".join(seen))

    def run(self, trigger: str = "manual", **fields: Any) -> Execution:
        """A run started by hand or by an alert, to its end."""
        execution = self.deployment.start_workflow({"trigger": trigger, **fields})
        self.deployment.settle()
        return execution

    def start(self, trigger: str = "manual", **fields: Any) -> Execution:
        return self.deployment.start_workflow({"trigger": trigger, **fields})

    def until(self, execution: Execution, state: str) -> None:
        """Run the clock until the execution has entered a state."""
        assert self.deployment.run_until(lambda: state in execution.path, limit_seconds=3600), execution.path

    def load(self, rate: float) -> None:
        self.sim.cluster.set_load("shop/web", lambda _seconds: rate)

    def stop_schedule(self) -> None:
        """From now on only runs that the test starts."""
        self.deployment._fire = lambda *_: None  # type: ignore[method-assign]

    def dry_run_until(self, state: str, limit: int = IDLE_TICKS_LIMIT) -> Execution:
        """Dry runs at the pace of the schedule, until one enters a state."""
        self.stop_schedule()
        for _ in range(limit):
            run = self.run(dry_run=True)
            if state in run.path:
                return run
            self.deployment.clock.advance(self.settings.interval_seconds)
        raise AssertionError(f"no dry run came to {state}; the last went {' > '.join(run.path)}")

    def lost_instance(self) -> str:
        """An instance of ours that runs and never becomes a node, past its join limit."""
        subnet = next(iter(self.settings.zones.values()))
        self.sim.cluster.boot_rules.insert(0, BootRule(kind="never_joins"))
        instance_id = launch_worker(self.deployment, instance_type="t3.small", market="on-demand", subnet_id=subnet)
        self.deployment.clock.advance(self.settings.join_limit_seconds + 1)
        return instance_id

    # faults ------------------------------------------------------------------------------------------------------

    def break_state(
        self,
        name: str,
        error: BaseException,
        *,
        after: bool = False,
        times: int = 10**6,
        when: Callable[[dict[str, Any]], bool] = lambda event: True,
    ) -> list[int]:
        """Make a state's handler raise before or after its effect; the list grows with each time it did."""
        key = next(key for key in self.cloud.lambdas.functions if key.endswith(f"-{name}"))
        function = self.cloud.lambdas.functions[key]
        struck: list[int] = []

        def broken(event: dict[str, Any], context: object) -> Any:
            if len(struck) >= times or not when(event):
                return function.handler(event, context)
            if after:
                function.handler(event, context)
            struck.append(1)
            raise error

        self.cloud.lambdas.functions[key] = replace(function, handler=broken)
        return struck

    def answer_state(self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change what a state's handler answers."""
        key = next(key for key in self.cloud.lambdas.functions if key.endswith(f"-{name}"))
        function = self.cloud.lambdas.functions[key]
        self.cloud.lambdas.functions[key] = replace(
            function, handler=lambda event, context: change(function.handler(event, context))
        )

    def clear_faults(self) -> None:
        """Put the shipped handlers back."""
        for key, function in SHIPPED[id(self)].items():
            self.cloud.lambdas.functions[key] = function

    # looking -----------------------------------------------------------------------------------------------------

    def state(self) -> FleetState:
        return self.store.load()

    def workers(self) -> list[str]:
        """Instance ids of the workers that EC2 counts as pending or running."""
        return [
            one.id
            for one in self.cloud.ec2.instances()
            if one.state in ("pending", "running") and one.id != self.deployment.server_id
        ]

    def cordoned(self) -> list[str]:
        return [node.name for node in self.sim.cluster.nodes() if node.unschedulable]

    def leave(self, operation: Operation, *, owner: str = "dead") -> None:
        """Leave an operation behind as a run would that died after recording it; its lock is free again."""
        run = Run(execution_id=owner, trigger="manual", scheduled_at=0, started_at=int(self.deployment.clock.now()))
        held = replace(run, fence=self.store.acquire(run).state.fence)
        self.store.save_operation(held, operation)
        self.store.release(held)

    def now(self) -> int:
        return int(self.deployment.clock.now())


class _WholeClock:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> int:
        return int(self._now())


SHIPPED: dict[int, dict[str, Any]] = {}


@contextmanager
def stage(
    *,
    workers: int = 2,
    load: float = IDLE,
    warm_up: int = WARM_UP_TICKS,
    shutdown: int = 2,
    market: str = "on-demand",
    more: Sequence[str] = (),
    **settings: Any,
) -> Iterator[Stage]:
    """A fleet of `workers` under a constant load, after enough ticks for every figure to be known."""
    text = SCENARIO.format(
        workers=workers,
        load=load,
        shutdown=shutdown,
        market=market,
        settings=", ".join(
            f"{name}: {_yaml(value)}" for name, value in {"preset": "node-fleet", "min_workers": 2, **settings}.items()
        ),
        more="\n".join(more),
    )
    with Simulation(parse_scenario(text, source="stage"), template=template(), alerts=False) as sim:
        made = Stage(sim)
        SHIPPED[id(made)] = dict(made.cloud.lambdas.functions)
        made.ticks(warm_up)
        yield made
        del SHIPPED[id(made)]
        for execution in sim.executions:
            if execution.machine.endswith("autoscaler"):
                LEDGER.edges.update(execution.edges)


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else str(value)
