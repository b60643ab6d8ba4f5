"""Repair: workers that run and are unhealthy for long, the limit above which the cause is likely shared, and reboots.

A worker that is NotReady has its own rule; here it counts towards the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import STATUS_CHECK, SYSTEM_CHECK, Snapshot, Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.signals.sustained import advance_streak
from node_fleet.domain.scaling.tick import Tick

MANY_UNHEALTHY = "many_unhealthy"
STATUS_SECONDS = 600
"""How often EC2 is asked while nothing is suspicious."""


def is_status_due(memory: Memory, now: int, interval_seconds: int) -> bool:
    """Every ten minutes, and in each tick while a worker is repaired, because its removal needs the reason again."""
    current = memory.roll_out.current
    return now % STATUS_SECONDS < interval_seconds or (current is not None and current.reason == "unhealthy")


def with_status_checks(snapshot: Snapshot, impaired: Mapping[str, str]) -> Snapshot:
    """The snapshot in which these instances have a failed status check. impaired: instance id -> the condition."""

    def checked(worker: Worker) -> Worker:
        if worker.instance_id not in impaired:
            return worker
        return replace(worker, conditions=(*worker.conditions, impaired[worker.instance_id]))

    return replace(snapshot, workers=tuple(checked(w) for w in snapshot.workers))


def track_conditions(tick: Tick, streaks: dict[str, Streak]) -> None:
    """Advance how long each worker has had a bad condition without a break."""
    for worker in tick.workers:
        if worker.conditions:
            advance_streak(tick, streaks, _key(worker), True if tick.live else None)


def unhealthy_words(tick: Tick, worker: Worker, streaks: Mapping[str, Streak]) -> str:
    """Why the worker is unhealthy, for example "DiskPressure for 1800 s"; empty for any other."""
    if not tick.policy.repair or not worker.conditions:
        return ""
    if checks := [c for c in worker.conditions if c in (STATUS_CHECK, SYSTEM_CHECK)]:
        return f"{', '.join(checks)} for at least {tick.policy.unhealthy_seconds} s"
    streak = streaks.get(_key(worker))
    seconds = streak.last - streak.since if streak else 0
    return f"{', '.join(worker.conditions)} for {seconds} s" if seconds >= tick.policy.unhealthy_seconds else ""


def may_reboot(tick: Tick, worker: Worker) -> bool:
    """Whether a reboot is tried before this unhealthy or NotReady worker is replaced: once in the life of a worker.

    A reboot keeps the host, so it does not help when the check of the host has failed. After a failed drain the worker
    is replaced: then its pods may find a place on the replacement.
    """
    tried = worker.instance_id in tick.memory.rebooted
    failed = any(b.key == back_off.node_key(worker.instance_id) for b in tick.memory.back_offs)
    wanted = tick.policy.repair and tick.policy.repair_reboot
    return wanted and not tried and not failed and SYSTEM_CHECK not in worker.conditions


def recovering(tick: Tick) -> dict[str, int]:
    """The rebooted workers that are not healthy yet, with the seconds that each has left for that."""
    if not tick.memory.rebooted:
        return {}
    until = {i: at + tick.policy.reboot_wait_seconds for i, at in tick.memory.rebooted.items()}
    ill = [w.instance_id for w in tick.workers if w.phase != "usable" or w.conditions]
    return {i: until[i] - tick.now for i in ill if until.get(i, 0) > tick.now}


def recovering_text(tick: Tick) -> str:
    """For example: i-0ab was rebooted and has 480 s left to become healthy; empty when no worker recovers."""
    found = recovering(tick)
    return "; ".join(f"{i} was rebooted and has {left} s left to become healthy" for i, left in found.items())


def many_unhealthy(tick: Tick, streaks: Mapping[str, Streak]) -> str:
    """The text when so many workers are unhealthy or NotReady for long that none is repaired; else empty."""
    limit = tick.policy.not_ready_replace_seconds
    found = [
        w.instance_id
        for w in tick.workers
        if (w.phase == "not_ready" and w.not_ready_seconds >= limit)
        or (w.conditions and unhealthy_words(tick, w, streaks))
    ]
    if len(found) < 2 or len(found) * 100 <= tick.counted * tick.policy.repair_max_percent:
        return ""
    return f"{len(found)} of {count_of(tick.counted, 'worker')} unhealthy, over {tick.policy.repair_max_percent:g} %"


def many_unhealthy_alert(text: str) -> Alert:
    """The one alert about them."""
    return Alert(
        kind=MANY_UNHEALTHY,
        text=f"{text}: node-fleet reboots and replaces none of them, because the cause is likely shared. Check the K3s "
        "server, the network, and what was deployed last. For the workers run: node-fleet explain. The limit is "
        "repair_max_percent",
    )


def _key(worker: Worker) -> str:
    return f"unhealthy:{worker.instance_id}"
