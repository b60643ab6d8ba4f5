"""Fourteen nights with faults: no protected workload is lost, and the cluster is up at 07:00 on every weekday."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.hibernation import Order
from node_fleet.payload import table_rows
from simulator.aws.faults import FaultRule
from simulator.scenario.files import parse_scenario
from simulator.simulation import Simulation
from tests.support.chaos.fleet import Fleet
from tests.support.workflow_harness import SHIPPED, template

WORKERS, DRAIN, LEAD = 3, 600, 600
SCENARIO = f"""
name: nights
description: Two weeks of nights.
start: 2026-06-01T08:30:00Z
duration: 15d
workers:
  - {{count: {WORKERS}, market: spot}}
settings:
  min_workers: {WORKERS}
  max_workers: 6
  spot_percent: 100
  hibernate: "Mon-Fri 09:00-07:00; Sat-Sun; Sun 12:00-07:00"
  hibernate_drain_seconds: {DRAIN}
  hibernate_lead_seconds: {LEAD}
  alert_quiet_seconds: 600
applications:
  - name: web
    replicas: 6
    cpu_milli: 200
    load: {{constant: 20}}
    budget: {{max_unavailable: 1}}
  - name: api
    replicas: 2
    cpu_milli: 100
    load: {{constant: 2}}
"""
MINUTE, HOUR, DAY = 60, 3600, 86_400
Night = Callable[[Fleet], object]


def after(hours: float, act: Night) -> Night:
    """Do it so many hours after 08:30, the begin of each day."""

    def later(fleet: Fleet) -> None:
        fleet.deployment.clock.at(fleet.now() + hours * HOUR, lambda: act(fleet))

    return later


def refused(operation: str, minutes: int, code: str = "InsufficientInstanceCapacity") -> Night:
    """EC2 refuses the operation for a time."""

    def begin(fleet: Fleet) -> None:
        rule = FaultRule(service="ec2", operation=operation, code=code, until=fleet.now() + minutes * MINUTE)
        fleet.cloud.faults.inject(rule)

    return begin


def noticed(fleet: Fleet) -> None:
    fleet.cloud.ec2.warn_spot(sorted(fleet.workers())[0])


def killed(fleet: Fleet) -> None:
    """Each run in progress is stopped by hand, in whatever state it is."""
    for running in fleet.cloud.runner.running():
        fleet.stop(running.arn)


def started_by_hand(fleet: Fleet) -> None:
    fleet.cloud.ec2.start(fleet.cloud.ec2.instance(fleet.deployment.server_id))


def ordered(kind: Any, hours: float) -> Night:
    def order(fleet: Fleet) -> None:
        now = fleet.now()
        fleet.store.set_hibernate_order(Order(kind=kind, by="mira", since=now, until=now + int(hours * HOUR)))

    return order


def job(active: int) -> Night:
    def change(fleet: Fleet) -> None:
        cluster = fleet.sim.cluster
        if cluster.find("jobs", "shop", "report") is None:
            spec = {"suspend": True, "template": {"spec": {"containers": [{"name": "main"}]}}}
            cluster.create("jobs", {"metadata": {"namespace": "shop", "name": "report"}, "spec": spec})
        cluster.update("jobs", "shop", "report", lambda found: found.update(status={"active": active}))

    return change


def paused(fleet: Fleet) -> None:
    now = fleet.now()
    fleet.store.set_pause(Pause(reason="a look", by="mira", since=now, until=now + HOUR))


def unreachable(minutes: int) -> Night:
    def begin(fleet: Fleet) -> None:
        commands, server = fleet.cloud.commands, fleet.deployment.server_id
        commands.offline.add(server)
        fleet.deployment.clock.at(fleet.now() + minutes * MINUTE, lambda: commands.offline.discard(server))

    return begin


def twice(fleet: Fleet) -> None:
    """The same tick again, and a run by hand, while the server is being stopped."""
    fleet.deployment.tick(scheduled_at=fleet.deployment.ticks[-1])
    fleet.deployment.start_workflow({"trigger": "manual"})


def stays_on(value: str) -> Night:
    return lambda fleet: fleet.set_environment({"HIBERNATE_AT_LIMIT": value})


NIGHTS: dict[str, tuple[Night, ...]] = {
    "no fault": (),
    "the first wake-up fails": (after(22.3, refused("StartInstances", 6)),),
    "a Spot notice during the drain": (after(0.55, noticed),),
    "a tick during the stop": (after(0.75, twice), after(0.8, twice)),
    "a Job until noon, then a weekend": (after(0.4, job(1)), after(3, job(0))),
    "Saturday, the server is started by hand": (after(4, started_by_hand), after(8, ordered("sleep", 38.4))),
    "Sunday": (),
    "runs are stopped by hand": tuple(after(0.5 + n / 20, killed) for n in range(1, 8)),
    "SSM does not reach the server": (after(0.45, unreachable(30)), after(22.4, unreachable(6))),
    "EC2 refuses to stop the server": (after(0.5, refused("StopInstances", 20, "UnauthorizedOperation")),),
    "a budget holds workers, and the fleet stays on": (
        after(0.4, stays_on("stay-on")),
        after(22, stays_on("terminate")),
    ),
    "someone needs it at 23:00": (after(14.5, ordered("wake", 2)),),
    "paused in the evening": (after(0.4, paused),),
    "the run of the morning is stopped": tuple(after(22.3 + n / 30, killed) for n in range(4)),
}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with Simulation(parse_scenario(SCENARIO, source="nights"), template=template(), alerts=False) as sim:
        made = Fleet(sim)
        SHIPPED[id(made)] = dict(made.functions)
        yield made
        del SHIPPED[id(made)]


class Nights:
    """Watches what ends, and where the fleet is at which time."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.wrong: list[str] = []
        fleet.cloud.recorder.before_effect.append(self._before)

    def _before(self, call: Any) -> None:
        """A worker with pods that a budget covers ends at the limit only, and where that is chosen."""
        if call.operation != "TerminateInstances" or call.function is None:
            return
        operation = self.fleet.raw().get("operation") or {}
        if not operation.get("hibernate"):
            return
        names = {n.name for n in self.fleet.sim.cluster.nodes() if n.instance_id in call.parameters["InstanceIds"]}
        kept = [p.name for p in self.fleet.sim.cluster.pods() if p.node in names and p.name.startswith("web-")]
        spent = operation["started_at"] - self.fleet.raw()["hibernation"]["since"]
        if kept and (operation["hibernate"] != "end" or spent < DRAIN):
            self.wrong.append(f"{datetime.fromtimestamp(self.fleet.now(), UTC)}: {kept} ended after {spent} s")

    def require_on(self, night: str) -> None:
        """The minimum of workers is ready, every replica runs, and nothing is left over."""
        ready = [n for n in self.fleet.sim.cluster.nodes() if n.role != "server" and n.ready and not n.unschedulable]
        running = [p.name for p in self.fleet.sim.cluster.pods() if p.phase == "Running"]
        found = {name: sum(pod.startswith(f"{name}-") for pod in running) for name in ("web", "api")}
        if len(ready) < WORKERS or found != {"web": 6, "api": 2}:
            state = self.fleet.raw().get("hibernation")
            self.wrong.append(f"after {night!r}: {len(ready)} workers ready at 07:00, {found}; {state}")

    def require_off(self, night: str) -> None:
        server = self.fleet.cloud.ec2.instance(self.fleet.deployment.server_id).state
        if self.fleet.workers() or server != "stopped":
            self.wrong.append(f"{night!r}: {len(self.fleet.workers())} workers and the server {server} at midnight")


NOT_OFF_AT_MIDNIGHT = ("a budget holds workers, and the fleet stays on", "someone needs it at 23:00")


@pytest.mark.whole
def test_in_fourteen_nights_no_protected_workload_is_lost_and_every_weekday_begins_at_seven(fleet: Fleet) -> None:
    watch, begun = Nights(fleet), fleet.now()
    for number, (night, faults) in enumerate(NIGHTS.items()):
        for begin in faults:
            begin(fleet)
        fleet.deployment.run_until(begun + number * DAY + 15.5 * HOUR)
        if night not in NOT_OFF_AT_MIDNIGHT:
            watch.require_off(night)
        fleet.deployment.run_until(begun + number * DAY + 22.5 * HOUR)
        if datetime.fromtimestamp(fleet.now(), UTC).weekday() < 5:
            watch.require_on(night)
        fleet.deployment.run_until(begun + (number + 1) * DAY)
    kinds = [row[0] for one in fleet.deployment.messages for row in table_rows_of(one)]
    assert watch.wrong == []
    assert {"wake_failed", "hibernate_failed", "hibernate_kept_on"} <= set(kinds)


def table_rows_of(message: dict[str, Any]) -> list[tuple[str, ...]]:
    alerts = json.loads(message["Message"]).get("alerts") or {"columns": [], "rows": []}
    return [(row["kind"],) for row in table_rows(alerts)]
