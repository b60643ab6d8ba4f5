"""When a worker may go: everything low, without a break, on live data, and the rest able to carry the load.

Which worker goes is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.pending_pods import PendingPods
from node_fleet.domain.scaling.signals.sustained import advance
from node_fleet.domain.scaling.tick import Tick, finite


@dataclass(slots=True, kw_only=True)
class Idle:
    """How many workers may go, what was weighed, and the run of idle readings to remember."""

    remove: int = 0
    checks: list[Check] = field(default_factory=list)
    streak: Streak | None = None


def evaluate_idle(tick: Tick, pending_pods: PendingPods | None, *, customs_low: bool, minimum: int) -> Idle:
    """The idle clock, then the floor, then the load that the rest would carry.

    The clock starts again when any condition is not met or cannot be known; a removal does not reset it.
    """
    outcome = Idle()
    stop = idle_blocker(tick, pending_pods, customs_low=customs_low)
    outcome.streak = advance(
        tick.memory.since.get("idle"),
        holds=stop is None,
        at=tick.read_at,
        gap_seconds=tick.policy.reading_gap_seconds,
    )
    clock = _clock_check(tick, outcome.streak) if stop is None else _idle(*stop)
    outcome.checks.append(clock)
    if clock.verdict == "down":
        _evaluate_removal(tick, minimum, outcome)
    return outcome


def projected_percent(percent: float, workers: int, removed: int) -> float:
    """The mean load when `removed` of `workers` equal workers are gone and their load falls on the others."""
    return percent * workers / (workers - removed)


def idle_blocker(tick: Tick, pending_pods: PendingPods | None, *, customs_low: bool) -> tuple[Verdict, str, str] | None:
    """Verdict, words and setting of the first thing that keeps the fleet from being idle."""
    snapshot, policy = tick.snapshot, tick.policy
    if not tick.live:
        return "missing", "no worker goes without a live reading", "CACHED_READING_SECONDS"
    if gone := _missing(tick, pending_pods):
        return "missing", f"no worker goes while this is missing: {', '.join(gone)}", "METRICS_MISSING_READINGS"
    cpu, memory = snapshot.cpu_percent, snapshot.memory_percent
    if pending_pods and pending_pods.waiting:
        return "hold", f"not idle: {pending_pods.waiting} pods wait", "PENDING_READINGS"
    if cpu is not None and cpu >= policy.cpu_down_percent:
        return "hold", f"not idle: CPU {cpu:.1f} % not under {policy.cpu_down_percent:g} %", "SCALE_DOWN_THRESHOLD_CPU"
    if policy.use_memory and memory is not None and memory >= policy.memory_down_percent:
        text = f"not idle: memory {memory:.1f} % not under {policy.memory_down_percent:g} %"
        return "hold", text, "SCALE_DOWN_THRESHOLD_MEMORY"
    if not customs_low:
        return "hold", "not idle: a custom metric is not under its low mark", "CUSTOM_METRICS"
    return None


def _missing(tick: Tick, pending_pods: PendingPods | None) -> list[str]:
    """What cannot be known of this reading, by name; metrics of the user's own and unused memory are left out."""
    snapshot, policy = tick.snapshot, tick.policy
    gone = {"cpu_percent"} if finite(snapshot.cpu_percent) is None else set()
    if policy.use_memory and finite(snapshot.memory_percent) is None:
        gone.add("memory_percent")
    if pending_pods is None:
        gone.add("pending")
    if tick.unknown:
        gone.add(f"state of {counted(tick.unknown, 'worker')}")
    for name in snapshot.missing:
        if not name.startswith("custom:") and (policy.use_memory or not name.startswith("memory")):
            gone.add(name)
    return sorted(gone)


def _clock_check(tick: Tick, streak: Streak | None) -> Check:
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
        setting="IDLE_SECONDS",
    )


def _idle(verdict: Verdict, text: str, setting: str) -> Check:
    return Check(name="idle", verdict=verdict, text=text, setting=setting, aside=True)


def _evaluate_removal(tick: Tick, minimum: int, outcome: Idle) -> None:
    headroom = len(tick.usable) - minimum
    if headroom <= 0:
        text = f"{len(tick.usable)} usable workers, not above the floor of {minimum}"
        setting = "MIN_NODES" if minimum <= tick.policy.min_workers else "SCHEDULES"
        outcome.checks.append(Check(name="floor", verdict="hold", text=text, value=len(tick.usable), setting=setting))
        return
    for count in range(min(headroom, tick.policy.max_targets), 0, -1):
        guard = projection(tick, count)
        if guard.verdict == "down" or count == 1:
            outcome.checks.append(guard)
            outcome.remove = count if guard.verdict == "down" else 0
            return


def projection(tick: Tick, removed: int) -> Check:
    """Whether the rest would stay clear of the up-thresholds, and hold the requests of the pods that must move."""
    policy, workers = tick.policy, len(tick.usable)
    if workers <= removed:
        return _guard("hold", "the last worker stays", None, None)
    loads = [("CPU", finite(tick.snapshot.cpu_percent), policy.cpu_up_percent)]
    if policy.use_memory:
        loads.append(("memory", finite(tick.snapshot.memory_percent), policy.memory_up_percent))
    parts = []
    for label, percent, high in loads:
        after, limit = projected_percent(percent or 0.0, workers, removed), high - policy.projection_margin_percent
        if after >= limit:
            return _guard("hold", f"{label} would be {after:.1f} %, not under {limit:g} %", after, limit)
        parts.append(f"{label} would be {after:.1f} % under {limit:g} %")
    requests = _requests_after(tick.usable, removed)
    limit = 100 - policy.projection_margin_percent
    if requests is None:
        return _guard("missing", "requests of some workers are missing", None, limit)
    if requests > limit:
        return _guard("hold", f"requests would be {requests:.1f} %, over {limit:g} %", requests, limit)
    return _guard("down", ", ".join(parts), None, None)


def _guard(verdict: Verdict, text: str, value: float | None, threshold: float | None) -> Check:
    return Check(
        name="projection",
        verdict=verdict,
        text=text,
        value=value,
        threshold=threshold,
        setting="PROJECTION_MARGIN",
    )


def _requests_after(workers: tuple[Worker, ...], removed: int) -> float | None:
    """Requests in percent of what the rest can hold, the largest workers taken away; None when some are unknown.

    When no worker's requests are known at all they are not weighed (0): then the cluster does not report them.
    """
    kept_cpu = _share(
        [(w.cpu_requested_milli, w.cpu_allocatable_milli) for w in workers],
        removed,
    )
    kept_memory = _share([(w.memory_requested_mib, w.memory_allocatable_mib) for w in workers], removed)
    return None if kept_cpu is None or kept_memory is None else max(kept_cpu, kept_memory)


def _share(pairs: list[tuple[int | None, int | None]], removed: int) -> float | None:
    complete = [(asked, offered) for asked, offered in pairs if asked is not None and offered is not None]
    if not complete:
        return 0.0
    if len(complete) < len(pairs):
        return None
    offers = sorted(offered for _, offered in complete)
    free = sum(offers[: len(offers) - removed])
    asked = sum(asked for asked, _ in complete)
    return 100.0 * asked / free if free > 0 else (0.0 if asked == 0 else float("inf"))
