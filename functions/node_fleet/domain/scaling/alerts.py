"""What people should hear of besides the action: each cause once, until it has been gone for a while."""

from __future__ import annotations

from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.run import Alert
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.not_ready import not_ready_too_long
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, listed_checks, shape_key
from node_fleet.domain.scaling.tick import Tick, finite

Found = list[tuple[str, Alert]]


def new_alerts(tick: Tick, found: Found) -> tuple[tuple[Alert, ...], dict[str, int]]:
    """The alerts not yet told, and what is remembered of those that were."""
    quiet = tick.policy.alert_quiet_seconds
    notified = {key: seen for key, seen in tick.memory.alerted.items() if tick.now - seen <= quiet}
    fresh = tuple(alert for key, alert in found if key not in notified)
    notified.update({key: tick.now for key, _ in found})
    return fresh, notified


def standing_alerts(tick: Tick, pending_pods: PendingPods | None, streaks: dict[str, Streak]) -> Found:
    """Causes that do not depend on the decision: no metrics, pods that nothing helps, workers NotReady."""
    found = _metrics_alerts(tick, streaks)
    if pending_pods:
        found += _pod_alerts(pending_pods)
    found += [
        (
            f"not_ready:{w.instance_id}",
            Alert(kind="not_ready", text=f"worker {w.instance_id} has been NotReady for {w.not_ready_seconds} s"),
        )
        for w in not_ready_too_long(tick)
    ]
    return found


def at_maximum(tick: Tick, wanted: str) -> tuple[str, Alert]:
    """Load asks for a worker and the maximum forbids it."""
    text = (
        f"at maximum: {wanted}, but {tick.counted} of {tick.policy.max_workers} workers run; consider raising MAX_NODES"
    )
    return "at_maximum", Alert(kind="at_maximum", text=text)


def blocked_launch(check: Check) -> tuple[str, Alert]:
    """The circuit breaker keeps a wanted launch back."""
    return check.name, Alert(kind=check.name, text=check.text)


def _metrics_alerts(tick: Tick, streaks: dict[str, Streak]) -> Found:
    if not tick.readable:
        why = tick.snapshot.problem or "Prometheus cannot be read"
        text = f"no metrics: {why}; only the minimum is enforced"
        return [("metrics_unavailable", Alert(kind="metrics_unavailable", text=text))]
    gone = streaks.get("missing")
    if gone and gone.readings >= tick.policy.missing_readings:
        names = ", ".join(missing_names(tick))
        text = f"{names} missing for {gone.readings} readings; no worker is removed meanwhile"
        return [("metrics_missing", Alert(kind="metrics_missing", text=text))]
    return []


def missing_names(tick: Tick) -> list[str]:
    """What the reading lacks, by name; a metric that may be absent is not lacked."""
    snapshot, policy = tick.snapshot, tick.policy
    names = set(snapshot.missing)
    figures = {"cpu_percent": snapshot.cpu_percent, "memory_percent": snapshot.memory_percent}
    names |= {name for name, value in figures.items() if finite(value) is None}
    names |= {"pending"} if snapshot.pending is None else set()
    if not names:
        return []
    held = tuple(f"custom:{m.name}" for m in policy.custom_metrics if m.when_absent == "hold")
    return sorted(n for n in names if _lacked(n, held, use_memory=policy.use_memory))


def _lacked(name: str, held: tuple[str, ...], *, use_memory: bool) -> bool:
    if name.startswith("custom:"):
        return name.partition(" ")[0] in held
    return use_memory or not name.startswith("memory")


def _pod_alerts(pending_pods: PendingPods) -> Found:
    shapes = (*pending_pods.too_large, *pending_pods.stuck)
    return [
        (f"{check.name}:{shape_key(shape)}", Alert(kind=check.name, text=check.text))
        for shape, check in zip(shapes, listed_checks(pending_pods), strict=True)
    ]
