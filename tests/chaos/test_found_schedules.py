"""Schedules that once broke an invariant, in the forms of their kind; each test asserts that its story took place."""

from __future__ import annotations

import json

import pytest

from tests.support.chaos.faults import FAULTS, Injection
from tests.support.chaos.schedule import FLOOD, IDLE, Play, PreparedFleet, Ran

pytestmark = pytest.mark.sampled(3)  # with --all, every one

STOPPED, GARBAGE, THROTTLED = (
    next(fault for fault in FAULTS if fault.name == name)
    for name in ("the execution is stopped", "returns garbage", "EC2 is throttled")
)
AFTER_THE_OUTCOME = 120 + 60 + 90
"""Seconds: a Spot notice runs out, what became of the worker is asked, and an outage of a minute is over."""


def answers(ran: list[Ran]) -> list[Ran]:
    return [each for each in ran if each.machine == "interruption"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("state", ["ClaimNotices", "ForgetInterrupted", "CloseNotice"])
def test_a_dead_worker_is_forgotten_although_its_execution_is_stopped(prepared: PreparedFleet, state: str) -> None:
    ran = prepared.perform(
        [
            lambda play: STOPPED.aim(play.fleet, state),
            lambda play: play.worker_dies(0),
            lambda play: play.time_passes(60),
        ]
    )
    assert [(each.status, each.path[-1]) for each in answers(ran)] == [("ABORTED", state)]


def test_a_dead_worker_is_forgotten_although_its_execution_is_stopped_between_two_tries(
    prepared: PreparedFleet,
) -> None:
    ran = prepared.perform(
        [lambda play: play.worker_dies(0), lambda play: play.time_passes(20), lambda play: play.stop_a_run(0)]
    )
    assert [(each.status, each.path[-1]) for each in answers(ran)] == [("ABORTED", "ForgetInterrupted")]


def test_a_dead_worker_is_forgotten_although_the_claim_answered_garbage(prepared: PreparedFleet) -> None:
    ran = prepared.perform(
        [lambda play: GARBAGE.aim(play.fleet, "ClaimNotices"), lambda play: play.worker_dies(1), Play.tick]
    )
    assert [(each.status, each.path[-1]) for each in answers(ran)] == [("FAILED", "ClaimUnknown")]


def test_an_alert_names_a_dead_worker_that_no_try_could_forget_and_a_later_removal_sweeps_it(
    prepared: PreparedFleet,
) -> None:
    def server_is_unreachable(play: Play) -> None:
        play.fleet.cloud.commands.offline.add(play.deployment.server_id)

    def people_hear_of_it(play: Play) -> None:
        (given_up,) = [m for m in play.deployment.messages if "RetriesExhausted" in m["Message"]]
        assert "is not deleted" in json.loads(given_up["Message"])["responsePayload"]["errorMessage"]

    ran = prepared.perform(
        [
            lambda play: play.worker_dies(0),
            lambda play: play.time_passes(20),
            server_is_unreachable,
            lambda play: play.stop_a_run(0),
            lambda play: play.time_passes(900),
            people_hear_of_it,
            lambda play: play.fleet.cloud.commands.offline.clear(),
            lambda play: play.load_changes(FLOOD),
            *[Play.tick] * 3,
        ],
        to_the_minimum=True,
    )
    assert answers(ran)[0].status == "ABORTED"
    assert any("SelectNodes" in each.path for each in ran)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [0, 1])
def test_a_spared_worker_that_had_no_room_works_again_once_the_fleet_has_shrunk(
    prepared: PreparedFleet, number: int
) -> None:
    """A person cordoned it before the notice; the load fills the fleet before CheckOutcome sees that it runs."""
    ran = prepared.perform(
        [
            *[lambda play: play.cordon_by_hand(number)] * 2,
            lambda play: play.load_changes(FLOOD),
            lambda play: play.notice(number, taken=False),
            Play.tick,
        ]
    )
    assert "WaitForCapacity" in answers(ran)[0].path


def test_a_spared_worker_works_again_after_a_pause_that_outlasts_every_retry(prepared: PreparedFleet) -> None:
    ran = prepared.perform(
        [lambda play: play.notice(0, taken=False), lambda play: play.pause(600), lambda play: play.time_passes(590)]
    )
    assert "WaitForCapacity" in answers(ran)[0].path


def test_a_spared_worker_works_again_although_ec2_is_away_when_it_is_asked_what_became_of_it(
    prepared: PreparedFleet,
) -> None:
    injections: list[Injection] = []

    def it_struck(play: Play) -> None:
        assert [state for state, _ in injections[0].struck] == ["CheckOutcome"]

    ran = prepared.perform(
        [
            lambda play: injections.append(THROTTLED.aim(play.fleet, "CheckOutcome")),
            lambda play: play.notice(1, taken=False),
            lambda play: play.time_passes(AFTER_THE_OUTCOME),
            it_struck,
        ]
    )
    assert "CloseNotice" in answers(ran)[0].path


@pytest.mark.sampled(1)
@pytest.mark.parametrize("falsified", [(0,), (0, 1, 2)])
def test_workers_that_a_false_node_claims_survive_notices_deaths_and_an_idle_fleet(
    prepared: PreparedFleet, falsified: tuple[int, ...]
) -> None:
    claims = [lambda play, number=number: play.register_false_node(number) for number in falsified]
    ran = prepared.perform(
        [
            lambda play: play.load_changes(FLOOD),
            *[Play.tick] * 2,
            *claims,
            lambda play: play.load_changes(IDLE),
            lambda play: play.notice(1, taken=True),
            *[Play.tick] * 4,
            lambda play: play.worker_dies(0),
            *[Play.tick] * 3,
        ],
        to_the_minimum=True,
    )
    assert any("SelectNodes" in each.path for each in ran)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seconds", [633, 635, 637])
def test_a_response_that_begins_during_a_removal_counts_before_the_termination(
    prepared: PreparedFleet, seconds: int
) -> None:
    """The dates move the begin of the response through the drain of another, idle worker."""
    ran = prepared.perform([lambda play: play.scheduled_change(0, seconds)])
    assert "BeginResponse" in answers(ran)[0].path
    assert any("StartDrain" in each.path for each in ran if each.machine == "autoscaler")
