"""The response to an interruption notice: what is drained and when, and which worker is launched instead.

A Spot warning leaves two minutes and a scheduled change days; many rebalance recommendations are followed by nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.interruption.announcement import Announcement, Kind
from node_fleet.domain.model.fleet_state import FleetState, Notice
from node_fleet.domain.model.instance_types import offered
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.policy import InterruptionTimes
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance, NewWorker
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.incident_state import incident_keys
from node_fleet.domain.notify.message import Message, level_of
from node_fleet.domain.scale_down.lost_volumes import LostVolume, lost_volumes_alert
from node_fleet.domain.scale_up.launch import mark_under_notice
from node_fleet.domain.scale_up.moved import moved_sentence
from node_fleet.domain.scale_up.placement import Placement, Pool, plan_slots

Path = Literal["respond", "wait", "forget", "notify"]
DrainMode = Literal["deadline", "voluntary", "none"]

MIN_DRAIN_SECONDS = 10
"""With less time left no drain is started."""
POLL_SECONDS = 5
MAX_DRAIN_CHECKS = 24
"""A drain of an hour is checked less often than one of two minutes: each check is nine history events, and one event
can name many workers."""
ENDED = ("shutting-down", "terminated")
"""EC2 states of an instance that never runs again."""
REASONS: dict[str, str] = {
    "spot": "AWS reclaims this Spot instance",
    "rebalance": "AWS recommends replacing this Spot instance",
    "scheduled": "AWS has scheduled a change of this instance",
    "gone": "the instance was terminated",
    "stopped": "the instance was stopped outside node-fleet",
}


@value_class
class Interruption:
    """The planned response for one worker, as the workflow's payload carries it.

    respond_time, drain_time and settle_time are timestamps for Wait states; drain_until is epoch seconds. path "wait":
    the response begins later, and until then the worker counts. moved: how noisy Spot pools changed the slot.
    """

    instance_id: str
    kind: Kind
    path: Path
    operation_id: str
    claimed_by: str
    why: str
    at: int
    respond_time: str = ""
    drain_mode: DrainMode = "none"
    drain_time: str = ""
    drain_until: int = 0
    settle_time: str = ""
    poll_seconds: int = POLL_SECONDS
    zone: str = ""
    market: str = ""
    slot: LaunchSlot | None = None
    moved: str = ""

    @property
    def event_key(self) -> str:
        """Key of this response's events; another execution about the same worker has another key."""
        return f"{self.operation_id}#{self.claimed_by.rpartition(':')[2]}"

    def with_slot(self, slot: LaunchSlot | None, moved: str = "") -> Interruption:
        """The response that begins now, with the place of its replacement."""
        return replace(self, path="respond", slot=slot, moved=moved)


@value_class
class DeadlineDrain:
    """Progress of the drain: "waiting", "drained", "failed" or "skipped"; started_at and until in epoch seconds.

    volumes: those that end with the worker, once the drain has ended.
    """

    status: str
    detail: str
    node_name: str = ""
    command_id: str = ""
    started_at: int = 0
    until: int = 0
    volumes: tuple[LostVolume, ...] = ()


@value_class
class Replacement:
    """Result of launching the replacement: "launched", "none" or "failed"."""

    status: str
    detail: str
    instance_id: str = ""


def operation_of(instance_id: str) -> str:
    """Id of the operation that responds for that instance: one id, however many notices arrive."""
    return f"int-{instance_id}"


def plan_response(
    announcement: Announcement,
    instance: Instance,
    *,
    claimed_by: str,
    now: int,
    times: InterruptionTimes,
    join_limit_seconds: int,
) -> Interruption:
    """The response for one claimed worker, without the slot of its replacement. A replacement joins in join_limit."""
    kind = announcement.kind
    assert kind is not None
    ended = kind == "gone" or instance.state in ENDED
    drain_at, drain_until, settle_at = _dates(announcement, now, times, join_limit_seconds)
    respond_at = drain_at - join_limit_seconds if kind == "scheduled" else now
    path: Path = "forget" if ended else "notify" if kind == "stopped" else "wait" if respond_at > now else "respond"
    mode: DrainMode = "voluntary" if kind == "rebalance" else "deadline"
    return Interruption(
        instance_id=instance.instance_id,
        kind=kind,
        path=path,
        operation_id=operation_of(instance.instance_id),
        claimed_by=claimed_by,
        why=REASONS[kind],
        at=announcement.at,
        respond_time=_iso(respond_at),
        drain_mode=mode if path in ("respond", "wait") else "none",
        drain_time=_iso(drain_at),
        drain_until=drain_until,
        poll_seconds=max(POLL_SECONDS, (drain_until - drain_at) // MAX_DRAIN_CHECKS),
        settle_time=_iso(settle_at),
        zone=instance.zone,
        market=instance.market,
    )


def replacement_slot(
    instance: Instance,
    instances: tuple[Instance, ...],
    state: FleetState,
    placement: Placement,
    *,
    now: int,
) -> LaunchSlot | None:
    """Where the replacement is launched: in another pool than the worker's; None when every pool is in back-off.

    Types that are smaller than the worker's come last, unless all are.
    """
    own_pool = Pool(instance.zone, instance.instance_type, instance.market)
    marked = mark_under_notice(
        instances, (*state.due_notices, Notice(instance_id=instance.instance_id, kind="", at=now))
    )
    as_large, smaller = _types_by_size(instance.instance_type, placement.instance_types)
    slots = plan_slots(
        1,
        marked,
        placement,
        back_offs=state.memory.dry_pools,
        now=now,
        avoid=(own_pool,),
        wanted=(NewWorker(types=as_large, smaller_types=smaller),) if smaller else (),
    )
    return slots[0] if slots else None


def with_replacement(
    planned: Interruption,
    instance: Instance,
    instances: tuple[Instance, ...],
    state: FleetState,
    placement: Placement,
    *,
    tariff: Tariff,
    now: int,
) -> Interruption:
    """The response that begins now, with the place of its replacement and what noisy Spot pools changed in it."""
    slot = replacement_slot(instance, instances, state, placement, now=now)
    if slot is None or not placement.noisy:
        return planned.with_slot(slot)
    usual = replacement_slot(instance, instances, state, replace(placement, noisy=frozenset()), now=now)
    return planned.with_slot(slot, moved_sentence((slot,), (usual,) if usual else (), placement.noisy, tariff))


def _types_by_size(instance_type: str, configured: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The configured types that offer pods as much as this one does, and the others; all types when each is smaller."""
    own = offered(instance_type)

    def is_smaller(kind: str) -> bool:
        other = offered(kind)
        return own is not None and other is not None and (other[0] < own[0] or other[1] < own[1])

    smaller = tuple(kind for kind in configured if is_smaller(kind))
    if len(smaller) == len(configured):
        return configured, ()
    return tuple(kind for kind in configured if kind not in smaller), smaller


def needs_no_replacement(operation: Operation | None, instance_id: str) -> bool:
    """True for a worker that a scale-down is already removing."""
    return operation is not None and any(
        target.instance_id == instance_id and target.phase not in ("undone", "skipped") for target in operation.targets
    )


def worker_to_replace(state: FleetState, instance_id: str) -> str:
    """The outdated worker that this instance was launched to replace, while nothing else removes it; else empty.

    While it runs, the fleet has its size without the instance: no run terminates it without a usable replacement.
    """
    current = state.memory.roll_out.current
    if current is None or current.replacement != instance_id or current.reason == "unhealthy":
        return ""
    is_leaving = current.worker in state.ids_under_notice or needs_no_replacement(state.operation, current.worker)
    return "" if is_leaving else current.worker


def replacement_operation(
    interruption: Interruption, slot: LaunchSlot, dry: tuple[PoolBackOff, ...], template_version: str = ""
) -> Operation:
    """The launch of one replacement. It is never stored; a repeated call finds the instance by its tags."""
    return Operation(
        operation_id=interruption.operation_id,
        kind="scale_up",
        phase="begin",
        started_at=interruption.at,
        requested=1,
        reason=interruption.why,
        execution_id=interruption.claimed_by,
        slots=(slot,),
        dry_pools=dry,
        template_version=template_version,
    )


def replacement_of(operation: Operation) -> Replacement:
    """The result of that launch."""
    slot = operation.slots[0]
    if not slot.instance_id:
        return Replacement(status="failed", detail=slot.detail or "not launched")
    text = f"{slot.instance_id} ({slot.instance_type} {slot.market} in {slot.zone})"
    status = "launched" if slot.outcome == "launched" else "failed"
    return Replacement(status=status, detail=f"{text} {slot.detail}".strip(), instance_id=slot.instance_id)


def reason_to_skip_drain(interruption: Interruption, state: FleetState, now: int) -> str:
    """Why the drain is not started; empty when it is."""
    notice = state.notice_of(interruption.instance_id)
    if notice is None:
        return "the notice was lifted meanwhile"
    if notice.belongs_to_other(interruption.claimed_by):
        return "another execution responds to a later notice"
    if pause := state.active_pause(now):
        return pause.sentence
    if interruption.drain_until - now < MIN_DRAIN_SECONDS:
        return f"too late: {max(0, interruption.drain_until - now)} s are left"
    return ""


def waiting_sentence(interruption: Interruption, deadline: int) -> str:
    """What happens to a worker whose change is far ahead, and when."""
    return (
        f"{interruption.why}: {interruption.instance_id} ({interruption.market}, {interruption.zone}), "
        f"{_iso(deadline)}; node-fleet replaces it at {interruption.respond_time} and drains it at "
        f"{interruption.drain_time}; until then it counts as a worker"
    )


def response_sentence(interruption: Interruption, drain: DeadlineDrain, replacement: Replacement) -> str:
    """What was done about the worker."""
    text = (
        f"{interruption.why}: {interruption.instance_id} ({interruption.market}, {interruption.zone}); "
        f"drain {drain.status}: {drain.detail}; replacement {replacement.status}: {replacement.detail}"
    )
    return f"{text}; {interruption.moved}" if interruption.moved else text


def interruption_alerts(
    interruption: Interruption, drain: DeadlineDrain, replacement: Replacement
) -> tuple[Alert, ...]:
    """An alert for a drain that failed and for a replacement that was not launched."""
    instance_id = interruption.instance_id
    alerts = [*lost_volumes_alert(instance_id, drain.volumes)]
    if drain.status == "failed":
        text = f"worker {instance_id} was not drained before its end; its pods stop with it: {drain.detail}"
        alerts.append(Alert(kind=f"drain_failed:{instance_id}", text=text))
    if replacement.status == "failed":
        text = (
            f"no replacement was launched for {instance_id}; the next tick counts it as missing: {replacement.detail}"
        )
        alerts.append(Alert(kind="replacement_failed", text=text))
    return tuple(alerts)


def interruption_message(
    interruption: Interruption, cluster_id: str, text: str, alerts: tuple[Alert, ...], *, is_end: bool = False
) -> Message:
    """The message about one interruption, which is one incident. is_end: the notice is settled."""
    return Message(
        cluster_id=cluster_id,
        level=level_of(alerts, "warning" if alerts else "info"),
        what=text,
        why=interruption.why,
        execution_id=interruption.claimed_by,
        trigger="interruption",
        alerts=alerts,
        incidents=(f"interruption:{interruption.instance_id}", *incident_keys(alerts)),
        is_end=is_end,
    )


def _dates(announcement: Announcement, now: int, times: InterruptionTimes, join_limit: int) -> tuple[int, int, int]:
    """When the drain starts, when it must have ended, and when EC2 is queried for the outcome."""
    if announcement.kind == "rebalance":
        begin = now + join_limit
        return begin, begin + join_limit, now + times.rebalance_hold_seconds
    if announcement.kind not in ("spot", "scheduled"):
        return now, now, now
    begin, until = now, announcement.deadline - times.interruption_margin_seconds
    if announcement.kind == "scheduled":
        begin = max(now + join_limit, announcement.deadline - times.scheduled_drain_lead_seconds)
        until = max(until, begin)
    return begin, until, announcement.deadline + times.interruption_settle_seconds


def _iso(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
