"""CheckOutcome: taken, spared, or another execution's matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handlers.check_outcome import handler
from node_fleet.domain.model.fleet_state import Notice
from tests.support.handlers.interruption import event, noticed, running
from tests.support.handlers.scale_up import Bench, bench


@pytest.fixture
def fleet() -> Iterator[Bench]:
    with bench(max_workers=2, spot_percent=100) as made:
        yield made


def test_a_running_machine_survived_and_a_terminated_one_is_gone(fleet: Bench) -> None:
    taken = running(fleet)
    payload: dict[str, Any] = event(noticed(fleet, taken))
    assert handler(payload, None)["settle"]["status"] == "not_reclaimed"
    fleet.cloud.ec2.reclaim(taken.instance_id)
    assert handler(payload, None)["settle"]["status"] == "gone"


def test_a_notice_that_another_execution_answers_is_not_settled_here(fleet: Bench) -> None:
    taken = running(fleet)
    payload = event(noticed(fleet, taken))
    fleet.tools.state.replace_notice(Notice(instance_id=taken.instance_id, kind="spot", at=1, claimed_by="other"))
    assert handler(payload, None)["settle"]["status"] == "superseded"


@pytest.mark.parametrize(("before", "tries"), [({}, 0), ({"settle": {"status": "waiting", "tries": 7}}, 7)])
def test_the_looks_for_room_are_counted_on(fleet: Bench, before: dict[str, Any], tries: int) -> None:
    payload = event(noticed(fleet, running(fleet)), **before)
    assert handler(payload, None)["settle"]["tries"] == tries
