"""Whether workers are eligible for removal: every signal low without a break on live data, and enough capacity left.

scale_down/ chooses which workers are removed.
"""

from __future__ import annotations

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.minimum_size import SCALE
from node_fleet.domain.scaling.signals.chosen_headroom import keeps_headroom
from node_fleet.domain.scaling.signals.load import sizes_of
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.signals.sustained import advance_streak
from node_fleet.domain.scaling.tick import Tick, finite


def evaluate_idle(
    tick: Tick, pending_pods: PendingPods | None, streaks: dict[str, Streak], *, customs_low: bool, minimum: int
) -> tuple[int, list[Check]]:
    """How many workers are eligible for removal, and the checks: idle time, minimum, projected load, headroom.

    The idle time starts again when any condition fails or is unknown; a removal does not reset it.
    """
    blocker = find_idle_blocker(tick, pending_pods, customs_low=customs_low)
    streak = advance_streak(tick, streaks, "idle", blocker is None)
    check = blocker or _idle_time_check(tick, streak)
    if check.verdict != "down":
        return 0, [check]
    surplus = len(tick.usable) - minimum
    if surplus <= 0:
        return 0, [check, _minimum_check(tick, minimum)]
    for count in range(min(surplus, tick.policy.max_targets), 0, -1):
        projection = evaluate_projection(tick, count)
        headroom = keeps_headroom(tick, count) if projection.verdict == "down" else None
        if projection.verdict == "down" and headroom is None:
            return count, [check, projection]
    return 0, [check, headroom or projection]


def find_idle_blocker(tick: Tick, pending_pods: PendingPods | None, *, customs_low: bool) -> Check | None:
    """The first condition that keeps the fleet from being idle; None when all are met."""
    snapshot, policy = tick.snapshot, tick.policy
    if not tick.live:
        return _blocker("missing", "no worker is removed without a live reading", "cached_reading_seconds")
    if missing := _missing(tick, pending_pods):
        text = f"no worker is removed while data is missing: {', '.join(missing)}"
        return _blocker("missing", text, "missing_readings")
    cpu, memory = snapshot.cpu_percent, snapshot.memory_percent
    if pending_pods and pending_pods.waiting:
        return _blocker("hold", f"not idle: {count_of(pending_pods.waiting, 'pod')} pending", "pending_readings")
    if cpu is not None and cpu >= policy.cpu_down_percent:
        text = f"not idle: CPU {cpu:.1f} %, not under {policy.cpu_down_percent:g} %"
        return _blocker("hold", text, "cpu_down_percent")
    if policy.use_memory and memory is not None and memory >= policy.memory_down_percent:
        text = f"not idle: memory {memory:.1f} %, not under {policy.memory_down_percent:g} %"
        return _blocker("hold", text, "memory_down_percent")
    if not customs_low:
        return _blocker("hold", "not idle: a custom metric is not under its low threshold", "custom_metrics")
    return None


def _blocker(verdict: Verdict, text: str, setting: str) -> Check:
    return Check(name="idle", verdict=verdict, text=text, setting=setting, aside=True)


def _missing(tick: Tick, pending_pods: PendingPods | None) -> list[str]:
    """The names of what this reading lacks, without custom metrics and without memory when it is not used."""
    policy, snapshot = tick.policy, tick.snapshot
    missing = {"cpu_percent"} if finite(snapshot.cpu_percent) is None else set()
    if policy.use_memory and finite(snapshot.memory_percent) is None:
        missing.add("memory_percent")
    if pending_pods is None:
        missing.add("pending")
    disputed = {dispute.instance_id for dispute in snapshot.disputes}  # kept anyway: one false Node stops no removal
    if tick.unknown and (unknown := sum(w.phase == "unknown" and w.instance_id not in disputed for w in tick.workers)):
        missing.add(f"state of {count_of(unknown, 'worker')}")
    for name in snapshot.missing:
        if not name.startswith("custom:") and (policy.use_memory or not name.startswith("memory")):
            missing.add(name)
    return sorted(missing)


def _idle_time_check(tick: Tick, streak: Streak | None) -> Check:
    needed = tick.policy.idle_seconds
    seconds = streak.last - streak.since if streak else 0
    over = seconds >= needed
    return Check(
        name="idle",
        verdict="down" if over else "waiting",
        text=f"idle for {seconds} s" if over else f"idle {seconds} of {needed} s",
        value=seconds,
        threshold=needed,
        readings=streak.readings if streak else 0,
        setting="idle_seconds",
    )


def _minimum_check(tick: Tick, minimum: int) -> Check:
    usable = len(tick.usable)
    text = f"{count_of(usable, 'usable worker')}, not above the effective minimum of {minimum}"
    order = tick.snapshot.timed_minimum
    setting = SCALE if order and order.workers >= minimum else "schedules"
    setting = "min_workers" if minimum <= tick.policy.min_workers else setting
    return Check(name="minimum_size", verdict="hold", text=text, value=usable, setting=setting)


def projected_percent(percent: float, sizes: list[int], removed: int) -> float:
    """The mean load in percent after the `removed` largest workers are removed and the others take over."""
    return percent * sum(sizes) / sum(sorted(sizes)[: len(sizes) - removed])


def evaluate_projection(tick: Tick, removed: int) -> Check:
    """Whether the other workers would stay the margin under the high thresholds and hold all requests."""
    policy = tick.policy
    if len(tick.usable) <= removed:
        return _projection("hold", "the last worker is kept", None, None)
    cpu, memory = sizes_of(tick.usable, "cpu"), sizes_of(tick.usable, "memory")
    loads = [("CPU", finite(tick.snapshot.cpu_percent), cpu, policy.cpu_up_percent)]
    if policy.use_memory:
        loads.append(("memory", finite(tick.snapshot.memory_percent), memory, policy.memory_up_percent))
    parts = []
    for label, percent, sizes, high in loads:
        after, limit = projected_percent(percent or 0.0, sizes, removed), high - policy.projection_margin_percent
        if after >= limit:
            return _projection("hold", f"{label} would be {after:.1f} %, not under {limit:g} %", after, limit)
        parts.append(f"{label} would be {after:.1f} % under {limit:g} %")
    requests = requests_percent(tick.usable, removed)
    limit = 100 - policy.projection_margin_percent
    if requests is None:
        return _projection("missing", "requests of some workers are missing", None, limit)
    if requests > limit:
        return _projection("hold", f"requests would be {requests:.1f} %, over {limit:g} %", requests, limit)
    return _projection("down", ", ".join(parts), None, None)


def _projection(verdict: Verdict, text: str, value: float | None, threshold: float | None) -> Check:
    return Check(
        name="projection",
        verdict=verdict,
        text=text,
        value=value,
        threshold=threshold,
        setting="projection_margin_percent",
    )


def requests_percent(workers: tuple[Worker, ...], removed: int) -> float | None:
    """Requests in percent of what the workers can hold without the largest `removed` ones; None when some are unknown.

    0 when the requests of every worker are unknown: the cluster does not report them, so they do not count.
    """
    cpu = _percent_after([(w.cpu_requested_milli, w.cpu_allocatable_milli) for w in workers], removed)
    memory = _percent_after([(w.memory_requested_mib, w.memory_allocatable_mib) for w in workers], removed)
    return None if cpu is None or memory is None else max(cpu, memory)


def _percent_after(pairs: list[tuple[int | None, int | None]], removed: int) -> float | None:
    complete = [(requested, offered) for requested, offered in pairs if requested is not None and offered is not None]
    if not complete:
        return 0.0
    if len(complete) < len(pairs):
        return None
    capacity = sum(sorted(offered for _, offered in complete)[: len(complete) - removed])
    requested = sum(requested for requested, _ in complete)
    return 100.0 * requested / capacity if capacity > 0 else (0.0 if requested == 0 else float("inf"))
