"""ClaimNotices: each worker once, and only ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.claim_notices import handler
from tests.support.handlers.interruption import running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100, handle_rebalance=True) as made:
        yield made


def spot_warning(instance_id: str) -> dict[str, Any]:
    return announced("EC2 Spot Instance Interruption Warning", instance_id)


def announced(what: str, instance_id: str, **detail: str) -> dict[str, Any]:
    return {"detail-type": what, "time": "2026-09-21T14:14:20Z", "detail": {"instance-id": instance_id, **detail}}


def rebalance(instance_id: str) -> dict[str, Any]:
    return announced("EC2 Instance Rebalance Recommendation", instance_id)


def state_change(instance_id: str, state: str) -> dict[str, Any]:
    return announced("EC2 Instance State-change Notification", instance_id, state=state)


def claim(event: dict[str, Any], execution_id: str = "first") -> dict[str, Any]:
    return handler({"event": event, "execution_id": execution_id}, None)


def test_a_second_execution_ignores_the_notice_and_names_the_first(fleet: Bench) -> None:
    worker = running(fleet).instance_id
    first = claim(spot_warning(worker))
    second = claim(spot_warning(worker), "second")
    assert first["status"] == "claimed" and claim(spot_warning(worker)) == first
    assert second["status"] == "ignored" and "first" in second["ignored"][worker]


def test_a_spot_warning_replaces_the_claim_of_a_rebalance_recommendation_and_not_the_reverse(fleet: Bench) -> None:
    worker = running(fleet).instance_id
    assert claim(rebalance(worker), "first")["status"] == "claimed"
    assert claim(spot_warning(worker), "second")["status"] == "claimed"
    assert "second" in claim(rebalance(worker), "third")["ignored"][worker]


def test_the_plan_names_another_pool(fleet: Bench) -> None:
    worker = running(fleet)
    (interruption,) = claim(spot_warning(worker.instance_id))["interruptions"]
    assert interruption["slot"]["zone"] != worker.zone


def test_a_terminated_worker_is_only_forgotten_and_leaves_no_notice(fleet: Bench) -> None:
    (interruption,) = claim(state_change(running(fleet).instance_id, "terminated"))["interruptions"]
    assert interruption["path"] != "respond" and interruption.get("slot") is None
    assert fleet.state().notices == ()


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (rebalance, "rebalance recommendations are not followed (HANDLE_REBALANCE=false)"),
        (lambda instance_id: state_change(instance_id, "pending"), "the event asks for nothing"),
        (lambda _: spot_warning("i-0123456789abcdef0"), "not a worker of this fleet"),
    ],
    ids=["rebalance switched off", "a state that asks for nothing", "foreign instance"],
)
def test_an_event_that_needs_no_response_is_ignored_with_its_reason(event: Any, reason: str) -> None:
    with bench(handle_rebalance=False) as fleet:
        answer = claim(event(running(fleet).instance_id))
        assert (answer["status"], list(answer["ignored"].values())) == ("ignored", [reason])
        assert fleet.state().notices == ()
