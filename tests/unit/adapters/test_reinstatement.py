"""Notices of a dead execution: lifted when the machine is gone, given back when it lives and there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handlers.clean_up import handler as clean_up
from node_fleet.domain.interruption.response import operation_of
from node_fleet.domain.model.errors import CleanUpUnfinishedError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.drain import CommandResult
from tests.support.handlers.bench import Bench, bench
from tests.support.handlers.fakes import check_text

DEAD = "arn:aws:states:eu-central-1:123456789012:execution:interruption:dead"
ENDED = {"id": "event-1", "detail": {"executionArn": DEAD, "status": "ABORTED"}}


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        made.server.says("UncordonNode", "result: uncordoned x")
        yield made


def orphaned(made: Bench, instance: Instance, *, by: str = DEAD, kind: str = "spot", left: int = 0) -> None:
    """The notice that an execution claimed before it died; AWS does what it says in `left` seconds."""
    now = int(made.clock.now())
    made.tools.state.add_notice(
        Notice(instance_id=instance.instance_id, kind=kind, at=now, deadline=now + left, claimed_by=by)
    )


def settled(made: Bench) -> str:
    return str(clean_up(ENDED, None)["outcome"]["text"])


def test_a_machine_that_is_gone_needs_no_notice_and_no_node(fleet: Bench) -> None:
    taken = fleet.running()
    fleet.server.says("ForgetNode", "result: forgotten x")
    orphaned(fleet, taken)
    fleet.cloud.ec2.reclaim(taken.instance_id)
    assert "which has ended" in settled(fleet)
    assert not fleet.state().notices and [document for document, _ in fleet.server.commands] == ["ForgetNode"]


def still_under_notice(made: Bench) -> str:
    """The clean-up fails, so that Lambda delivers its event again."""
    with pytest.raises(CleanUpUnfinishedError) as caught:
        clean_up(ENDED, None)
    assert len(made.state().notices) == 1
    return str(caught.value)


def test_without_room_it_stays_and_the_event_comes_again(fleet: Bench) -> None:
    taken, other = fleet.running(1), fleet.running(2)
    fleet.running(3)
    orphaned(fleet, taken)
    empty = check_text(taken.instance_id, owner=operation_of(taken.instance_id))
    fleet.server.says("CheckNode", empty)  # what the dead execution drained is unknown
    assert "remove it: aws ec2 terminate-instances" in still_under_notice(fleet) and len(fleet.instances()) == 3
    fleet.cloud.ec2.reclaim(other.instance_id)
    assert "it is reinstated" in settled(fleet)


def test_a_server_that_is_away_leaves_the_notice_and_the_event_comes_again(fleet: Bench) -> None:
    orphaned(fleet, fleet.running())
    fleet.server.unreachable = True
    assert "stays under interruption notice" in still_under_notice(fleet)
    fleet.server.unreachable = False
    assert "it is reinstated" in settled(fleet)
    assert not fleet.state().notices


def test_a_drain_that_still_runs_on_the_node_leaves_the_notice_and_the_event_comes_again(fleet: Bench) -> None:
    orphaned(fleet, fleet.running())
    fleet.server.says("UncordonNode", "result: busy a drain of this node still runs")
    assert "busy a drain of this node still runs" in still_under_notice(fleet)


@pytest.mark.parametrize("left", [1, 2, 90])
def test_nobody_gets_pods_back_before_the_date_of_a_spot_notice(fleet: Bench, left: int) -> None:
    orphaned(fleet, fleet.running(), left=left)
    assert still_under_notice(fleet).endswith(f"AWS reclaims it in {left} s")
    assert not fleet.server.commands


@pytest.mark.parametrize(("kind", "left"), [("spot", 0), ("spot", -1), ("scheduled", 3600)])
def test_after_its_date_or_for_a_date_far_away_it_works_again(fleet: Bench, kind: str, left: int) -> None:
    orphaned(fleet, fleet.running(), kind=kind, left=left)
    assert "it is reinstated" in settled(fleet)
    assert not fleet.state().notices and not fleet.state().reservations


def test_the_node_of_an_attached_cluster_is_uncordoned_under_the_name_that_its_rule_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bench(max_workers=2, spot_percent=100, node_name_rule="private-dns-name") as made:
        taken = made.running()
        orphaned(made, taken, kind="rebalance")
        asked: list[str] = []

        def ensure_uncordoned(node_name: str, operation_id: str, **_: str) -> CommandResult:
            asked.append(node_name)
            word = "uncordoned" if node_name == taken.node_names[1] else "no-node"
            return CommandResult(status="Success", stdout=f"result: {word} {node_name}")

        monkeypatch.setattr(made.server, "ensure_uncordoned", ensure_uncordoned)
        assert "it is reinstated" in settled(made)
        assert asked == [taken.instance_id, *taken.node_names]


def test_what_else_the_dead_execution_left_is_done_although_a_notice_stands(fleet: Bench) -> None:
    run = Run(execution_id=DEAD, trigger="manual", scheduled_at=0, started_at=int(fleet.clock.now()))
    fleet.tools.state.acquire(run)
    orphaned(fleet, fleet.running())
    fleet.server.unreachable = True
    still_under_notice(fleet)
    assert fleet.state().lease is None


def test_the_notice_of_a_living_execution_is_left_alone(fleet: Bench) -> None:
    orphaned(fleet, fleet.running(), by="another")
    assert settled(fleet).startswith("nothing to do")
    assert len(fleet.state().notices) == 1
