"""CheckSetAside settles at most one removal a run, and leaves what cannot be settled to the next."""

from __future__ import annotations

from typing import Any

import pytest

from handlers.check_set_aside import handler as check_set_aside
from node_fleet.domain.model.errors import ServerNotFoundError, ServerUnreachableError
from tests.support.handlers.fakes import NOW, OPERATION_ID, RUNNING, A, B, FakeServices, answer

AWAY = ServerUnreachableError("server_not_managed: away")
NO_SERVER = ServerNotFoundError("no running instance carries the tag Role=k3s-master")


def left(services: FakeServices) -> list[str]:
    return [removal.instance_id for removal in services.state.item.set_aside]


@pytest.mark.parametrize("state", ["shutting-down", "running", "stopping"])
def test_an_instance_that_has_not_ended_stays_set_aside_and_the_server_is_not_asked(
    services: FakeServices, state: str
) -> None:
    services.set_aside(A)
    services.ec2.state[A] = state
    payload = services.payload()
    assert check_set_aside(payload, None) == payload
    assert (left(services), services.server.commands) == ([A], [])


@pytest.mark.parametrize("state", ["terminated", "gone"])
def test_an_instance_that_has_ended_is_forgotten_and_reported(services: FakeServices, state: str) -> None:
    services.set_aside(A)
    services.ec2.state[A] = state
    services.server.says("ForgetNode", f"result: forgotten {A}")
    answered = services.run(check_set_aside)
    assert services.server.commands == [("ForgetNode", {"NodeName": A, "InstanceId": A})]
    assert left(services) == []
    assert answered["notes"] == [f"worker {A} has ended 10 min after it was set aside, and its node is deleted"]


@pytest.mark.parametrize("said", [answer("result: ready x", 71), answer("", 1), RUNNING, AWAY, NO_SERVER])
def test_a_node_that_cannot_be_deleted_yet_is_tried_again_by_the_next_run(services: FakeServices, said: Any) -> None:
    services.set_aside(A)
    services.server.answers["ForgetNode"] = said
    payload = services.payload()
    assert check_set_aside(payload, None) == payload
    (removal,) = services.state.item.set_aside
    assert (removal.instance_id, removal.tried_at, removal.since) == (A, NOW, NOW - 600)


def test_a_removal_that_was_tried_in_vain_does_not_keep_another_from_being_settled(services: FakeServices) -> None:
    services.set_aside(A)
    services.set_aside(B)
    services.server.answers["ForgetNode"] = [answer("result: ready x", 71), answer(f"result: forgotten {B}")]
    services.run(check_set_aside)
    services.run(check_set_aside)
    assert [parameters["InstanceId"] for _, parameters in services.server.commands] == [A, B]
    assert left(services) == [A]


def test_a_rollback_stops_the_drain_and_uncordons_the_node(services: FakeServices) -> None:
    services.set_aside(A, kind="rollback", command_id="DrainNode")
    services.ec2.state[A] = "running"
    services.server.says("UncordonNode", f"result: uncordoned {A}")
    answered = services.run(check_set_aside)
    assert services.server.documents() == ["cancel", "UncordonNode"]
    assert services.server.commands[-1] == ("UncordonNode", {"NodeName": A, "OperationId": OPERATION_ID})
    assert (left(services), answered["notes"]) == (
        [],
        [f"node {A} is uncordoned 10 min after its rollback was set aside"],
    )


def test_a_rollback_waits_while_the_worker_is_under_notice(services: FakeServices) -> None:
    services.set_aside(A, kind="rollback")
    services.notice(A)
    services.ec2.state[A] = "running"
    services.run(check_set_aside)
    assert (left(services), services.server.commands) == ([A], [])


def test_the_node_of_a_rollback_whose_instance_has_ended_is_deleted(services: FakeServices) -> None:
    services.set_aside(A, kind="rollback")
    services.server.says("ForgetNode", f"result: forgotten {A}")
    services.run(check_set_aside)
    assert (left(services), services.server.documents()) == ([], ["ForgetNode"])


def test_the_lease_is_renewed_again_after_the_command_and_before_the_record_is_removed(services: FakeServices) -> None:
    services.set_aside(A)
    services.server.says("ForgetNode", f"result: forgotten {A}")
    services.run(check_set_aside)
    assert services.state.calls == ["renew", "renew", "drop set aside"]
