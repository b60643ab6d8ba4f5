"""Applications under load: what their pods use, how many replicas their autoscaler wants, what goes unserved.

The autoscaler is the Kubernetes one in its sums: target utilisation of requests, 10 % tolerance, pods that are not
ready count as idle when going up, and a stabilisation window when going down.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from simulator.k3s.cluster import Cluster, PodKey
from simulator.k3s.curves import Curve, constant
from simulator.k3s.meters import LATENCY_BUCKETS_SECONDS, Counters, bucket_share
from simulator.k3s.shapes import Obj, condition_is_true, is_active, key_of, node_of

WorkloadKind = Literal["Deployment", "StatefulSet"]
TOLERANCE = 0.1
QUEUE_CATCH_UP_SECONDS = 60.0
HIGHEST_UTILISATION = 0.95
NO_LOAD = constant(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscale:
    """A HorizontalPodAutoscaler in short."""

    min_replicas: int
    max_replicas: int
    target_percent: float = 70.0
    evaluation_seconds: float = 15.0
    scale_down_stabilisation_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSpec:
    """One workload: what each pod asks for, what each request costs, and how it behaves when told to stop."""

    name: str
    namespace: str = "shop"
    kind: WorkloadKind = "Deployment"
    cpu_request_milli: int = 250
    memory_request_mib: int = 128
    cpu_limit_milli: int = 500
    replicas: int = 1
    curve: Curve = NO_LOAD
    cpu_milli_per_request: float = 10.0
    autoscale: Autoscale | None = None
    base_latency_ms: float = 40.0
    queues: bool = False
    idle_cpu_milli: float = 5.0
    memory_usage_mib: float | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    grace_seconds: int = 30
    shutdown_seconds: float | None = None
    start_seconds: float | None = None
    volume: Literal["none", "emptyDir", "local-path"] = "none"
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Application:
    """The running state of one workload."""

    spec: ApplicationSpec
    started_at: float
    counters: Counters
    rate: float = 0.0
    replicas: int = 1
    serving: int = 0
    served_rate: float = 0.0
    queue: float = 0.0
    queue_slope: float = 0.0
    queue_at: float = 0.0
    mean_latency_seconds: float = 0.0
    recommendations: deque[tuple[float, int]] = field(default_factory=deque)
    next_evaluation: float | None = None

    @property
    def owner(self) -> tuple[str, str, str]:
        resource = "deployments" if self.spec.kind == "Deployment" else "statefulsets"
        return resource, self.spec.namespace, self.spec.name

    def queue_depth(self, now: float) -> float:
        return max(0.0, self.queue + self.queue_slope * (now - self.queue_at))

    def wanted_cpu_milli(self, now: float) -> float:
        """CPU that would serve the offered load, and work off a queue within a minute."""
        backlog = self.queue_depth(now) / QUEUE_CATCH_UP_SECONDS if self.spec.queues else 0.0
        return (self.rate + backlog) * self.spec.cpu_milli_per_request


class Applications:
    """Spreads each application's load over its serving pods and runs its autoscaler."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.running: dict[str, Application] = {}
        self.usage_cpu_milli: dict[PodKey, float] = {}
        self.usage_memory_mib: dict[PodKey, float] = {}

    def add(self, spec: ApplicationSpec) -> Application:
        now = self._cluster.now()
        replicas = spec.replicas
        if spec.autoscale:
            replicas = min(max(replicas, spec.autoscale.min_replicas), spec.autoscale.max_replicas)
        application = Application(spec=spec, started_at=now, counters=Counters(at=now), replicas=replicas, queue_at=now)
        self.running[f"{spec.namespace}/{spec.name}"] = application
        self._sample(application)
        return application

    def set_curve(self, name: str, curve: Curve) -> None:
        """Replace an application's load from now on; the curve's zero stays the application's start."""
        application = self.running[name]
        application.spec = replace(application.spec, curve=curve)
        self._take_rate(application)

    def _sample(self, application: Application) -> None:
        self._take_rate(application)
        self._cluster.after(self._cluster.settings.load_step_seconds, lambda: self._sample(application))

    def _take_rate(self, application: Application) -> None:
        rate = application.spec.curve(self._cluster.now() - application.started_at)
        if rate != application.rate or application.queue_depth(self._cluster.now()) > 0:
            application.rate = rate
            self._cluster.attention.applications = True

    def serving_pods(self, application: Application) -> list[Obj]:
        return [
            pod
            for pod in self._pods(application)
            if is_active(pod) and condition_is_true(pod, "Ready") and self._cluster.machine_serves(node_of(pod))
        ]

    def _pods(self, application: Application) -> list[Obj]:
        resource, namespace, name = application.owner
        owner = self._cluster.store.find(resource, namespace, name)
        if owner is None:
            return []
        if resource == "statefulsets":
            return self._cluster.pods_of_owner(owner["metadata"]["uid"])
        pods = []
        for replica_set in self._cluster.store.all("replicasets"):
            references = replica_set["metadata"].get("ownerReferences", ())
            if any(reference["uid"] == owner["metadata"]["uid"] for reference in references):
                pods += self._cluster.pods_of_owner(replica_set["metadata"]["uid"])
        return pods

    def spread_load(self) -> None:
        """First half of a refresh: what every pod of every application wants to use now."""
        now = self._cluster.now()
        for application in self.running.values():
            pods = self.serving_pods(application)
            application.serving = len(pods)
            share = application.wanted_cpu_milli(now) / len(pods) if pods else 0.0
            spec = application.spec
            used = min(float(spec.cpu_limit_milli), spec.idle_cpu_milli + share)
            memory = spec.memory_usage_mib or spec.memory_request_mib * 0.8
            serving = {key_of(pod) for pod in pods}
            for pod in self._pods(application):
                self._set_usage(pod, used if key_of(pod) in serving else 0.0, memory)

    def _set_usage(self, pod: Obj, cpu: float, memory: float) -> None:
        key = key_of(pod)
        if self.usage_cpu_milli.get(key) != cpu or self.usage_memory_mib.get(key) != memory:
            self.usage_cpu_milli[key], self.usage_memory_mib[key] = cpu, memory
            if node_of(pod):
                self._cluster.attention.usage[node_of(pod)] = None

    def forget(self, key: PodKey) -> None:
        self.usage_cpu_milli.pop(key, None)
        self.usage_memory_mib.pop(key, None)

    def account(self, slowdown: dict[str, float]) -> None:
        """Second half: what was really served, given how far each node had to slow its pods."""
        for application in self.running.values():
            self._account(application, slowdown)
            self._plan_evaluation(application)

    def _account(self, application: Application, slowdown: dict[str, float]) -> None:
        now, spec = self._cluster.now(), application.spec
        cost = max(1e-9, spec.cpu_milli_per_request)
        got = capacity = 0.0
        for pod in self.serving_pods(application):
            share = slowdown.get(node_of(pod), 1.0)
            got += max(0.0, self.usage_cpu_milli[key_of(pod)] - spec.idle_cpu_milli) * share
            capacity += max(0.0, spec.cpu_limit_milli - spec.idle_cpu_milli) * share
        served = got / cost
        unserved = max(0.0, application.rate - served)
        self._move_queue(application, now, application.rate - served if spec.queues else 0.0)
        utilisation = min(HIGHEST_UTILISATION, application.rate * cost / capacity) if capacity else HIGHEST_UTILISATION
        mean = spec.base_latency_ms / 1000 / (1 - utilisation)
        if spec.queues and served > 0:
            mean += application.queue_depth(now) / served
        application.served_rate, application.mean_latency_seconds = served, mean
        application.counters.set_rates(now, _rates(application, served, unserved, mean))

    @staticmethod
    def _move_queue(application: Application, now: float, slope: float) -> None:
        application.queue = application.queue_depth(now)
        application.queue_at = now
        application.queue_slope = slope if slope > 0 or application.queue > 0 else 0.0

    def _plan_evaluation(self, application: Application) -> None:
        autoscale = application.spec.autoscale
        if autoscale is None or application.next_evaluation is not None:
            return
        if self._desired(application) == application.replicas and not application.recommendations:
            return
        now, period = self._cluster.now(), autoscale.evaluation_seconds
        due = (math.floor(now / period) + 1) * period
        application.next_evaluation = due
        self._cluster.after(due - now, lambda: self._evaluate(application))

    def _evaluate(self, application: Application) -> None:
        application.next_evaluation = None
        autoscale, now = application.spec.autoscale, self._cluster.now()
        assert autoscale is not None
        desired = self._desired(application)
        self.scale(
            application, self._stabilised(application, desired, now - autoscale.scale_down_stabilisation_seconds)
        )
        self._cluster.attention.applications = True

    def _stabilised(self, application: Application, desired: int, forget_before: float) -> int:
        """Going down waits until nothing higher was wanted within the window; going up does not wait."""
        window, now = application.recommendations, self._cluster.now()
        if desired >= application.replicas:
            window.clear()
            return desired
        if not window:
            window.append((now, application.replicas))
        window.append((now, desired))
        while window[0][0] <= forget_before:
            window.popleft()
        return min(application.replicas, max(count for _at, count in window))

    def _desired(self, application: Application) -> int:
        autoscale, spec = application.spec.autoscale, application.spec
        assert autoscale is not None
        current = application.replicas
        serving = self.serving_pods(application)
        wanted = current
        if serving:
            used = sum(self.usage_cpu_milli.get(key_of(pod), 0.0) for pod in serving)
            wanted = _by_utilisation(used, spec.cpu_request_milli, autoscale.target_percent, len(serving), current)
            wanted = min(wanted, max(2 * current, current + 4))
        return min(max(wanted, autoscale.min_replicas), autoscale.max_replicas)

    def scale(self, application: Application, replicas: int) -> None:
        if replicas != application.replicas:
            application.replicas = replicas
            resource, namespace, name = application.owner
            if self._cluster.store.find(resource, namespace, name):
                self._cluster.store.update(
                    resource, namespace, name, lambda fresh: fresh["spec"].update(replicas=replicas)
                )


def _by_utilisation(used: float, request: int, target_percent: float, serving: int, current: int) -> int:
    """The HPA's sum: ready pods decide the direction; unready ones count as idle on the way up."""
    ratio = used / (request * serving) * 100 / target_percent
    if abs(ratio - 1) <= TOLERANCE:
        return current
    if ratio < 1:
        return math.ceil(ratio * serving - 1e-9)
    with_idle = used / (request * max(current, serving)) * 100 / target_percent
    return current if with_idle <= 1 + TOLERANCE else math.ceil(with_idle * max(current, serving) - 1e-9)


def _rates(application: Application, served: float, unserved: float, mean: float) -> dict[str, float]:
    errors = 0.0 if application.spec.queues else unserved
    rates = {"offered": application.rate, "served": served, "unserved": unserved, "errors": errors}
    rates["latency_seconds_sum"] = served * mean
    for bound in LATENCY_BUCKETS_SECONDS:
        rates[f"latency_le_{bound}"] = served * bucket_share(bound, mean)
    return rates
