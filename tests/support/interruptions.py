"""The interruption workflow in the simulator: one fleet, its events, and what became of them."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import Any

from cdk_app.workflow import workflows
from node_fleet.domain.model.snapshot import Instance
from simulator.runner import Execution
from tests.support.handlers.bench import ZONES, Bench

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
WARNING_SECONDS = 120


def prepare(made: Bench) -> None:
    flow = next(one for one in workflows() if one.name == "interruption")
    text = flow.text
    for name in sorted(flow.functions):
        module = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        function = made.cloud.lambdas.register(name, f"handlers.{module}.handler", environment=made.environment())
        text = text.replace(f"${{{name}FunctionArn}}", function.arn)
    made.cloud.create_state_machine("interruption", json.loads(text))
    made.server.says("DrainNode", "")
    for document, word in (("UncordonNode", "uncordoned"), ("ForgetNode", "forgotten")):
        made.server.says(document, f"result: {word} node")


def worker(made: Bench, number: int = 1, *, zone: str = ZONES[0]) -> Instance:
    """One running worker of the fleet, whose drain succeeds."""
    found = made.running(number, zone=zone)
    made.server.says("DrainNode", f"node/{found.instance_id} drained\nresult: drained {found.instance_id}")
    return found


def event(made: Bench, kind: str, instance_id: str, *, at: float | None = None, **detail: Any) -> dict[str, Any]:
    time = iso(made.clock.now() if at is None else at)
    return {"detail-type": kind, "time": time, "source": "aws.ec2", "detail": {"instance-id": instance_id, **detail}}


def scheduled(made: Bench, when: float, *instance_ids: str, status: str = "upcoming") -> dict[str, Any]:
    detail = {
        "eventArn": "arn:aws:health:ap-southeast-1::event/EC2/AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED/A_1",
        "statusCode": status,
        "service": "EC2",
        "eventTypeCategory": "scheduledChange",
        "startTime": dt.datetime.fromtimestamp(when, dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "affectedEntities": [{"entityValue": i} for i in instance_ids],
    }
    return {"detail-type": "AWS Health Event", "time": iso(made.clock.now()), "source": "aws.health", "detail": detail}


def iso(epoch: float) -> str:
    return dt.datetime.fromtimestamp(epoch, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def start(made: Bench, what: dict[str, Any], name: str = "notice") -> Execution:
    return made.cloud.runner.start(what, name)


def finish(made: Bench, *executions: Execution, seconds: float = 8 * 3600) -> Execution:
    limit = made.clock.now() + seconds
    made.clock.run_until(lambda: not any(e.running for e in executions), limit=limit)
    for execution in executions:
        assert execution.status == "SUCCEEDED", f"{execution.path}: {execution.error} {execution.cause}"
    return executions[0]


def replacements(made: Bench, instance_id: str) -> list[Instance]:
    return [i for i in made.instances() if i.operation_id == f"int-{instance_id}"]


def commands(made: Bench) -> list[str]:
    return [document for document, _ in made.server.commands]


def messages(made: Bench) -> str:
    return "\n".join(message["what"] for _, message in made.publisher.messages)
