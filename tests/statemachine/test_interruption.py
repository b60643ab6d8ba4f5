"""The interruption workflow in virtual time: what is done for each announcement, how fast, and how it ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_fleet.domain.model import Instance, Snapshot, Worker
from node_fleet.domain.operation import LaunchSlot, Operation, Target
from node_fleet.domain.state import Notice, Pause
from simulator.runner import Execution
from tests.unit.handlers.fakes_scale_up import ZONES, Bench, bench

SOURCE = Path(__file__).parents[2] / "statemachine" / "interruption.asl.json"
WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=4, spot_percent=100) as made:
        prepare(made)
        yield made


def prepare(made: Bench) -> None:
    text = SOURCE.read_text()
    for name in sorted(set(re.findall(r"\$\{(\w+)FunctionArn\}", text))):
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        function = made.cloud.lambdas.register(name, f"handlers.{module}.handler", environment=made.environment())
        text = text.replace(f"${{{name}FunctionArn}}", function.arn)
    made.cloud.create_state_machine("interruption", json.loads(text))
    made.server.says("DrainNode", "")
    for document, word in (("UncordonNode", "uncordoned"), ("ForgetNode", "forgotten")):
        made.server.says(document, f"result: {word} node")


def worker(made: Bench, number: int = 1, *, zone: str = ZONES[0], market: str = "spot") -> Instance:
    """One running worker of the fleet."""
    slot = LaunchSlot(
        number=number,
        zone=zone,
        subnet_id=made.settings.zones[zone],
        instance_type="t3.small",
        market="spot" if market == "spot" else "on-demand",
    )
    answer = made.tools.ec2.launch(slot, operation_id="up-before", token=f"before-{number}")
    made.clock.advance(60)
    found = made.tools.ec2.managed(answer.instance_id)
    assert found is not None
    made.server.says("DrainNode", f"node/{answer.instance_id} drained\nresult: drained {answer.instance_id}")
    return found


def event(made: Bench, kind: str, instance_id: str, **detail: Any) -> dict[str, Any]:
    at = made.cloud.client("ec2").meta and int(made.clock.now())
    import datetime as dt

    time = dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"detail-type": kind, "time": time, "source": "aws.ec2", "detail": {"instance-id": instance_id, **detail}}


def start(made: Bench, what: dict[str, Any], name: str = "notice") -> Execution:
    return made.cloud.runner.start(what, name)


def finish(made: Bench, execution: Execution, seconds: float = 3600) -> Execution:
    limit = made.clock.now() + seconds
    made.clock.run_until(lambda: not execution.running, limit=limit)
    return execution


def test_a_spot_warning_drains_and_replaces_side_by_side_and_in_time(fleet: Bench) -> None:
    taken = worker(fleet)
    fleet.server.drain_seconds = 60
    noticed_at = fleet.clock.now()
    fleet.cloud.ec2.warn_spot(taken.instance_id)
    execution = finish(fleet, start(fleet, event(fleet, WARNING, taken.instance_id)))
    assert execution.status == "SUCCEEDED", execution.cause
    launch = fleet.cloud.recorder.of("RunInstances")[-1]
    assert launch.at - noticed_at <= 5
    assert fleet.server.ends_at["DrainNode"] - noticed_at <= 105
    replacement = [i for i in fleet.instances() if i.operation_id == f"int-{taken.instance_id}"]
    assert len(replacement) == 1 and replacement[0].zone != taken.zone
    assert [d for d, _ in fleet.server.commands] == ["DrainNode", "ForgetNode"]
    parameters = fleet.server.commands[0][1]
    assert parameters["DrainMode"] == "deadline" and int(parameters["NotAfter"]) <= noticed_at + 105
    assert not fleet.state().notices
    assert [kind for kind, _ in fleet.records.events] == ["interruption", "interruption_end"]
