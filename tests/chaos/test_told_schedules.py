"""Schedules that once broke an invariant, each played in every form of its kind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.chaos.blows import FAULTS
from tests.chaos.play import BUSY, FLOOD, Play, Stage, stage

STOPPED, GARBAGE, THROTTLED = (
    next(fault for fault in FAULTS if fault.name == name)
    for name in ("the execution is stopped", "returns garbage", "EC2 is throttled")
)


@pytest.fixture(scope="module")
def set_stage() -> Iterator[Stage]:
    with stage() as found:
        yield found


@pytest.mark.parametrize("state", ["ClaimNotices", "ForgetInterrupted", "CloseNotice"])
def test_a_dead_worker_is_forgotten_although_its_execution_is_stopped(set_stage: Stage, state: str) -> None:
    set_stage.perform(
        [
            lambda play: STOPPED.aim(play.fleet, state),
            lambda play: play.worker_dies(0),
            lambda play: play.time_passes(20),
        ],
        to_the_minimum=False,
    )


def test_a_dead_worker_is_forgotten_although_somebody_stops_its_execution_between_two_tries(set_stage: Stage) -> None:
    set_stage.perform(
        [lambda play: play.worker_dies(0), lambda play: play.time_passes(20), lambda play: play.stop_a_run(0)],
        to_the_minimum=False,
    )


def test_a_spared_worker_that_had_no_room_works_again_once_the_fleet_has_shrunk(set_stage: Stage) -> None:
    """A person cordoned it before the notice; the load fills the fleet while nobody knows yet that it stays."""
    set_stage.perform(
        [
            lambda play: play.cordon_by_hand(0),
            lambda play: play.cordon_by_hand(0),
            lambda play: play.load_changes(BUSY),
            lambda play: play.notice(0, taken=False),
            Play.tick,
        ],
        to_the_minimum=False,
    )


def test_a_spared_worker_works_again_after_a_pause_that_outlasts_every_retry(set_stage: Stage) -> None:
    set_stage.perform(
        [lambda play: play.notice(0, taken=False), lambda play: play.pause(600), lambda play: play.time_passes(590)],
        to_the_minimum=False,
    )


def test_people_are_told_of_a_dead_worker_that_no_try_could_forget_and_a_later_removal_sweeps_it(
    set_stage: Stage,
) -> None:
    def nobody_can_ask_the_server(play: Play) -> None:
        play.fleet.cloud.commands.offline.add(play.laptop.server_id)

    def people_hear_of_it(play: Play) -> None:
        (given_up,) = [m for m in play.laptop.messages if "RetriesExhausted" in m["Message"]]
        assert "is not forgotten" in json.loads(given_up["Message"])["responsePayload"]["errorMessage"]

    set_stage.perform(
        [
            lambda play: play.worker_dies(0),
            lambda play: play.time_passes(20),
            nobody_can_ask_the_server,
            lambda play: play.stop_a_run(0),
            lambda play: play.time_passes(900),
            people_hear_of_it,
            lambda play: play.fleet.cloud.commands.offline.clear(),
            lambda play: play.load_changes(FLOOD),
            *[Play.tick] * 3,
        ],
        to_the_minimum=True,
    )


def test_a_dead_worker_is_forgotten_although_the_claim_answered_garbage(set_stage: Stage) -> None:
    set_stage.perform(
        [lambda play: GARBAGE.aim(play.fleet, "ClaimNotices"), lambda play: play.worker_dies(1), Play.tick],
        to_the_minimum=False,
    )


def test_a_spared_worker_works_again_although_ec2_is_away_when_it_is_asked_what_became_of_it(set_stage: Stage) -> None:
    set_stage.perform(
        [lambda play: THROTTLED.aim(play.fleet, "CheckOutcome"), lambda play: play.notice(1, taken=False)],
        to_the_minimum=False,
    )
