"""What one decision leaves for the next, small enough for the state item. Values only: the rules fill and read them."""

from __future__ import annotations

from dataclasses import field, replace

from node_fleet.domain.model.k3s_version import is_newer
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import LaunchImage, Market
from node_fleet.domain.model.value_class import value_class


@value_class
class Streak:
    """How long, and over how many readings in a row, a condition has held."""

    since: int
    last: int
    readings: int


@value_class
class PoolBackOff:
    """A capacity pool in which EC2 refused to launch: in back-off until `until` (epoch seconds)."""

    zone: str
    instance_type: str
    market: Market
    until: int


@value_class
class SpotPool:
    """What is known of the Spot workers of one zone and type ("zone/type"), see spot_pools.py.

    hours: worker-hours, faded up to the memory's spot_at. lost: interruptions, faded up to lost_at, the last one. seen:
    how many of those that the state item counts are in it, or are older than the learning.
    """

    pool: str
    hours: float = 0.0
    lost: float = 0.0
    lost_at: int = 0
    seen: int = 0


@value_class
class BackOff:
    """What failed `failures` times in a row; in back-off until `until` (epoch seconds)."""

    key: str
    failures: int
    until: int


@value_class
class ReadingPoint:
    """One past reading, as small as the state item keeps it."""

    at: int
    cpu_percent: float | None
    memory_percent: float | None
    pending: int | None
    usable: int


@value_class
class ShapeLaunch:
    """The last scale-up for unschedulable pods of one shape; shows later whether it helped.

    at: time of the decision, 0 once judged. count: how many of these pods were unschedulable then. unhelped: launches
    in a row after which none of them was scheduled although the new workers had the capacity.
    """

    shape: str
    at: int
    count: int
    unhelped: int = 0


@value_class
class OpenRise:
    """Demand at one reading and the highest demand since, in workers; closed at the end of the horizon."""

    at: int
    demand: float
    highest: float
    pace: int


@value_class
class WorkerNeed:
    """The last time at which this many workers were needed."""

    at: int
    workers: int


@value_class
class PodSums:
    """Sums over usable workers that decay with time: workers, their pods, and the pods' requests.

    A line through these sums gives a typical pod. least: the fewest pods seen on a usable worker, which are the pods
    of DaemonSets.
    """

    workers: float = 0.0
    pods: float = 0.0
    pods_squared: float = 0.0
    cpu: float = 0.0
    pods_cpu: float = 0.0
    memory: float = 0.0
    pods_memory: float = 0.0
    least: int = -1


@value_class
class PlanTrials:
    """The calculated outcome of each candidate plan, one entry per plan in every tuple.

    workers: the fleet size under that plan. before: the same without the launches of the last reading; empty when no
    plan launched then. moved: its last change, 1 up, -1 down, 0 none yet. held (worker-minutes of unused capacity),
    waited (pod-minutes of waiting) and turns (changes of direction) are whole hundredths. demand (in workers) and
    readings have the mean demand. weight: what a new entry of a sum counts; it grows, so that old entries decay.
    """

    workers: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    held: tuple[float, ...] = ()
    waited: tuple[float, ...] = ()
    turns: tuple[float, ...] = ()
    demand: float = 0.0
    readings: float = 0.0
    weight: float = 1.0


@value_class
class AdaptiveMemory:
    """What the adaptive strategy has learned about this fleet: sums and counts that decay with time.

    places: how many typical pods one worker holds; demand measured with another number is not comparable. rises: for
    each pace, row by row, how often demand rose by each candidate amount within the horizon. needs: when each number
    of workers was last needed, newest and lowest last. boot_seconds: from a decision to the join.
    """

    read_at: int = 0
    demand: float = 0.0
    places: int = 0
    before_at: int = 0
    before: float = 0.0
    rises: tuple[float, ...] = ()
    open: tuple[OpenRise, ...] = ()
    needs: tuple[WorkerNeed, ...] = ()
    tried: PlanTrials = PlanTrials()
    pods: PodSums = PodSums()
    boot_seconds: float = 90.0
    adding_since: int = 0


@value_class
class Replacement:
    """One outdated worker and the instance that was launched for it.

    reason: "drifted", "expired", "unhealthy" or "on-demand". replacement: empty while it is to be launched, because the
    worker was removed first. since: when the replacement joined (epoch); its time to prove itself counts from then.
    """

    worker: str
    reason: str
    replacement: str = ""
    since: int = 0


@value_class
class RollOut:
    """How far the replacement of outdated workers has come.

    retry_at: until then (epoch) no worker is inspected again, because none could be replaced. good_version: the last
    version of the launch template whose workers joined and stayed Ready. stopped: why no further worker is replaced
    while stopped_version is deployed; empty when nothing is stopped. lost: replacements in a row that ended before they
    had proved themselves. first_until: until then (epoch) a step comes before removals of idle workers, because an
    inspection allowed none of those. template_id: of the launch template whose versions these are. server_version: of
    K3s on the server, as last read; empty when unknown.
    """

    current: Replacement | None = None
    retry_at: int = 0
    first_until: int = 0
    good_version: str = ""
    stopped: str = ""
    stopped_version: str = ""
    lost: int = 0
    template_id: str = ""
    server_version: str = ""

    def is_stopped(self, version: str) -> bool:
        """Whether the roll-out of this version is stopped."""
        return bool(self.stopped) and self.stopped_version == version

    def waits_for_server(self, k3s_version: str) -> bool:
        """Whether the configured launch template installs a newer K3s than the server has."""
        return is_newer(k3s_version, self.server_version)

    def launch_version(self, configured: str, k3s_version: str = "") -> str:
        """The version from which workers are launched. k3s_version: what the configured one installs.

        The last good one while the configured one is stopped or waits for the server. Without another good one it is
        the configured one in the first case, and none (empty) in the second.
        """
        if self.waits_for_server(k3s_version):
            return self.good_version if self.good_version != configured else ""
        return self.good_version if self.good_version and self.is_stopped(configured) else configured


@value_class
class Memory:
    """Stored in the state item; written only under the lock. Field names are the stored names.

    since: condition -> its streak. dry_pools: pools in back-off. back_offs: see back_off.py for the keys.
    not_helped: pod shape -> epoch until which its pods are not counted. plain_owners: owners whose pods ask for CPU and
    memory only, newest first. alerted: alert -> when its cause was last seen.
    fresh: instance -> when it was first known usable. rebooted: instance -> when it was rebooted, once at most.
    suspects: instance -> when a run last found no node for it.
    predicted_hour: start (epoch) of the last hour that was judged. predictive_hold_workers: how many workers are kept
    until predictive_hold_until. totals: packed, see notify/totals.py. succeeded_at: when the last run without a failure
    ended. spot_pools: the interruptions of Spot workers; spot_at: when their hours were last added, 0 before that.
    unsent: critical alerts that no topic accepted and that no later run finds again.
    """

    last_action: str = ""
    last_action_at: int = 0
    last_reason: str = ""
    since: dict[str, Streak] = field(default_factory=dict)
    readings: tuple[ReadingPoint, ...] = ()
    predictive_hold_until: int = 0
    predictive_hold_workers: int = 0
    predicted_hour: int = 0
    dry_pools: tuple[PoolBackOff, ...] = ()
    back_offs: tuple[BackOff, ...] = ()
    not_helped: dict[str, int] = field(default_factory=dict)
    launched_for: tuple[ShapeLaunch, ...] = ()
    plain_owners: tuple[str, ...] = ()
    alerted: dict[str, int] = field(default_factory=dict)
    suspects: dict[str, int] = field(default_factory=dict)
    fresh: dict[str, int] = field(default_factory=dict)
    learned: AdaptiveMemory = field(default_factory=AdaptiveMemory)
    launch_image: LaunchImage = field(default_factory=LaunchImage)
    roll_out: RollOut = field(default_factory=RollOut)
    totals: str = ""
    succeeded_at: int = 0
    rebooted: dict[str, int] = field(default_factory=dict)
    spot_pools: tuple[SpotPool, ...] = ()
    spot_at: int = 0
    unsent: tuple[Alert, ...] = ()


def newest_memory(stored: Memory, carried: Memory) -> Memory:
    """What a failed run must remember, from the state item and from its payload.

    A step that failed after it had closed its operation has stored a cooldown stamp, a back-off or a replacement that
    the payload lacks; the payload must not overwrite it.
    """
    if stored.last_action_at > carried.last_action_at:
        return replace(stored, alerted=carried.alerted, unsent=carried.unsent)  # what its message has reported
    known = {entry.key: entry for entry in carried.back_offs}
    later = [e for e in stored.back_offs if e.key not in known or known[e.key].failures < e.failures]
    kept = tuple(e for e in carried.back_offs if e.key not in {entry.key for entry in later})
    return replace(
        carried,
        back_offs=(*kept, *later),
        roll_out=_newest_roll_out(stored.roll_out, carried.roll_out),
        rebooted={**carried.rebooted, **stored.rebooted},
    )


def _newest_roll_out(stored: RollOut, carried: RollOut) -> RollOut:
    """A stop is kept whoever recorded it; else a step of the state item, which a later run ends when it is over."""
    if stored.stopped != carried.stopped:
        return stored if stored.stopped and not carried.stopped else carried
    return stored if stored.current is not None else carried
