"""AbandonUnjoined: terminates what is known to be lost and keeps instances of unknown status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from handlers.abandon_unjoined import handler
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.errors import PausedError
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.run import Run
from node_fleet.payload import take
from tests.support.handlers.scale_up import Bench, bench, inspected, node_of

SERVER = "i-0aaaaaaaaaaaaaaaa"


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def waited(made: Bench, count: int = 2, seconds: float = 300) -> tuple[dict[str, Any], list[str]]:
    payload = launch_nodes(made.event(made.begin(), count), None)
    made.clock.advance(seconds)
    return payload, [s.instance_id for s in made.operation(payload).slots]


def live(made: Bench) -> set[str]:
    return {i.instance_id for i in made.instances()}


def test_what_never_joined_is_tagged_terminated_and_told(fleet: Bench) -> None:
    payload, ids = waited(fleet)
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {SERVER: "RS"}))
    answer = handler(payload, None)
    assert answer["join"]["status"] == "timeout"
    assert live(fleet) == set() and not fleet.state().reservations
    tagged = fleet.cloud.recorder.of("CreateTags")
    assert {c.parameters["Resources"][0] for c in tagged} == set(ids)
    assert answer["alerts"]["rows"][0][0] == "join_failed"


def test_a_partial_join_keeps_what_joined(fleet: Bench) -> None:
    payload, ids = waited(fleet)
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {SERVER: "RS", ids[0]: "R"}))
    answer = handler(payload, None)
    assert answer["join"]["status"] == "partial" and live(fleet) == {ids[0]}


def test_a_worker_that_joined_in_the_last_second_is_not_killed_by_stale_metrics(fleet: Bench) -> None:
    payload, ids = waited(fleet, 1)
    fleet.prometheus.known_nodes = (node_of(SERVER),)
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {SERVER: "RS", ids[0]: "R"}))
    assert handler(payload, None)["join"]["status"] == "partial"
    assert live(fleet) == set(ids)


def test_while_nobody_knows_everything_is_kept(fleet: Bench) -> None:
    payload, ids = waited(fleet, seconds=900)
    fleet.prometheus.down = True
    answer = handler(payload, None)
    assert answer["join"]["status"] == "partial" and live(fleet) == set(ids)
    assert answer["alerts"]["rows"][0][0] == "join_unknown"


def test_prometheus_alone_is_knowledge_enough(fleet: Bench) -> None:
    payload, _ = waited(fleet, 1)
    fleet.prometheus.known_nodes = (node_of(SERVER),)
    assert handler(payload, None)["join"]["status"] == "timeout"
    assert live(fleet) == set()


def test_the_setting_keeps_an_unjoined_machine_for_inspection() -> None:
    with bench(keep_unjoined=True) as made:
        payload, ids = waited(made, 1)
        made.server.says("InspectNodes", inspected(int(made.clock.now()), {SERVER: "RS"}))
        answer = handler(payload, None)
        assert live(made) == set(ids) and "kept for inspection" in answer["alerts"]["rows"][0][1]
        assert made.instances()[0].join_failed


def test_a_repeated_step_finishes_what_the_first_began(fleet: Bench) -> None:
    payload, _ = waited(fleet, 1)
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {SERVER: "RS"}))
    assert handler(payload, None)["operation"] == handler(payload, None)["operation"]


def test_a_pause_keeps_everything(fleet: Bench) -> None:
    payload, ids = waited(fleet, 1)
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + 600))
    fleet.server.says("InspectNodes", inspected(now, {SERVER: "RS"}))
    with pytest.raises(PausedError):
        handler(payload, None)
    assert live(fleet) == set(ids)


def test_an_operation_that_died_while_launching_is_completed_from_ec2_before_it_is_closed(fleet: Bench) -> None:
    payload, ids = waited(fleet, 2, seconds=1000)
    operation = fleet.state().operation
    assert operation is not None
    forgotten = replace(operation.slots[1], outcome="planned", instance_id="", launched_at=0)
    fleet.tools.state.save_operation(_run(payload), operation.with_slot(forgotten))
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {SERVER: "RS", ids[1]: "R"}))
    answer = handler(payload, None)
    assert [s.outcome for s in fleet.operation(answer).slots] == ["unjoined", "joined"]


def _run(payload: dict[str, Any]) -> Run:
    return take(payload, "run", Run)  # type: ignore[no-any-return]
