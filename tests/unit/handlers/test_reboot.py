"""A reboot in the handlers: chosen when the pods may move, recorded before it is sent, sent once, then uncordoned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.complete_scale_down import handler as complete_scale_down
from handlers.confirm_termination import handler as confirm_termination
from handlers.fail_scale_down import handler as fail_scale_down
from handlers.select_nodes import handler as select_nodes
from handlers.terminate_nodes import handler as terminate_nodes
from handlers.undo_drain import handler as undo_drain
from node_fleet.domain.model.errors import DrainFailedError, Ec2Error, PausedError
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import TargetPhase
from node_fleet.domain.model.snapshot import STATUS_CHECK, Snapshot
from node_fleet.domain.scale_down.termination import REBOOT_SECONDS
from node_fleet.payload import take
from node_fleet.settings import Settings
from tests.support.decisions import worker
from tests.support.handlers.fakes import (
    A_CORDONED,
    NOW,
    OPERATION_ID,
    A,
    B,
    C,
    FakeServices,
    check_text,
    inspection_text,
    worker_line,
)

REBOOTING = Settings.from_mapping({"repair_reboot": True, "min_workers": 2, "max_workers": 4})
FIT = "shop/big-1:f=1000m/900m/alone/cpu"


def begun(services: FakeServices, phase: TargetPhase = "drained", **more: Any) -> FakeServices:
    """A is drained for its reboot."""
    services.settings = REBOOTING
    services.begun(phase, **more)
    assert services.state.item.operation is not None
    operation = replace(services.state.item.operation, reboot=True, replace_reason="unhealthy")
    services.state.item = replace(services.state.item, operation=operation)
    services.server.says("CheckNode", check_text())
    services.server.says("InspectNodes", A_CORDONED)
    services.server.says("UncordonNode", f"result: uncordoned {A}")
    return services


def selected(
    services: FakeServices, *lines: str, rule: str = "unhealthy", settings: Settings = REBOOTING, load: float = 10.0
) -> dict[str, Any]:
    """The answer of SelectNodes about A, which is impaired."""
    services.settings = settings
    figures = {"cpu_requested_milli": 200, "memory_requested_mib": 100}
    seen = tuple(worker(0, instance_id=i, node_name=i, **figures) for i in (A, B, C))
    seen = (replace(seen[0], conditions=(STATUS_CHECK,)), *seen[1:])
    payload = services.payload(
        inspection={"known": True, "detail": "", "lines": inspection_text(*lines).splitlines()},
        snapshot=Snapshot(
            at=NOW, read_at=NOW, source="live", pending=(), workers=seen, cpu_percent=load, memory_percent=load
        ),
    )
    payload["decision"] |= {"action": "replace", "replace": A, "rule": rule}
    return select_nodes(payload, None)


@pytest.mark.parametrize(
    ("line", "settings", "load", "status"),
    [
        (worker_line(A), REBOOTING, 10.0, "selected"),
        (worker_line(A, blockers=FIT), REBOOTING, 10.0, "replace"),
        (worker_line(A), replace(REBOOTING, min_workers=3), 10.0, "replace"),
        (worker_line(A), REBOOTING, 60.0, "replace"),
        (worker_line(A), replace(REBOOTING, repair_reboot=False), 10.0, "replace"),
        (worker_line(A, blockers="shop/db-0:s"), REBOOTING, 10.0, "none"),
    ],
    ids=["may move", "fits nowhere", "at the minimum", "too much load", "off", "must stay"],
)
def test_a_worker_that_runs_is_rebooted_where_the_others_can_do_without_it_and_else_replaced(
    services: FakeServices, line: str, settings: Settings, load: float, status: str
) -> None:
    answered = selected(services, line, worker_line(B), worker_line(C), settings=settings, load=load)
    assert answered["selection"]["status"] == status
    if status == "selected":
        operation = services.state.item.operation
        assert operation is not None and (operation.reboot, operation.replaces) == (True, "")
        assert operation.budget_reason == "unhealthy"


@pytest.mark.parametrize(("blockers", "status"), [("-", "selected"), ("shop/db-0:v", "none")])
def test_a_worker_that_is_not_ready_is_rebooted_even_at_the_minimum_unless_a_pod_must_stay(
    services: FakeServices, blockers: str, status: str
) -> None:
    lines = (worker_line(A, "TW", blockers=blockers), worker_line(B), worker_line(C))
    answered = selected(services, *lines, rule="not_ready", settings=replace(REBOOTING, min_workers=3))
    assert answered["selection"]["status"] == status
    if services.state.item.operation:
        assert services.state.item.operation.reboot and services.state.item.operation.targets[0].not_ready


def test_it_is_recorded_before_it_is_sent_and_sent_once(services: FakeServices) -> None:
    begun(services)
    payload = services.payload()
    answered = terminate_nodes(payload, None)
    assert services.state.calls == ["renew", "renew", "save rebooting"]
    assert (services.ec2.rebooted, services.ec2.terminated) == ([A], [])
    assert answered["termination"]["status"] == "waiting"
    assert terminate_nodes(payload, None)["termination"]["status"] == "waiting"
    assert services.ec2.rebooted == [A]


def test_a_refusal_is_recorded_as_the_one_try(services: FakeServices) -> None:
    begun(services).ec2.error = Ec2Error("EC2: cannot reboot: UnauthorizedOperation")
    services.run(terminate_nodes)
    assert services.state.phases == ["rebooting"]
    assert services.state.item.operation is not None
    assert "but not rebooted: EC2: cannot reboot" in services.state.item.operation.targets[0].detail


def test_a_worker_that_is_protected_is_not_rebooted_unless_it_is_not_ready(services: FakeServices) -> None:
    begun(services).protect(A)
    with pytest.raises(PausedError, match="was not rebooted: it is protected"):
        services.run(terminate_nodes)
    assert services.ec2.rebooted == []
    services.settings = replace(services.settings, min_workers=3)
    begun(services, not_ready=True).server.says("CheckNode", check_text(ready="not-ready"))
    services.server.says("InspectNodes", A_CORDONED)
    services.run(terminate_nodes)
    assert services.ec2.rebooted == [A]


@pytest.mark.parametrize(
    ("flags", "minimum", "stays"),
    [("RCW", 2, False), ("RCW", 3, True), ("RCTW", 3, False), ("CTW", 3, False), ("RW", 2, False), ("RW", 3, True)],
    ids=["above", "serves", "accepts no pods", "NotReady", "its cordon is not shown yet", "the same at the minimum"],
)
def test_a_reboot_keeps_the_minimum_of_usable_workers(
    services: FakeServices, flags: str, minimum: int, stays: bool
) -> None:
    """The worker is cordoned by its own drain: without the reboot it would serve again, so it counts."""
    cordon = OPERATION_ID if "C" in flags else "-"
    lines = inspection_text(worker_line(A, flags, cordon), worker_line(B), worker_line(C))
    begun(services).server.says("InspectNodes", lines)
    services.settings = replace(services.settings, min_workers=minimum)
    if not stays:
        services.run(terminate_nodes)
        assert services.ec2.rebooted == [A]
        return
    with pytest.raises(DrainFailedError, match="at_min"):
        services.run(terminate_nodes)
    assert services.ec2.rebooted == []


def test_a_reboot_keeps_the_chosen_headroom_where_the_worker_serves(services: FakeServices) -> None:
    begun(services)
    services.settings = replace(services.settings, headroom_workers=3)
    with pytest.raises(DrainFailedError, match="was not rebooted: headroom would be"):
        services.run(terminate_nodes)
    assert services.ec2.rebooted == []
    begun(services, not_ready=True).server.says("CheckNode", check_text(ready="not-ready"))
    services.settings = replace(services.settings, headroom_workers=3)
    services.run(terminate_nodes)
    assert services.ec2.rebooted == [A]


def test_a_worker_that_became_ready_again_is_not_rebooted(services: FakeServices) -> None:
    begun(services, not_ready=True)
    with pytest.raises(DrainFailedError, match=f"worker {A} was not rebooted: it is Ready again"):
        services.run(terminate_nodes)
    assert (services.ec2.rebooted, services.state.phases) == ([], ["drained"])


def test_after_the_reboot_has_begun_the_node_is_uncordoned_and_the_reboot_remembered(services: FakeServices) -> None:
    begun(services, "rebooting")
    services.clock.time += REBOOT_SECONDS - 1
    assert services.run(confirm_termination)["termination"]["status"] == "waiting"
    services.clock.time += 1
    answered = services.run(confirm_termination)
    assert answered["termination"]["status"] == "rebooted"
    answered = undo_drain({**answered, "drain": {"status": "drained"}}, None)
    assert (services.state.phases, answered["next"], answered["alerts"]) == (["rebooted"], "done", [])
    assert services.server.documents()[-1] == "UncordonNode"
    answered = complete_scale_down(answered, None)
    assert answered["outcome"]["kind"] == "rebooted"
    assert take(answered, "memory", Memory).rebooted == {A: services.clock.time}
    assert services.state.item.memory.rebooted == {A: services.clock.time}
    assert take(answered, "memory", Memory).last_action == ""


def test_a_rebooted_worker_that_came_under_notice_stays_cordoned_because_no_pod_should_start_on_it(
    services: FakeServices,
) -> None:
    begun(services, "rebooting").notice(A)
    answered = undo_drain({**services.payload(), "drain": {"status": "drained"}}, None)
    assert (services.state.phases, answered["next"], services.server.documents()) == (["rebooted"], "done", [])
    assert "it is under interruption notice, so it stays cordoned" in answered["notes"][0]
    assert complete_scale_down(answered, None)["outcome"]["kind"] == "rebooted"


def test_a_node_that_cannot_be_uncordoned_after_its_reboot_is_set_aside_and_the_reboot_remembered(
    services: FakeServices,
) -> None:
    begun(services, "rebooting")
    services.run(fail_scale_down, failure={"Error": "ServerUnreachableError", "Cause": "away"})
    assert services.state.item.operation is None
    assert services.state.item.memory.rebooted == {A: services.clock.time}
    assert [(r.instance_id, r.kind) for r in services.state.item.set_aside] == [(A, "rollback")]
