"""The record of one scale-up or scale-down in progress, and the state at which a later run resumes it.

Phases follow begin, record, verify, complete, fail; scale-down goes through draining, terminating, forgetting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from node_fleet.domain.model.budget import Reason
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.snapshot import Market
from node_fleet.domain.model.standby import PREFIX
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import NO_WEIGHT, Weight

Kind = Literal["scale_up", "scale_down"]
UpPhase = Literal["begin", "record", "verify", "fail"]
DownPhase = Literal["draining", "terminating", "forgetting", "fail"]
ReplaceReason = Literal["", "drifted", "expired", "unhealthy", "on-demand"]
SlotOutcome = Literal["planned", "launched", "joined", "unjoined", "failed"]
Hibernate = Literal["", "drain", "end"]
TargetPhase = Literal[
    "selected",
    "draining",
    "drained",
    "terminating",
    "terminated",
    "forgotten",
    "set_aside",
    "rebooting",
    "rebooted",
    "undone",
    "skipped",
]

REMOVED_TARGET_PHASES: frozenset[str] = frozenset({"forgotten", "set_aside"})
TERMINATION_BEGUN: frozenset[str] = REMOVED_TARGET_PHASES | {"terminating", "terminated"}
_MAY_BE_CORDONED = ("selected", "draining", "drained", "rebooting")
FINISHED_TARGET_PHASES = REMOVED_TARGET_PHASES | {"rebooted", "undone", "skipped"}


@value_class
class LaunchSlot:
    """One worker to launch: zone, type and market, and its outcome. `attempt` counts the requests sent for it so far.

    instance_type: the best type until EC2 has chosen one. end_code, end_message: the state reason of an instance that
    ended before it joined. pools: "zone/type/market" of the only pools that may serve, because pending pods need them;
    empty: every pool. types: the types that suit equally, best first; empty: the configured ones. smaller_types: those
    that are tried when no other pool of the market has capacity; avoid: pools that are tried after these. console: the
    end of the console output of an instance that did not join. weight: the most that its instance may take of the
    limits in money and vCPUs, which is reserved; empty: no limit. standby: the standby worker that is started for it;
    empty after EC2 refused that. planned: "zone/type/market" of the launch that then takes its place.
    """

    number: int
    zone: str
    subnet_id: str
    instance_type: str
    market: Market
    attempt: int = 0
    outcome: SlotOutcome = "planned"
    instance_id: str = ""
    launched_at: int = 0
    joined_at: int = 0
    detail: str = ""
    disputed: bool = False
    end_code: str = ""
    end_message: str = ""
    pools: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    smaller_types: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    console: str = ""
    weight: Weight = NO_WEIGHT
    standby: str = ""
    planned: str = ""

    @property
    def is_started(self) -> bool:
        """Whether a standby worker was started for it."""
        return bool(self.standby) and self.instance_id == self.standby


@value_class
class LaunchRequest:
    """One request for instances in one zone and market, an instance for each slot. EC2 chooses among the types.

    types: best first. attempt: the number of requests that were sent for the first of the slots before.
    """

    slots: tuple[int, ...]
    zone: str
    subnet_id: str
    market: Market
    types: tuple[str, ...]
    attempt: int = 0


@value_class
class Target:
    """One worker to remove, and its progress. `detail` is for operators.

    not_ready: the worker has been NotReady for so long that its pods are lost and their end cannot be confirmed.
    standby: it is stopped as a standby worker instead of terminated.
    """

    instance_id: str
    node_name: str
    zone: str = ""
    market: Market = "on-demand"
    phase: TargetPhase = "selected"
    command_id: str = ""
    started_at: int = 0
    detail: str = ""
    not_ready: bool = False
    standby: bool = False


@value_class
class Operation:
    """A scale-up (slots) or scale-down (targets) that is not closed yet. Times are epoch seconds.

    dry_pools: capacity pools that this operation found without capacity. request: the one that may have been sent and
    whose answer is not recorded. replaces: the outdated worker that the launched worker replaces, or that is removed
    because it is outdated; replace_reason: why. template_version: of the launch template, empty: the configured one.
    reboot: its worker is drained, rebooted and uncordoned instead of removed. hibernate: the fleet is switched off, so
    no minimum holds; "end" ends its workers without a drain.
    """

    operation_id: str
    kind: Kind
    phase: UpPhase | DownPhase
    started_at: int
    requested: int
    reason: str
    execution_id: str
    slots: tuple[LaunchSlot, ...] = ()
    targets: tuple[Target, ...] = ()
    workers_before: int = 0
    phase_at: int = 0
    dry_pools: tuple[PoolBackOff, ...] = ()
    request: LaunchRequest | None = None
    replaces: str = ""
    replace_reason: ReplaceReason = ""
    template_version: str = ""
    reboot: bool = False
    hibernate: Hibernate = ""

    @property
    def instance_ids(self) -> tuple[str, ...]:
        """Every instance that this operation launched or removes, in slot or target order."""
        ids = [s.instance_id for s in self.slots] + [t.instance_id for t in self.targets]
        return tuple(i for i in ids if i)

    @property
    def for_standby(self) -> bool:
        """Whether it only changes the number of standby workers: no cooldown follows."""
        return self.operation_id.startswith(PREFIX)

    @property
    def budget_reason(self) -> Reason:
        """The reason that a disruption budget names for its removals."""
        return self.replace_reason or "idle"

    @property
    def joined(self) -> tuple[LaunchSlot, ...]:
        """Slots whose worker is usable."""
        return tuple(s for s in self.slots if s.outcome == "joined")

    @property
    def waiting(self) -> tuple[LaunchSlot, ...]:
        """Slots whose instance runs and may still join."""
        return tuple(s for s in self.slots if s.outcome == "launched")

    @property
    def current(self) -> Target | None:
        """The target in progress: the first that is not finished."""
        return next((t for t in self.targets if t.phase not in FINISHED_TARGET_PHASES), None)

    @property
    def removed(self) -> tuple[Target, ...]:
        """Targets that were drained and terminated; those whose instance does not end are set aside."""
        return tuple(t for t in self.targets if t.phase in REMOVED_TARGET_PHASES)

    @property
    def rebooted(self) -> tuple[Target, ...]:
        """Targets whose reboot is recorded: it may have been sent, and is never sent again."""
        return tuple(t for t in self.targets if t.phase in ("rebooting", "rebooted"))

    def with_slot(self, slot: LaunchSlot) -> Operation:
        """The same operation with the slot of that number replaced."""
        return replace(self, slots=tuple(slot if s.number == slot.number else s for s in self.slots))

    def with_target(self, target: Target) -> Operation:
        """The same operation with the target of that instance replaced."""
        return replace(self, targets=tuple(target if t.instance_id == target.instance_id else t for t in self.targets))

    def without_the_rest(self, why: str) -> Operation:
        """The same operation without the targets that it has not begun."""
        targets = (replace(t, phase="skipped", detail=why) if t.phase == "selected" else t for t in self.targets)
        return replace(self, targets=tuple(targets))


def resume_state(operation: Operation | None, *, now: int, limit_seconds: int) -> str:
    """Name of the state at which a run resumes an unfinished operation; empty without one.

    An operation older than limit_seconds, or in phase fail after the clean-up, is closed instead: a scale-up through
    AbandonUnjoined, which keeps the workers that joined, a scale-down through UndoDrain. A termination that has begun
    is always completed, and the node of a worker that may have been rebooted is uncordoned.
    """
    if operation is None:
        return ""
    expired = operation.phase == "fail" or now - operation.started_at > limit_seconds
    if operation.kind == "scale_up":
        return _resume_scale_up(operation, expired=expired)
    return _resume_scale_down(operation, expired=expired)


def _resume_scale_up(operation: Operation, *, expired: bool) -> str:
    if expired:
        return "AbandonUnjoined"
    return "CheckJoin" if operation.phase == "verify" else "LaunchNodes"


def _resume_scale_down(operation: Operation, *, expired: bool) -> str:
    target = operation.current
    if target is None:
        return "CompleteScaleDown"
    if target.phase == "terminated":
        return "ForgetNodes"
    if target.phase in ("terminating", "rebooting"):
        return "ConfirmTermination"
    if expired:
        return "UndoDrain"
    return {"selected": "StartDrain", "draining": "CheckDrain", "drained": "TerminateNodes"}[target.phase]


def may_close(operation: Operation, dead_execution_id: str) -> bool:
    """True for an operation that the dead execution began and that can be given up without loss.

    An operation whose instance is being terminated or rebooted stays open for the next run, which deletes or uncordons
    the node; so does one that the dead execution resumed from another execution.
    """
    unfinished = any(t.phase in ("terminating", "terminated", "rebooting") for t in operation.targets)
    return operation.execution_id == dead_execution_id and not unfinished


def given_up(operation: Operation) -> Operation:
    """The operation in phase fail: every later run only rolls it back."""
    return replace(operation, phase="fail")


def cordons_to_undo(operation: Operation) -> tuple[Target, ...]:
    """Targets that this operation may have cordoned and that still run: at most the current one.

    A drain may have been sent before it was recorded, so a target that is only selected counts too.
    """
    target = operation.current
    return (target,) if target is not None and target.phase in _MAY_BE_CORDONED else ()
