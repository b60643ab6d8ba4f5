"""The memory after a decision and after an operation. The state store keeps what these functions return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import BackOff, Memory, ReadingPoint, Replacement, RollOut, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.standby import STANDBY
from node_fleet.domain.scaling.alerts import missing_names
from node_fleet.domain.scaling.check import DesiredChange
from node_fleet.domain.scaling.prediction import Prediction
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, add_launch, plain_owners
from node_fleet.domain.scaling.signals.sustained import advance_streak
from node_fleet.domain.scaling.tick import Tick, finite

if TYPE_CHECKING:
    from node_fleet.domain.model.operation import Operation

REBOOTS_KEPT = 20
"""Reboots that are remembered, the newest ones."""


def update_memory(
    tick: Tick,
    change: DesiredChange,
    *,
    pending_pods: PendingPods | None,
    launching: bool,
    prediction: Prediction,
    fresh: dict[str, int],
    alerted: dict[str, int],
    roll_out: RollOut,
) -> Memory:
    """The memory after this decision. The end of the operation adds record_success or record_failure.

    It names every field: `replace` takes more than twice the time, in each decision of a back-test.
    """
    before = _with_spot_hours(tick)
    launched_for, not_helped = before.launched_for, before.not_helped
    if pending_pods:
        launched_for, not_helped = pending_pods.launched_for, dict(pending_pods.not_helped)
        if launching and pending_pods.left:
            launched_for = add_launch(pending_pods, tick.now)
    return Memory(
        last_action=before.last_action,
        last_action_at=before.last_action_at,
        last_reason=before.last_reason,
        since=change.streaks if tick.readable else _kept_streaks(tick),
        readings=_readings(tick),
        predictive_hold_until=prediction.hold_until,
        predictive_hold_workers=prediction.hold_workers,
        predicted_hour=prediction.hour_judged,
        dry_pools=before.dry_pools,
        back_offs=_kept_back_offs(tick),
        not_helped=not_helped,
        launched_for=launched_for,
        plain_owners=plain_owners(tick),
        alerted=alerted,
        suspects=before.suspects,
        fresh=fresh,
        learned=change.learned or before.learned,
        launch_image=tick.snapshot.launch_image,
        roll_out=roll_out,
        totals=before.totals,
        succeeded_at=before.succeeded_at,
        rebooted=_kept_reboots(tick),
        spot_pools=before.spot_pools,
        spot_at=before.spot_at,
        unsent=before.unsent,
    )


def _with_spot_hours(tick: Tick) -> Memory:
    """The memory with the hours of the Spot workers; without what it knows of pools where nothing is learned."""
    memory = tick.memory
    if tick.policy.spot_learning == "off":
        return replace(memory, spot_pools=(), spot_at=0) if memory.spot_at or memory.spot_pools else memory
    from node_fleet.domain.model.spot_pools import add_hours  # few fleets need it: every start loads this module

    return add_hours(memory, tick.snapshot.workers, tick.now)


def track_missing_metrics(tick: Tick, streaks: dict[str, Streak]) -> None:
    """Count the readings in a row that lack something, for the alert metrics_missing."""
    advance_streak(tick, streaks, "missing", tick.readable and bool(missing_names(tick)))


def _kept_streaks(tick: Tick) -> dict[str, Streak]:
    """Without a reading, streaks stay until the gap ends them; only the idle time starts again."""
    gap = tick.policy.reading_gap_seconds
    return {name: s for name, s in tick.memory.since.items() if name != "idle" and tick.now - s.last <= gap}


def _kept_back_offs(tick: Tick) -> tuple[BackOff, ...]:
    """The back-offs without those of workers that no longer exist."""
    if not tick.memory.back_offs:
        return ()
    ids = {back_off.node_key(w.instance_id) for w in tick.snapshot.workers}
    ids |= {back_off.node_key(w.instance_id) for w in tick.snapshot.standby}
    return tuple(b for b in tick.memory.back_offs if not b.key.startswith(back_off.node_key("")) or b.key in ids)


def _kept_reboots(tick: Tick) -> dict[str, int]:
    """The reboots without those of workers that no longer exist."""
    if not tick.memory.rebooted:
        return {}
    ids = {w.instance_id for w in tick.snapshot.workers}
    return {i: at for i, at in tick.memory.rebooted.items() if i in ids}


def _readings(tick: Tick) -> tuple[ReadingPoint, ...]:
    snapshot, past = tick.snapshot, tick.memory.readings
    if not tick.live or (past and past[-1].at >= tick.read_at):
        return past
    point = ReadingPoint(
        at=tick.read_at,
        cpu_percent=finite(snapshot.cpu_percent),
        memory_percent=finite(snapshot.memory_percent),
        pending=snapshot.pending_count,
        usable=len(tick.usable),
    )
    return (*past, point)[-tick.policy.readings_kept :]


def newly_usable(tick: Tick) -> dict[str, int]:
    """Instance id -> when it was first seen usable (epoch), for recently launched workers."""
    policy, before = tick.policy, tick.memory.fresh
    recent = tick.now - policy.join_limit_seconds - policy.scheduling_grace_seconds - policy.reading_gap_seconds
    return {w.instance_id: before.get(w.instance_id, tick.now) for w in tick.usable if w.launched_at >= recent}


def record_success(
    memory: Memory,
    action: Literal["scale_up", "scale_down"],
    reason: str,
    at: int,
    *,
    joined: Mapping[str, int] | None = None,
) -> Memory:
    """The memory after an action that changed the worker count ended at `at` (epoch): the cooldown counts from then.

    joined: instance id -> when it became usable (epoch); the scheduling grace counts from then. A scale-up closes the
    circuit breaker.
    """
    over = (back_off.JOIN, back_off.SCALE_UP) if action == "scale_up" else (back_off.REMOVAL,)
    return replace(
        memory,
        last_action=action,
        last_action_at=at,
        last_reason=reason,
        back_offs=back_off.succeed(memory.back_offs, *over),
        fresh={**memory.fresh, **(joined or {})},
    )


def record_replacement(memory: Memory, operation: Operation, now: int) -> Memory:
    """The memory after a worker was launched for an outdated one: no cooldown starts, since the size is not to change.

    A launched instance whose join is unknown counts as the replacement too.
    """
    joined = {slot.instance_id: slot.joined_at for slot in operation.joined}
    launched = [*joined, *(slot.instance_id for slot in operation.waiting)]
    if not launched:
        return memory
    launching = (back_off.JOIN, back_off.SCALE_UP, back_off.SPOT)
    current = Replacement(
        worker=operation.replaces,
        reason=operation.replace_reason,
        replacement=launched[0],
        since=joined.get(launched[0], now),
    )
    return replace(
        memory,
        back_offs=back_off.succeed(memory.back_offs, *launching) if joined else memory.back_offs,
        fresh={**memory.fresh, **joined},
        roll_out=replace(memory.roll_out, current=current),
    )


def record_refill(memory: Memory, operation: Operation) -> Memory:
    """The memory after a worker was launched to become a standby worker: no cooldown starts."""
    joined = {slot.instance_id: slot.joined_at for slot in operation.joined}
    over = (back_off.JOIN, back_off.SCALE_UP) if joined else ()
    return replace(memory, back_offs=back_off.succeed(memory.back_offs, *over), fresh={**memory.fresh, **joined})


def record_stopped(memory: Memory) -> Memory:
    """The memory after a worker was stopped as a standby worker: launch and stop have both succeeded."""
    return replace(memory, back_offs=back_off.succeed(memory.back_offs, STANDBY))


def record_replaced(memory: Memory, operation: Operation, now: int) -> Memory:
    """The memory after the removal of an outdated worker. Without a replacement so far, one is to be launched."""
    current = memory.roll_out.current or Replacement(
        worker=operation.replaces, reason=operation.replace_reason, since=now
    )
    return replace(
        memory,
        back_offs=back_off.succeed(memory.back_offs, back_off.REMOVAL),
        roll_out=replace(memory.roll_out, current=current),
    )


def record_reboots(memory: Memory, operation: Operation, now: int) -> Memory:
    """The memory after an operation that rebooted a worker: no worker is rebooted a second time."""
    rebooted = {t.instance_id: now for t in operation.rebooted}
    kept = {i: at for i, at in memory.rebooted.items() if i not in rebooted}
    newest = sorted({**kept, **rebooted}.items(), key=lambda item: item[1])[-REBOOTS_KEPT:]
    return replace(memory, rebooted=dict(newest))


def record_failure(memory: Memory, key: str, at: int, policy: Policy, *, weight: int = 1) -> Memory:
    """The memory after a failure at `at` (epoch): a back-off for this key, and no cooldown."""
    return replace(memory, back_offs=back_off.fail(memory.back_offs, key, at, policy, weight=weight))


def reset_breaker(memory: Memory) -> Memory:
    """The memory after an operator fixed the cause: launches and removals are allowed again at once."""
    return replace(
        memory, back_offs=back_off.succeed(memory.back_offs, back_off.JOIN, back_off.SCALE_UP, back_off.REMOVAL)
    )
