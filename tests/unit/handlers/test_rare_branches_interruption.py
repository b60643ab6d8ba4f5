"""Rare branches of the interruption workflow and of what stands beside it, each once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handlers import (
    check_deadline_drain,
    clean_up,
    launch_replacement,
    reinstate_worker,
    slack_message,
    start_deadline_drain,
)
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.settings import Settings
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=3, spot_percent=100) as made:
        yield made


def begun(fleet: Bench) -> dict[str, Any]:
    return start_deadline_drain.handler(event(noticed(fleet, running(fleet))), None)


def test_a_server_that_cannot_be_asked_for_a_moment_is_asked_again(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.server.says("DrainNode", "")
    payload = begun(fleet)

    def away(self: object, command_id: str) -> None:
        raise ServerUnreachableError("SSM: cannot ask for a command's result: ThrottlingException")

    monkeypatch.setattr(type(fleet.server), "result", away)
    drain = check_deadline_drain.handler(payload, None)["drain"]
    assert drain["status"] == "waiting"
    assert "ThrottlingException" in drain["detail"]


def test_a_drain_that_a_pod_blocks_counts_as_not_drained(fleet: Bench) -> None:
    fleet.server.says("DrainNode", "result: blocked shop/orders-db-0")
    ended = fleet.server.answers["DrainNode"]
    fleet.server.answers["DrainNode"] = replace(ended, status="Failed", exit_code=3)
    payload = begun(fleet)
    fleet.clock.advance(30)
    assert check_deadline_drain.handler(payload, None)["drain"]["status"] == "failed"


def test_while_every_pool_rests_no_replacement_is_launched(fleet: Bench) -> None:
    planned = noticed(fleet, running(fleet)).with_slot(None)
    asked = len(fleet.cloud.recorder.of("RunInstances"))
    assert launch_replacement.handler(event(planned), None)["replacement"]["status"] == "failed"
    assert len(fleet.cloud.recorder.of("RunInstances")) == asked


def test_a_pause_leaves_a_spared_worker_as_it_is(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)), response={"drain": {"status": "drained", "node_name": ""}})
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="moving house", by="mira", since=now, until=now + 600))
    settle = reinstate_worker.handler(payload, None)["settle"]
    assert settle["status"] == "waiting" and "paused by mira: moving house" in settle["detail"]
    assert len(fleet.state().notices) == 1


def test_the_notices_of_a_dead_execution_are_settled(fleet: Bench) -> None:
    noticed(fleet, running(fleet), claimed_by="arn:dead")
    fleet.server.says("UncordonNode", "result: not-cordoned x")
    fleet.clock.advance(120)
    clean_up.handler({"id": "e-1", "detail": {"executionArn": "arn:dead"}}, None)
    assert not fleet.state().notices


def test_an_alarm_is_shown_as_an_alarm() -> None:
    alarm = {"AlarmName": "node-fleet-NoRuns", "NewStateValue": "ALARM", "NewStateReason": "no run for 10 minutes"}
    shown = json.dumps(slack_message.payload_of(json.dumps(alarm), "ALARM", Settings()))
    assert "node-fleet-NoRuns" in shown and "no run for 10 minutes" in shown


GIVEN_UP: dict[str, Any] = {
    "requestContext": {
        "functionArn": "arn:aws:lambda:eu-central-1:123456789012:function:node-fleet-CleanUp:7",
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    },
    "responsePayload": {
        "errorType": "CleanUpUnfinishedError",
        "errorMessage": "node i-1 of i-1 is not deleted: ready",
    },
}


def test_an_event_that_lambda_gave_up_is_shown_with_its_reason() -> None:
    shown = slack_message.payload_of(json.dumps(GIVEN_UP), "", Settings())
    assert shown["text"] == "⚠️ node-fleet-CleanUp gave up after 3 tries: node i-1 of i-1 is not deleted: ready"
    assert "docs/operations.md, row CleanUpUnfinishedError" in json.dumps(shown)


def test_an_event_that_grew_too_old_has_no_answer_to_show() -> None:
    context = {**GIVEN_UP["requestContext"], "condition": "EventAgeExceeded"}
    assert (
        "EventAgeExceeded" in slack_message.payload_of(json.dumps({"requestContext": context}), "", Settings())["text"]
    )
