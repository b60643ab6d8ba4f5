"""The fake Prometheus: the HTTP API, with basic auth, for exactly the queries in adapters/prometheus/queries.py.

Each answer is held to a real Prometheus by a conformance test. Any other query is refused, never guessed.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from node_fleet.adapters.prometheus import queries
from node_fleet.domain.model.value_class import value_class
from simulator.cluster.load.meters import CPU_MODES, LATENCY_BUCKETS_SECONDS
from simulator.cluster.objects import (
    LABEL_CONTROL_PLANE,
    Obj,
    condition_is_true,
    cpu_milli,
    epoch_of,
    internal_address,
    kubelet_version,
    memory_mib,
    node_of,
    pod_requests,
)
from simulator.fakes.exposition import MIB, SCRAPE_SECONDS, gated, not_scheduled
from simulator.fakes.scrapes import APP_COUNTERS, LOOKBACK_SECONDS, ClusterState, ReadyTrack, Scrapes

Row = tuple[dict[str, str], float]
Answer = Callable[[float], list[Row]]
Response = tuple[int, dict[str, str], bytes]

BAD_CONDITIONS = ("NetworkUnavailable", "DiskPressure", "MemoryPressure", "PIDPressure")
_IDLE = CPU_MODES.index("idle")
_SERVED, _ERRORS = APP_COUNTERS.index("served"), APP_COUNTERS.index("errors")
_BUCKETS = tuple(APP_COUNTERS.index(f"latency_le_{bound}") for bound in LATENCY_BUCKETS_SECONDS)
_WINDOW = re.compile(r"\[(\d+)s:1m\]")
_SELECTOR = re.compile(r"\b(?:kube|node|container|machine|http|app)_\w+(?:\{([^}]*)\})?")
_JOB = re.compile(r'\bjob=~?"([^"]*)"')


@dataclass(slots=True)
class Digest:
    """What the pods of one cluster state amount to."""

    pods: int = 0
    requested: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    bound: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    waiting: list[tuple[dict[str, str], float, dict[str, float]]] = field(default_factory=list)


@value_class
class ForgedSeries:
    """A figure that a hostile target states in place of the true one: its scrape job, the labels, the value."""

    job: str
    figure: str
    labels: dict[str, str]
    value: float


class FakePrometheus:
    """`handle` takes one HTTP request as path, parameters and headers, and gives status, headers and body."""

    def __init__(self, scrapes: Scrapes, *, username: str = "prometheus", password: str = "simulator") -> None:
        self._scrapes = scrapes
        self._credentials = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self._digest: tuple[int, Digest] = (-1, Digest())
        self.forged: list[ForgedSeries] = []
        self._answers = self._known_queries()

    def handle(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Response:
        """Answer as Prometheus does: 401 without the right user, 400 for an unknown query, else JSON."""
        sent = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
        if sent != self._credentials:
            return 401, {"Content-Type": "text/plain", "WWW-Authenticate": "Basic"}, b"Unauthorized\n"
        if path != "/api/v1/query":
            return 404, {"Content-Type": "text/plain"}, b"404 page not found\n"
        text = params.get("query", "")
        answer = self._answers.get(text) or self._not_ready(text)
        if answer is None:
            known = "the fake Prometheus answers only node-fleet's own queries, not"
            return _reply(400, {"status": "error", "errorType": "bad_data", "error": f"{known} {text:.200}"})
        at = float(params.get("time") or self._scrapes.last_at)
        rows = answer(at) if 0 <= at - self._scrapes.last_at < LOOKBACK_SECONDS else []
        result = [{"metric": labels, "value": [at, _number(value)]} for labels, value in rows]
        return _reply(200, {"status": "success", "data": {"resultType": "vector", "result": result}})

    def _known_queries(self) -> dict[str, Answer]:
        figures: dict[str, Answer] = {
            "nodes_known": self._nodes_known,
            "node": self._node,
            "version": self._version,
            "ready": self._ready,
            "unschedulable": self._unschedulable,
            "taint": self._taint,
            "condition": self._condition,
            "allocatable": self._allocatable,
            "pods_known": self._pods_known,
            "requested": self._requested,
            "pods": self._pods,
            "age": self._age,
            "cpu": self._cpu,
            "cores": self._cores,
            "memory_total": self._memory_total,
            "memory_available": self._memory_available,
        }
        batches = (queries.NODES, queries.PODS, queries.PENDING, queries.WORKERS)
        known: dict[str, Answer] = {}
        for batch in batches:
            parts = {name: self._with_forged(name, text, figures[name]) for name, text in batch.parts.items()}
            known |= {batch.parts[name]: answer for name, answer in parts.items()}
            known[batch.text] = _union(parts)
        known[queries.PENDING_REQUESTS] = self._pending_requests
        known[queries.NODE_CPU_CADVISOR] = self._cadvisor
        built_in: dict[str, Answer] = {
            "queue_depth": self._queue_depth,
            "latency_p95": lambda at: self._latency(at, 0.95),
            "latency_p99": lambda at: self._latency(at, 0.99),
            "request_rate": lambda at: self._request_rate(at, 300),
            "error_rate": self._error_rate,
            "request_traffic": lambda at: self._request_rate(at, 120),
        }
        parts = {name: self._with_forged(name, text, built_in[name]) for name, text in queries.CUSTOM.parts.items()}
        known[queries.CUSTOM.text] = _union(parts)
        return known | {text: parts[name] for name, text in queries.CUSTOM.parts.items()}

    def _with_forged(self, figure: str, query: str, answer: Answer) -> Answer:
        """The answer with the forged series whose job the query admits, each in place of the one of the same labels."""

        def answer_with_forged(at: float) -> list[Row]:
            stated = [one for one in self.forged if one.figure == figure and admits(query, one.job)]
            if not stated:
                return answer(at)
            replaced = [one.labels for one in stated]
            true_rows = [row for row in answer(at) if row[0] not in replaced]
            return true_rows + [(one.labels, one.value) for one in stated]

        return answer_with_forged

    # nodes ------------------------------------------------------------------------------------------------------

    def _nodes(self) -> list[Obj]:
        return list(self._scrapes.state.nodes) if self._scrapes.state else []

    def _nodes_known(self, _at: float) -> list[Row]:
        nodes = self._nodes()
        return [({}, float(len(nodes)))] if nodes else []

    def _node(self, _at: float) -> list[Row]:
        rows = []
        for node in self._nodes():
            if LABEL_CONTROL_PLANE not in node["metadata"].get("labels", {}):
                stated = {"provider_id": node["spec"].get("providerID", ""), "internal_ip": internal_address(node)}
                rows.append(({"node": _name(node), **{name: text for name, text in stated.items() if text}}, 1.0))
        return rows

    def _version(self, _at: float) -> list[Row]:
        return [({"node": _name(node), "kubelet_version": kubelet_version(node)}, 1.0) for node in self._nodes()]

    def _ready(self, _at: float) -> list[Row]:
        return [({"node": _name(node)}, float(condition_is_true(node, "Ready"))) for node in self._nodes()]

    def _unschedulable(self, _at: float) -> list[Row]:
        return [({"node": _name(node)}, float(bool(node["spec"].get("unschedulable")))) for node in self._nodes()]

    def _taint(self, _at: float) -> list[Row]:
        rows = []
        for node in self._nodes():
            for taint in node["spec"].get("taints", ()):
                labels = {"node": _name(node), "key": taint["key"], "effect": taint["effect"]}
                if taint.get("value"):
                    labels["value"] = taint["value"]
                rows.append((labels, 1.0))
        return rows

    def _condition(self, _at: float) -> list[Row]:
        return [
            ({"node": _name(node), "condition": kind}, 1.0)
            for node in self._nodes()
            for kind in BAD_CONDITIONS
            if condition_is_true(node, kind)
        ]

    def _allocatable(self, _at: float) -> list[Row]:
        rows = []
        for node in self._nodes():
            name, amounts = _name(node), node["status"]["allocatable"]
            rows.append(({"node": name, "resource": "cpu"}, cpu_milli(amounts["cpu"]) / 1000))
            rows.append(({"node": name, "resource": "memory"}, memory_mib(amounts["memory"]) * MIB))
            rows.append(({"node": name, "resource": "pods"}, float(amounts["pods"])))
        return rows

    def _not_ready(self, text: str) -> Answer | None:
        found = _WINDOW.search(text)
        if found is None or text != queries.not_ready_seconds(int(found[1])):
            return None
        window = int(found[1])
        return self._with_forged("not_ready", text, lambda at: self._not_ready_rows(at, window))

    def _not_ready_rows(self, at: float, window: float) -> list[Row]:
        if not self._scrapes.state:
            return []
        marks = {name: _since(track, at, window) for name, track in self._scrapes.ready.items()}
        return [({"node": name}, at - since) for name, since in marks.items() if since is not None]

    # pods -------------------------------------------------------------------------------------------------------

    def _pod_digest(self) -> Digest:
        state = self._scrapes.state
        if state is None:
            return Digest()
        if self._digest[0] != state.version:
            self._digest = state.version, _digest(state)
        return self._digest[1]

    def _pods_known(self, _at: float) -> list[Row]:
        pods = self._pod_digest().pods
        return [({}, float(pods))] if pods else []

    def _requested(self, _at: float) -> list[Row]:
        return [
            ({"node": node, "resource": resource}, amount)
            for node, amounts in self._pod_digest().requested.items()
            for resource, amount in amounts.items()
        ]

    def _pods(self, _at: float) -> list[Row]:
        return [({"node": node}, float(count)) for node, count in self._pod_digest().bound.items()]

    def _age(self, at: float) -> list[Row]:
        return [(labels, at - created) for labels, created, _requests in self._pod_digest().waiting]

    def _pending_requests(self, _at: float) -> list[Row]:
        return [
            ({**labels, "resource": resource}, amount)
            for labels, _created, requests in self._pod_digest().waiting
            for resource, amount in requests.items()
        ]

    # workers' load ----------------------------------------------------------------------------------------------

    def _live(self, at: float) -> list[Any]:
        if at - self._scrapes.last_at > queries.FRESH_SECONDS:
            return []
        return [track for track in self._scrapes.workers.values() if track.up]

    def _cpu(self, at: float) -> list[Row]:
        rows = []
        for track in self._live(at):
            rates = track.cpu.rates(at, queries.RATE_WINDOW_SECONDS)
            if rates is not None:
                rows.append((_worker(track), 100 * (1 - rates[_IDLE] / sum(rates))))
        return rows

    def _cadvisor(self, at: float) -> list[Row]:
        rows = []
        for track in self._scrapes.workers.values():
            rates = track.used.rates(at, queries.RATE_WINDOW_SECONDS) if track.kubelet_up else None
            if rates is not None:
                rows.append(({"node": track.machine.node_name}, 100 * rates[0] / track.cores))
        return rows

    def _cores(self, at: float) -> list[Row]:
        return [(_worker(track), float(track.cores)) for track in self._live(at)]

    def _memory_total(self, at: float) -> list[Row]:
        return [(_worker(track), track.memory_total_mib * MIB) for track in self._live(at)]

    def _memory_available(self, at: float) -> list[Row]:
        return [(_worker(track), track.memory_available_mib * MIB) for track in self._live(at)]

    # the demo app -----------------------------------------------------------------------------------------------

    def _queue_depth(self, _at: float) -> list[Row]:
        depths = [track.queue_depth for track in self._scrapes.apps.values() if track.queues]
        return [({}, max(depths))] if depths else []

    def _app_rates(self, at: float, window: float) -> list[float]:
        """Summed over applications; empty when there is none with two samples."""
        found = [track.counters.rates(at, window) for track in self._scrapes.apps.values()]
        return [sum(column) for column in zip(*[rates for rates in found if rates is not None], strict=True)]

    def _request_rate(self, at: float, window: float) -> list[Row]:
        rates = self._app_rates(at, window)
        return [({}, rates[_SERVED] + rates[_ERRORS])] if rates else []

    def _error_rate(self, at: float) -> list[Row]:
        rates = self._app_rates(at, 120)
        if not rates:
            return []
        total = rates[_SERVED] + rates[_ERRORS]
        return [({}, 100 * rates[_ERRORS] / total if total else math.nan)]

    def _latency(self, at: float, quantile: float) -> list[Row]:
        rates = self._app_rates(at, 300)
        if not rates:
            return []
        buckets = [(bound, rates[index]) for bound, index in zip(LATENCY_BUCKETS_SECONDS, _BUCKETS, strict=True)]
        return [({}, 1000 * histogram_quantile(quantile, [*buckets, (math.inf, rates[_SERVED])]))]


def admits(query: str, job: str) -> bool:
    """Whether a selector of the query takes the series of that scrape job."""
    matchers = [_JOB.search(selector) for selector in _SELECTOR.findall(query)]
    return any(found is None or re.fullmatch(found[1], job) for found in matchers)


def histogram_quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    """Prometheus' function over (upper bound, cumulative rate), bounds rising, the last one infinite."""
    total = buckets[-1][1]
    if not total:
        return math.nan
    rank = quantile * total
    place = next((i for i, (_, count) in enumerate(buckets[:-1]) if count >= rank), len(buckets) - 1)
    if place == len(buckets) - 1:
        return buckets[-2][0]
    start, below = buckets[place - 1] if place else (0.0, 0.0)
    end, count = buckets[place]
    return start + (end - start) * (rank - below) / (count - below)


def _since(track: ReadyTrack, at: float, window: float) -> float | None:
    """The last whole minute at which the node was ready, or else the scrape behind the first at which it was seen."""
    oldest = max(at - window, track.seen_at)
    for begun, ended in reversed(track.spells):
        minute = math.floor(at / 60) * 60 if ended > at else (math.ceil(ended / 60) - 1) * 60
        if minute >= max(begun, oldest):
            return float(minute)
    first = math.ceil(oldest / 60) * 60
    if first > at or (track.gone_at is not None and first >= track.gone_at):
        return None
    return track.seen_at + math.floor((first - track.seen_at) / SCRAPE_SECONDS) * SCRAPE_SECONDS


def _digest(state: ClusterState) -> Digest:
    digest = Digest(pods=len(state.pods))
    for pod in state.pods:
        node = node_of(pod)
        if node and pod["status"].get("phase", "Pending") in ("Pending", "Running"):
            digest.bound[node] += 1
            for resource, amount in _amounts(pod).items():
                digest.requested[node][resource] += amount
        elif not_scheduled(pod) and not gated(pod):
            metadata = pod["metadata"]
            labels = {"namespace": metadata["namespace"], "pod": metadata["name"], "uid": metadata["uid"]}
            digest.waiting.append((labels, epoch_of(metadata["creationTimestamp"]), _amounts(pod)))
    return digest


def _amounts(pod: Obj) -> dict[str, float]:
    cpu, memory = pod_requests(pod)
    found = {"cpu": cpu / 1000, "memory": memory * MIB}
    return {resource: amount for resource, amount in found.items() if amount}


def _union(figures: Mapping[str, Answer]) -> Answer:
    def answer(at: float) -> list[Row]:
        return [({**labels, "figure": name}, value) for name, one in figures.items() for labels, value in one(at)]

    return answer


def _name(node: Obj) -> str:
    return str(node["metadata"]["name"])


def _worker(track: Any) -> dict[str, str]:
    return {"instance_id": track.machine.instance_id}


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def _reply(status: int, payload: Mapping[str, Any]) -> Response:
    return status, {"Content-Type": "application/json"}, json.dumps(payload, check_circular=False).encode()
