"""The effective minimum: the highest of min_workers, an open schedule window, an order for a time and a prediction."""

from __future__ import annotations

from dataclasses import dataclass

from node_fleet.domain.model.text import count_of, utc
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.schedule import open_window
from node_fleet.domain.scaling.tick import Tick

TIMED = "timed"
"""The rule that launches what an operator ordered for a time."""
SCALE = "node-fleet scale"
"""What stands in place of a setting: the command that orders and withdraws it."""


@dataclass(slots=True, kw_only=True)
class MinimumSize:
    """A minimum number of workers, the rule and the setting it comes from, and its text in a sentence."""

    workers: int
    rule: str
    text: str
    setting: str


def _served_at(tick: Tick) -> int:
    """The time whose schedule holds: the end of a time off while the fleet is started for it, else now."""
    policy = tick.policy
    if not policy.hibernate:
        return tick.now
    from node_fleet.domain.model.hibernation import Times  # few fleets are off at times

    end = Times(windows=policy.hibernate, timezone=policy.timezone).window_end(tick.now)
    return end if end - tick.now <= policy.hibernate_lead_seconds else tick.now


def effective_minimum(tick: Tick) -> MinimumSize:
    """The highest minimum in force, never above max_workers.

    Of equals, min_workers comes first, then the schedule, then the order of an operator.
    """
    policy, memory = tick.policy, tick.memory
    least = policy.min_workers
    minimums = [(least, "minimum", f"the minimum of {least}", "min_workers")]
    window = open_window(policy.schedules, policy.timezone, _served_at(tick))
    if window:
        text = f"the scheduled minimum of {window.minimum} ({window.text})"
        minimums.append((window.minimum, "schedule", text, "schedules"))
    if order := tick.snapshot.timed_minimum:
        text = f"the minimum of {order.workers} until {utc(order.until)} ({order.text})"
        minimums.append((order.workers, TIMED, text, SCALE))
    if policy.predictive and memory.predictive_hold_until > tick.now:
        held = memory.predictive_hold_workers
        minimums.append((held, "prediction", f"the predicted minimum of {held}", "predictive"))
    workers, rule, text, setting = max(minimums, key=lambda m: m[0])
    return MinimumSize(workers=min(workers, policy.max_workers), rule=rule, text=text, setting=setting)


def timed_check(tick: Tick) -> Check | None:
    """The order that holds now, for the evidence of a decision; None without one."""
    order = tick.snapshot.timed_minimum
    if order is None:
        return None
    text = f"at least {count_of(order.workers, 'worker')} until {utc(order.until)} ({order.text})"
    return Check(
        name=TIMED, verdict="ok", text=text, value=tick.have, threshold=order.workers, setting=SCALE, aside=True
    )
