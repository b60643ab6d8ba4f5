"""CompleteScaleDown and FailScaleDown: stamp the cooldown once, keep the first fault and what must be finished."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.complete_scale_down import handler as complete
from handlers.fail_scale_down import handler as fail
from node_fleet.domain.model.operation import TargetPhase
from tests.support.handlers.fakes import NOW, A, FakeServices

FAULT = {"Error": "DrainFailedError", "Cause": "first"}


def test_a_completed_removal_stamps_the_cooldown_and_closes_the_operation_once(services: FakeServices) -> None:
    services.begun("forgotten")
    services.ec2.fleet = services.ec2.fleet[1:]
    payload = services.payload()
    answered = complete(payload, None)
    (memory,) = services.state.closed
    assert (memory.last_action, memory.last_action_at) == ("scale_down", NOW)
    assert (answered["outcome"]["kind"], answered["node_count"]) == ("scaled_down", 2)
    assert "3 -> 2 workers" in answered["outcome"]["text"]
    assert complete(payload, None)["outcome"] == answered["outcome"]
    assert len(services.state.closed) == 1


def test_when_every_target_is_skipped_no_cooldown_starts(services: FakeServices) -> None:
    services.begun("skipped")
    assert services.run(complete)["outcome"]["kind"] == "none"
    assert services.state.closed[0].last_action == ""


@pytest.mark.parametrize(
    ("status", "kind", "red"),
    [("failed", "failed", True), ("withdrawn", "none", False), ("blocked", "none", False)],
)
def test_a_failed_drain_ends_the_run_red_a_withdrawn_one_does_not(
    services: FakeServices, status: str, kind: str, red: bool
) -> None:
    services.begun("undone")
    answered = services.run(fail, drain={"status": status, "detail": "x"})
    assert (answered["outcome"]["kind"], "failure" in answered) == (kind, red)
    assert services.state.item.operation is None


NOT_ENDED = {"status": "not_terminated", "detail": "EC2 state running 61 s after TerminateInstances"}
SECOND = {"Error": "ServerUnreachableError", "Cause": "second"}


@pytest.mark.parametrize(
    ("phase", "more", "failure"),
    [
        ("undone", {"failure": FAULT, "later_failure": SECOND}, FAULT),
        ("draining", {"drain": {"status": "withdrawn"}, "later_failure": SECOND}, SECOND),
        ("undone", {"termination": NOT_ENDED}, {"Error": "Ec2Error", "Cause": NOT_ENDED["detail"]}),
    ],
    ids=["the first fault", "a fault of the roll-back", "an instance that was not terminated"],
)
def test_the_first_fault_is_the_failure_of_the_run(
    services: FakeServices, phase: TargetPhase, more: dict[str, Any], failure: dict[str, str]
) -> None:
    services.begun(phase)
    assert services.run(fail, **more)["failure"] == failure


@pytest.mark.parametrize("phase", ["terminating", "terminated"])
def test_a_termination_that_has_begun_stays_open(services: FakeServices, phase: TargetPhase) -> None:
    services.begun(phase)
    answered = services.run(fail, failure=FAULT)
    assert (services.state.item.operation is not None, services.state.closed) == (True, [])
    assert "the next run resumes it" in answered["outcome"]["text"]


@pytest.mark.parametrize("phase", ["draining", "drained"])
@pytest.mark.parametrize(
    ("more", "cause"), [({"later_failure": SECOND}, "second"), ({"failure": FAULT}, "first"), ({}, "did not end")]
)
def test_a_rollback_that_failed_is_set_aside_with_one_alert_and_the_operation_closed(
    services: FakeServices, phase: TargetPhase, more: dict[str, Any], cause: str
) -> None:
    services.begun(phase)
    answered = services.run(fail, **more)
    assert services.state.item.operation is None
    (removal,) = services.state.item.set_aside
    assert (removal.instance_id, removal.kind, removal.command_id) == (A, "rollback", "DrainNode")
    assert cause in removal.detail
    ((kind, text, *_),) = answered["alerts"]["rows"]
    assert kind == f"set_aside:{A}" and f"kubectl uncordon {A}" in text


@pytest.mark.parametrize("phase", ["selected", "undone", "skipped"])
def test_a_worker_that_was_not_cordoned_or_is_uncordoned_is_not_set_aside(
    services: FakeServices, phase: TargetPhase
) -> None:
    services.begun(phase)
    services.run(fail, failure=FAULT)
    assert (services.state.item.operation, services.state.item.set_aside) == (None, ())


@pytest.mark.parametrize(("begun", "text"), [(False, "nothing was changed"), (True, "the operation is closed")])
def test_a_run_without_an_open_operation_says_so(services: FakeServices, begun: bool, text: str) -> None:
    if begun:
        services.begun("undone")
    payload = services.payload(failure=FAULT)
    services.state.item = replace(services.state.item, operation=None)
    assert fail(payload, None)["outcome"]["text"] == text
