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


LATE = {"status": "timeout", "detail": "still shutting-down after 120 s"}
SECOND = {"Error": "ServerUnreachableError", "Cause": "second"}


@pytest.mark.parametrize(
    ("phase", "more", "failure"),
    [
        ("undone", {"failure": FAULT, "later_failure": SECOND}, FAULT),
        ("draining", {"drain": {"status": "withdrawn"}, "later_failure": SECOND}, SECOND),
        ("terminating", {"termination": LATE}, {"Error": "Ec2Error", "Cause": LATE["detail"]}),
    ],
    ids=["the first fault", "a fault of the roll-back", "an instance that does not end in time"],
)
def test_the_first_fault_is_the_failure_of_the_run(
    services: FakeServices, phase: TargetPhase, more: dict[str, Any], failure: dict[str, str]
) -> None:
    services.begun(phase)
    assert services.run(fail, **more)["failure"] == failure


@pytest.mark.parametrize("phase", ["terminating", "terminated", "draining", "drained"])
def test_an_operation_that_must_be_finished_or_rolled_back_stays_open(
    services: FakeServices, phase: TargetPhase
) -> None:
    services.begun(phase)
    answered = services.run(fail, failure=FAULT)
    assert (services.state.item.operation is not None, services.state.closed) == (True, [])
    assert "the next run resumes it" in answered["outcome"]["text"]


def test_past_twice_its_limit_a_cordon_that_may_remain_is_reported_and_the_operation_closed(
    services: FakeServices,
) -> None:
    services.begun("draining")
    services.clock.time += 1801
    answered = services.run(fail, failure=FAULT)
    assert services.state.item.operation is None
    assert f"kubectl uncordon {A}" in answered["alerts"]["rows"][0][1]


@pytest.mark.parametrize(("begun", "text"), [(False, "nothing was changed"), (True, "the operation is closed")])
def test_a_run_without_an_open_operation_says_so(services: FakeServices, begun: bool, text: str) -> None:
    if begun:
        services.begun("undone")
    payload = services.payload(failure=FAULT)
    services.state.item = replace(services.state.item, operation=None)
    assert fail(payload, None)["outcome"]["text"] == text
