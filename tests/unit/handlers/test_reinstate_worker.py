"""ReinstateWorker: room first, then the uncordon, then the notice; never above the maximum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.reinstate_worker import handler
from node_fleet.domain.interruption.response import operation_of
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.operation import Operation
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_down import look_text
from tests.support.handlers.scale_up import START, Bench, bench

LEFT_BEHIND = "down-3-100"


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def operation(operation_id: str) -> Operation:
    return Operation(
        operation_id=operation_id,
        kind="scale_down",
        phase="draining",
        started_at=START,
        requested=1,
        reason="idle",
        execution_id="exec-1",
    )


def drained(status: str) -> dict[str, Any]:
    return {"drain": {"status": status, "node_name": ""}}


@pytest.mark.parametrize("word", ["uncordoned", "not-cordoned", "foreign-cordon", "no-node"])
def test_with_room_it_works_again(fleet: Bench, word: str) -> None:
    payload = event(noticed(fleet, running(fleet)), response=drained("drained"))
    fleet.server.says("UncordonNode", f"result: {word} x")
    assert handler(payload, None)["settle"]["status"] == "uncordoned"
    assert not fleet.state().notices and not fleet.state().reservations


def test_a_cordon_that_may_still_stand_keeps_the_notice(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)), response=drained("drained"))
    fleet.server.says("UncordonNode", "result: unreadable x")
    with pytest.raises(ServerUnreachableError):
        handler(payload, None)
    assert len(fleet.state().notices) == 1


def take_over(fleet: Bench, instance_id: str) -> Notice:
    """AWS announces the same worker again, and another execution answers it."""
    later = Notice(instance_id=instance_id, kind="spot", at=int(fleet.clock.now()), claimed_by="a later execution")
    fleet.tools.state.replace_notice(later)
    return later


def test_a_worker_that_is_announced_again_is_left_to_the_execution_that_answers_it(fleet: Bench) -> None:
    taken = running(fleet)
    payload = event(noticed(fleet, taken), response=drained("drained"))
    later = take_over(fleet, taken.instance_id)
    assert handler(payload, None)["settle"]["status"] == "superseded"
    assert (fleet.server.commands, fleet.state().notices, fleet.state().reservations) == ([], (later,), ())


def test_an_announcement_that_comes_while_the_node_is_uncordoned_stands(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = running(fleet)
    payload = event(noticed(fleet, taken), response=drained("drained"))
    fleet.server.says("UncordonNode", "result: uncordoned x")
    run, later = fleet.server.run, []

    def meanwhile(document: str, parameters: dict[str, str]) -> Any:
        later.append(take_over(fleet, taken.instance_id))
        return run(document, parameters)

    monkeypatch.setattr(fleet.server, "run", meanwhile)
    assert handler(payload, None)["settle"]["status"] == "superseded"
    assert (list(fleet.state().notices), fleet.state().reservations) == (later, ())


def uncordoned_for(fleet: Bench) -> list[str]:
    return [p["OperationId"] for document, p in fleet.server.commands if document == "UncordonNode"]


@pytest.mark.parametrize(("open_operation", "asked"), [("", 2), ("down-4-200", 2), (LEFT_BEHIND, 1)])
def test_a_cordon_that_an_ended_scale_down_left_behind_is_lifted_and_an_open_ones_stays(
    fleet: Bench, open_operation: str, asked: int
) -> None:
    taken = running(fleet)
    payload = event(noticed(fleet, taken), response=drained("drained"))
    if open_operation:
        fleet.tools.state.save_operation(fleet.begin(), operation(open_operation))
    fleet.server.says("UncordonNode", f"result: foreign-cordon {LEFT_BEHIND}")
    assert handler(payload, None)["settle"]["status"] == "uncordoned"
    assert uncordoned_for(fleet) == [operation_of(taken.instance_id), LEFT_BEHIND][:asked]


def test_a_persons_cordon_is_not_asked_for_twice(fleet: Bench) -> None:
    payload = event(noticed(fleet, running(fleet)), response=drained("drained"))
    fleet.server.says("UncordonNode", "result: foreign-cordon -")
    handler(payload, None)
    assert len(uncordoned_for(fleet)) == 1


def full(fleet: Bench, drain: str) -> tuple[str, dict[str, Any]]:
    """A spared worker of a fleet that its replacement filled."""
    taken = running(fleet, 1)
    running(fleet, 2)
    running(fleet, 3)
    return taken.instance_id, event(noticed(fleet, taken), response=drained(drain))


def test_without_room_one_that_was_not_drained_waits_for_room_and_works_again_when_there_is_some(fleet: Bench) -> None:
    taken, payload = full(fleet, "failed")
    payload = handler(payload, None)
    assert payload["settle"] | {"detail": ""} == {"status": "waiting", "detail": "", "tries": 1, "wait_seconds": 300}
    assert len(fleet.instances()) == 3 and len(fleet.state().notices) == 1
    fleet.cloud.ec2.reclaim(next(i.instance_id for i in fleet.instances() if i.instance_id != taken))
    fleet.server.says("UncordonNode", "result: uncordoned x")
    assert handler(payload, None)["settle"]["status"] == "uncordoned"
    assert not fleet.state().notices


@pytest.mark.parametrize(
    ("tries", "status", "wait_seconds"),
    [(10, "waiting", 300), (11, "waiting", 3600), (15, "waiting", 3600), (16, "kept", None), (99, "kept", None)],
)
def test_after_hours_without_room_a_person_decides(fleet: Bench, tries: int, status: str, wait_seconds: int) -> None:
    _, payload = full(fleet, "failed")
    settle = handler({**payload, "settle": {"status": "not_reclaimed", "tries": tries}}, None)["settle"]
    assert (settle["status"], settle.get("wait_seconds"), settle["tries"]) == (status, wait_seconds, tries + 1)
    assert "the fleet is at its maximum" in settle["detail"]


def test_without_room_an_empty_one_under_our_cordon_goes_and_a_second_call_answers_the_same(fleet: Bench) -> None:
    taken, payload = full(fleet, "drained")
    fleet.server.says("CheckNode", look_text(taken, owner=operation_of(taken)))
    assert handler(payload, None)["settle"]["status"] == "removed"
    assert taken not in {i.instance_id for i in fleet.instances()}
    fleet.server.says("CheckNode", f"node {taken} absent\nend\n")
    assert handler(payload, None)["settle"]["status"] == "removed"
    assert len(fleet.cloud.recorder.of("TerminateInstances")) == 1


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({"owner": ""}, id="a person uncordoned it meanwhile"),
        pytest.param({"owner": "-"}, id="a person cordoned it"),
        pytest.param({"owner": LEFT_BEHIND}, id="a scale-down cordoned it"),
        pytest.param({"left": 1}, id="a pod is left"),
        pytest.param({"left": 1, "going": 1}, id="a pod still shuts down"),
        pytest.param({"instance_id": "i-0fedcba9876543210"}, id="another node answered"),
    ],
)
def test_without_room_one_that_is_not_empty_and_ours_any_more_is_kept(fleet: Bench, found: dict[str, Any]) -> None:
    taken, payload = full(fleet, "drained")
    fleet.server.says("CheckNode", look_text(**{"instance_id": taken, "owner": operation_of(taken), **found}))
    settle = handler(payload, None)["settle"]
    assert settle["status"] == "waiting" and "the fleet is at its maximum" in settle["detail"]
    assert len(fleet.instances()) == 3 and len(fleet.state().notices) == 1


def test_without_room_and_with_a_server_that_is_away_nothing_is_terminated(fleet: Bench) -> None:
    _, payload = full(fleet, "drained")
    with pytest.raises(ServerUnreachableError):
        handler(payload, None)
    assert len(fleet.instances()) == 3
