"""Takes a worker back that AWS announced to take and did not: room first, then the uncordon, then the notice.

Never above the maximum: without room an empty one under our cordon goes, as its replacement has come; another stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from node_fleet.adapters.launcher import WorkerCounter
from node_fleet.domain.interruption.response import is_anothers, operation_of
from node_fleet.domain.model.errors import CleanUpUnfinishedError, NodeFleetError, ServerUnreachableError
from node_fleet.domain.model.fleet_state import Notice
from node_fleet.domain.model.operation import Target
from node_fleet.domain.scale_down.drain import CommandResult, DrainVerdict, judge_check
from node_fleet.domain.scale_down.inspection import parse_node_check
from node_fleet.domain.scale_up.launch import RUNNING_STATES

GIVEN_BACK = ("uncordoned", "not-cordoned", "foreign-cordon", "no-node")
SCALE_DOWN = "down-"
"""So the operation ids of scale-downs begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinstatement:
    """The services that taking a worker back needs."""

    ec2: Any
    state: Any
    server: Any
    clock: Any
    settings: Any

    def reinstate(self, instance_id: str, *, claimed_by: str, node_name: str, drained: bool) -> tuple[str, str]:
        """What became of it ("uncordoned", "removed", "kept" or "superseded") and a sentence.

        Only for the execution whose notice stands: AWS may announce the worker again while its server is away.

        Raises:
            ServerUnreachableError: the cordon may still stand; the notice stays.
        """
        superseded = "superseded", f"a later notice about {instance_id} is being answered"
        notice = self.state.load().notice_of(instance_id)
        if notice is not None and is_anothers(notice, claimed_by):
            return superseded
        key = f"{operation_of(instance_id)}:reinstatement"
        until = self.clock.now() + self.settings.join_limit_seconds
        count = WorkerCounter(self.ec2, self.clock)
        if self.state.reserve(key, count, maximum=self.settings.max_workers, until=until):
            self._uncordon(instance_id, node_name)
            lifted = self.state.remove_notice(instance_id, claimed_by=claimed_by)
            self.state.unreserve([key])
            if not lifted:
                return superseded
            return "uncordoned", f"{instance_id} was not taken and works again"
        if not drained:
            text = f"{instance_id} was not taken, but the fleet is full and it still has pods: decide by hand"
            return "kept", text
        return self._let_go(instance_id, node_name)

    def settle_orphans(self, notices: Sequence[Notice]) -> tuple[list[str], list[str]]:
        """Lift the notices that a dead execution was answering: what became of each, and why one still stands.

        Before the date of a Spot notice nothing is lifted: AWS is about to take the machine, and pods must not
        come back to it. A drain that the dead execution began goes on by itself.
        """
        settled: list[str] = []
        standing: list[str] = []
        for notice in notices:
            try:
                settled.append(self._orphan(notice))
            except NodeFleetError as error:
                standing.append(f"the notice of {notice.instance_id} still stands: {error}")
        return settled, standing

    def _orphan(self, notice: Notice) -> str:
        instance_id = notice.instance_id
        if self.ec2.states([instance_id])[instance_id] not in RUNNING_STATES:
            self.state.drop_notice(instance_id)
            return f"lifted the notice of {instance_id}, which is gone"
        left = notice.deadline - self.clock.now()
        if notice.kind == "spot" and left > 0:
            raise CleanUpUnfinishedError(f"AWS takes it in {left} s")
        status, detail = self.reinstate(instance_id, claimed_by=notice.claimed_by, node_name=instance_id, drained=False)
        if status == "kept":
            raise CleanUpUnfinishedError(detail)
        return detail

    def _let_go(self, instance_id: str, node_name: str) -> tuple[str, str]:
        """Minutes passed since the drain: it is looked at again, unless an earlier try has terminated it already."""
        if self.ec2.states([instance_id])[instance_id] in RUNNING_STATES:
            verdict = self._look(instance_id, node_name)
            if verdict.status != "drained":
                text = f"{instance_id} was not taken, and the fleet is full, but {verdict.detail}: decide by hand"
                return "kept", text
            self.ec2.terminate([instance_id])
        return "removed", f"{instance_id} was not taken, but its replacement took its place: terminated"

    def _look(self, instance_id: str, node_name: str) -> DrainVerdict:
        answer = self.server.run("CheckNode", {"NodeName": node_name})
        seen = parse_node_check(answer.stdout if answer.succeeded else "", node_name)
        target = Target(instance_id=instance_id, node_name=node_name)
        return judge_check(seen, target, operation_of(instance_id), dead=False, waited=1, limit=0)

    def _uncordon(self, instance_id: str, node_name: str) -> None:
        """Its own cordon, and one that a scale-down which has ended left behind; nobody else's."""
        result = self._uncordon_once(node_name, operation_of(instance_id))
        if result.word == "foreign-cordon" and result.detail.startswith(SCALE_DOWN):
            operation = self.state.load().operation
            if operation is None or operation.operation_id != result.detail:
                self._uncordon_once(node_name, result.detail)

    def _uncordon_once(self, node_name: str, operation_id: str) -> CommandResult:
        result: CommandResult = self.server.run("UncordonNode", {"NodeName": node_name, "OperationId": operation_id})
        if not result.succeeded or result.word not in GIVEN_BACK:
            said = f"{result.word} {result.detail}".strip() or f"SSM says {result.status}"
            raise ServerUnreachableError(f"node {node_name} may still be cordoned by us: {said}")
        return result
