"""CompleteScaleUp: how a scale-up is closed, what is remembered, and when it goes round again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.check_join import handler as check_join
from handlers.complete_scale_up import handler as complete
from handlers.fail_scale_up import handler as fail
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.memory import BackOff, Memory
from node_fleet.domain.model.snapshot import PodShape
from node_fleet.payload import from_payload, to_payload
from tests.support.handlers.scale_up import ZONES, Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def joined(made: Bench, *, pods: int = 0, **run: Any) -> dict[str, Any]:
    payload = launch_nodes(made.event(made.begin(**run), 2), None)
    made.clock.advance(60)
    made.ready(*(i.instance_id for i in made.instances()))
    made.prometheus.shapes = (PodShape(cpu_milli=1, memory_mib=1, count=pods),) if pods else ()
    return check_join(payload, None)


def memory_of(payload: dict[str, Any]) -> Memory:
    return from_payload(Memory, payload["memory"])  # type: ignore[no-any-return]


def test_a_completed_scale_up_is_closed_and_stamped(fleet: Bench) -> None:
    answer = complete(joined(fleet), None)
    state = fleet.state()
    assert state.operation is None and state.reservations == () and state.node_count == 2
    assert (state.memory.last_action, state.memory.last_action_at) == ("scale_up", int(fleet.clock.now()))
    assert answer["outcome"]["kind"] == "scaled_up" and "from 0 to 2" in answer["outcome"]["text"]
    assert answer["next"] == "done"


@pytest.mark.parametrize(("round_number", "following"), [(1, "again"), (2, "again"), (3, "done")])
def test_while_pods_wait_the_same_execution_goes_round_again(fleet: Bench, round_number: int, following: str) -> None:
    answer = complete(joined(fleet, pods=3, round=round_number), None)
    assert answer["next"] == following
    assert answer["run"]["round"] == round_number + (following == "again")


def test_completing_twice_leaves_the_same(fleet: Bench) -> None:
    payload = joined(fleet)
    assert complete(payload, None) == complete(payload, None)


def test_a_join_closes_the_breaker(fleet: Bench) -> None:
    payload = joined(fleet)
    payload["memory"] = to_payload(Memory(back_offs=(BackOff(key="join", failures=2, until=0),)))
    assert memory_of(complete(payload, None)).back_offs == ()


def test_dry_pools_survive_success_and_failure(fleet: Bench) -> None:
    fleet.cloud.ec2.dry_pool(az=ZONES[0])
    assert {d.zone for d in memory_of(complete(joined(fleet), None)).dry_pools} == {ZONES[0]}
    fleet.cloud.ec2.dry_pool()
    event = fleet.event(fleet.begin(round=2), 1)
    with pytest.raises(Exception, match="no capacity"):
        launch_nodes(event, None)
    answer = fail({**event, "failure": {"Error": "NoCapacityError", "Cause": "no capacity"}}, None)
    assert {d.zone for d in memory_of(answer).dry_pools} == set(ZONES)
