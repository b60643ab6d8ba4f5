"""The execution input: what is accepted, and that everything wrong is listed at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.run import TRIGGERS, read_input

START = "2026-11-27T18:00:05.123Z"


def read(data: Any) -> Any:
    return read_input(data, execution_id="e", started_at=START)


def test_a_scheduled_tick_is_read_with_its_time() -> None:
    run = read({"trigger": "schedule", "scheduled_at": "2026-11-27T18:00:00Z"})
    assert (run.trigger, run.scheduled_at, run.started_at, run.dry_run) == ("schedule", 1795802400, 1795802405, False)


@pytest.mark.parametrize("trigger", ["alert", "manual"])
def test_alert_and_manual_runs_need_no_time(trigger: str) -> None:
    assert read({"trigger": trigger, "dry_run": True}).scheduled_at == 0


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (None, ["it is None, not an object"]),
        ([], ["it is [], not an object"]),
        ({}, ["trigger is None, expected schedule, alert, manual"]),
        ({"trigger": "cron"}, ["trigger is 'cron'"]),
        ({"trigger": "schedule"}, ["scheduled_at is missing"]),
        ({"trigger": "manual", "scheduled_at": "noon"}, ["scheduled_at is 'noon'"]),
        ({"trigger": "manual", "scheduled_at": "2026-11-27T18:00:00"}, ["expected an ISO time with zone"]),
        *(
            (
                {"trigger": trigger, "scheduled_at": "2026-11-27T18:00:00Z", "dry_run": True},
                ["only a scheduled run has it"],
            )
            for trigger in ("manual", "alert")
        ),
        ({"trigger": "schedule", "scheduled_at": "9999-12-31T00:00:00Z"}, ["no time after the start of the execution"]),
        ({"trigger": "schedule", "scheduled_at": "2026-11-27T18:01:06Z"}, ["no time after the start of the execution"]),
        ({"trigger": "manual", "dry_run": "yes", "x": 1}, ["unknown field 'x'", "dry_run is 'yes'"]),
    ],
)
def test_everything_wrong_with_the_input_is_listed_with_the_right_form(data: Any, parts: list[str]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read(data)
    for part in [*parts, '"trigger": "schedule"']:
        assert part in str(refused.value)


def test_a_clock_that_is_a_minute_ahead_of_the_schedule_is_no_mistake() -> None:
    assert read({"trigger": "schedule", "scheduled_at": "2026-11-27T18:01:05Z"}).scheduled_at == 1795802465


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=80), inner, max_size=30),
    max_leaves=40,
)


@given(
    JSON | st.fixed_dictionaries({"trigger": st.sampled_from(TRIGGERS), "scheduled_at": JSON | st.datetimes().map(str)})
)
def test_any_input_is_a_run_that_is_not_in_the_future_or_one_short_error(data: Any) -> None:
    try:
        run = read(data)
    except InvalidInputError as error:
        assert len(str(error).encode()) < 2000
    else:
        assert run.scheduled_at <= run.started_at + 60 and (run.trigger == "schedule" or run.scheduled_at == 0)
