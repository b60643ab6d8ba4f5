"""A disruption budget: how many workers may be disrupted at once, for which reasons and when. Values only.

domain/disruption/budgets.py evaluates it.
"""

from __future__ import annotations

from typing import Literal, get_args

from node_fleet.domain.model.local_time import DailyWindow
from node_fleet.domain.model.value_class import value_class

Reason = Literal["idle", "drifted", "expired", "unhealthy", "on-demand"]
REASONS: tuple[Reason, ...] = get_args(Reason)


WindowKind = Literal["only", "never"]


@value_class
class RemovalWindow(DailyWindow):
    """A window of local time outside which ("only") or inside which ("never") no worker is disrupted."""

    kind: WindowKind


@value_class
class Budget:
    """At most `nodes` workers disrupted at once for `reasons`; without reasons for every one.

    nodes: a number such as "2", or a percentage of the workers such as "20%". It holds always; with a schedule (cron)
    for duration_seconds from each of its times; with `only` outside these windows; with `never` inside them.
    timezone: the IANA zone of schedule and windows; in a setting empty for timezone.
    """

    nodes: str
    reasons: tuple[Reason, ...] = ()
    schedule: str = ""
    duration_seconds: int = 0
    timezone: str = "UTC"
    only: tuple[DailyWindow, ...] = ()
    never: tuple[DailyWindow, ...] = ()

    def concerns(self, reason: Reason) -> bool:
        """Whether a disruption for that reason needs this budget."""
        return not self.reasons or reason in self.reasons

    def limit(self, workers: int) -> int:
        """The number of workers. A percentage is rounded up, as Karpenter does it: 10 % of 3 workers is 1."""
        if self.nodes.endswith("%"):
            return -(-workers * int(self.nodes[:-1]) // 100)
        return int(self.nodes)

    @property
    def windows(self) -> tuple[DailyWindow, ...]:
        """The windows that switch it on or off."""
        return self.only or self.never

    @property
    def is_always_active(self) -> bool:
        """True for a budget without schedule and windows."""
        return not (self.schedule or self.windows)

    @property
    def setting(self) -> str:
        """The name in cdk.json of the setting that it comes from."""
        return "removal_windows" if self.windows else "disruption_budgets"

    @property
    def text(self) -> str:
        """For example: at most 20% (drifted; '0 9 * * 1-5' for 8h, Asia/Dhaka)."""
        if self.windows:
            kind = "only" if self.only else "never"
            return f"removal windows '{kind}: {'; '.join(w.text for w in self.windows)}' ({self.timezone})"
        nodes = self.nodes if self.nodes.endswith("%") else f"{self.nodes} worker{'' if self.nodes == '1' else 's'}"
        notes = [", ".join(self.reasons)] if self.reasons else []
        if self.schedule:
            notes.append(f"'{self.schedule}' for {duration_text(self.duration_seconds)}, {self.timezone}")
        return f"at most {nodes} ({'; '.join(notes)})" if notes else f"at most {nodes}"


def duration_text(seconds: int) -> str:
    """The duration as it is given: 8h, 30m or 10h5m."""
    hours, minutes = divmod(seconds // 60, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes or not hours else "")
