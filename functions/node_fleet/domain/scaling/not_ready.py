"""The NotReady rules. A worker that stays NotReady is reported, then removed, one at a time.

The minimum and the scale-up rules launch its replacement; the removal waits until they ask for no worker. When many
workers are NotReady in one reading, every launch waits for a second reading.
"""

from __future__ import annotations

from dataclasses import replace

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.signals.sustained import advance_streak, is_sustained
from node_fleet.domain.scaling.tick import Tick
from node_fleet.domain.scaling.unhealthy import may_reboot, recovering_text

MANY_NOT_READY = "many_not_ready"
READINGS = 2


def not_ready_too_long(tick: Tick) -> list[Worker]:
    """Workers that have been NotReady for not_ready_replace_seconds or longer, the longest first."""
    if not tick.not_ready:
        return []
    limit = tick.policy.not_ready_replace_seconds
    found = [w for w in tick.not_ready if w.not_ready_seconds >= limit]
    return sorted(found, key=lambda w: (-w.not_ready_seconds, w.instance_id))


def evaluate_not_ready(tick: Tick, minimum: int, many_ill: str = "") -> tuple[Worker | None, Check | None]:
    """The worker to remove and the check; no worker when none is eligible, no check when none is NotReady for long."""
    if not tick.live or not (found := not_ready_too_long(tick)):
        return None, None
    first, count, total = found[0], len(tick.not_ready), tick.counted
    if count * tick.policy.not_ready_one_in > total:
        text = f"{count} of {total} workers NotReady, more than one in {tick.policy.not_ready_one_in}: none is removed"
        return None, _check("hold", text, count, "not_ready_one_in")
    if many_ill:
        return None, _check("hold", f"{many_ill}: none is repaired", count, "repair_max_percent")
    if waits := recovering_text(tick):
        return None, _check("waiting", f"{first.instance_id} NotReady; {waits}", count, "reboot_wait_seconds")
    # A reboot takes no usable worker away.
    able = [w for w in found if len(tick.usable) >= minimum or may_reboot(tick, w)]
    if not able:
        text = f"{first.instance_id} NotReady for {first.not_ready_seconds} s, waits for its replacement"
        return None, _check("waiting", text, first.not_ready_seconds, "not_ready_replace_seconds")
    for worker in able:
        if not back_off.active(tick.memory.back_offs, back_off.node_key(worker.instance_id), tick.now):
            text = f"{worker.instance_id} NotReady for {worker.not_ready_seconds} s"
            text += ", rebooted first" if may_reboot(tick, worker) else ""
            return worker, _check("down", text, worker.not_ready_seconds, "not_ready_replace_seconds")
    text = f"{first.instance_id} NotReady, but its drain failed and is in back-off"
    return None, _check("blocked", text, first.not_ready_seconds, "drain_back_off_seconds")


def evaluate_many_not_ready(tick: Tick, streaks: dict[str, Streak]) -> Check | None:
    """The check that holds launches while only one reading shows that more than one worker in not_ready_one_in, and
    more than one at all, is NotReady. Their instances run, so the cause may be the server, the network or the exporter.
    """
    count, total = len(tick.not_ready), tick.counted
    are_many = count > 1 and count * tick.policy.not_ready_one_in > total
    streak = advance_streak(tick, streaks, MANY_NOT_READY, are_many if tick.readable else None)
    if not are_many or not tick.readable or is_sustained(streak, READINGS, tick.policy):
        return None
    text = f"{count} of {total} workers NotReady in one reading, a second reading must confirm it"
    check = _check("blocked", text, count, "not_ready_one_in")
    return replace(check, name=MANY_NOT_READY, readings=streak.readings if streak else 0, needed=READINGS)


def _check(verdict: Verdict, text: str, value: float, setting: str) -> Check:
    return Check(name="not_ready", verdict=verdict, text=text, value=value, setting=setting)
