"""Which workers are to be replaced although they run, why, and in which order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from node_fleet.domain.disruption.drift import expiry_words
from node_fleet.domain.model.budget import Reason
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.tick import Tick
from node_fleet.domain.scaling.unhealthy import many_unhealthy, recovering, recovering_text, unhealthy_words

SETTINGS: dict[Reason, str] = {
    "unhealthy": "unhealthy_seconds",
    "drifted": "drift",
    "expired": "expire_after_seconds",
    "on-demand": "spot_learning",
}
"""Reason to replace a worker that runs -> its setting, in the order in which workers are replaced."""


@value_class
class Outdated:
    """A worker that is to be replaced, and why."""

    worker: Worker
    reason: Literal["drifted", "expired", "unhealthy", "on-demand"]
    words: str

    @property
    def sentence(self) -> str:
        """For example: i-0ab drifted: launch template version 3, today 4."""
        return f"{self.worker.instance_id} {self.reason}: {self.words}"


def outdated_workers(tick: Tick, streaks: Mapping[str, Streak] | None = None) -> tuple[Outdated, ...]:
    """Unhealthy, drifted and expired workers, the oldest first, then returning ones, without those under notice.

    streaks: of this reading; without it, those that the memory holds. No worker counts as unhealthy while too many are,
    nor one that was just rebooted.
    """
    streaks = tick.memory.since if streaks is None else streaks
    rebooted, expires = recovering(tick), bool(tick.policy.expire_after_seconds)
    found: list[Outdated] = []
    has_conditions = any([worker.conditions for worker in tick.workers])
    repairs = has_conditions and tick.live and not many_unhealthy(tick, streaks)
    for worker in tick.workers:
        ill = repairs and worker.conditions and worker.instance_id not in rebooted
        if ill and (words := unhealthy_words(tick, worker, streaks)):
            found.append(Outdated(worker=worker, reason="unhealthy", words=words))
        elif worker.drift:
            found.append(Outdated(worker=worker, reason="drifted", words=worker.drift))
        elif expires and (words := expiry_words(worker, tick.policy, tick.now)):
            found.append(Outdated(worker=worker, reason="expired", words=words))
    order = list(SETTINGS)
    found.sort(key=lambda o: (order.index(o.reason), o.worker.launched_at, o.worker.instance_id))
    return (*found, *_returning(tick, {one.worker.instance_id for one in found}))


def _returning(tick: Tick, others: Collection[str]) -> list[Outdated]:
    """The On-Demand workers that may return to Spot, without those that are outdated for another reason."""
    if tick.policy.spot_learning != "return" or not tick.live:
        return []
    from node_fleet.domain.scaling.spot_return import returning_workers  # few fleets need it: every start loads this

    found = returning_workers(tick)
    return [Outdated(worker=w, reason="on-demand", words=text) for w, text in found if w.instance_id not in others]


def outdated_checks(tick: Tick, outdated: tuple[Outdated, ...]) -> list[Check]:
    """One check for each reason, which names the first worker and what is different, and one of rebooted workers."""
    checks = []
    for reason, setting in SETTINGS.items() if outdated else ():
        same = [o for o in outdated if o.reason == reason]
        if same:
            text = f"{len(same)} of {count_of(tick.counted, 'worker')} {reason}, first {same[0].sentence}"
            checks.append(Check(name=reason, verdict="ok", text=text, value=len(same), setting=setting, aside=True))
    if text := recovering_text(tick):
        checks.append(Check(name="reboot", verdict="ok", text=text, setting="reboot_wait_seconds", aside=True))
    return checks
