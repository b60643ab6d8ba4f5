"""What the state item says about a time off decides whether a run has anything to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.acquire_lock import handler as acquire_lock
from handlers.launch_replacement import handler as launch_replacement
from node_fleet.domain.model.hibernation import Hibernation, Order
from tests.support.handlers.bench import START, Bench


@pytest.mark.settings(hibernate="Sat 00:00-06:00")
def test_a_run_goes_to_hibernate_only_when_there_is_something_to_switch(fleet: Bench) -> None:
    def resume(**more: Any) -> str:
        run = {"trigger": "manual", **more}
        stamp = "2026-09-21T00:00:00+00:00"
        given = acquire_lock({"input": run, "execution_id": "e", "started_at": stamp}, None)
        return str(given.get("resume", given["status"]))

    assert resume() == ""
    run = fleet.begin("e")
    now = int(fleet.clock.now())
    assert now == START
    order = Order(kind="sleep", by="ana", since=now, until=now + 9000)
    fleet.tools.state.set_hibernate_order(order)
    assert resume() == "Hibernate"
    assert resume(dry_run=True) == ""
    run = fleet.begin("e")
    idle = Hibernation(phase="off", since=now, idle_until=now + 600, order_seen=order.since, detail="on later")
    fleet.tools.state.save_hibernation(run, idle)
    fleet.tools.state.release(run)
    assert resume() == "off"
    fleet.tools.state.set_hibernate_order(replace(order, kind="wake", since=now + 1))
    assert resume() == "Hibernate"


def test_no_replacement_is_launched_for_a_worker_that_aws_reclaims_meanwhile(fleet: Bench) -> None:
    event = fleet.interrupted()
    run = fleet.begin("e")
    fleet.tools.state.save_hibernation(run, Hibernation(phase="draining", since=1))
    given = launch_replacement(event, None)
    assert given["replacement"]["status"] == "none" and "switched off" in given["replacement"]["detail"]
