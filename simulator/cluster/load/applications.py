"""Applications under load: CPU use of their pods, replicas that their autoscaler asks for, requests left unserved.

The autoscaler computes as the HorizontalPodAutoscaler (autoscaling/v2) does: target utilisation of requests, 10 %
tolerance, pods that are not ready count as idle on a scale-up, and a stabilisation window for a scale-down.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from node_fleet.domain.model.value_class import value_class
from simulator.cluster.control.controllers import replica_sets_of
from simulator.cluster.load.curves import Curve, constant
from simulator.cluster.load.meters import LATENCY_BUCKETS_SECONDS, Counters, bucket_share
from simulator.cluster.objects import Obj, condition_is_true, is_active, key_of, node_of
from simulator.cluster.state import ClusterState, PodKey

WorkloadKind = Literal["Deployment", "StatefulSet"]
TOLERANCE = 0.1
QUEUE_CATCH_UP_SECONDS = 60.0
HIGHEST_UTILISATION = 0.95
NO_LOAD = constant(0.0)


@value_class
class Autoscale:
    """The settings of a HorizontalPodAutoscaler."""

    min_replicas: int
    max_replicas: int
    target_percent: float = 70.0
    evaluation_seconds: float = 15.0
    scale_down_stabilisation_seconds: float = 300.0


@value_class
class ApplicationSpec:
    """One workload: the requests of each pod, the cost of each request, its load, its budget and its shutdown."""

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
    restart_before_drain: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)


@value_class
class Member:
    """One pod of an application: its node, and whether it serves requests."""

    key: PodKey
    node: str
    serves: bool


@dataclass(slots=True)
class Application:
    """The running state of one workload."""

    spec: ApplicationSpec
    started_at: float
    counters: Counters
    rate: float = 0.0
    replicas: int = 1
    members: list[Member] = field(default_factory=list)
    usage_milli: float = 0.0
    accounted: tuple[float, float, float] | None = None
    served_rate: float = 0.0
    queue: float = 0.0
    queue_slope: float = 0.0
    queue_at: float = 0.0
    mean_latency_seconds: float = 0.0
    recommendations: deque[tuple[float, int]] = field(default_factory=deque)
    next_evaluation: float | None = None

    @property
    def serving(self) -> int:
        return sum(1 for member in self.members if member.serves)

    @property
    def owner(self) -> tuple[str, str, str]:
        resource = "deployments" if self.spec.kind == "Deployment" else "statefulsets"
        return resource, self.spec.namespace, self.spec.name

    def queue_depth(self, now: float) -> float:
        return max(0.0, self.queue + self.queue_slope * (now - self.queue_at))

    def wanted_cpu_milli(self, now: float) -> float:
        """CPU that serves the offered load and empties a queue within a minute."""
        backlog = self.queue_depth(now) / QUEUE_CATCH_UP_SECONDS if self.spec.queues else 0.0
        return (self.rate + backlog) * self.spec.cpu_milli_per_request


class Applications:
    """Spreads each application's load over its serving pods and runs its autoscaler."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.running: dict[str, Application] = {}
        self.usage: dict[PodKey, tuple[float, float]] = {}

    def add(self, spec: ApplicationSpec) -> Application:
        now = self._state.now()
        replicas = spec.replicas
        if spec.autoscale:
            replicas = min(max(replicas, spec.autoscale.min_replicas), spec.autoscale.max_replicas)
        application = Application(spec=spec, started_at=now, counters=Counters(at=now), replicas=replicas, queue_at=now)
        self.running[f"{spec.namespace}/{spec.name}"] = application
        self._state.work.members = True
        self._sample(application)
        return application

    def set_curve(self, name: str, curve: Curve) -> None:
        """Replace an application's load from this moment on; the curve still counts from the application's start."""
        application = self.running[name]
        application.spec = replace(application.spec, curve=curve)
        self._take_rate(application)

    def _sample(self, application: Application) -> None:
        self._take_rate(application)
        self._state.after(self._state.settings.load_step_seconds, lambda: self._sample(application))

    def _take_rate(self, application: Application) -> None:
        rate = application.spec.curve(self._state.now() - application.started_at)
        if rate != application.rate or application.queue_depth(self._state.now()) > 0:
            application.rate = rate
            self._state.work.applications = True

    def refresh_members(self) -> None:
        """Read anew which pods each application has and which of them serve."""
        for application in self.running.values():
            application.members = [
                Member(key=key_of(pod), node=node_of(pod), serves=self._serves(pod)) for pod in self._pods(application)
            ]

    def _serves(self, pod: Obj) -> bool:
        return is_active(pod) and condition_is_true(pod, "Ready") and self._state.machine_serves(node_of(pod))

    def _pods(self, application: Application) -> list[Obj]:
        owner = self._state.store.find(*application.owner)
        if owner is None:
            return []
        owners = replica_sets_of(self._state.store, owner) if owner["kind"] == "Deployment" else [owner]
        return [pod for one in owners for pod in self._state.pods_of_owner(one["metadata"]["uid"])]

    def spread_load(self) -> None:
        """First half of a refresh: the CPU and memory that every pod asks for at this moment."""
        now = self._state.now()
        for application in self.running.values():
            spec, serving = application.spec, application.serving
            share = application.wanted_cpu_milli(now) / serving if serving else 0.0
            used = min(float(spec.cpu_limit_milli), spec.idle_cpu_milli + share)
            application.usage_milli = used
            memory = spec.memory_usage_mib or spec.memory_request_mib * 0.8
            for member in application.members:
                self._set_usage(member, used if member.serves else 0.0, memory)

    def _set_usage(self, member: Member, cpu: float, memory: float) -> None:
        if self.usage.get(member.key) != (cpu, memory):
            self.usage[member.key] = (cpu, memory)
            if member.node:
                self._state.work.usage[member.node] = None

    def forget(self, key: PodKey) -> None:
        self.usage.pop(key, None)

    def account(self, slowdown: dict[str, float]) -> None:
        """Second half: the requests that were served, given how far each node slows its pods."""
        for application in self.running.values():
            self._account(application, slowdown)
            self._plan_evaluation(application)

    def _account(self, application: Application, slowdown: dict[str, float]) -> None:
        """Rates change only with the offered load or the CPU share, or while a queue shrinks."""
        now, spec = self._state.now(), application.spec
        got = sum(slowdown.get(member.node, 1.0) for member in application.members if member.serves)
        basis = (application.rate, application.usage_milli, got)
        if basis == application.accounted and not spec.queues:
            return
        application.accounted = basis
        cost = max(1e-9, spec.cpu_milli_per_request)
        served = max(0.0, application.usage_milli - spec.idle_cpu_milli) * got / cost
        capacity = max(0.0, spec.cpu_limit_milli - spec.idle_cpu_milli) * got / cost
        self._move_queue(application, now, application.rate - served if spec.queues else 0.0)
        utilisation = application.rate / capacity if capacity else HIGHEST_UTILISATION
        mean = spec.base_latency_ms / 1000 / (1 - min(HIGHEST_UTILISATION, utilisation))
        if spec.queues and served > 0:
            mean += application.queue_depth(now) / served
        application.served_rate, application.mean_latency_seconds = served, mean
        unserved = max(0.0, application.rate - served)
        application.counters.set_rates(now, _rates(application, served, unserved, mean))

    @staticmethod
    def _move_queue(application: Application, now: float, slope: float) -> None:
        application.queue = application.queue_depth(now)
        application.queue_at = now
        application.queue_slope = slope if slope > 0 or application.queue > 0 else 0.0

    def _plan_evaluation(self, application: Application) -> None:
        """Plan an evaluation at the next whole period when the recommendation changes."""
        autoscale = application.spec.autoscale
        if autoscale is None:
            return
        window = application.recommendations
        known = window[-1][1] if window else application.replicas
        if self._desired(application) != known:
            period = autoscale.evaluation_seconds
            self._evaluate_at(application, (math.floor(self._state.now() / period) + 1) * period)

    def _evaluate_at(self, application: Application, due: float) -> None:
        planned = application.next_evaluation
        if planned is None or due < planned:
            application.next_evaluation = due
            self._state.after(due - self._state.now(), lambda: self._evaluate(application, due))

    def _evaluate(self, application: Application, due: float) -> None:
        autoscale = application.spec.autoscale
        if application.next_evaluation != due or autoscale is None:
            return
        application.next_evaluation = None
        self.scale(application, self._stabilised(application, self._desired(application), autoscale))
        self._state.work.applications = True

    def _stabilised(self, application: Application, desired: int, autoscale: Autoscale) -> int:
        """A scale-down waits until the window holds no higher recommendation; a scale-up does not wait.

        A recommendation is valid until the next one, so it leaves the window one window length after its successor.
        """
        window, now = application.recommendations, self._state.now()
        if desired >= application.replicas:
            window.clear()
            return desired
        if not window:
            window.append((now, application.replicas))
        if window[-1][1] != desired or len(window) == 1:
            window.append((now, desired))
        while len(window) > 1 and window[1][0] <= now - autoscale.scale_down_stabilisation_seconds:
            window.popleft()
        if len(window) > 1:
            self._evaluate_at(application, window[1][0] + autoscale.scale_down_stabilisation_seconds)
        return min(application.replicas, max(count for _at, count in window))

    def _desired(self, application: Application) -> int:
        autoscale, spec = application.spec.autoscale, application.spec
        assert autoscale is not None
        current, serving = application.replicas, application.serving
        wanted = current
        if serving:
            used = application.usage_milli * serving
            wanted = _by_utilisation(used, spec.cpu_request_milli, autoscale.target_percent, serving, current)
            wanted = min(wanted, max(2 * current, current + 4))
        return min(max(wanted, autoscale.min_replicas), autoscale.max_replicas)

    def scale(self, application: Application, replicas: int) -> None:
        if replicas != application.replicas:
            application.replicas = replicas
            resource, namespace, name = application.owner
            if self._state.store.find(resource, namespace, name):
                self._state.store.update(
                    resource, namespace, name, lambda fresh: fresh["spec"].update(replicas=replicas)
                )


def _by_utilisation(used: float, request: int, target_percent: float, serving: int, current: int) -> int:
    """The formula of the HPA: ready pods decide the direction; unready pods count as idle on a scale-up."""
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
