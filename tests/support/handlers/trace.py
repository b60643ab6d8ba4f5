"""The steps of one call of a handler, in order: each proof of the lease, each check by the server, each change."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

from node_fleet.adapters.dynamodb import to_attributes
from node_fleet.adapters.ec2 import Ec2Fleet
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.operation import LaunchRequest
from node_fleet.domain.scale_up.requests import LaunchAnswer, slots_tag
from tests.support.handlers.bench import Bench

CHECKS = ("InspectNodes", "CheckNode")
"""The commands that change nothing. Each can take most of a minute, in which the lease can be lost."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; target: the instances, the node or the slot that a change is about."""

    kind: Literal["proof", "check", "change"]
    what: str
    target: str = ""


@dataclass
class Trace:
    """What the handler did."""

    steps: list[Step] = field(default_factory=list)
    proofs: int = 0

    def add(self, kind: Literal["proof", "check", "change"], what: str, target: str = "") -> None:
        self.steps.append(Step(kind, what, target))

    @property
    def changes(self) -> list[Step]:
        return [step for step in self.steps if step.kind == "change"]

    def changes_before_proof(self, number: int) -> list[Step]:
        """The changes that precede the proof of that number; every change when there are fewer proofs."""
        at = [n for n, step in enumerate(self.steps) if step.kind == "proof"]
        end = at[number] if number < len(at) else len(self.steps)
        return [step for step in self.steps[:end] if step.kind == "change"]

    def without_proof(self) -> list[Step]:
        """The changes that break the rule of the lease: one proof covers the changes of one target until a check."""
        found: list[Step] = []
        covered: str | None = None
        is_fresh = False
        for step in self.steps:
            if step.kind != "change":
                is_fresh, covered = step.kind == "proof", None
            elif is_fresh:
                is_fresh, covered = False, step.target
            elif step.target != covered:
                found.append(step)
        return found


def take_lease(fleet: Bench) -> None:
    """Another run takes the lock, as it does when the lease of this one has expired."""
    now = int(fleet.clock.now())
    values = {":owner": "another run", ":now": now, ":until": now + fleet.settings.lease_seconds, ":one": 1, ":zero": 0}
    fleet.cloud.client("dynamodb").update_item(
        TableName=fleet.settings.state_table,
        Key={"cluster_id": {"S": fleet.settings.cluster_id}},
        UpdateExpression="SET lock_owner = :owner, lock_acquired_at = :now, lock_expires_at = :until, "
        "lock_fence = if_not_exists(lock_fence, :zero) + :one",
        ExpressionAttributeValues=to_attributes(values),
    )


@contextlib.contextmanager
def traced(fleet: Bench, *, lost_before: int = -1, dropped: Collection[int] = ()) -> Iterator[Trace]:
    """Record what a handler does.

    lost_before: the number of the proof before which another run takes the lease. dropped: the numbers of the proofs
    that are not made, as if the handler forgot them: their write has no condition on the lease.
    """
    trace = Trace()
    with (
        mock.patch.object(StateStore, "_owned", _proofs(fleet, trace, lost_before, dropped)),
        mock.patch.multiple(Ec2Fleet, **_ec2_changes(trace)),
        mock.patch.multiple(fleet.server, **_commands(fleet, trace)),
    ):
        yield trace


def _proofs(fleet: Bench, trace: Trace, lost_before: int, dropped: Collection[int]) -> Any:
    write = StateStore._owned

    def owned(
        store: StateStore,
        run: Any,
        expression: str,
        values: Any,
        names: Any = None,
        *,
        action: str,
        condition: str = "",
        **more: Any,
    ) -> dict[str, Any]:
        number = trace.proofs
        trace.proofs += 1
        if number == lost_before:
            take_lease(fleet)
        if number in dropped:
            returned = more.get("returned", "NONE")
            return store._update(expression, condition, values, names, action=action, returned=returned)
        answer = write(store, run, expression, values, names, action=action, condition=condition, **more)
        trace.add("proof", action)
        return answer

    return owned


def _ec2_changes(trace: Trace) -> dict[str, Any]:
    launch, tag, terminate, start = Ec2Fleet.launch, Ec2Fleet.tag, Ec2Fleet.terminate, Ec2Fleet.start

    def launched(ec2: Ec2Fleet, request: LaunchRequest, *, operation_id: str, **more: Any) -> LaunchAnswer:
        trace.add("change", "launch", f"{slots_tag(request)} {request.zone} {request.types} {request.market}")
        return launch(ec2, request, operation_id=operation_id, **more)

    def tagged(ec2: Ec2Fleet, ids: Iterable[str], tags: dict[str, str]) -> None:
        named = list(ids)
        if named:
            trace.add("change", "tag", " ".join(named))
        tag(ec2, named, tags)

    def terminated(ec2: Ec2Fleet, ids: Iterable[str]) -> None:
        named = list(ids)
        if named:
            trace.add("change", "terminate", " ".join(named))
        terminate(ec2, named)

    def started(ec2: Ec2Fleet, instance_id: str) -> None:
        trace.add("change", "start", instance_id)
        start(ec2, instance_id)

    return {"launch": launched, "tag": tagged, "terminate": terminated, "start": started}


def _commands(fleet: Bench, trace: Trace) -> dict[str, Any]:
    send, cancel = fleet.server.send, fleet.server.cancel

    def sent(document: str, parameters: dict[str, str]) -> str:
        trace.add("check" if document in CHECKS else "change", document, parameters.get("NodeName", ""))
        return send(document, parameters)

    def cancelled(command_id: str) -> None:
        operation = fleet.state().operation
        node = operation.current.node_name if operation and operation.current else ""
        trace.add("change", "cancel", node)
        cancel(command_id)

    return {"send": sent, "cancel": cancelled}
