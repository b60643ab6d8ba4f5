"""CloseNotice: records the end and lifts the notice, unless a person must settle it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.close_notice import handler
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


@pytest.mark.parametrize(
    ("status", "lifted", "messages"), [("gone", True, 0), ("uncordoned", True, 0), ("kept", False, 1)]
)
def test_only_what_needs_a_person_is_told_again(fleet: Bench, status: str, lifted: bool, messages: int) -> None:
    payload = event(noticed(fleet, running(fleet)), settle={"status": status, "detail": "because"})
    answer: dict[str, Any] = handler(payload, None)
    assert "because" in answer["sentence"]
    assert (not fleet.state().notices) is lifted
    assert len(fleet.publisher.messages) == messages


@pytest.mark.parametrize(("path", "lifted"), [("respond", False), ("notify", False), ("forget", True)])
def test_the_notice_that_another_execution_answers_is_lifted_only_when_the_machine_has_ended(
    fleet: Bench, path: str, lifted: bool
) -> None:
    payload = event(noticed(fleet, running(fleet)), settle={"status": "gone", "detail": "because"})
    payload["interruption"] |= {"path": path, "claimed_by": "an earlier execution"}
    handler(payload, None)
    assert (not fleet.state().notices) is lifted


def test_a_fault_on_the_way_keeps_the_notice_and_is_told_in_plain_words(fleet: Bench) -> None:
    failure = {"Error": "ServerUnreachableError", "Cause": '{"errorMessage": "no agent"}'}
    answer = handler(event(noticed(fleet, running(fleet)), failure=failure), None)
    assert "no agent [ServerUnreachableError]" in answer["sentence"]
    assert len(fleet.state().notices) == 1 and len(fleet.publisher.messages) == 1
