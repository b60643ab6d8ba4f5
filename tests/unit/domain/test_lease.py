"""What a stored lock says to people and to the next run: readable, corrupt, expired, taken over."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.fleet_state import CORRUPT_AHEAD_SECONDS, describe_takeover, readable_lease

NOW = 1_767_229_200


def lock(**changes: Any) -> dict[str, Any]:
    return {
        "lock_owner": "exec-a",
        "lock_fence": 3,
        "lock_acquired_at": NOW - 400,
        "lock_expires_at": NOW - 40,
        **changes,
    }


def test_a_free_lock_is_no_lease_and_no_problem() -> None:
    assert readable_lease({"lock_fence": 3}) == (None, ())
    assert describe_takeover({"lock_fence": 3}, "me", NOW) == ""


@pytest.mark.parametrize("wrong", ["soon", 12.5, None, True, [], {"N": "1"}])
@pytest.mark.parametrize("name", ["lock_expires_at", "lock_acquired_at"])
def test_a_value_that_is_no_epoch_is_named_and_counts_as_expired(name: str, wrong: Any) -> None:
    lease, problems = readable_lease(lock(**{name: wrong}))
    assert lease is not None and getattr(lease, name.removeprefix("lock_")) == 0
    assert [name in problem for problem in problems] == [True]
    assert "corrupt lock of exec-a" in describe_takeover(lock(**{name: wrong}), "me", NOW)


def test_an_expiry_in_milliseconds_is_corrupt_and_reported() -> None:
    text = describe_takeover(lock(lock_expires_at=1_767_225_600_000), "me", NOW)
    assert "corrupt lock of exec-a" in text and "over a day ahead" in text


@pytest.mark.parametrize(("ahead", "corrupt"), [(CORRUPT_AHEAD_SECONDS, False), (CORRUPT_AHEAD_SECONDS + 1, True)])
def test_an_expiry_more_than_one_day_ahead_is_corrupt(ahead: int, corrupt: bool) -> None:
    assert ("corrupt" in describe_takeover(lock(lock_expires_at=NOW + ahead), "me", NOW)) is corrupt


def test_a_takeover_names_the_old_owner_and_how_long_its_lease_is_over() -> None:
    assert describe_takeover(lock(), "me", NOW) == "took over the lock of exec-a, which expired 40 s ago"


def test_taking_ones_own_lock_again_is_no_news() -> None:
    assert describe_takeover(lock(), "exec-a", NOW) == ""
