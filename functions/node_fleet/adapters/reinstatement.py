"""Reinstates a worker that AWS did not reclaim: reserve capacity, uncordon the node, then lift the notice.

The fleet never exceeds its maximum. In a full fleet a drained worker is terminated, because its replacement runs; a
worker with pods is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node_fleet.adapters.launcher import WorkerCounter
from node_fleet.domain.interruption.closing import operator_advice
from node_fleet.domain.interruption.response import operation_of
from node_fleet.domain.model.errors import CleanUpUnfinishedError, NodeFleetError
from node_fleet.domain.model.fleet_state import FleetState, Notice
from node_fleet.domain.model.operation import Target
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight
from node_fleet.domain.scale_down.drain import judge_check
from node_fleet.domain.scale_up.launch import RUNNING_STATES

FULL = "the fleet is at its maximum or at a limit"


@value_class
class Reinstatement:
    """The services that reinstating a worker needs."""

    ec2: Any
    state: Any
    server: Any
    clock: Any
    settings: Any

    def reinstate(self, instance_id: str, *, claimed_by: str, node_name: str, drained: bool) -> tuple[str, str]:
        """The result ("uncordoned", "removed", "kept" or "superseded") and a sentence.

        Only the execution whose notice is stored may reinstate: AWS can announce the worker again at any time.

        Raises:
            ServerUnreachableError: the cordon may remain; the notice stays.
        """
        superseded = "superseded", f"another execution responds to a later notice of {instance_id}"
        notice = self.state.load().notice_of(instance_id)
        if notice is not None and notice.belongs_to_other(claimed_by):
            return superseded
        key = f"{operation_of(instance_id)}:reinstatement"
        until = self.clock.now() + self.settings.join_limit_seconds
        count, limits, most = WorkerCounter(self.ec2, self.clock), self.settings.limits(), self.settings.max_workers

        def weigh(state: FleetState) -> Weight | None:
            own = count.weight_of(instance_id, limits) if limits else NO_WEIGHT
            fits = limits is None or limits.admits(count.weight(state, limits), own)
            return own if fits else None

        if self.state.reserve(key, count, maximum=most, until=until, weigh=weigh):
            self._uncordon(instance_id, node_name)
            lifted = self.state.remove_notice(instance_id, claimed_by=claimed_by)
            self.state.unreserve([key])
            if not lifted:
                return superseded
            return "uncordoned", f"AWS did not reclaim {instance_id}; it is reinstated"
        if not drained:
            return "kept", f"AWS did not reclaim {instance_id}, but {FULL}, and pods run on the worker"
        return self._remove_drained(instance_id, node_name)

    def settle_notices(self, notices: Sequence[Notice]) -> tuple[list[str], list[str]]:
        """Settle the notices of a dead execution: the results, and the reasons why a notice stays.

        No notice is lifted before the date of a Spot notice: AWS is about to reclaim the instance, and no pods must be
        scheduled on it. A drain that the dead execution started continues.
        """
        settled: list[str] = []
        remaining: list[str] = []
        for notice in notices:
            try:
                settled.append(self._settle(notice))
            except NodeFleetError as error:
                remaining.append(f"{notice.instance_id} stays under interruption notice: {error}")
        return settled, remaining

    def _settle(self, notice: Notice) -> str:
        instance_id = notice.instance_id
        if not self._is_living(instance_id):
            self.state.drop_notice(instance_id)
            return f"lifted the notice of {instance_id}, which has ended"
        if not notice.is_due:
            self.state.drop_notice(instance_id)
            return (
                f"lifted the notice of {instance_id}; the response to it had not begun, and AWS changes it at its date"
            )
        left = notice.deadline - self.clock.now()
        if notice.kind == "spot" and left > 0:
            raise CleanUpUnfinishedError(f"AWS reclaims it in {left} s")
        status, detail = self.reinstate(instance_id, claimed_by=notice.claimed_by, node_name=instance_id, drained=False)
        if status == "kept":
            raise CleanUpUnfinishedError(f"{detail}; {operator_advice(instance_id)}")
        return detail

    def _remove_drained(self, instance_id: str, node_name: str) -> tuple[str, str]:
        """Check the node again, as minutes passed since the drain; an earlier try may have terminated the instance."""
        if self._is_living(instance_id):
            target = Target(instance_id=instance_id, node_name=node_name)
            check = self.server.check(node_name)
            verdict = judge_check(check, target, operation_of(instance_id), dead=False, waited=1, limit=0)
            if verdict.status != "drained":
                return "kept", f"AWS did not reclaim {instance_id}, but {FULL}, and {verdict.detail}"
            self.ec2.terminate([instance_id])
        return "removed", f"AWS did not reclaim {instance_id}; it is terminated because its replacement runs"

    def _is_living(self, instance_id: str) -> bool:
        return self.ec2.states([instance_id])[instance_id] in RUNNING_STATES

    def _uncordon(self, instance_id: str, node_name: str) -> None:
        """Remove this operation's cordon, or one that an ended operation left; never any other cordon (owner "-").

        Without a node of that name, those that EC2 allows are tried: a dead execution leaves no name.
        """
        found = self.ec2.find([instance_id]).get(instance_id)
        for name in dict.fromkeys((node_name, *(found.node_names if found else ()))):
            result = self.server.ensure_uncordoned(name, operation_of(instance_id))
            if result.word == "foreign-cordon" and result.detail != "-":
                operation = self.state.load().operation
                if operation is None or operation.operation_id != result.detail:
                    self.server.ensure_uncordoned(name, result.detail)
            if result.word != "no-node":
                return
