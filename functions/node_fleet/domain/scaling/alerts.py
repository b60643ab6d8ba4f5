"""The alerts of a decision. Each cause is reported once, until it has been absent for alert_quiet_seconds."""

from __future__ import annotations

from node_fleet.domain.model.identity import DISPUTE_ADVICE
from node_fleet.domain.model.memory import Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.text import count_of
from node_fleet.domain.scaling.check import Check
from node_fleet.domain.scaling.not_ready import MANY_NOT_READY, not_ready_too_long
from node_fleet.domain.scaling.signals.pending_pods import PendingPods, listed_checks, shape_key
from node_fleet.domain.scaling.tick import Launchable, Tick, finite

Found = list[tuple[str, Alert]]
"""(key for de-duplication, alert)."""


def new_alerts(tick: Tick, found: Found) -> tuple[tuple[Alert, ...], dict[str, int]]:
    """The alerts that are not reported yet, and key -> when the cause was last seen (epoch), to be stored."""
    quiet = tick.policy.alert_quiet_seconds
    alerted = {key: seen for key, seen in tick.memory.alerted.items() if tick.now - seen <= quiet}
    new = tuple([alert for key, alert in found if key not in alerted])
    alerted.update({key: tick.now for key, _ in found})
    return new, alerted


def standing_alerts(tick: Tick, pending_pods: PendingPods | None, streaks: dict[str, Streak]) -> Found:
    """Causes that do not depend on the decision: missing metrics, pods that no worker helps, NotReady workers, removals
    that are set aside.

    Pods that wait for something else than a worker, such as a claim, are listed and cause no alert while that can end.
    streaks: those of this reading.
    """
    found = _metrics_alerts(tick, streaks)
    if pending_pods and pending_pods.listed:
        shapes = (*(shape for shape, _ in pending_pods.unfit), *pending_pods.stuck)
        found += [
            (kind := f"{check.name}:{shape_key(shape)}", Alert(kind=kind, text=check.text))
            for shape, check in zip(shapes, listed_checks(pending_pods), strict=True)
            if not shape.problem or shape.lasting
        ]
    for dispute in tick.snapshot.disputes:
        text = f"worker {dispute.instance_id}: {dispute.sentence}; {DISPUTE_ADVICE}"
        kind = f"node_disputed:{dispute.instance_id}"
        found.append((kind, Alert(kind=kind, text=text)))
    if tick.readable and MANY_NOT_READY in streaks:
        text = (
            f"{len(tick.not_ready)} of {tick.counted} workers are NotReady at the same time, and EC2 shows their "
            "instances running; node-fleet launches no worker before a second reading, one tick later, confirms it. "
            "Check the K3s server and the network between it and the workers"
        )
        found.append((MANY_NOT_READY, Alert(kind=MANY_NOT_READY, text=text)))
    if refused := tick.snapshot.refused:
        text = (
            f"{count_of(len(refused), 'figure')} cannot be true and counts as missing: {'; '.join(refused)}; "
            "find the worker or the target of Prometheus that states it, and replace that worker"
        )
        found.append(("figures_refused", Alert(kind="figures_refused", text=text)))
    found += [(alert.kind, alert) for alert in (removal.alert for removal in tick.snapshot.set_aside)]
    if len(tick.snapshot.set_aside) >= tick.policy.set_aside_limit:
        found.append(("removals_paused", _removals_paused(tick)))
    for w in not_ready_too_long(tick):
        text = f"worker {w.instance_id} has been NotReady for {w.not_ready_seconds} s"
        kind = f"not_ready:{w.instance_id}"
        found.append((kind, Alert(kind=kind, text=text)))
    return found


def at_maximum(tick: Tick, lead: str, count: int, launchable: Launchable) -> tuple[str, Alert]:
    """The load asks for a worker and the maximum or a limit forbids it.

    lead: the text of the check that asks for `count` workers.
    """
    if launchable.setting != "max_workers":
        text = (
            f"{launchable.against}: {lead}, and {count_of(count, 'worker')} more {'is' if count == 1 else 'are'} not "
            f"launched; raise {launchable.setting}, or lower the requests of the pods"
        )
        return f"at_maximum:{launchable.setting}", Alert(kind=f"at_maximum:{launchable.setting}", text=text)
    text = (
        f"at the maximum: {lead}, but {tick.counted} of {tick.policy.max_workers} workers run; "
        "raise max_workers to allow more"
    )
    return "at_maximum", Alert(kind="at_maximum", text=text)


def _removals_paused(tick: Tick) -> Alert:
    """So many removals are set aside that node-fleet begins no further one."""
    removals = tick.snapshot.set_aside
    text = (
        f"{count_of(len(removals), 'removal')} set aside ({', '.join(r.instance_id for r in removals)}), the limit is "
        f"{tick.policy.set_aside_limit}: node-fleet removes no further worker until one of them is settled; it "
        "launches workers as before. Settle them as their alerts say, or raise set_aside_limit"
    )
    return Alert(kind="removals_paused", text=text)


def blocked_launch(check: Check) -> tuple[str, Alert]:
    """The circuit breaker blocks a launch that a rule asks for."""
    return check.name, Alert(kind=check.name, text=check.text)


def _metrics_alerts(tick: Tick, streaks: dict[str, Streak]) -> Found:
    if not tick.readable:
        why = tick.snapshot.problem or "Prometheus cannot be read"
        text = f"no metrics: {why}; only the minimum is enforced"
        return [("metrics_unavailable", Alert(kind="metrics_unavailable", text=text))]
    if tick.live and tick.snapshot.problem:
        text = f"{tick.snapshot.problem}; until it shows every node, no worker is removed or launched for pending pods"
        return [("exporter_stale", Alert(kind="exporter_stale", text=text))]
    missing = streaks.get("missing")
    if missing and missing.readings >= tick.policy.missing_readings:
        names = ", ".join(missing_names(tick))
        text = f"{names} missing for {missing.readings} readings; no worker is removed until the data is back"
        return [("metrics_missing", Alert(kind="metrics_missing", text=text))]
    return []


def missing_names(tick: Tick) -> list[str]:
    """The names of what the reading lacks, without metrics that may be absent."""
    snapshot, policy = tick.snapshot, tick.policy
    names = set(snapshot.missing)
    if finite(snapshot.cpu_percent) is None:
        names.add("cpu_percent")
    if finite(snapshot.memory_percent) is None:
        names.add("memory_percent")
    if snapshot.pending is None:
        names.add("pending")
    return sorted([name for name in names if _is_required(name, policy)])


def _is_required(name: str, policy: Policy) -> bool:
    if name.startswith("custom:"):
        held = (f"custom:{m.name}" for m in policy.custom_metrics if m.when_absent == "hold")
        return name.partition(" ")[0] in held
    return policy.use_memory or not name.startswith("memory")
