"""A worker is replaced: what each handler of the two phases does, records and reports when the decision says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.abandon_unjoined import handler as abandon_unjoined
from handlers.check_join import handler as check_join
from handlers.complete_scale_down import handler as complete_scale_down
from handlers.complete_scale_up import handler as complete_scale_up
from handlers.fail_scale_up import handler as fail_scale_up
from handlers.launch_nodes import handler as launch_nodes
from handlers.select_nodes import handler as select_nodes
from node_fleet.domain.model.memory import Memory, Replacement, RollOut
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance, Snapshot
from node_fleet.payload import put, take, to_payload
from node_fleet.settings import Settings
from simulator.aws.faults import FaultRule
from tests.support.handlers.bench import ZONES, Bench
from tests.support.handlers.fakes import (
    NOW,
    A,
    B,
    C,
    FakeServices,
    inspected,
    inspection_text,
    scale_down,
    worker,
    worker_line,
)

ONE_KEPT = inspection_text(worker_line(A, "RCW", "?"), worker_line(B), worker_line(C))
ALL_KEPT = inspection_text(*(worker_line(i, "RCW", "?") for i in (A, B, C)))
FREE = inspection_text(*(worker_line(i) for i in (A, B, C)))


def replacing(
    services: FakeServices,
    text: str,
    action: str,
    worker_id: str = A,
    *,
    outdated: tuple[str, ...] = (A, B),
    **more: Any,
) -> dict[str, Any]:
    """What SelectNodes answers when these workers have drifted and that one is to be replaced."""
    seen = tuple(worker(i, drift="image" if i in outdated else "") for i in (A, B, C))
    snapshot = Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen)
    payload = services.payload(inspection=inspected(text), snapshot=snapshot, **more)
    payload["decision"] |= {"action": action, "replace": worker_id, "rule": "drifted"}
    return select_nodes(payload, None)


@pytest.mark.parametrize(("text", "chosen"), [(FREE, A), (ONE_KEPT, B)])
def test_below_the_maximum_the_first_outdated_worker_whose_pods_may_move_gets_a_replacement_first(
    services: FakeServices, text: str, chosen: str
) -> None:
    selection = replacing(services, text, "replace")["selection"]
    assert (selection["status"], selection["worker"]) == ("replace", chosen)
    assert (services.state.item.operation, services.server.commands) == (None, [])


def test_a_worker_whose_pod_selects_on_demand_gets_no_spot_worker_in_its_place(services: FakeServices) -> None:
    values = {"spot_learning": "return", "spot_percent": 100, "subnets": ["a=subnet-1"], "max_workers": 9}
    services.settings = Settings.from_mapping(values)
    seen = tuple(worker(i, market="on-demand") for i in (A, B, C))
    snapshot = Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen)
    selecting, full = "shop/db-1:f=-/-/alone/affinity", "shop/big-1:f=1000m/900m/alone/cpu"
    text = inspection_text(worker_line(A, blockers=selecting), worker_line(B, blockers=full), worker_line(C))
    payload = services.payload(inspection=inspected(text), snapshot=snapshot)
    payload["decision"] |= {"action": "replace", "replace": A, "rule": "on-demand"}
    selection = select_nodes(payload, None)["selection"]
    assert (selection["status"], selection["worker"]) == ("replace", B)
    assert f"worker {A}: kept, shop/db-1 is accepted by no other worker: its node selector" in selection["kept"][0]


def test_the_worker_whose_replacement_runs_is_the_one_that_is_removed(services: FakeServices) -> None:
    answered = replacing(services, FREE, "scale_down", B)
    operation = services.state.item.operation
    assert operation is not None and answered["selection"]["status"] == "selected"
    assert [t.instance_id for t in operation.targets] == [B]
    assert (operation.replaces, operation.replace_reason) == (B, "drifted")


@pytest.mark.parametrize(
    ("text", "outdated", "removed"),
    [(FREE, (B,), B), (FREE, (A, B), A), (ONE_KEPT, (A, B), B), (ONE_KEPT, (A,), ""), (ALL_KEPT, (A, B), "")],
)
def test_at_the_maximum_the_first_outdated_worker_that_may_be_removed_is_removed_first(
    services: FakeServices, text: str, outdated: tuple[str, ...], removed: str
) -> None:
    services.settings = Settings(max_workers=3, min_workers=1)
    figures = {"cpu_allocatable_milli": 2000, "memory_allocatable_mib": 1900, "memory_requested_mib": 100, "pods": 5}
    seen = tuple(worker(i, drift="image" if i in outdated else "", **figures) for i in (A, B, C))
    quiet = Snapshot(
        at=NOW, read_at=NOW, source="live", pending=(), workers=seen, cpu_percent=10.0, memory_percent=10.0
    )
    payload = services.payload(inspection=inspected(text), snapshot=quiet)
    payload["decision"] |= {"action": "replace", "replace": outdated[0], "rule": "drifted"}
    selection = select_nodes(payload, None)["selection"]
    operation = services.state.item.operation
    assert selection["status"] == ("selected" if removed else "none")
    assert ([t.instance_id for t in operation.targets] if operation else []) == ([removed] if removed else [])
    if not removed:
        assert f"worker {outdated[0]}: kept, another user cordoned it" in selection["detail"]


def removing(services: FakeServices, minimum: int, replacement: str) -> tuple[str, list[str]]:
    """The detail and the targets of an idle removal while B replaces A, and A may not be removed."""
    services.settings = Settings(min_workers=minimum)
    current = Replacement(worker=A, reason="drifted", replacement=replacement)
    seen = tuple(worker(i) for i in (A, B, C))
    payload = services.payload(
        inspection=inspected(inspection_text(worker_line(A, blockers="shop/db-0:s"), worker_line(B), worker_line(C))),
        snapshot=Snapshot(at=NOW, read_at=NOW, source="live", pending=(), workers=seen),
        memory=Memory(roll_out=RollOut(current=current)),
    )
    operation_before = services.state.item.operation
    detail = select_nodes(payload, None)["selection"]["detail"]
    operation = services.state.item.operation
    return detail, [] if operation is operation_before else [t.instance_id for t in operation.targets]  # type: ignore[union-attr]


@pytest.mark.parametrize(("replacement", "removed"), [(B, C), (C, B), ("i-0notjoined000000", B)])
def test_an_idle_removal_leaves_a_replacement_that_has_not_proved_itself(
    services: FakeServices, replacement: str, removed: str
) -> None:
    assert removing(services, 1, replacement)[1] == [removed]


@pytest.mark.parametrize(("replacement", "least"), [(B, 3), ("i-0notjoined000000", 2)])
def test_a_worker_that_is_still_to_be_removed_does_not_hold_the_minimum(
    services: FakeServices, replacement: str, least: int
) -> None:
    detail, removed = removing(services, 2, replacement)
    assert (removed == []) is (least == 3)
    assert detail.startswith(f"at_min: 3 usable workers, minimum {least}") is (least == 3)


def test_when_no_outdated_worker_may_be_replaced_the_next_inspection_waits(services: FakeServices) -> None:
    answered = replacing(services, ALL_KEPT, "replace")
    memory = take(answered, "memory", Memory)
    assert (memory.roll_out.retry_at, memory.back_offs) == (NOW + services.settings.drain_back_off_seconds, ())
    assert (answered["selection"]["status"], answered["alerts"]) == ("none", [])


def test_a_replaced_worker_that_may_not_be_removed_waits_in_back_off_and_is_reported_once(
    services: FakeServices,
) -> None:
    first = replacing(services, ONE_KEPT, "scale_down")
    memory = take(first, "memory", Memory)
    assert [(b.key, b.failures) for b in memory.back_offs] == [(f"node:{A}", 1)]
    (alert,) = take(first, "alerts", tuple[Alert, ...])
    assert alert.kind == f"replaced_worker_kept:{A}" and "another user cordoned it" in alert.text
    assert first["selection"]["notify"] is True
    second = replacing(services, ONE_KEPT, "scale_down", memory=memory)
    assert [(b.key, b.failures) for b in take(second, "memory", Memory).back_offs] == [(f"node:{A}", 2)]
    assert (second["alerts"], second["selection"]["notify"]) == ([], False)
    assert services.state.item.operation is None


def test_the_removal_of_a_replaced_worker_starts_no_cooldown_and_leaves_the_step_to_the_roll_out(
    services: FakeServices,
) -> None:
    gone = scale_down("forgotten", replaces=A, replace_reason="drifted")
    services.state.item = replace(services.state.item, operation=gone)
    memory = take(services.run(complete_scale_down), "memory", Memory)
    assert (memory.last_action, memory.last_action_at) == ("", 0)
    assert memory.roll_out.current == Replacement(worker=A, reason="drifted", since=NOW)
    assert services.state.closed == [memory]


def replaced_launch(fleet: Bench, old: Instance, memory: Memory | None = None) -> dict[str, Any]:
    """The payload after the launch of a worker that replaces that one, with the workers' memory."""
    event = fleet.event(fleet.begin(), 1)
    event["decision"] |= {"action": "replace", "rule": "drifted"}
    event["selection"] = {"status": "replace", "detail": "x", "worker": old.instance_id}
    return launch_nodes(put(event, memory=memory) if memory else event, None)


def test_any_other_launch_replaces_no_worker(fleet: Bench) -> None:
    event = fleet.event(fleet.begin(), 1)
    event["decision"] |= {"rule": "pending"}
    operation = fleet.operation(launch_nodes(event, None))
    assert (operation.replaces, operation.replace_reason) == ("", "")


@pytest.mark.parametrize("zone", ZONES[:2])
def test_a_replacement_is_launched_in_the_zone_of_the_old_worker(fleet: Bench, zone: str) -> None:
    old = fleet.running(zone=zone)
    operation = fleet.operation(replaced_launch(fleet, old))
    assert [slot.zone for slot in operation.slots] == [zone]
    assert (operation.replaces, operation.replace_reason, operation.workers_before) == (old.instance_id, "drifted", 1)


def test_a_worker_that_was_removed_first_is_replaced_without_an_inspection(fleet: Bench) -> None:
    event = fleet.event(fleet.begin(), 1)
    event["decision"] |= {"replace": A, "rule": "expired"}
    operation = fleet.operation(launch_nodes(event, None))
    assert (operation.replaces, operation.replace_reason) == (A, "expired")


def test_without_capacity_in_that_zone_the_replacement_is_launched_in_another(fleet: Bench) -> None:
    old = fleet.running(zone=ZONES[0])
    fleet.cloud.ec2.dry_pool(az=ZONES[0])
    with pytest.raises(Exception, match="no capacity"):
        replaced_launch(fleet, old)
    memory = take(
        fail_scale_up({**fleet.event(fleet.begin(), 1), "failure": {"Error": "x", "Cause": "y"}}, None),
        "memory",
        Memory,
    )
    operation = fleet.operation(replaced_launch(fleet, old, replace(memory, back_offs=())))
    assert operation.replaces == old.instance_id and operation.slots[0].zone != ZONES[0]


def test_a_replacement_that_joined_is_remembered_and_starts_no_cooldown(fleet: Bench) -> None:
    old = fleet.running()
    payload = replaced_launch(fleet, old)
    (new,) = fleet.operation(payload).instance_ids
    fleet.clock.advance(60)
    fleet.ready(new)
    complete_scale_up(check_join(payload, None), None)
    memory = fleet.state().memory
    joined_at = int(fleet.clock.now())
    expected = Replacement(worker=old.instance_id, reason="drifted", replacement=new, since=joined_at)
    assert (memory.roll_out.current, memory.last_action_at) == (expected, 0)


@pytest.mark.parametrize("good", ["", "1"])
def test_a_replacement_that_never_joined_stops_the_roll_out(fleet: Bench, good: str) -> None:
    old = fleet.running()
    payload = replaced_launch(fleet, old)
    fleet.clock.advance(300)
    fleet.listed({old.instance_id: "R"})
    fleet.cloud.faults.inject(FaultRule(operation="GetConsoleOutput", code="UnauthorizedOperation", count=1))
    answered = abandon_unjoined(payload, None)
    assert "UnauthorizedOperation" in fleet.operation(answered).slots[0].console
    memory = replace(take(answered, "memory", Memory), roll_out=RollOut(good_version=good))
    answered = fail_scale_up(put(answered, memory=memory), None)
    roll_out = take(answered, "memory", Memory).roll_out
    assert (roll_out.stopped_version, roll_out.current) == (
        "1",
        None,
    ) and f"{old.instance_id} is kept" in roll_out.stopped
    kinds = [alert.kind for alert in take(answered, "alerts", tuple[Alert, ...])]
    assert "roll_out_stopped" in kinds and fleet.ids() == {old.instance_id}


def test_a_replacement_whose_join_is_unknown_is_remembered(fleet: Bench) -> None:
    old = fleet.running()
    payload = replaced_launch(fleet, old)
    (new,) = fleet.operation(payload).instance_ids
    fail_scale_up({**payload, "failure": {"Error": "States.Timeout", "Cause": "late"}}, None)
    current = fleet.state().memory.roll_out.current
    assert current is not None and (current.worker, current.replacement) == (old.instance_id, new)
    assert to_payload(current)["since"] == int(fleet.clock.now())
