"""The NotReady path: a worker that has been NotReady for long is reported, then removed, one at a time.

Its replacement is the floor's and the load's business; this rule only waits until they are content.
"""

from __future__ import annotations

from node_fleet.domain.model import back_off
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.tick import Tick


def not_ready_too_long(tick: Tick) -> list[Worker]:
    """Workers that have been NotReady for the limit or longer, the longest first."""
    limit = tick.policy.not_ready_replace_seconds
    found = [w for w in tick.not_ready if w.not_ready_seconds >= limit]
    return sorted(found, key=lambda w: (-w.not_ready_seconds, w.instance_id))


def evaluate_not_ready(tick: Tick, minimum: int) -> tuple[Worker | None, Check | None]:
    """The worker to remove, if one may go now, and what was weighed; nothing when none is NotReady for long."""
    if not tick.live or not (found := not_ready_too_long(tick)):
        return None, None
    count, total = len(tick.not_ready), tick.counted
    if count * tick.policy.not_ready_one_in > total:
        text = f"{count} of {total} workers NotReady, more than one in {tick.policy.not_ready_one_in}: none is removed"
        return None, _check("hold", text, count, "NOT_READY_ONE_IN")
    if len(tick.usable) < minimum:
        text = f"{found[0].instance_id} NotReady for {found[0].not_ready_seconds} s, waits for its replacement"
        return None, _check("waiting", text, found[0].not_ready_seconds, "NOT_READY_REPLACE_SECONDS")
    now, back_offs = tick.now, tick.memory.back_offs
    target = next((w for w in found if not back_off.active(back_offs, back_off.node_key(w.instance_id), now)), None)
    if target is None:
        text = f"{found[0].instance_id} NotReady, but its last drain failed a short time ago"
        return None, _check("blocked", text, found[0].not_ready_seconds, "DRAIN_BACK_OFF_SECONDS")
    text = f"{target.instance_id} NotReady for {target.not_ready_seconds} s"
    return target, _check("down", text, target.not_ready_seconds, "NOT_READY_REPLACE_SECONDS")


def _check(verdict: Verdict, text: str, value: float, setting: str) -> Check:
    return Check(name="not_ready", verdict=verdict, text=text, value=value, setting=setting)
