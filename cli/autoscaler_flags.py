"""The flags of Cluster Autoscaler as settings of node-fleet, with a sentence about each difference.

The flags and their defaults are those of its command line. It reads texts and calls nothing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from cli.proposal import Line, Proposal, with_longer_operations, within

Rule = Callable[[str], Line]
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SWITCH = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_NEGATIVE = re.compile(r"-\d.*")
PROGRAM = "cluster-autoscaler"


class FlagError(ValueError):
    """A flag whose value cannot be read; the text says what is expected."""


def seconds(text: str) -> int:
    """A duration of Go such as 10m0s, 1h30m or 0, in whole seconds, rounded up."""
    if text == "0":
        return 0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise FlagError("expected a duration such as 10m or 1h30m")
    return math.ceil(sum(float(number) * _UNIT[unit] for number, unit in parts))


def number(text: str, low: float = 0, high: float = 1e9) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not low <= found <= high:
        raise FlagError(f"expected a number from {low:g} to {high:g}")
    return found


def switch(text: str) -> bool:
    found = _SWITCH.get(text.lower())
    if found is None:
        raise FlagError("expected true or false")
    return found


def _within(name: str, low: int, high: int, difference: str) -> Rule:
    """A duration as a setting in seconds, moved into the range of the setting."""

    def rule(text: str) -> Line:
        value, moved = within(seconds(text), low, high, " s")
        return Line(source="", settings={name: value}, difference=moved + difference)

    return rule


def _without(difference: str, check: Callable[[str], object] = str) -> Rule:
    def rule(text: str) -> Line:
        check(text)
        return Line(source="", difference=difference)

    return rule


def _scan_interval(text: str) -> Line:
    wanted = seconds(text)
    if wanted <= 120:
        why = "node-fleet runs every 120 s, and within seconds when Alertmanager reports unschedulable pods"
        return Line(source="", difference=why)
    value, moved = within(60 * math.ceil(wanted / 60), 60, 3600, " s")
    return Line(source="", settings={"interval_seconds": value}, difference=f"{moved}node-fleet runs in whole minutes")


def _utilization(text: str) -> Line:
    percent = round(100 * number(text, 0, 1))
    both = {"preset": "node-fleet", "cpu_down_percent": min(percent, 60), "memory_down_percent": min(percent, 65)}
    moved = "they stay below the thresholds that add workers; " if percent > 60 else ""
    why = moved + (
        "Cluster Autoscaler compares the requests on one node; the preset node-fleet compares the measured load of the "
        "fleet. To size by requests, use preset=adaptive without these two and idle_seconds"
    )
    return Line(source="", settings=both, difference=why)


def _scale_down_enabled(text: str) -> Line:
    if switch(text):
        return Line(source="", difference="the same")
    why = "idle workers are never removed; drifted and unhealthy ones are still replaced"
    return Line(source="", settings={"disruption_budgets": [{"nodes": "0", "reasons": ["idle"]}]}, difference=why)


def _parallel(text: str) -> Line:
    count = int(number(text, 1, 10_000))
    value, moved = within(count, 1, 10)
    why = "only workers whose pods fit elsewhere together are removed in one run, one after the other"
    return Line(source="", settings={"max_targets": value}, difference=moved + why)


def _unready(text: str) -> Line:
    percent = number(text, 0, 100)
    settings = {"not_ready_one_in": max(1, round(100 / percent)) if percent else 1000, "repair_max_percent": percent}
    why = "node-fleet goes on scaling by load; it only stops replacing and repairing workers"
    return Line(source="", settings=settings, difference=why)


def _balance(text: str) -> Line:
    if switch(text):
        return Line(source="", settings={"placement": "fewest"}, difference="by zone; node-fleet has one group")
    return Line(source="", difference="node-fleet always balances the zones: placement is fewest or round-robin")


def _cloud_provider(text: str) -> Line:
    if text != "aws":
        raise FlagError("expected aws: node-fleet runs workers on EC2 only")
    return Line(source="", difference="the same")


def _system_pods(text: str) -> Line:
    if switch(text):
        return Line(source="", difference="the same: a kube-system pod that is not of a DaemonSet keeps its worker")
    why = 'such a pod keeps its worker unless it is annotated cluster-autoscaler.kubernetes.io/safe-to-evict: "true"'
    return Line(source="", difference=why)


def _max_nodes(text: str) -> Line:
    total = int(number(text, 0, 1_000_000))
    if total == 0:
        return Line(source="", difference="no limit; max_workers limits the workers")
    value, moved = within(total - 1, 1, 1000)
    why = "it counts the server too, so max_workers is one less; check it when you have several servers"
    return Line(source="", settings={"max_workers": value}, difference=moved + why)


def _at_most(line: Line, most: int | None) -> Line:
    """The line without a max_workers above the sizes of the groups: the lower of the two limits holds."""
    if most is None or line.settings.get("max_workers", 0) <= most:
        return line
    return replace(line, settings={}, difference=f"the groups together allow {most}, which is fewer")


BY_DESIGN = "it has no equivalent in node-fleet"
RULES: dict[str, Rule] = {
    "cloud-provider": _cloud_provider,
    "scan-interval": _scan_interval,
    "max-nodes-total": _max_nodes,
    "scale-down-enabled": _scale_down_enabled,
    "scale-down-delay-after-add": _within(
        "cooldown_down_seconds", 0, 86400, "it counts from the last scaling action of either kind"
    ),
    "scale-down-delay-after-delete": _without("cooldown_down_seconds counts from a removal too", seconds),
    "scale-down-delay-after-failure": _within(
        "drain_back_off_seconds", 60, 86400, "it holds for the worker whose drain failed, and doubles"
    ),
    "scale-down-unneeded-time": _within("idle_seconds", 0, 86400, "it holds for the fleet, not for one node"),
    "scale-down-unready-time": _within(
        "not_ready_replace_seconds", 300, 86400, "a worker that is not ready for so long is replaced"
    ),
    "scale-down-utilization-threshold": _utilization,
    "max-node-provision-time": _within(
        "join_limit_seconds", 60, 3600, "an instance that does not join in time is terminated and reported"
    ),
    "max-graceful-termination-sec": lambda text: _within("drain_timeout_seconds", 30, 3600, "limit of one drain")(
        f"{text}s"
    ),
    "max-empty-bulk-delete": _parallel,
    "max-scale-down-parallelism": _parallel,
    "max-total-unready-percentage": _unready,
    "initial-node-group-backoff-duration": _within(
        "scale_up_back_off_seconds", 0, 86400, "after a scale-up that launched no instance"
    ),
    "max-node-group-backoff-duration": _within(
        "scale_up_back_off_max_seconds", 0, 86400, "a pool that EC2 refused has pool_back_off_seconds of its own"
    ),
    "balance-similar-node-groups": _balance,
    "skip-nodes-with-system-pods": _system_pods,
    "skip-nodes-with-local-storage": _without(
        "emptyDir never keeps a worker and is lost in a drain; a volume that only this node has always keeps it", switch
    ),
    "skip-nodes-with-custom-controller-pods": _without(
        "a pod whose controller is not known keeps no worker; one without any controller does", switch
    ),
    "min-replica-count": _without("the only replica of a Deployment keeps its worker", number),
    "expander": _without(
        "node-fleet takes the types that the pending pods need, then by price and Spot capacity; spot_percent and the "
        "order of instance_types are yours"
    ),
    "new-pod-scale-up-delay": _without("pending_readings delays a scale-up by runs", seconds),
    "expendable-pods-priority-cutoff": _without("every unschedulable pod counts, whatever its priority"),
    "ok-total-unready-count": _without("not_ready_one_in and repair_max_percent are shares only", number),
    "cores-total": _without("set max_vcpu, which counts the workers only, without the server"),
    "memory-total": _without("max_workers limits the fleet"),
    "gpu-total": _without("max_workers limits the fleet"),
    "unremovable-node-recheck-timeout": _without("every run that removes workers inspects all of them", seconds),
    "write-status-configmap": _without("node-fleet always writes kube-system/node-fleet-status", switch),
    "status-config-map-name": _without("the name is node-fleet-status"),
    "ignore-daemonsets-utilization": _without("the measured load includes DaemonSets", switch),
    "ignore-mirror-pods-utilization": _without("the measured load includes mirror pods", switch),
    "cordon-node-before-terminating": _without("node-fleet always cordons first", switch),
    "daemonset-eviction-for-empty-nodes": _without("pods of DaemonSets are not evicted", switch),
    "daemonset-eviction-for-occupied-nodes": _without("pods of DaemonSets are not evicted", switch),
    "enforce-node-group-min-size": _without("node-fleet always keeps min_workers", switch),
    "max-drain-parallelism": _without("node-fleet drains one worker after the other", number),
    "scale-down-unready-enabled": _without(
        "node-fleet replaces a worker that is not ready for not_ready_replace_seconds", switch
    ),
    "node-autoprovisioning-enabled": _without("instance_types or instance_requirements name the types", switch),
}
NO_EQUIVALENT = (
    *("address", "alsologtostderr", "aws-use-static-instance-list", "balancing-ignore-label", "balancing-label"),
    *("cloud-config", "cluster-name", "debugging-snapshot-enabled", "emit-per-nodegroup-metrics", "estimator"),
    *("feature-gates", "kubeconfig", "kubernetes", "leader-elect", "leader-elect-lease-duration"),
    *("leader-elect-renew-deadline", "leader-elect-resource-lock", "leader-elect-resource-name"),
    *("leader-elect-retry-period", "logtostderr", "max-autoprovisioned-node-group-count", "max-failing-time"),
    *("max-inactivity", "namespace", "node-delete-delay-after-taint", "profiling", "record-duplicated-events"),
    *("regional", "scale-down-candidates-pool-min-count", "scale-down-candidates-pool-ratio"),
    *("scale-down-non-empty-candidates-count", "stderrthreshold", "user-agent", "v", "vmodule"),
    *("async-node-groups", "blocking-system-pod-distruption-timeout", "bypassed-scheduler-names"),
    *("capacity-buffer-controller-enabled", "capacity-buffer-pod-injection-enabled", "check-capacity-batch-processing"),
    *("check-capacity-processor-instance", "check-capacity-provisioning-request-batch-timebox"),
    *("check-capacity-provisioning-request-max-batch-size", "cluster-snapshot-parallelism", "drain-priority-config"),
    *("dynamic-node-delete-delay-after-taint-enabled", "enable-csi-node-aware-scheduling"),
    *("enable-dynamic-resource-allocation", "enable-proactive-scaleup", "enable-provisioning-requests"),
    *("force-delete-failed-nodes", "force-delete-unregistered-nodes", "force-ds", "frequent-loops-enabled"),
    *("grpc-expander-cert", "grpc-expander-url", "ignore-taint", "kube-api-content-type", "kube-client-burst"),
    *("kube-client-qps", "log-flush-frequency", "logging-format", "max-allocatable-difference-ratio"),
    *("max-binpacking-time", "max-bulk-soft-taint-count", "max-bulk-soft-taint-time", "max-free-difference-ratio"),
    *("max-nodegroup-binpacking-duration", "max-nodes-per-scaleup", "max-pod-eviction-time"),
    *("memory-difference-ratio", "node-deletion-batcher-interval", "node-deletion-candidate-ttl"),
    *("node-deletion-delay-timeout", "node-group-backoff-reset-timeout", "node-info-cache-expire-time"),
    *("parallel-scale-up", "pod-injection-limit", "predicate-parallelism"),
    *("provisioning-request-initial-backoff-time", "provisioning-request-max-backoff-cache-size"),
    *("provisioning-request-max-backoff-time", "scale-down-delay-type-local", "scale-down-gpu-utilization-threshold"),
    *("scale-down-simulation-timeout", "scale-from-unschedulable", "scale-up-from-zero", "scheduler-config-file"),
    *("startup-taint", "status-taint"),
)
DEFAULTS = {
    "scale-down-utilization-threshold": "0.5",
    "max-node-provision-time": "15m",
    "max-graceful-termination-sec": "600",
}
"""Defaults of Cluster Autoscaler that differ from those of node-fleet: they count when a flag is not given."""


def flags_in(words: Iterable[str]) -> list[tuple[str, str]]:
    """(name, value) of each flag; a flag without a value is true."""
    found: list[tuple[str, str]] = []
    pending = ""
    for word in words:
        if word.startswith("-") and not _NEGATIVE.fullmatch(word):
            if pending:
                found.append((pending, "true"))
            name, equals, value = word.lstrip("-").partition("=")
            pending = "" if equals else name
            if equals:
                found.append((name, value))
        elif pending:
            found.append((pending, word))
            pending = ""
    return [*found, (pending, "true")] if pending else found


def words_of_manifest(text: str) -> list[str]:
    """The command and arguments of the container of Cluster Autoscaler in YAML. Raises FlagError without one."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FlagError(f"it is not YAML: {' '.join(str(error).split())}") from None
    for container in _containers(documents, set()):
        parts = [container.get(key) or [] for key in ("command", "args")]
        words = [str(word) for part in parts if isinstance(part, list) for word in part]
        if PROGRAM in str(container.get("image", "")) or PROGRAM in str(container.get("name", "")) + " ".join(
            words[:1]
        ):
            if not all(isinstance(part, list) for part in parts):
                raise FlagError("command and args of the container must be lists")
            return words
    raise FlagError(f"it has no container of {PROGRAM}: expected its Deployment, or the flags themselves")


def _containers(value: Any, seen: set[int]) -> Iterable[Mapping[str, Any]]:
    """Every container in the documents, however deep. seen: the parts that are read, so that each alias counts once."""
    if id(value) in seen:
        return
    if isinstance(value, dict | list):
        seen.add(id(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "containers" and isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, dict))
            else:
                yield from _containers(inner, seen)
    elif isinstance(value, list):
        for inner in value:
            yield from _containers(inner, seen)


def propose(words: Sequence[str]) -> Proposal:
    """The settings for these flags, and every flag that cannot be read."""
    flags, problems = flags_in(words), list[str]()
    lines = [*_groups([value for name, value in flags if name == "nodes"], problems)]
    most = lines[0].settings["max_workers"] if lines else None
    for name, value in flags:
        if name != "nodes":
            lines += [_at_most(line, most) for line in _line(name, value, problems)]
    given = {name for name, _ in flags}
    for name, value in DEFAULTS.items():
        if name not in given:
            (line,) = _line(name, value, problems)
            lines.append(Line(source=f"{line.source} (default)", difference=line.difference, settings=line.settings))
    return Proposal(lines=with_longer_operations(lines), problems=tuple(problems))


def _line(name: str, value: str, problems: list[str]) -> list[Line]:
    source = f"--{name}={value}"
    if name == "node-group-auto-discovery":
        why = "the groups and their sizes are in AWS: run node-fleet import asg NAME for each group"
        return [Line(source=source, difference=why)]
    if name in NO_EQUIVALENT:
        return [Line(source=source, difference=BY_DESIGN)]
    if name not in RULES:
        near = difflib.get_close_matches(name, [*RULES, *NO_EQUIVALENT, "nodes"], n=1, cutoff=0.6)
        hint = f"; did you mean --{near[0]}?" if near else ""
        problems.append(f"{source} is no flag of Cluster Autoscaler that node-fleet knows{hint}")
        return []
    try:
        line = RULES[name](value)
    except FlagError as error:
        problems.append(f"{source}: {error}")
        return []
    return [Line(source=source, difference=line.difference, settings=line.settings)]


def _groups(values: Sequence[str], problems: list[str]) -> Iterable[Line]:
    """The sizes of all node groups together: node-fleet has one."""
    sizes = []
    for value in values:
        parts = value.split(":", 2)
        if len(parts) != 3 or not parts[0].isdecimal() or not parts[1].isdecimal() or int(parts[0]) > int(parts[1]):
            problems.append(f"--nodes={value}: expected MIN:MAX:NAME, such as 1:10:workers")
        else:
            sizes.append((int(parts[0]), int(parts[1])))
    if sizes:
        least, most = (sum(column) for column in zip(*sizes, strict=True))
        why = "run node-fleet import asg NAME for types, Spot share and subnets"
        if len(sizes) > 1:
            why = f"node-fleet has one group: the sizes of {len(sizes)} groups are added up; {why}"
        source = ", ".join(f"--nodes={value}" for value in values)
        yield Line(source=source, settings={"min_workers": least, "max_workers": most}, difference=why)
