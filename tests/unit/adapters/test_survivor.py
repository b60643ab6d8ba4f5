"""Notices of a dead execution: lifted when the machine is gone, given back when it lives and there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handlers.clean_up import handler as clean_up
from tests.unit.handlers.fakes_interruption import noticed, running
from tests.unit.handlers.fakes_scale_up import Bench, bench

DEAD = "arn:aws:states:eu-central-1:123456789012:execution:interruption:dead"
ENDED = {"id": "event-1", "detail": {"executionArn": DEAD, "status": "ABORTED"}}


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        made.server.says("UncordonNode", "result: uncordoned x")
        yield made


def settled(made: Bench) -> str:
    return str(clean_up(ENDED, None)["outcome"]["text"])


def test_a_machine_that_is_gone_needs_no_notice(fleet: Bench) -> None:
    taken = running(fleet)
    noticed(fleet, taken, claimed_by=DEAD)
    fleet.cloud.ec2.reclaim(taken.instance_id)
    assert "which is gone" in settled(fleet)
    assert not fleet.state().notices and not fleet.server.commands


def test_a_living_worker_is_uncordoned_and_counted_again(fleet: Bench) -> None:
    noticed(fleet, running(fleet), claimed_by=DEAD)
    assert "works again" in settled(fleet)
    assert not fleet.state().notices and not fleet.state().reservations


def test_without_room_it_stays_and_a_person_is_asked(fleet: Bench) -> None:
    taken = running(fleet, 1)
    running(fleet, 2)
    running(fleet, 3)
    noticed(fleet, taken, claimed_by=DEAD)
    assert "decide by hand" in settled(fleet)
    assert len(fleet.state().notices) == 1 and len(fleet.instances()) == 3


def test_a_server_that_is_away_leaves_the_notice_and_says_so(fleet: Bench) -> None:
    noticed(fleet, running(fleet), claimed_by=DEAD)
    fleet.server.unreachable = True
    assert "still stands" in settled(fleet)
    assert len(fleet.state().notices) == 1


def test_the_notice_of_a_living_execution_is_left_alone(fleet: Bench) -> None:
    noticed(fleet, running(fleet), claimed_by="another")
    assert settled(fleet).startswith("nothing to do")
    assert len(fleet.state().notices) == 1
