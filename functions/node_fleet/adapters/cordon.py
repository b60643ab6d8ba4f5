"""Takes back the cordon of one operation on the server: first the drain is stopped for certain, then the node is freed.

Both the undoing run and the clean-up come through here. Whose cordon it is, the server's script checks.
"""

from __future__ import annotations

from node_fleet.adapters.server import ServerCommands, stop_and_uncordon
from node_fleet.domain.model.errors import ServerUnreachableError
from node_fleet.domain.model.operation import Operation, Target

GIVEN_BACK = ("uncordoned", "not-cordoned", "foreign-cordon", "no-node")


def give_back(server: ServerCommands, operation: Operation, target: Target) -> str:
    """The word of the server's answer, one of GIVEN_BACK. Safe twice.

    Raises:
        ServerUnreachableError: the cordon may still stand.
    """
    result = stop_and_uncordon(server, target, operation.operation_id)
    if not result.succeeded or result.word not in GIVEN_BACK:
        said = f"{result.word} {result.detail}".strip() or result.status
        raise ServerUnreachableError(f"node {target.node_name} may still be cordoned by us: {said}")
    return result.word
