"""When the next action is allowed: cooldowns count from the last successful action, back-offs from a failure."""

from __future__ import annotations

from node_fleet.domain.model import back_off
from node_fleet.domain.model.text import count_of, span
from node_fleet.domain.scaling.check import Action, Check
from node_fleet.domain.scaling.tick import Tick


def evaluate_cooldown(tick: Tick, action: Action) -> Check:
    """Whether the cooldown before this action is over; the verdict is "blocked" while it lasts."""
    memory, policy = tick.memory, tick.policy
    counted = memory.last_action if policy.cooldown_by == "last" else action
    up = counted != "scale_down"
    seconds = policy.cooldown_up_seconds if up else policy.cooldown_down_seconds
    setting = "cooldown_up_seconds" if up else "cooldown_down_seconds"
    if not memory.last_action_at:
        return Check(name="cooldown", verdict="ok", text="no earlier action", threshold=seconds, setting=setting)
    elapsed = tick.now - memory.last_action_at
    blocked = elapsed < seconds
    return Check(
        name="cooldown",
        verdict="blocked" if blocked else "ok",
        text=f"cooldown {seconds - elapsed} s left of {seconds} s"
        if blocked
        else f"cooldown over for {elapsed - seconds} s",
        value=elapsed,
        threshold=seconds,
        setting=setting,
    )


def evaluate_launch_back_off(tick: Tick) -> Check | None:
    """What forbids every launch now, if anything: the open circuit breaker, or the back-off after a failed scale-up."""
    broken = back_off.active(tick.memory.back_offs, back_off.JOIN, tick.now)
    if broken:
        text = (
            f"circuit breaker open: {broken.failures} scale-ups in a row without a join, "
            f"next launch in {span(broken.until - tick.now)}"
        )
        return _blocked("circuit_breaker", text, broken.failures, "join_failures_to_open")
    failed = back_off.active(tick.memory.back_offs, back_off.SCALE_UP, tick.now)
    if failed:
        left = span(failed.until - tick.now)
        text = f"scale-up failed {count_of(failed.failures, 'time')} in a row, next try in {left}"
        return _blocked("back_off", text, failed.failures, "scale_up_back_off_seconds")
    return None


def evaluate_removal_back_off(tick: Tick) -> Check | None:
    """What forbids every removal now: the back-off after EC2 refused for good to terminate a worker."""
    refused = back_off.active(tick.memory.back_offs, back_off.REMOVAL, tick.now)
    if refused is None:
        return None
    text = f"EC2 refuses to terminate workers, next removal in {span(refused.until - tick.now)}"
    return _blocked("removal_back_off", text, refused.failures, "drain_back_off_seconds")


def evaluate_set_aside(tick: Tick) -> Check | None:
    """The removals that are set aside; the verdict is "hold" when there are so many that every removal pauses."""
    count, limit = len(tick.snapshot.set_aside), tick.policy.set_aside_limit
    if not count:
        return None
    text = f"{count_of(count, 'removal')} set aside"
    return Check(
        name="set_aside",
        verdict="hold" if count >= limit else "ok",
        text=f"{text}, removals pause" if count >= limit else text,
        value=count,
        threshold=limit,
        setting="set_aside_limit",
        aside=True,
    )


def _blocked(name: str, text: str, failures: int, setting: str) -> Check:
    return Check(name=name, verdict="blocked", text=text, value=failures, setting=setting)
