"""CleanUp after a dead interruption execution: the node of a machine that has ended is forgotten, no other one is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from handlers.clean_up import handler as clean_up
from node_fleet.domain.model.errors import CleanUpUnfinishedError
from node_fleet.domain.model.snapshot import Instance
from tests.support.handlers.interruption import noticed, running
from tests.support.handlers.scale_up import Bench, bench

DEAD = "arn:aws:states:eu-central-1:123456789012:execution:interruption:dead"
CHANGE = "EC2 Instance State-change Notification"
WARNING = "EC2 Spot Instance Interruption Warning"


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def ended(begun_with: Any) -> dict[str, Any]:
    """EventBridge's event about a stopped execution."""
    return {"id": "e-1", "detail": {"executionArn": DEAD, "status": "ABORTED", "input": begun_with}}


def announced(instance_id: str, name: str = CHANGE) -> str:
    detail = {"instance-id": instance_id, "state": "terminated"}
    return json.dumps({"detail-type": name, "time": "2026-01-01T00:00:00Z", "detail": detail})


def dead_worker(fleet: Bench) -> Instance:
    worker = running(fleet)
    fleet.cloud.ec2.reclaim(worker.instance_id)
    return worker


def forget(worker: Instance) -> list[Any]:
    return [("ForgetNode", {"NodeName": worker.instance_id, "InstanceId": worker.instance_id})]


@pytest.mark.parametrize("name", [CHANGE, WARNING])
def test_the_node_of_an_ended_machine_is_forgotten(fleet: Bench, name: str) -> None:
    worker = dead_worker(fleet)
    fleet.server.says("ForgetNode", "result: forgotten x")
    clean_up(ended(announced(worker.instance_id, name)), None)
    assert fleet.server.commands == forget(worker)


def test_a_worker_whose_notice_the_dead_execution_had_is_forgotten_once(fleet: Bench) -> None:
    worker = running(fleet)
    noticed(fleet, worker, claimed_by=DEAD)
    fleet.cloud.ec2.reclaim(worker.instance_id)
    fleet.server.says("ForgetNode", "result: forgotten x")
    clean_up(ended(announced(worker.instance_id, WARNING)), None)
    assert fleet.server.commands == forget(worker) and not fleet.state().notices


def test_a_node_that_still_answers_makes_the_event_come_again(fleet: Bench) -> None:
    worker = dead_worker(fleet)
    fleet.server.says("ForgetNode", "result: ready x")
    with pytest.raises(CleanUpUnfinishedError, match=f"{worker.instance_id} is not deleted: ready"):
        clean_up(ended(announced(worker.instance_id)), None)
    fleet.server.says("ForgetNode", "result: forgotten x")
    clean_up(ended(announced(worker.instance_id)), None)
    assert fleet.server.commands == 2 * forget(worker)


def test_a_server_that_is_away_makes_the_event_come_again(fleet: Bench) -> None:
    worker = dead_worker(fleet)
    fleet.server.unreachable = True
    with pytest.raises(CleanUpUnfinishedError, match="not managed by SSM"):
        clean_up(ended(announced(worker.instance_id)), None)


def test_a_living_worker_keeps_its_node(fleet: Bench) -> None:
    clean_up(ended(announced(running(fleet).instance_id, WARNING)), None)
    assert fleet.server.commands == []


def test_a_machine_of_somebody_else_is_left_alone(fleet: Bench) -> None:
    clean_up(ended(announced("i-0000000000000dead")), None)
    assert fleet.server.commands == []


@pytest.mark.parametrize("begun_with", ['{"trigger": "scheduled"}', "null", "", None, "[]", '{"detail": 1}'])
def test_an_execution_that_no_announcement_began_names_no_machine(fleet: Bench, begun_with: Any) -> None:
    dead_worker(fleet)
    assert "nothing to do" in clean_up(ended(begun_with), None)["outcome"]["text"]
    assert fleet.server.commands == []
