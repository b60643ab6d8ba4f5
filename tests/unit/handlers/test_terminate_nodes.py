"""TerminateNodes: checks again, records the intent, and terminates only workers that it saw empty."""

from __future__ import annotations

from typing import Any

import pytest

from handlers import terminate_nodes
from node_fleet.domain.model.errors import DrainFailedError, Ec2Error, PausedError
from tests.support.handlers.scale_down import (
    A_CORDONED,
    OPERATION_ID,
    A,
    B,
    C,
    Tools,
    answer,
    event,
    inspection_text,
    instance,
    look_text,
    wired,
    worker_line,
)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    return wired(monkeypatch, terminate_nodes)


def call(payload: dict[str, Any]) -> dict[str, Any]:
    return terminate_nodes.handler(payload, None)


@pytest.fixture(autouse=True)
def all_well(tools: Tools) -> None:
    tools.begun("drained")
    tools.server.says = {"CheckNode": answer(look_text()), "InspectNodes": answer(A_CORDONED)}


def test_the_intent_is_recorded_before_the_call(tools: Tools) -> None:
    tools.ec2.error = Ec2Error("EC2: cannot terminate")
    with pytest.raises(Ec2Error):
        call(event(tools))
    assert tools.state.calls == ["renew", "renew", "save terminating"]


def test_it_terminates_the_one_drained_worker_and_is_harmless_twice(tools: Tools) -> None:
    payload = event(tools)
    call(payload)
    looked = len(tools.server.sent)
    call(payload)
    assert (tools.ec2.terminated, len(tools.server.sent)) == ([A, A], looked)


@pytest.mark.parametrize(
    "said",
    [
        answer(look_text(left=1)),
        answer(look_text(left=1, going=1)),
        answer(look_text(owner="")),
        answer(look_text(owner="down-1-1")),
        answer(look_text()[:-5]),
        answer("", 69),
        answer(status="InProgress"),
    ],
)
def test_what_is_not_seen_empty_under_our_cordon_is_not_terminated(tools: Tools, said: Any) -> None:
    tools.server.says["CheckNode"] = said
    with pytest.raises(DrainFailedError, match="was not terminated"):
        call(event(tools))
    assert tools.ec2.terminated == []


@pytest.mark.parametrize(
    "others",
    [
        (worker_line(B, "W"), worker_line(C)),
        (worker_line(B, "RCW", "?"), worker_line(C)),
        (worker_line(C),),
    ],
)
def test_the_minimum_is_checked_again_with_fresh_data(tools: Tools, others: tuple[str, ...]) -> None:
    tools.server.says["InspectNodes"] = answer(inspection_text(worker_line(A, "RCW", OPERATION_ID), *others))
    with pytest.raises(DrainFailedError, match="at_min: only 1 usable workers would remain, the minimum is 2"):
        call(event(tools))
    assert tools.ec2.terminated == []


@pytest.mark.parametrize("gone", [B, C])
def test_those_under_notice_count_as_gone(tools: Tools, gone: str) -> None:
    tools.notice(gone)
    with pytest.raises(DrainFailedError, match="at_min"):
        call(event(tools))


def test_all_targets_of_the_operation_count_as_gone(tools: Tools) -> None:
    tools.begun("drained", "selected")
    with pytest.raises(DrainFailedError, match="at_min"):
        call(event(tools))


def test_a_worker_that_ec2_no_longer_has_does_not_hold_the_minimum(tools: Tools) -> None:
    tools.ec2.fleet = (instance(A), instance(B))
    with pytest.raises(DrainFailedError, match="at_min"):
        call(event(tools))


def test_a_pause_stops_it(tools: Tools) -> None:
    tools.pause()
    with pytest.raises(PausedError):
        call(event(tools))


def test_a_dead_worker_with_lost_pods_is_terminated(tools: Tools) -> None:
    tools.begun("drained", not_ready=True)
    tools.server.says["CheckNode"] = answer(look_text(left=3, going=3, ready="not-ready"))
    call(event(tools))
    assert tools.ec2.terminated == [A]
