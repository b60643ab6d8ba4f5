"""Notify: one message for the run, with the counts and the cost before its first and after its last round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from handlers import notify
from handlers.notify import message_of
from node_fleet.domain.cost.run_cost import FleetBefore, fleet_before, usd_per_hour_after
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import Snapshot, Worker
from node_fleet.payload import known, to_payload
from node_fleet.settings import Settings
from tests.support.handlers.scale_up import FakePublisher

SETTINGS = Settings()
REGION = SETTINGS.region
ON_DEMAND, SPOT = 0.0264, 0.0087


def worker(number: int, **changes: Any) -> Worker:
    fields: dict[str, Any] = {
        "instance_id": f"i-{number}",
        "zone": "a",
        "market": "on-demand",
        "instance_type": "t3.small",
        "phase": "usable",
        "launched_at": 0,
    }
    return Worker(**{**fields, **changes})


def snapshot(*workers: Worker) -> Snapshot:
    return Snapshot(at=100, source="live", workers=workers)


def slot(number: int, outcome: Any) -> LaunchSlot:
    return LaunchSlot(
        number=number,
        zone="b",
        subnet_id="subnet-1",
        instance_type="t3.small",
        market="spot",
        outcome=outcome,
        instance_id=f"i-new{number}",
    )


def operation(kind: Any, **changes: Any) -> Operation:
    fields: dict[str, Any] = {
        "operation_id": "op-1",
        "kind": kind,
        "phase": "verify" if kind == "scale_up" else "forgetting",
        "started_at": 100,
        "requested": 1,
        "reason": "pending 3",
        "execution_id": "run-1",
        "workers_before": 2,
    }
    return Operation(**{**fields, **changes})


def payload(**parts: Any) -> dict[str, Any]:
    run = Run(execution_id="run-1", trigger="schedule", scheduled_at=0, started_at=100)
    return {"run": to_payload(run), **{name: to_payload(part) for name, part in parts.items()}}


def cost_before(event: dict[str, Any]) -> FleetBefore | None:
    return fleet_before(known(event, "snapshot", Snapshot), known(event, "operation", Operation), REGION)


def cost_after(event: dict[str, Any]) -> float | None:
    return usd_per_hour_after(known(event, "snapshot", Snapshot), known(event, "operation", Operation), REGION)


def test_a_scale_up_costs_its_joined_workers_more() -> None:
    event = payload(
        snapshot=snapshot(worker(1), worker(2)),
        operation=operation("scale_up", slots=(slot(1, "joined"), slot(2, "unjoined"))),
        outcome={"kind": "scaled_up", "text": "scaled up from 2 to 3 workers", "workers_after": 3},
    )
    message = message_of(event, SETTINGS)
    assert (message.workers_before, message.workers_after) == (2, 3)
    assert message.cost_before_usd_per_hour == pytest.approx(2 * ON_DEMAND)
    assert message.cost_after_usd_per_hour == pytest.approx(2 * ON_DEMAND + SPOT)
    assert message.level == "success"


def test_further_rounds_keep_the_counts_and_cost_from_before_the_first() -> None:
    event = payload(
        snapshot=snapshot(worker(1), worker(2), worker(3), worker(4)),
        operation=operation("scale_up", slots=(slot(1, "joined"),), workers_before=4),
        outcome={"kind": "scaled_up", "text": "scaled up", "workers_after": 5},
        fleet_before={"workers": 2, "usd_per_hour": 2 * ON_DEMAND},
    )
    message = message_of(event, SETTINGS)
    assert (message.workers_before, message.workers_after) == (2, 5)
    assert message.cost_before_usd_per_hour == pytest.approx(2 * ON_DEMAND)
    assert message.cost_after_usd_per_hour == pytest.approx(4 * ON_DEMAND + SPOT)


def test_a_scale_down_costs_less_by_removed_workers_and_not_by_reinstated_ones() -> None:
    targets = (
        Target(instance_id="i-2", node_name="i-2", phase="forgotten"),
        Target(instance_id="i-1", node_name="i-1", phase="undone"),
    )
    event = payload(snapshot=snapshot(worker(1), worker(2)), operation=operation("scale_down", targets=targets))
    assert cost_after(event) == pytest.approx(ON_DEMAND)


def test_workers_under_notice_are_not_counted() -> None:
    event = payload(snapshot=snapshot(worker(1), worker(2, under_notice=True)))
    assert cost_after(event) == pytest.approx(ON_DEMAND)


@pytest.mark.parametrize("kind", ["x9.huge", ""])
def test_a_fleet_with_an_unknown_price_has_no_cost_instead_of_a_wrong_one(kind: str) -> None:
    event = payload(snapshot=snapshot(worker(1), worker(2, instance_type=kind)))
    assert cost_after(event) is None
    found = cost_before(event)
    assert found is not None and (found.workers, found.usd_per_hour) == (2, None)


@pytest.mark.parametrize("broken", [{}, {"snapshot": {"at": "soon"}}, {"snapshot": None}])
def test_a_payload_without_a_usable_snapshot_has_no_cost(broken: dict[str, Any]) -> None:
    assert cost_after({**payload(), **broken}) is None
    assert cost_before({**payload(), **broken}) is None


def test_every_alert_of_the_run_is_in_the_one_message() -> None:
    alerts = tuple(Alert(kind=f"k{n}", text=f"t{n}") for n in range(12))
    message = message_of(payload(alerts=alerts), SETTINGS)
    assert message.alerts == alerts
    assert (message.level, message.what) == ("warning", "t0")


def test_a_failure_leads_the_message_in_plain_words() -> None:
    cause = '{"errorMessage": "vCPU quota L-1216C47A is used up", "errorType": "QuotaExceededError"}'
    event = {**payload(), "failure": {"Error": "QuotaExceededError", "Cause": cause}}
    message = message_of(event, SETTINGS)
    assert (message.level, message.what) == ("error", "vCPU quota L-1216C47A is used up [QuotaExceededError]")


@pytest.mark.parametrize("failed", [False, True])
def test_the_message_is_published_and_a_failure_stays_in_the_payload_as_plain_text(
    monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    publisher = FakePublisher()
    monkeypatch.setattr(notify, "load_services", lambda: SimpleNamespace(settings=SETTINGS, publisher=publisher))
    failure = {"failure": {"Error": "PausedError", "Cause": '{"errorMessage": "paused by ana: a sale"}'}}
    event = {**payload(), **(failure if failed else {})}
    answer = notify.handler(event, None)
    ((subject, sent),) = publisher.messages
    assert subject == sent["what"] and (sent["level"] == "error") is failed
    assert "paused by ana: a sale" in str(answer["failure"]) if failed else answer == event
