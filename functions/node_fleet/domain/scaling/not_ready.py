"""The NotReady rule: a worker that stays NotReady is reported, then removed, one at a time.

The minimum and the scale-up rules launch its replacement; this rule waits until they ask for no worker.
"""

from __future__ import annotations

from node_fleet.domain.model import back_off
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.tick import Tick


def not_ready_too_long(tick: Tick) -> list[Worker]:
    """Workers that have been NotReady for NOT_READY_REPLACE_SECONDS or longer, the longest first."""
    limit = tick.policy.not_ready_replace_seconds
    found = [w for w in tick.not_ready if w.not_ready_seconds >= limit]
    return sorted(found, key=lambda w: (-w.not_ready_seconds, w.instance_id))


def evaluate_not_ready(tick: Tick, minimum: int) -> tuple[Worker | None, Check | None]:
    """The worker to remove and the check; no worker when none is eligible, no check when none is NotReady for long."""
    if not tick.live or not (found := not_ready_too_long(tick)):
        return None, None
    first, count, total = found[0], len(tick.not_ready), tick.counted
    if count * tick.policy.not_ready_one_in > total:
        text = f"{count} of {total} workers NotReady, more than one in {tick.policy.not_ready_one_in}: none is removed"
        return None, _check("hold", text, count, "NOT_READY_ONE_IN")
    if len(tick.usable) < minimum:
        text = f"{first.instance_id} NotReady for {first.not_ready_seconds} s, waits for its replacement"
        return None, _check("waiting", text, first.not_ready_seconds, "NOT_READY_REPLACE_SECONDS")
    for worker in found:
        if not back_off.active(tick.memory.back_offs, back_off.node_key(worker.instance_id), tick.now):
            text = f"{worker.instance_id} NotReady for {worker.not_ready_seconds} s"
            return worker, _check("down", text, worker.not_ready_seconds, "NOT_READY_REPLACE_SECONDS")
    text = f"{first.instance_id} NotReady, but its drain failed and is in back-off"
    return None, _check("blocked", text, first.not_ready_seconds, "DRAIN_BACK_OFF_SECONDS")


def _check(verdict: Verdict, text: str, value: float, setting: str) -> Check:
    return Check(name="not_ready", verdict=verdict, text=text, value=value, setting=setting)
