"""Hibernate does one step on the way off or on in each run, and every failure has an alert and a next step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.check_drain import handler as check_drain
from handlers.fail_scale_down import handler as fail_scale_down
from handlers.hibernate import handler as hibernate
from handlers.notify import handler as notify
from handlers.notify import message_of
from handlers.release_lock import handler as release_lock
from handlers.start_drain import handler as start_drain
from handlers.terminate_nodes import handler as terminate_nodes
from handlers.undo_drain import handler as undo_drain
from node_fleet.domain.model.errors import Ec2Error, PausedError, ServerNotFoundError, TerminationRefusedError
from node_fleet.domain.model.hibernation import Hibernation, Order, Phase
from node_fleet.domain.model.memory import Memory, Replacement, RollOut
from node_fleet.domain.model.run import Alert
from node_fleet.domain.notify.incidents import incident_of
from node_fleet.payload import take
from node_fleet.settings import Settings
from tests.support.handlers.fakes import (
    ALL_FREE,
    NOW,
    RUNNING,
    A,
    B,
    C,
    FakeServices,
    answer,
    check_text,
    inspection_text,
    scale_down,
    worker_line,
)

CHECKED = "server i-server\nresult: checked"
UNTIL = NOW + 8 * 3600
SLEEP = Order(kind="sleep", by="ana", since=NOW - 60, until=UNTIL)
WAKE = Order(kind="wake", by="ana", since=NOW - 60, until=UNTIL)


@pytest.fixture(autouse=True)
def _ready(services: FakeServices) -> None:
    """A fleet of three workers that is ordered off, with everything that it needs for that."""
    services.settings = Settings.from_mapping({"hibernate": "Sat 00:00-06:00"})
    services.server.says("HibernateServer", CHECKED)
    services.server.says("InspectNodes", ALL_FREE)
    known(services, order=SLEEP)


def known(services: FakeServices, phase: Phase = "on", *, order: Order | None = SLEEP, **changes: Any) -> None:
    """What the state item remembers."""
    found = Hibernation(phase=phase, **{"since": NOW, **changes})
    services.state.item = replace(services.state.item, hibernation=found, hibernate_order=order)


def configured(services: FakeServices, **settings: Any) -> None:
    services.settings = Settings.from_mapping({"hibernate": "Sat 00:00-06:00", **settings})


def step(services: FakeServices, **more: Any) -> tuple[str, list[str], dict[str, Any]]:
    """The status, the kinds of the alerts, and the whole answer; each kind has a row in the documents."""
    given = services.run(hibernate, **more)
    kinds = [row[0] for row in (given["alerts"] or {"rows": []})["rows"]]
    assert all(incident_of(kind) for kind in kinds)
    return given["hibernate"]["status"], kinds, given


def remembered(services: FakeServices) -> Hibernation:
    return services.state.item.hibernation


# off ---------------------------------------------------------------------------------------------------------------


def test_the_first_run_of_a_time_off_drains_all_workers_in_one_operation(services: FakeServices) -> None:
    status, kinds, given = step(services)
    assert (status, kinds, given["hibernate"]["notify"]) == ("drain", [], False)
    assert (remembered(services).phase, remembered(services).since) == ("draining", NOW)
    operation = services.state.item.operation
    assert operation is not None
    assert [t.instance_id for t in operation.targets] == [A, B, C]
    assert (operation.hibernate, services.state.phases) == ("drain", ["selected"] * 3)


def test_while_no_worker_can_be_drained_the_run_ends_and_the_next_tries_again(services: FakeServices) -> None:
    known(services, "draining")
    services.server.says("InspectNodes", inspection_text(worker_line(A, "RCW", "?")))
    assert step(services)[:2] == ("waiting", [])
    services.server.says("InspectNodes", "cut")
    status, kinds, given = step(services)
    assert (status, kinds) == ("waiting", []) and "cannot be read" in given["hibernate"]["detail"]
    assert services.state.item.operation is None


@pytest.mark.parametrize(("spent", "status"), [(1799, "drain"), (1800, "end")])
def test_at_the_time_limit_the_rest_is_ended(services: FakeServices, spent: int, status: str) -> None:
    known(services, "draining", since=NOW - spent)
    assert step(services)[0] == status


def test_without_a_time_to_drain_all_workers_are_ended_at_once(services: FakeServices) -> None:
    configured(services, hibernate_drain_seconds=0)
    assert step(services)[0] == "end"
    assert services.state.item.operation is not None
    assert services.state.item.operation.reason == "the fleet is switched off"


def test_the_fleet_stays_on_at_the_limit_where_that_is_chosen(services: FakeServices) -> None:
    configured(services, hibernate_at_limit="stay-on")
    known(services, "draining", since=NOW - 1800)
    status, kinds, given = step(services)
    assert (status, kinds) == ("on", ["hibernate_failed"])
    assert "3 workers could not be drained in 30 min" in given["notes"][0]
    order = services.state.item.hibernate_order
    assert order is not None and (order.kind, order.by, order.until) == ("wake", "node-fleet", UNTIL)
    assert remembered(services).phase == "on"


@pytest.mark.parametrize(
    "forbid",
    [
        lambda s: s.protect(A),
        lambda s: s.server.says("HibernateServer", f"job shop/report\n{CHECKED}"),
        lambda s: setattr(s.server, "unreachable", True),
        lambda s: (configured(s, hibernate_unless="q"), setattr(s.prometheus, "down", True)),
        lambda s: (configured(s, hibernate_unless="q"), setattr(s.prometheus, "found", (1.0,))),
    ],
    ids=["a protection", "a Job", "no server", "no answer of the metric", "the metric"],
)
def test_what_forbids_it_keeps_the_fleet_on_and_scaled(services: FakeServices, forbid: Any) -> None:
    forbid(services)
    assert step(services)[:2] == ("on", [])
    assert (remembered(services).phase, remembered(services).kept_since) == ("on", NOW)
    assert services.state.item.operation is None


def test_a_metric_of_zero_forbids_nothing(services: FakeServices) -> None:
    configured(services, hibernate_unless="q")
    services.prometheus.found = (0.0,)
    assert step(services)[0] == "drain"


@pytest.mark.parametrize(("seconds", "alerts"), [(3599, []), (3600, ["hibernate_kept_on"])])
def test_it_is_reported_after_an_hour_once(services: FakeServices, seconds: int, alerts: list[str]) -> None:
    services.server.says("HibernateServer", f"job shop/report\n{CHECKED}")
    known(services, kept_since=NOW - seconds)
    status, kinds, given = step(services)
    assert (status, kinds) == ("on", alerts)
    again = services.run(hibernate, memory=take(given, "memory", Memory))
    assert (again["alerts"] or {"rows": []})["rows"] == []


def test_an_order_ends_the_way_off_and_what_is_remembered_of_it(services: FakeServices) -> None:
    known(services, "draining", order=WAKE, kept_since=NOW - 60)
    assert step(services)[:2] == ("on", [])
    assert remembered(services).is_settled and remembered(services).order_seen == WAKE.since


@pytest.mark.parametrize(
    ("state", "status", "phase"), [("stopped", "waiting", "waking"), ("running", "on", "on"), ("", "on", "on")]
)
def test_a_server_that_someone_stopped_during_the_time_off_is_started_at_its_end(
    services: FakeServices, state: str, status: str, phase: str
) -> None:
    known(services, "on", order=None, kept_since=NOW - 60)
    services.ec2.server_state = state
    assert step(services)[:2] == (status, [])
    assert remembered(services).phase == phase
    assert services.ec2.switched == (["start i-server"] if state == "stopped" else [])


def test_with_the_last_worker_gone_the_datastore_is_copied_and_the_server_stopped(services: FakeServices) -> None:
    known(services, "draining")
    services.ec2.fleet = ()
    services.server.answers["HibernateServer"] = [answer(CHECKED), answer("result: kept /x")]
    assert step(services)[:2] == ("waiting", [])
    sent = services.server.commands[-1]
    assert sent == ("HibernateServer", {"HibernateMode": "backup", "ExecutionTimeoutSeconds": "600"})
    assert services.ec2.switched == ["stop i-server"]
    assert (remembered(services).phase, remembered(services).backup_id) == ("stopping", "")


def test_a_copy_that_takes_long_is_awaited_and_not_begun_twice(services: FakeServices) -> None:
    known(services, "draining")
    services.ec2.fleet = ()
    services.server.answers["HibernateServer"] = [answer(CHECKED), RUNNING, answer("result: external")]
    assert step(services)[0] == "waiting"
    assert (remembered(services).phase, services.ec2.switched) == ("draining", [])
    assert step(services)[0] == "waiting", "K3s is stopped while it is copied, and asked nothing"
    assert [given["HibernateMode"] for _, given in services.server.commands] == ["check", "backup"]
    assert services.ec2.switched == ["stop i-server"]


@pytest.mark.parametrize("order", [WAKE, None], ids=["an order", "the end"])
def test_a_copy_of_an_earlier_night_is_not_taken_for_one_of_this_night(services: FakeServices, order: Any) -> None:
    known(services, "draining", order=order, backup_id="earlier")
    assert step(services)[0] == "on"
    assert remembered(services).backup_id == ""


def test_a_worker_that_came_during_the_copy_is_guarded_again(services: FakeServices) -> None:
    known(services, "draining", backup_id="HibernateServer")
    services.server.says("HibernateServer", f"job shop/report\n{CHECKED}")
    assert step(services)[0] == "on"
    assert remembered(services).backup_id == ""


@pytest.mark.parametrize("is_down", [True, False], ids=["no answer", "no value"])
def test_a_metric_that_is_lost_with_the_workers_begins_no_fleet_again(services: FakeServices, is_down: bool) -> None:
    configured(services, hibernate_unless="q")
    known(services, "draining")
    services.ec2.fleet, services.prometheus.down, services.prometheus.found = (), is_down, ()
    services.server.answers["HibernateServer"] = [answer(CHECKED), answer("result: kept /x")]
    assert step(services)[0] == "waiting"
    assert remembered(services).phase == "stopping"


def test_a_server_that_could_not_be_found_while_stopped_is_not_stopped(services: FakeServices) -> None:
    services.ec2.server_state = ""
    assert step(services)[0] == "on"
    assert remembered(services).detail.startswith("no instance carries the tag")


def test_without_a_copy_the_server_runs_on_and_the_next_run_tries_again(services: FakeServices) -> None:
    known(services, "draining")
    services.ec2.fleet = ()
    services.server.answers["HibernateServer"] = [answer(CHECKED), answer("result: not-kept no space", 68)]
    status, kinds, given = step(services)
    assert (status, kinds, given["hibernate"]["notify"]) == ("waiting", ["hibernate_failed"], True)
    assert "the fleet cannot be switched off: " in str(given["alerts"])
    assert (services.ec2.switched, remembered(services).backup_id) == ([], "")


@pytest.mark.parametrize(("spent", "status"), [(3600, "waiting"), (3601, "on")])
def test_half_an_hour_after_the_drain_it_is_given_up(services: FakeServices, spent: int, status: str) -> None:
    known(services, "draining", since=NOW - spent, backup_id="HibernateServer")
    services.ec2.fleet = ()
    services.server.answers["HibernateServer"] = [RUNNING]
    assert step(services)[0] == status
    known(services, "draining", since=NOW - 3601)
    services.ec2.fleet = (services.ec2.fleet or ()) + ()
    services.server.says("HibernateServer", CHECKED)
    assert step(services)[0] == "on"


def test_a_refusal_to_stop_is_reported_and_tried_again(services: FakeServices) -> None:
    known(services, "stopping")
    services.ec2.error = Ec2Error("EC2: cannot stop the server i-server: UnauthorizedOperation")
    assert step(services)[:2] == ("waiting", ["hibernate_failed"])
    services.ec2.error = None
    assert step(services)[:2] == ("waiting", [])
    assert services.ec2.switched == ["stop i-server"]


@pytest.mark.parametrize(("spent", "phase"), [(1800, "stopping"), (1801, "waking")])
def test_a_server_that_does_not_stop_is_used_again_after_half_an_hour(
    services: FakeServices, spent: int, phase: str
) -> None:
    known(services, "stopping", since=NOW - spent)
    services.ec2.server_state = "stopping"
    status, kinds, _ = step(services)
    assert (status, remembered(services).phase) == ("waiting", phase)
    assert kinds == (["hibernate_failed"] if phase == "waking" else [])


def test_a_stopped_server_is_reported_once_and_no_run_has_anything_to_do_for_ten_minutes(
    services: FakeServices,
) -> None:
    known(services, "stopping")
    services.ec2.server_state = "stopped"
    roll_out = RollOut(current=Replacement(worker=A, reason="drifted", replacement=B))
    status, kinds, given = step(services, memory=Memory(roll_out=roll_out))
    assert (status, kinds, given["hibernate"]["notify"]) == ("waiting", [], True)
    assert take(given, "memory", Memory).roll_out.current is None
    assert (remembered(services).phase, remembered(services).idle_until) == ("off", NOW + 600)
    assert remembered(services).order_seen == SLEEP.since
    status, _, given = step(services)
    assert (status, given["hibernate"]["notify"], given["notes"]) == ("waiting", False, [])


def test_what_earlier_steps_report_is_sent_although_a_step_on_the_way_off_only_waits(services: FakeServices) -> None:
    known(services, "stopping")
    services.ec2.server_state = "stopping"
    status, kinds, given = step(services, alerts=(Alert(kind="lock_taken_over", text="took over the lock"),))
    assert (status, kinds, given["hibernate"]["notify"]) == ("waiting", ["lock_taken_over"], True)


def test_the_last_check_before_the_end_is_not_after_it(services: FakeServices) -> None:
    known(services, "off", order=replace(SLEEP, until=NOW + 900))
    services.ec2.server_state = "stopped"
    step(services)
    assert remembered(services).idle_until == NOW + 300


def test_a_server_that_someone_started_by_hand_keeps_the_fleet_on(services: FakeServices) -> None:
    known(services, "off", idle_until=NOW + 300)
    services.ec2.server_state = "pending"
    status, kinds, given = step(services)
    assert (status, kinds, given["hibernate"]["notify"]) == ("waiting", [], True)
    order = services.state.item.hibernate_order
    assert order is not None
    assert (order.kind, order.by, order.until) == ("wake", "a start of the server by hand", UNTIL)
    assert (remembered(services).phase, remembered(services).idle_until) == ("waking", 0)


def test_a_server_that_is_gone_is_reported_as_a_failed_wake_up(services: FakeServices) -> None:
    known(services, "off")
    services.ec2.server_state = ""
    status, kinds, given = step(services)
    assert (status, kinds) == ("waiting", ["wake_failed"])
    assert "the fleet cannot be switched on: " in str(given["alerts"])


# on ----------------------------------------------------------------------------------------------------------------


def test_the_server_is_started_and_the_run_ends(services: FakeServices) -> None:
    known(services, "off", order=WAKE, idle_until=NOW + 300)
    services.ec2.server_state = "stopped"
    assert step(services)[:2] == ("waiting", [])
    assert services.ec2.switched == ["start i-server"]
    assert (remembered(services).phase, remembered(services).since, remembered(services).idle_until) == (
        "waking",
        NOW,
        0,
    )


def test_a_start_that_ec2_refuses_is_reported_at_once_and_tried_by_every_run(services: FakeServices) -> None:
    known(services, "off", order=WAKE)
    services.ec2.server_state, services.ec2.error = "stopped", Ec2Error("EC2: InsufficientInstanceCapacity")
    assert step(services)[:2] == ("waiting", ["wake_failed"])
    services.ec2.error = None
    assert step(services)[0] == "waiting"
    assert services.ec2.switched == ["start i-server"]


def test_a_fleet_that_does_not_wake_is_reported_every_quarter_of_an_hour_until_it_does(services: FakeServices) -> None:
    known(services, "off", order=WAKE)
    services.ec2.server_state, services.ec2.error = "stopped", Ec2Error("EC2: InsufficientInstanceCapacity")
    memory, heard = Memory(), []
    for minute in range(0, 62, 2):
        services.clock.time = NOW + minute * 60
        given = services.run(hibernate, memory=memory)
        memory = take(given, "memory", Memory)
        found = (given["alerts"] or {"rows": []})["rows"]
        assert given["hibernate"]["notify"] == bool(found)
        if found:
            heard.append(minute)
            sent = notify({**given, "run": {**given["run"], "started_at": NOW + minute * 60}}, None)
            memory = take(sent, "memory", Memory)
    assert heard == [0, 16, 32, 48]
    assert len(services.publisher.messages) == len(heard)


@pytest.mark.parametrize(("spent", "kinds"), [(239, []), (240, ["wake_failed"])])
@pytest.mark.parametrize("state", ["pending", "stopping", "running"])
def test_a_server_that_is_not_healthy_in_four_minutes_is_reported(
    services: FakeServices, state: str, spent: int, kinds: list[str]
) -> None:
    known(services, "waking", order=WAKE, since=NOW - spent)
    services.ec2.server_state = state
    services.server.says("InspectNodes", "", 1)
    assert step(services)[:2] == ("waiting", kinds)
    assert remembered(services).phase == "waking"


def test_a_server_that_someone_else_stops_again_is_left_alone(services: FakeServices) -> None:
    known(services, "off", since=NOW - 9000)
    services.ec2.server_state = "stopping"
    assert step(services)[:2] == ("waiting", [])
    assert (remembered(services).phase, services.ec2.switched) == ("off", [])


@pytest.mark.parametrize(("spent", "status"), [(29, "waiting"), (30, "on")])
def test_a_server_that_was_being_stopped_is_not_trusted_at_once(
    services: FakeServices, spent: int, status: str
) -> None:
    known(services, "waking", order=WAKE, since=NOW - spent)
    assert step(services)[:2] == (status, [])
    known(services, "stopping", order=WAKE, since=NOW - 5)
    assert step(services)[:2] == ("waiting", [])


@pytest.mark.parametrize(("spent", "status"), [(239, "waiting"), (240, "on")])
def test_prometheus_is_awaited_for_four_minutes(services: FakeServices, spent: int, status: str) -> None:
    known(services, "waking", order=WAKE, since=NOW - spent)
    services.prometheus.down = True
    assert step(services)[:2] == (status, [])


def test_a_healthy_server_ends_the_time_off_and_its_start_is_measured(services: FakeServices) -> None:
    known(services, "waking", order=WAKE, since=NOW - 200, wake_seconds=90)
    status, kinds, given = step(services)
    assert (status, kinds) == ("on", [])
    assert given["notes"] == ["the server i-server is healthy 200 s after it was started; the workers follow"]
    assert (remembered(services).phase, remembered(services).wake_seconds) == ("on", 200)


@pytest.mark.parametrize(("left", "by"), [(3300, "node-fleet"), (3301, "ana")])
def test_a_start_before_the_end_that_was_short_does_not_lead_off_again(
    services: FakeServices, left: int, by: str
) -> None:
    sleep = replace(SLEEP, until=NOW + left)
    known(services, "waking", order=sleep, since=NOW - 40, wake_seconds=3000)
    assert step(services)[0] == "on"
    order = services.state.item.hibernate_order
    assert order is not None and (order.by, order.until) == (by, NOW + left)


@pytest.mark.parametrize(("spent", "kinds"), [(60, []), (240, ["wake_failed"])])
def test_an_ssm_agent_that_starts_after_the_instance_is_awaited(
    services: FakeServices, spent: int, kinds: list[str]
) -> None:
    known(services, "waking", order=WAKE, since=NOW - spent)
    services.server.unreachable = True
    assert step(services)[:2] == ("waiting", kinds)


# the other states --------------------------------------------------------------------------------------------------


def test_a_drain_of_a_fleet_that_is_switched_off_refuses_only_what_would_be_lost(services: FakeServices) -> None:
    services.state.item = replace(services.state.item, operation=scale_down("selected", hibernate="drain"))
    services.run(start_drain)
    assert services.server.commands[-1][1]["DrainMode"] == "hibernate"


def test_an_order_to_be_on_skips_the_workers_whose_drain_has_not_begun(services: FakeServices) -> None:
    known(services, "draining", order=WAKE)
    operation = scale_down("selected", "selected", hibernate="drain")
    services.state.item = replace(services.state.item, operation=operation)
    services.run(start_drain)
    assert services.state.phases == ["skipped", "skipped"] and services.server.commands == []


def test_pods_that_wait_withdraw_no_drain_but_an_order_to_be_on_does(services: FakeServices) -> None:
    operation = scale_down("draining", hibernate="drain")
    services.state.item = replace(services.state.item, operation=operation)
    services.prometheus.shapes = None
    assert services.run(check_drain)["drain"]["status"] == "waiting"
    known(services, "draining", order=WAKE)
    assert services.run(check_drain)["drain"]["status"] == "withdrawn"


def test_a_drain_that_a_budget_held_is_rolled_back_without_an_alert_and_fails_no_run(services: FakeServices) -> None:
    operation = scale_down("draining", hibernate="drain")
    services.state.item = replace(services.state.item, operation=operation)
    services.server.says("UncordonNode", f"result: uncordoned {A}")
    drain = {"status": "failed", "detail": "blocked_by_pdb: shop/web-1", "alert": "drain_failed"}
    given = services.run(undo_drain, drain=drain)
    assert (given["next"], given["alerts"]) == ("failed", [])
    assert [b.key for b in take(given, "memory", Memory).back_offs] == [f"node:{A}"]
    ended = fail_scale_down(given, None)
    assert "failure" not in ended and ended["outcome"]["kind"] == "none"


def test_workers_are_ended_together_at_the_limit_without_a_check(services: FakeServices) -> None:
    operation = scale_down("drained", "drained", "drained", hibernate="end")
    services.state.item = replace(services.state.item, operation=operation)
    services.run(terminate_nodes)
    assert services.ec2.terminated == [A, B, C]
    assert services.state.phases == ["terminating"] * 3
    assert services.server.commands == []
    services.run(terminate_nodes)
    assert services.ec2.terminated == [A, B, C, A], "a second call ends nothing else"


@pytest.mark.parametrize("order", [WAKE, None], ids=["an order", "the morning"])
@pytest.mark.parametrize("hibernate", ["end", "drain"])
def test_an_operation_of_the_night_that_is_resumed_later_ends_no_worker(
    services: FakeServices, order: Any, hibernate: str
) -> None:
    known(services, "draining", order=order)
    operation = scale_down("drained", "drained", hibernate=hibernate)
    services.state.item = replace(services.state.item, operation=operation)
    with pytest.raises(PausedError, match="the fleet is to be on"):
        services.run(terminate_nodes)
    assert (services.ec2.terminated, services.state.phases) == ([], ["drained", "drained"])


def test_a_worker_that_is_protected_meanwhile_stays_while_the_others_end(services: FakeServices) -> None:
    operation = scale_down("drained", "drained", "drained", hibernate="end")
    services.state.item = replace(services.state.item, operation=operation)
    services.protect(B)
    services.run(terminate_nodes)
    assert (services.ec2.terminated, services.state.phases) == ([A, C], ["terminating", "skipped", "terminating"])


def test_a_worker_that_ec2_refuses_to_end_is_tried_in_its_turn(
    services: FakeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = scale_down("drained", "drained", "drained", hibernate="end")
    services.state.item = replace(services.state.item, operation=operation)
    ended: list[str] = []

    def terminate(ids: list[str]) -> None:
        if ids == [B]:
            raise TerminationRefusedError("termination protection")
        ended.extend(ids)

    monkeypatch.setattr(services.ec2, "terminate", terminate)
    services.run(terminate_nodes)
    assert (ended, services.state.phases) == ([A, C], ["terminating", "drained", "terminating"])


def test_a_drained_worker_is_terminated_below_the_minimum(services: FakeServices) -> None:
    operation = scale_down("drained", hibernate="drain")
    services.state.item = replace(services.state.item, operation=operation)
    services.server.says("CheckNode", check_text())
    services.server.says("InspectNodes", inspection_text(worker_line(A, "RCW", operation.operation_id)))
    services.ec2.fleet = services.ec2.fleet[:1]
    services.run(terminate_nodes)
    assert services.ec2.terminated == [A]


def test_the_message_and_the_output_of_a_run_say_what_it_did(services: FakeServices, monkeypatch: Any) -> None:
    event = {"hibernate": {"status": "waiting", "detail": "the fleet is off", "notify": True}}
    payload = {key: value for key, value in services.payload().items() if key not in ("decision", "snapshot")}
    assert message_of({**payload, **event}, services.settings).what == "the fleet is off"
    monkeypatch.setattr(type(services.state), "release", lambda *given, **more: True, raising=False)
    assert release_lock({**payload, **event}, None)["sentence"] == "the fleet is off"


def test_a_missing_tag_of_the_server_keeps_the_fleet_on(services: FakeServices) -> None:
    services.server.answers["HibernateServer"] = ServerNotFoundError("no running instance carries the tag")
    assert step(services)[0] == "on"
