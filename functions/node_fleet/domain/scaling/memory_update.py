"""What one decision leaves for the next: runs of readings, holds, launches to judge, alerts already told.

Nothing here decides; the store keeps what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from node_fleet.domain.model import back_off
from node_fleet.domain.model.back_off import node_key
from node_fleet.domain.model.memory import AdaptiveMemory, BackOff, Memory, ReadingPoint, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.alerts import missing_names
from node_fleet.domain.scaling.prediction import Prediction
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, add_launch
from node_fleet.domain.scaling.signals.sustained import advance
from node_fleet.domain.scaling.tick import Tick, finite


def update_memory(
    tick: Tick,
    streaks: dict[str, Streak],
    *,
    pending_pods: PendingPods | None,
    launching: bool,
    prediction: Prediction,
    fresh: dict[str, int],
    alerted: dict[str, int],
    learned: AdaptiveMemory | None = None,
) -> Memory:
    """The memory after this decision. What a finished action leaves is added by outcome.py."""
    before = tick.memory
    launched_for, not_helped = before.launched_for, before.not_helped
    if pending_pods:
        launched_for = (
            add_launch(pending_pods, tick.now) if launching and pending_pods.left else pending_pods.launched_for
        )
        not_helped = dict(pending_pods.not_helped)
    return replace(
        before,
        since=streaks if tick.readable else _kept_streaks(tick),
        readings=_readings(tick),
        predictive_hold_until=prediction.hold_until,
        predictive_hold_workers=prediction.hold_workers,
        predicted_hour=prediction.hour_judged,
        launched_for=launched_for,
        not_helped=not_helped,
        back_offs=_kept_back_offs(tick),
        fresh=fresh,
        alerted=alerted,
        learned=learned or before.learned,
    )


def track_missing_metrics(tick: Tick, streaks: dict[str, Streak]) -> None:
    """Keep the run of readings that lacked something with the others, so that people hear of a lasting gap."""
    gone = tick.readable and bool(missing_names(tick))
    gap = tick.policy.reading_gap_seconds
    streak = advance(tick.memory.since.get("missing"), holds=gone, at=tick.read_at, gap_seconds=gap)
    if streak:
        streaks["missing"] = streak


def _kept_streaks(tick: Tick) -> dict[str, Streak]:
    """Without a reading the runs stand still until the gap ends them; only the idle clock starts again."""
    gap = tick.policy.reading_gap_seconds
    return {name: s for name, s in tick.memory.since.items() if name != "idle" and tick.now - s.last <= gap}


def _kept_back_offs(tick: Tick) -> tuple[BackOff, ...]:
    """All but those of workers that are gone."""
    if not (before := tick.memory.back_offs):
        return before
    ids = {node_key(w.instance_id) for w in tick.snapshot.workers}
    return tuple(b for b in before if not b.key.startswith(node_key("")) or b.key in ids)


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
    """Instance -> when it was first known usable, for workers launched a short while ago only."""
    policy, known_before = tick.policy, tick.memory.fresh
    recent = tick.now - policy.join_limit_seconds - policy.scheduling_grace_seconds - policy.reading_gap_seconds
    return {w.instance_id: known_before.get(w.instance_id, tick.now) for w in tick.usable if w.launched_at >= recent}


def record_success(
    memory: Memory,
    action: Literal["scale_up", "scale_down"],
    reason: str,
    at: int,
    *,
    joined: Mapping[str, int] | None = None,
) -> Memory:
    """An action that changed the worker count ended at `at`.

    joined: instance id -> epoch when it became usable, so that the scheduler's grace counts from then. A scale-up
    with a join closes the circuit breaker.
    """
    forgotten = (back_off.JOIN, back_off.SCALE_UP) if action == "scale_up" else ()
    return replace(
        memory,
        last_action=action,
        last_action_at=at,
        last_reason=reason,
        back_offs=back_off.succeed(memory.back_offs, *forgotten),
        fresh={**memory.fresh, **(joined or {})},
    )


def record_failure(memory: Memory, key: str, at: int, policy: Policy) -> Memory:
    """An action failed at `at`; key is `join`, `scale_up` or `node:ID`. Cooldowns are untouched."""
    return replace(memory, back_offs=back_off.fail(memory.back_offs, key, at, policy))


def reset_breaker(memory: Memory) -> Memory:
    """A person has mended the cause: launches are allowed again at once."""
    return replace(memory, back_offs=back_off.succeed(memory.back_offs, back_off.JOIN, back_off.SCALE_UP))
