"""What one decision leaves for the next: runs of readings, holds, launches to judge, alerts already told.

Nothing here decides; the store keeps what comes back.
"""

from __future__ import annotations

from dataclasses import replace

from node_fleet.domain.model.back_off import node_key
from node_fleet.domain.model.memory import AdaptiveMemory, BackOff, Memory, ReadingPoint, Streak
from node_fleet.domain.scaling.alerts import missing_names
from node_fleet.domain.scaling.predicted_demand import PredictedDemand
from node_fleet.domain.scaling.signals.pending_pods import Demand, remember_launch
from node_fleet.domain.scaling.signals.sustained import advance
from node_fleet.domain.scaling.tick import Tick, known


def remembered(
    view: Tick,
    streaks: dict[str, Streak],
    *,
    demand: Demand | None,
    launching: bool,
    foreseen: PredictedDemand,
    fresh: dict[str, int],
    alerted: dict[str, int],
    learned: AdaptiveMemory | None = None,
) -> Memory:
    """The memory after this decision. What a finished action leaves is added by outcome.py."""
    before = view.memory
    launched_for, not_helped = before.launched_for, before.not_helped
    if demand:
        launched_for = remember_launch(demand, view.now) if launching and demand.left else demand.launched_for
        not_helped = dict(demand.not_helped)
    return replace(
        before,
        since=streaks if view.readable else _kept_streaks(view),
        readings=_readings(view),
        predictive_hold_until=foreseen.hold_until,
        predictive_hold_workers=foreseen.hold_workers,
        predicted_hour=foreseen.hour_judged,
        launched_for=launched_for,
        not_helped=not_helped,
        back_offs=_kept_back_offs(view),
        fresh=fresh,
        alerted=alerted,
        learned=learned or before.learned,
    )


def note_missing(view: Tick, streaks: dict[str, Streak]) -> None:
    """Keep the run of readings that lacked something with the others, so that people hear of a lasting gap."""
    gone = view.readable and bool(missing_names(view))
    gap = view.policy.reading_gap_seconds
    streak = advance(view.memory.since.get("missing"), holds=gone, at=view.read_at, gap_seconds=gap)
    if streak:
        streaks["missing"] = streak


def _kept_streaks(view: Tick) -> dict[str, Streak]:
    """Without a reading the runs stand still until the gap ends them; only the idle clock starts again."""
    gap = view.policy.reading_gap_seconds
    return {name: s for name, s in view.memory.since.items() if name != "idle" and view.now - s.last <= gap}


def _kept_back_offs(view: Tick) -> tuple[BackOff, ...]:
    """All but those of workers that are gone."""
    if not (before := view.memory.back_offs):
        return before
    ids = {node_key(w.instance_id) for w in view.snapshot.workers}
    return tuple(b for b in before if not b.key.startswith(node_key("")) or b.key in ids)


def _readings(view: Tick) -> tuple[ReadingPoint, ...]:
    snapshot, past = view.snapshot, view.memory.readings
    if not view.live or (past and past[-1].at >= view.read_at):
        return past
    point = ReadingPoint(
        at=view.read_at,
        cpu_percent=known(snapshot.cpu_percent),
        memory_percent=known(snapshot.memory_percent),
        pending=snapshot.pending_count,
        usable=len(view.usable),
    )
    return (*past, point)[-view.policy.readings_kept :]


def newly_usable(view: Tick) -> dict[str, int]:
    """Instance -> when it was first known usable, for workers launched a short while ago only."""
    policy, known_before = view.policy, view.memory.fresh
    recent = view.now - policy.join_limit_seconds - policy.scheduling_grace_seconds - policy.reading_gap_seconds
    return {w.instance_id: known_before.get(w.instance_id, view.now) for w in view.usable if w.launched_at >= recent}
