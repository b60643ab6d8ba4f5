"""CheckJoin: looks, renews the lease, saves what changed; whoever can see the nodes answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.check_join import handler
from handlers.launch_nodes import handler as launch_nodes
from node_fleet.domain.model.fleet_state import Pause
from node_fleet.domain.model.snapshot import PodShape
from tests.support.handlers.scale_up import Bench, bench, inspected


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench() as made:
        yield made


def launched(made: Bench, count: int = 2) -> tuple[dict[str, Any], list[str]]:
    payload = launch_nodes(made.event(made.begin(), count), None)
    made.clock.advance(60)
    return payload, [s.instance_id for s in made.operation(payload).slots]


def test_not_yet_is_an_answer_and_renews_the_lease(fleet: Bench) -> None:
    payload, _ = launched(fleet)
    before = fleet.state().lease
    answer = handler(payload, None)
    after = fleet.state().lease
    assert answer["join"]["status"] == "waiting"
    assert before and after and after.expires_at == before.expires_at + 60


def test_usable_workers_have_joined_and_pods_that_still_wait_are_counted(fleet: Bench) -> None:
    payload, ids = launched(fleet)
    fleet.ready(*ids)
    fleet.prometheus.shapes = (PodShape(cpu_milli=100, memory_mib=64, count=4),)
    join = handler(payload, None)["join"]
    assert (join["status"], join["pods_waiting"], join["seconds"]) == ("joined", 4, 60)
    operation = fleet.state().operation
    assert operation is not None and len(operation.joined) == 2


def test_4_a_tainted_worker_is_waited_for_until_the_limit(fleet: Bench) -> None:
    payload, ids = launched(fleet, 1)
    fleet.ready(*ids, taints=("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",))
    assert handler(payload, None)["join"]["status"] == "waiting"
    fleet.clock.advance(240)
    assert handler(payload, None)["join"]["status"] == "timeout"


@pytest.mark.parametrize(("flags", "status"), [("R", "joined"), ("RC", "waiting"), ("RT", "waiting"), ("-", "waiting")])
def test_when_prometheus_is_down_the_server_is_asked(fleet: Bench, flags: str, status: str) -> None:
    payload, ids = launched(fleet, 1)
    fleet.prometheus.down = True
    fleet.server.says("InspectNodes", inspected(int(fleet.clock.now()), {ids[0]: flags}))
    assert handler(payload, None)["join"]["status"] == status
    assert fleet.server.commands == [("InspectNodes", {})]


@pytest.mark.parametrize("answer", ["", "nf1 1 a\nw", "kubectl: connection refused"])
def test_an_answer_that_cannot_be_believed_is_no_answer(fleet: Bench, answer: str) -> None:
    payload, _ = launched(fleet, 1)
    fleet.prometheus.down = True
    fleet.server.says("InspectNodes", answer)
    assert handler(payload, None)["join"]["status"] == "waiting"


def test_while_nobody_knows_it_waits(fleet: Bench) -> None:
    payload, _ = launched(fleet, 1)
    fleet.prometheus.down = True
    assert handler(payload, None)["join"]["status"] == "waiting"


def test_a_machine_taken_away_while_joining_is_seen(fleet: Bench) -> None:
    payload, ids = launched(fleet)
    fleet.ready(ids[1])
    fleet.cloud.ec2.reclaim(ids[0])
    join = handler(payload, None)["join"]
    assert (join["status"], join["joined"]) == ("joined", 1)
    assert "shutting-down" in join["detail"]


def test_34_a_fresh_id_that_ec2_does_not_list_yet_is_waited_for(fleet: Bench) -> None:
    fleet.cloud.ec2.delays.invisible_seconds = 30
    payload = launch_nodes(fleet.event(fleet.begin(), 1), None)
    assert handler(payload, None)["join"]["status"] == "waiting"
    fleet.clock.advance(60)
    fleet.ready(fleet.operation(payload).slots[0].instance_id)
    assert handler(payload, None)["join"]["status"] == "joined"


def test_a_pause_does_not_stop_looking(fleet: Bench) -> None:
    payload, ids = launched(fleet, 1)
    now = int(fleet.clock.now())
    fleet.tools.state.set_pause(Pause(reason="sale", by="ann", since=now, until=now + 600))
    fleet.ready(*ids)
    assert handler(payload, None)["join"]["status"] == "joined"
