"""The answer to an interruption notice: the claim, one drain before the deadline, one replacement, one message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handlers.check_deadline_drain import handler as check_drain
from handlers.claim_notices import handler as claim_notices
from handlers.close_notice import handler as close_notice
from handlers.launch_replacement import handler as launch_replacement
from handlers.notify_response import handler as notify_response
from handlers.start_deadline_drain import handler as start_drain
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.domain.model.errors import PausedError, ServerUnreachableError
from node_fleet.domain.model.memory import Memory, RollOut
from node_fleet.domain.model.memory import Replacement as Current
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_down.lost_volumes import LostVolume
from node_fleet.domain.scale_up.requests import LaunchAnswer
from node_fleet.payload import take, to_payload
from tests.support.handlers.bench import Bench
from tests.support.handlers.fakes import answer, scale_down, target

pytestmark = pytest.mark.settings(max_workers=2, spot_percent=100, handle_rebalance=True)
WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
FOREIGN = "i-0123456789abcdef0"


def claim(what: str, instance_id: str, execution_id: str = "first", **detail: str) -> dict[str, Any]:
    event = {"detail-type": what, "time": "2026-09-21T14:14:20Z", "detail": {"instance-id": instance_id, **detail}}
    return claim_notices({"event": event, "execution_id": execution_id}, None)


def test_a_second_execution_ignores_the_notice_and_names_the_first(fleet: Bench) -> None:
    worker = fleet.running()
    first = claim(WARNING, worker.instance_id)
    second = claim(WARNING, worker.instance_id, "second")
    assert first["status"] == "claimed" and claim(WARNING, worker.instance_id) == first
    assert second["status"] == "ignored" and "first" in second["ignored"][worker.instance_id]
    assert first["interruptions"][0]["slot"]["zone"] != worker.zone, "the plan names another pool"


def test_a_spot_warning_replaces_the_claim_of_a_rebalance_recommendation_and_not_the_reverse(fleet: Bench) -> None:
    worker = fleet.running().instance_id
    assert claim(REBALANCE, worker, "first")["status"] == "claimed"
    assert claim(WARNING, worker, "second")["status"] == "claimed"
    assert "second" in claim(REBALANCE, worker, "third")["ignored"][worker]


def test_a_terminated_worker_is_only_forgotten_and_leaves_no_notice(fleet: Bench) -> None:
    (interruption,) = claim(STATE_CHANGE, fleet.running().instance_id, state="terminated")["interruptions"]
    assert interruption["path"] != "respond" and interruption.get("slot") is None
    assert fleet.state().notices == ()


@pytest.mark.settings(handle_rebalance=False)
@pytest.mark.parametrize(
    ("what", "instance_id", "detail", "reason"),
    [
        (REBALANCE, "", {}, "rebalance recommendations are not followed (handle_rebalance=false)"),
        (STATE_CHANGE, "", {"state": "pending"}, "the event asks for nothing"),
        (WARNING, FOREIGN, {}, "not a worker of this fleet"),
    ],
    ids=["rebalance switched off", "a state that asks for nothing", "foreign instance"],
)
def test_an_event_that_needs_no_response_is_ignored_with_its_reason(
    fleet: Bench, what: str, instance_id: str, detail: dict[str, str], reason: str
) -> None:
    answered = claim(what, instance_id or fleet.running().instance_id, **detail)
    assert (answered["status"], list(answered["ignored"].values())) == ("ignored", [reason])
    assert fleet.state().notices == ()


@pytest.mark.parametrize(("late", "status"), [(20, "waiting"), (96, "skipped")])
def test_the_drain_has_exactly_the_time_that_is_left_or_is_skipped(fleet: Bench, late: int, status: str) -> None:
    payload = fleet.interrupted()
    fleet.server.says("DrainNode")
    fleet.clock.advance(late)
    assert start_drain(payload, None)["drain"]["status"] == status
    names = ("DrainTimeoutSeconds", "DrainMode", "OperationId", "Cause")
    sent = [tuple(parameters[name] for name in names) for _, parameters in fleet.server.commands]
    operation_id = f"int-{payload['interruption']['instance_id']}"
    assert sent == ([("85", "deadline", operation_id, "spot")] if status == "waiting" else [])


def removed(fleet: Bench, instance_id: str) -> None:
    """A scale-down drains this worker."""
    operation = replace(scale_down(), targets=(target(instance_id, "draining"),))
    fleet.tools.state.save_operation(fleet.begin(), operation)


@pytest.mark.parametrize("same_worker", [True, False])
def test_the_drain_of_a_scale_down_is_cancelled_only_on_the_same_worker(fleet: Bench, same_worker: bool) -> None:
    payload = fleet.interrupted()
    removed(fleet, payload["interruption"]["instance_id"] if same_worker else "i-other")
    fleet.server.says("DrainNode")
    start_drain(payload, None)
    cancelled = [parameters for document, parameters in fleet.server.commands if document == "cancel"]
    assert cancelled == ([{"CommandId": "DrainNode"}] if same_worker else [])


def drained_after(fleet: Bench, seconds: int, result: Any) -> dict[str, Any]:
    """The drain as CheckDeadlineDrain sees it that long after its start; a text stands for a command that ended."""
    worker = fleet.running()
    fleet.server.unreachable = False
    done = result.format(worker.instance_id) if isinstance(result, str) else result
    payload = start_drain(fleet.interrupted(worker), None)
    fleet.server.answers["DrainNode"] = answer(done) if isinstance(done, str) else done
    fleet.clock.advance(seconds)
    drain: dict[str, Any] = check_drain(payload, None)["drain"]
    return drain


@pytest.mark.parametrize(
    ("takes", "checked_after", "status"),
    [(60, 59, "waiting"), (60, 61, "drained"), (600, 110, "waiting"), (600, 111, "failed")],
)
def test_the_check_ends_with_the_drain_or_with_the_deadline(
    fleet: Bench, takes: int, checked_after: int, status: str
) -> None:
    fleet.server.drain_seconds = takes
    drain = drained_after(fleet, checked_after, "node/{} drained")
    assert drain["status"] == status
    assert (f" after {checked_after} s" in drain["detail"]) is (status == "drained")


@pytest.mark.parametrize(
    "result",
    ["", "node/i-0other drained", "evicting pod a/b", answer("result: blocked shop/orders-db-0", code=3)],
)
def test_an_answer_without_the_exact_line_is_not_success(fleet: Bench, result: Any) -> None:
    assert drained_after(fleet, 5, result)["status"] == "failed"


def test_a_server_that_does_not_answer_once_is_asked_again(fleet: Bench) -> None:
    drain = drained_after(fleet, 5, ServerUnreachableError("SSM: cannot ask: ThrottlingException"))
    assert drain["status"] == "waiting" and "ThrottlingException" in drain["detail"]


def test_a_repeated_launch_answers_the_same_instance(fleet: Bench) -> None:
    payload = fleet.interrupted()
    first, second = launch_replacement(payload, None), launch_replacement(payload, None)
    assert first["replacement"] == second["replacement"] and first["replacement"]["status"] == "launched"
    assert len(fleet.instances()) == 2


def no_replacement(fleet: Bench, payload: dict[str, Any], status: str = "failed") -> str:
    before = fleet.ids()
    replacement = launch_replacement(payload, None)["replacement"]
    assert replacement["status"] == status and fleet.ids() == before
    return str(replacement["detail"])


def test_a_full_fleet_gets_no_replacement(fleet: Bench) -> None:
    worker, *_ = [fleet.running(n) for n in (1, 2, 3)]
    assert "maximum" in no_replacement(fleet, fleet.interrupted(worker))


def test_without_a_pool_outside_back_off_no_replacement_is_launched(fleet: Bench) -> None:
    interruption = replace(fleet.noticed(fleet.running()), slot=None)
    assert "back-off" in no_replacement(fleet, {"interruption": to_payload(interruption)})


def test_a_worker_that_a_scale_down_removes_gets_no_replacement(fleet: Bench) -> None:
    payload = fleet.interrupted()
    removed(fleet, payload["interruption"]["instance_id"])
    assert no_replacement(fleet, payload, "none") == "a scale-down already removes this worker"


@pytest.mark.settings(max_workers=4)
@pytest.mark.parametrize("case", ["stays", "removed", "ended", "other", "unhealthy"])
def test_a_reclaimed_replacement_gets_none_while_the_worker_that_it_was_to_replace_runs(
    fleet: Bench, case: str
) -> None:
    old, launched = fleet.running(1), fleet.running(2)
    other = "i-0ffffffff" if case == "other" else launched.instance_id
    current = Current(
        worker=old.instance_id, reason="unhealthy" if case == "unhealthy" else "drifted", replacement=other
    )
    run = fleet.begin()
    fleet.tools.state.release(run, Memory(roll_out=RollOut(current=current)))
    payload = fleet.interrupted(launched)
    if case == "removed":
        removed(fleet, old.instance_id)
    if case == "ended":
        fleet.tools.ec2.terminate([old.instance_id])
    if case == "stays":
        assert no_replacement(fleet, payload, "none") == f"{old.instance_id}, which it was to replace, still runs"
    else:
        assert launch_replacement(payload, None)["replacement"]["status"] == "launched"


def test_a_pause_that_comes_while_ec2_refuses_the_first_pool_prevents_the_next_request(
    fleet: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = fleet.interrupted()
    asked: list[LaunchRequest] = []

    def refused(ec2: Ec2Fleet, request: LaunchRequest, **named: str) -> LaunchAnswer:
        asked.append(request)
        fleet.pause()
        return LaunchAnswer(code="InsufficientInstanceCapacity", message="none left")

    monkeypatch.setattr(Ec2Fleet, "launch", refused)
    with pytest.raises(PausedError, match="ann"):
        launch_replacement(payload, None)
    assert len(asked) == 1


LOST = LostVolume(claim="shop/data", volume="pvc-1", pod="shop/db-0")


def test_the_check_passes_on_the_volumes_that_end_with_the_worker(fleet: Bench) -> None:
    drain = drained_after(fleet, 5, "volume shop/data pvc-1 shop/db-0\nnode/{} drained")
    assert (drain["status"], take(drain, "volumes", tuple[LostVolume, ...])) == ("drained", (LOST,))


def test_the_volumes_that_end_with_the_worker_make_one_critical_message_and_are_recorded(fleet: Bench) -> None:
    payload = fleet.interrupted(response=response("drained", "launched"))
    payload["response"]["drain"]["volumes"] = to_payload((LOST,))
    instance_id = payload["interruption"]["instance_id"]
    assert not fleet.state().has_reported_volumes(instance_id)
    notify_response(payload, None)
    ((_, message),) = fleet.publisher.messages
    kinds = [alert.kind for alert in take(message, "alerts", tuple[Alert, ...])]
    assert (message["level"], kinds) == ("error", [f"volumes_lost:{instance_id}"])
    assert fleet.state().has_reported_volumes(instance_id)


def response(drain: str, replacement: str) -> dict[str, Any]:
    return {
        "drain": {"status": drain, "detail": "d", "node_name": "n", "command_id": "c", "started_at": 0, "until": 0},
        "replacement": {"status": replacement, "detail": "r", "instance_id": ""},
    }


@pytest.mark.parametrize(
    ("drain", "replacement", "level"), [("drained", "launched", "info"), ("failed", "failed", "warning")]
)
def test_the_message_says_what_was_done(fleet: Bench, drain: str, replacement: str, level: str) -> None:
    payload = fleet.interrupted(response=response(drain, replacement))
    assert notify_response(payload, None) == payload
    ((subject, message),) = fleet.publisher.messages
    assert subject == f"interruption:{payload['interruption']['instance_id']}"
    assert "AWS reclaims this Spot instance" in message["what"] and not message["is_end"]
    assert message["level"] == level and f"drain {drain}" in message["what"]
    assert not fleet.state().has_reported_volumes(payload["interruption"]["instance_id"])
    assert [event.kind for event in fleet.records.stored] == ["interruption"]


def test_two_executions_about_one_worker_in_the_same_second_leave_two_events_of_each_kind(fleet: Bench) -> None:
    worker = fleet.running()
    for execution in ("rebalance-1", "spot-2", "spot-2"):
        interruption = fleet.noticed(worker, claimed_by=f"arn:aws:states:r:1:execution:m:{execution}")
        payload = {"interruption": to_payload(interruption), "response": response("drained", "launched")}
        notify_response(payload, None)
        close_notice({**payload, "settle": {"status": "uncordoned", "detail": "d"}}, None)
    keys = {(event.at, event.kind, event.key) for event in fleet.records.stored}
    assert len(keys) == 4, "one of each kind for each execution; a retry overwrites"
    assert all(key.endswith(("rebalance-1", "spot-2")) for _, _, key in keys)


@pytest.mark.settings(k3s_version="v1.36.2+k3s1", launch_template_version="2")
def test_a_replacement_is_not_newer_than_the_server(fleet: Bench) -> None:
    fleet.cloud.client("ec2").create_launch_template_version(
        LaunchTemplateId=fleet.settings.launch_template_id, SourceVersion="1", LaunchTemplateData={}
    )
    worker = fleet.running()
    older = RollOut(server_version="v1.35.5+k3s1", good_version="1")
    fleet.tools.state.release(fleet.begin(), Memory(roll_out=older))
    assert launch_replacement(fleet.interrupted(worker), None)["replacement"]["status"] == "launched"
    (call,) = fleet.cloud.recorder.of("CreateFleet")[-1:]
    assert call.parameters["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] == "1"
