"""Takes a worker back that AWS announced to take and did not: room first, then the uncordon, then the notice.

Never above the maximum: without room an empty one goes, as its replacement has come; one with pods stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from node_fleet.adapters.launcher import Headcount
from node_fleet.domain.errors import NodeFleetError, ServerUnreachableError
from node_fleet.domain.interruption import operation_of
from node_fleet.domain.join import LIVING

GIVEN_BACK = ("uncordoned", "not-cordoned", "foreign-cordon", "no-node")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """The tools that taking a worker back needs."""

    ec2: Any
    state: Any
    server: Any
    clock: Any
    settings: Any

    def take_back(self, instance_id: str, *, node_name: str, drained: bool) -> tuple[str, str]:
        """What became of it ("uncordoned", "removed" or "kept") and a sentence.

        Raises:
            ServerUnreachableError: the cordon may still stand; the notice stays.
        """
        key = f"{operation_of(instance_id)}:survivor"
        until = self.clock.now() + self.settings.join_limit_seconds
        count = Headcount(self.ec2, self.clock)
        if self.state.reserve(key, count, maximum=self.settings.max_workers, until=until):
            self._uncordon(instance_id, node_name)
            self.state.remove_notice(instance_id)
            self.state.unreserve([key])
            return "uncordoned", f"{instance_id} was not taken and works again"
        if not drained:
            text = f"{instance_id} was not taken, but the fleet is full and it still has pods: decide by hand"
            return "kept", text
        self.ec2.terminate([instance_id])
        return "removed", f"{instance_id} was not taken, but its replacement took its place: terminated"

    def settle_orphans(self, dead: str) -> str:
        """Lift the notices that a dead execution was answering; empty, or what became of them in one sentence."""
        notices = [n for n in self.state.load().notices if n.claimed_by == dead]
        return "; ".join(self._orphan(notice.instance_id) for notice in notices)

    def _orphan(self, instance_id: str) -> str:
        if self.ec2.states([instance_id])[instance_id] not in LIVING:
            self.state.remove_notice(instance_id)
            return f"lifted the notice of {instance_id}, which is gone"
        try:
            return self.take_back(instance_id, node_name=instance_id, drained=False)[1]
        except NodeFleetError as error:
            return f"the notice of {instance_id} still stands: {error}"

    def _uncordon(self, instance_id: str, node_name: str) -> None:
        parameters = {"NodeName": node_name, "OperationId": operation_of(instance_id)}
        result = self.server.run("UncordonNode", parameters)
        if not result.succeeded or result.word not in GIVEN_BACK:
            said = f"{result.word} {result.detail}".strip() or f"SSM says {result.status}"
            raise ServerUnreachableError(f"node {node_name} may still be cordoned by us: {said}")
