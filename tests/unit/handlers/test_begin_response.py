"""BeginResponse: the worker stops counting, and its replacement is planned for the fleet as it is then."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.begin_response import handler
from handlers.claim_notices import handler as claim_notices
from node_fleet.domain.model.snapshot import Instance
from tests.support.handlers.bench import Bench
from tests.support.interruptions import scheduled

pytestmark = pytest.mark.settings(max_workers=4, spot_percent=100)


def announced(fleet: Bench, worker: Instance, *, execution_id: str = "first", days: int = 14) -> dict[str, Any]:
    """The payload of the worker whose change AWS announces for that day."""
    event = scheduled(fleet, fleet.clock.now() + days * 86_400, worker.instance_id)
    (interruption,) = claim_notices({"event": event, "execution_id": execution_id}, None)["interruptions"]
    return {"interruption": interruption}


def test_until_the_response_begins_the_worker_counts_and_no_pool_is_planned(fleet: Bench) -> None:
    worker = fleet.running()
    planned = announced(fleet, worker)["interruption"]
    assert (planned["path"], planned["slot"]) == ("wait", None)
    assert [notice.is_due for notice in fleet.state().notices] == [False]
    assert fleet.state().ids_under_notice == frozenset()
    ((_, message),) = fleet.publisher.messages
    assert message["what"].startswith(planned["why"])
    assert f"node-fleet replaces it at {planned['respond_time']}" in message["what"]


@pytest.mark.parametrize("times", [1, 2])
def test_the_response_begins_with_a_pool_apart_from_the_one_of_the_worker(fleet: Bench, times: int) -> None:
    worker = fleet.running()
    payload = announced(fleet, worker)
    for _ in range(times):
        answered = handler(payload, None)
    assert answered["settle"]["status"] == "due" and answered["interruption"]["path"] == "respond"
    assert answered["interruption"]["slot"]["zone"] != worker.zone
    assert fleet.state().ids_under_notice == {worker.instance_id}


def test_a_worker_that_has_ended_is_only_forgotten(fleet: Bench) -> None:
    worker = fleet.running()
    payload = announced(fleet, worker)
    fleet.cloud.ec2.reclaim(worker.instance_id)
    assert handler(payload, None)["settle"]["status"] == "gone"


def test_a_worker_that_became_a_standby_worker_before_its_date_is_not_replaced(fleet: Bench) -> None:
    worker = fleet.running()
    payload = announced(fleet, worker)
    fleet.tools.ec2.tag([worker.instance_id], {"Standby": "ready"})
    fleet.tools.ec2.stop_worker(worker.instance_id)
    fleet.clock.advance(60)
    answered = handler(payload, None)
    assert (answered["settle"]["status"], answered["interruption"]["slot"]) == ("gone", None)
    assert "standby worker" in answered["settle"]["detail"]


@pytest.mark.parametrize("lifted", [True, False])
def test_a_notice_that_is_lifted_or_belongs_to_another_execution_is_left_alone(fleet: Bench, lifted: bool) -> None:
    worker = fleet.running()
    payload = announced(fleet, worker)
    if lifted:
        fleet.tools.state.drop_notice(worker.instance_id)
    else:
        fleet.clock.advance(60)
        announced(fleet, worker, execution_id="second", days=10)
    assert handler(payload, None)["settle"]["status"] == "superseded"
    assert fleet.state().ids_under_notice == frozenset()


def test_a_later_date_after_the_response_has_begun_is_responded_to_at_once(fleet: Bench) -> None:
    worker = fleet.running()
    handler(announced(fleet, worker), None)
    fleet.clock.advance(60)
    planned = announced(fleet, worker, execution_id="second", days=28)["interruption"]
    assert planned["path"] == "respond" and planned["slot"]["zone"] != worker.zone
    assert fleet.state().ids_under_notice == {worker.instance_id}
