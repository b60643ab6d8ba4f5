"""Repair: workers that run and are unhealthy for long, and the limit above which the cause is likely shared.

A worker that is NotReady has its own rule; here it counts towards the limit.
"""

from __future__ import annotations

from collections.abc import Mapping

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import STATUS_CHECK, Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.signals.sustained import advance_streak
from node_fleet.domain.scaling.tick import Tick

MANY_UNHEALTHY = "many_unhealthy"


def track_conditions(tick: Tick, streaks: dict[str, Streak]) -> None:
    """Advance how long each worker has had a bad condition without a break."""
    for worker in tick.snapshot.counted:
        if worker.conditions:
            advance_streak(tick, streaks, _key(worker), True if tick.live else None)


def unhealthy_words(tick: Tick, worker: Worker, streaks: Mapping[str, Streak]) -> str:
    """Why the worker is unhealthy, for example "DiskPressure for 1800 s"; empty for any other."""
    if not tick.policy.repair or not worker.conditions:
        return ""
    if STATUS_CHECK in worker.conditions:
        return f"{STATUS_CHECK} for at least {tick.policy.unhealthy_seconds} s"
    streak = streaks.get(_key(worker))
    seconds = streak.last - streak.since if streak else 0
    return f"{', '.join(worker.conditions)} for {seconds} s" if seconds >= tick.policy.unhealthy_seconds else ""


def many_unhealthy(tick: Tick, streaks: Mapping[str, Streak]) -> str:
    """The text when so many workers are unhealthy or NotReady for long that none is repaired; else empty."""
    limit = tick.policy.not_ready_replace_seconds
    found = [
        w.instance_id
        for w in tick.snapshot.counted
        if (w.phase == "not_ready" and w.not_ready_seconds >= limit) or unhealthy_words(tick, w, streaks)
    ]
    if len(found) < 2 or len(found) * 100 <= tick.counted * tick.policy.repair_max_percent:
        return ""
    return f"{len(found)} of {count_of(tick.counted, 'worker')} unhealthy, over {tick.policy.repair_max_percent:g} %"


def many_unhealthy_alert(text: str) -> Alert:
    """The one alert about them."""
    return Alert(
        kind=MANY_UNHEALTHY,
        text=f"{text}: node-fleet replaces none of them, because the cause is likely shared. Check the K3s server, the "
        "network, and what was deployed last. For the workers run: node-fleet explain. The limit is repair_max_percent",
    )


def _key(worker: Worker) -> str:
    return f"unhealthy:{worker.instance_id}"
