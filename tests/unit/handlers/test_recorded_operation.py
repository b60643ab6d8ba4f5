"""A repeated call works on the recorded operation: the payload of the first call may be older."""

from __future__ import annotations

import pytest

from handlers.check_drain import handler as check_drain
from handlers.confirm_termination import handler as confirm_termination
from handlers.forget_nodes import handler as forget_nodes
from handlers.terminate_nodes import handler as terminate_nodes
from node_fleet.domain.model.errors import DrainFailedError
from node_fleet.domain.model.operation import TargetPhase
from node_fleet.payload import to_payload
from tests.support.handlers.fakes import FakeServices, Handler


@pytest.mark.parametrize(
    ("handler", "phase"),
    [(check_drain, "draining"), (confirm_termination, "terminating"), (forget_nodes, "terminated")],
)
def test_a_target_that_is_recorded_as_ended_is_not_touched_again(
    services: FakeServices, handler: Handler, phase: TargetPhase
) -> None:
    services.begun(phase)
    payload = services.payload()
    services.begun("forgotten")
    answered = handler(payload, None)
    assert answered["operation"] == to_payload(services.state.item.operation)
    assert (services.server.commands, services.ec2.terminated) == ([], [])


def test_a_target_that_is_recorded_as_undone_is_not_terminated(services: FakeServices) -> None:
    services.begun("drained")
    payload = services.payload()
    services.begun("undone")
    with pytest.raises(DrainFailedError, match="no worker left to terminate"):
        terminate_nodes(payload, None)
    assert (services.server.commands, services.ec2.terminated) == ([], [])
