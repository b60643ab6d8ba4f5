"""When a worker may go: everything low, without a break, on live data, and the rest able to carry the load.

Which worker goes is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scaling.check import Check, Verdict
from node_fleet.domain.scaling.explain import counted
from node_fleet.domain.scaling.signals.pending_pods import Demand
from node_fleet.domain.scaling.signals.sustained import advance
from node_fleet.domain.scaling.tick import Tick, known


@dataclass(slots=True, kw_only=True)
class Idle:
    """How many workers may go, what was weighed, and the run of idle readings to remember."""

    remove: int = 0
    checks: list[Check] = field(default_factory=list)
    streak: Streak | None = None


def weigh_idle(view: Tick, demand: Demand | None, *, customs_low: bool, floor: int) -> Idle:
    """The idle clock, then the floor, then the load that the rest would carry.

    The clock starts again when any condition is not met or cannot be known; a removal does not reset it.
    """
    answer = Idle()
    stop = obstacle(view, demand, customs_low=customs_low)
    answer.streak = advance(
        view.memory.since.get("idle"),
        holds=stop is None,
        at=view.read_at,
        gap_seconds=view.policy.reading_gap_seconds,
    )
    clock = _clock_check(view, answer.streak) if stop is None else _idle(*stop)
    answer.checks.append(clock)
    if clock.verdict == "down":
        _weigh_removal(view, floor, answer)
    return answer


def projected(percent: float, workers: int, removed: int) -> float:
    """The mean load when `removed` of `workers` equal workers are gone and their load falls on the others."""
    return percent * workers / (workers - removed)


def obstacle(view: Tick, demand: Demand | None, *, customs_low: bool) -> tuple[Verdict, str, str] | None:
    """Verdict, words and setting of the first thing that keeps the fleet from being idle."""
    snapshot, policy = view.snapshot, view.policy
    if not view.live:
        return "missing", "no worker goes without a live reading", "CACHED_READING_SECONDS"
    if gone := _missing(view, demand):
        return "missing", f"no worker goes while this is missing: {', '.join(gone)}", "METRICS_MISSING_READINGS"
    cpu, memory = snapshot.cpu_percent, snapshot.memory_percent
    if demand and demand.waiting:
        return "hold", f"not idle: {demand.waiting} pods wait", "PENDING_READINGS"
    if cpu is not None and cpu >= policy.cpu_down_percent:
        return "hold", f"not idle: CPU {cpu:.1f} % not under {policy.cpu_down_percent:g} %", "SCALE_DOWN_THRESHOLD_CPU"
    if policy.use_memory and memory is not None and memory >= policy.memory_down_percent:
        text = f"not idle: memory {memory:.1f} % not under {policy.memory_down_percent:g} %"
        return "hold", text, "SCALE_DOWN_THRESHOLD_MEMORY"
    if not customs_low:
        return "hold", "not idle: a custom metric is not under its low mark", "CUSTOM_METRICS"
    return None


def _missing(view: Tick, demand: Demand | None) -> list[str]:
    """What cannot be known of this reading, by name; metrics of the user's own and unused memory are left out."""
    snapshot, policy = view.snapshot, view.policy
    gone = {"cpu_percent"} if known(snapshot.cpu_percent) is None else set()
    if policy.use_memory and known(snapshot.memory_percent) is None:
        gone.add("memory_percent")
    if demand is None:
        gone.add("pending")
    if view.unknown:
        gone.add(f"state of {counted(view.unknown, 'worker')}")
    for name in snapshot.missing:
        if not name.startswith("custom:") and (policy.use_memory or not name.startswith("memory")):
            gone.add(name)
    return sorted(gone)


def _clock_check(view: Tick, streak: Streak | None) -> Check:
    needed = view.policy.idle_seconds
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


def _weigh_removal(view: Tick, floor: int, answer: Idle) -> None:
    spare = len(view.usable) - floor
    if spare <= 0:
        text = f"{len(view.usable)} usable workers, not above the floor of {floor}"
        setting = "MIN_NODES" if floor <= view.policy.min_workers else "SCHEDULES"
        answer.checks.append(Check(name="floor", verdict="hold", text=text, value=len(view.usable), setting=setting))
        return
    for count in range(min(spare, view.policy.max_targets), 0, -1):
        guard = projection(view, count)
        if guard.verdict == "down" or count == 1:
            answer.checks.append(guard)
            answer.remove = count if guard.verdict == "down" else 0
            return


def projection(view: Tick, removed: int) -> Check:
    """Whether the rest would stay clear of the up-thresholds, and hold the requests of the pods that must move."""
    policy, workers = view.policy, len(view.usable)
    if workers <= removed:
        return _guard("hold", "the last worker stays", None, None)
    loads = [("CPU", known(view.snapshot.cpu_percent), policy.cpu_up_percent)]
    if policy.use_memory:
        loads.append(("memory", known(view.snapshot.memory_percent), policy.memory_up_percent))
    parts = []
    for label, percent, high in loads:
        after, limit = projected(percent or 0.0, workers, removed), high - policy.projection_margin_percent
        if after >= limit:
            return _guard("hold", f"{label} would be {after:.1f} %, not under {limit:g} %", after, limit)
        parts.append(f"{label} would be {after:.1f} % under {limit:g} %")
    requests = _requests_after(view.usable, removed)
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
    room = sum(offers[: len(offers) - removed])
    asked = sum(asked for asked, _ in complete)
    return 100.0 * asked / room if room > 0 else (0.0 if asked == 0 else float("inf"))
