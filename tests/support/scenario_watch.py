"""Watches a simulated fleet: every launch, join and end, the count after each change, and the messages sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.model.run import Alert
from node_fleet.payload import from_payload
from simulator.aws.recorder import AwsCall
from simulator.runner import Execution, StateVisit
from simulator.scenario.files import load_scenario
from simulator.simulation import Simulation
from tests.support.budget_checker import BudgetChecker

LIVE = ("pending", "running")
TAGS = {"Project", "Role", "ManagedBy", "Cluster", "Operation", "Slot", "Name", "TemplateVersion"}
SAMPLE_SECONDS = 1.0
_BESIDE = 20 * 0.096 / 730 + 0.005
USD_PER_HOUR = {
    ("t3.small", "spot"): 0.0087 + _BESIDE,
    ("t3.small", None): 0.0264 + _BESIDE,
    ("t3.medium", "spot"): 0.0174 + _BESIDE,
    ("t3.medium", None): 0.0528 + _BESIDE,
}
"""Instance, volume of 20 GiB and address at the shipped prices of ap-southeast-1, by type and market."""


@dataclass(slots=True)
class FleetWatch:
    """What happened to the machines. Times are epoch seconds."""

    sim: Simulation
    checker: BudgetChecker
    launched: dict[str, float] = field(default_factory=dict)
    usable_at: dict[str, float] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    untagged: list[str] = field(default_factory=list)
    over_maximum: list[tuple[float, int]] = field(default_factory=list)
    highest_usd: float = 0.0
    """The most that the workers without those under notice cost in an hour."""
    notices: set[str] = field(default_factory=set)
    notices_at: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        recorder = self.sim.deployment.cloud.recorder
        recorder.after_effect.append(self._after)
        self.sim.deployment.clock.every(SAMPLE_SECONDS, self._look)

    @property
    def maximum(self) -> int:
        return int(self.sim.deployment.resources.setting("MAX_NODES", "10"))

    @property
    def workers(self) -> set[str]:
        """Live workers, those under notice included."""
        return {i.id for i in self.sim.deployment.cloud.ec2.instances() if i.state in LIVE} - {
            self.sim.deployment.server_id
        }

    def _after(self, call: AwsCall) -> None:
        names = call.parameters.get("ExpressionAttributeNames", {})
        notice = str(names.get("#notice", ""))
        if call.operation == "UpdateItem" and notice.startswith("notice#"):
            instance_id = notice.removeprefix("notice#")
            if call.parameters["UpdateExpression"].startswith("SET"):
                self.notices.add(instance_id)
                self.notices_at.setdefault(instance_id, call.at)
            else:
                self.notices.discard(instance_id)
        if call.operation == "CreateFleet":
            given = {t["Key"] for spec in call.parameters["TagSpecifications"] for t in spec["Tags"]}
            if given < TAGS:
                self.untagged.append(call.parameters["ClientToken"])
        if call.operation in ("CreateFleet", "TerminateInstances", "UpdateItem"):
            self._count()

    def _count(self) -> None:
        staying = self.workers - self.notices
        counted = len(staying)
        live = [i for i in self.sim.deployment.cloud.ec2.instances() if i.id in staying]
        self.highest_usd = max(self.highest_usd, sum(USD_PER_HOUR.get((i.instance_type, i.lifecycle), 0) for i in live))
        if counted > self.maximum:
            self.over_maximum.append((self.sim.deployment.clock.now(), counted))

    def _look(self) -> None:
        now = self.sim.deployment.clock.now()
        for instance in self.sim.deployment.cloud.ec2.instances():
            if instance.id == self.sim.deployment.server_id or instance.id in self.sim.starting_ids:
                continue
            self.launched.setdefault(instance.id, now)
            if instance.state not in LIVE:
                self.ended_at.setdefault(instance.id, now)
        for node in self.sim.cluster.nodes():
            if node.usable and node.instance_id in self.launched:
                self.usable_at.setdefault(node.instance_id, now)
        self._count()

    # the story ---------------------------------------------------------------------------------------------------

    @property
    def never_joined(self) -> set[str]:
        return set(self.launched) - set(self.usable_at)

    def runs(self, machine: str = "autoscaler") -> list[Execution]:
        return [e for e in self.sim.executions if e.machine.endswith(machine)]

    def scale_ups(self) -> list[Execution]:
        return [e for e in self.runs() if "LaunchNodes" in e.path]

    def visits(self, state: str) -> list[StateVisit]:
        return [visit for run in self.runs() for visit in run.history if visit.name == state]

    def messages(self) -> list[str]:
        """Every sentence of the messages: what happened, alerts and details."""
        found: list[str] = []
        for record in self.sim.deployment.messages:
            message = _json(record.get("Message", record.get("message", "")))
            if not isinstance(message, dict):
                continue
            found.append(str(message.get("what", "")))
            alerts = from_payload(tuple[Alert, ...], message.get("alerts") or (), path="alerts")
            found += [alert.text for alert in alerts]
            found += [str(detail) for detail in message.get("details") or ()]
        return found

    def decision_to_usable(self) -> list[float]:
        """Seconds from the end of Decide to the usable worker, for each worker that joined in an operation."""
        found = []
        for run in self.scale_ups():
            decided = 0.0
            for visit in run.history:
                if visit.name == "Decide" and visit.exited_at is not None:
                    decided = visit.exited_at
                if visit.name == "CompleteScaleUp" and decided:
                    slots = visit.output["operation"]["slots"]
                    index = slots["columns"].index("instance_id")
                    ids = [row[index] for row in slots["rows"]]
                    found += [self.usable_at[i] - decided for i in ids if i in self.usable_at]
        return found


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}


@contextmanager
def watched(name: str) -> Iterator[FleetWatch]:
    """The scenario of that name, acted out to its end."""
    with Simulation(load_scenario(name)) as sim:
        watch = FleetWatch(sim, BudgetChecker(sim.cluster))
        watch.begin()
        sim.run()
        yield watch
