"""A Prometheus that answers what a test tells it to, through the face of a requests session."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import requests

from node_fleet.adapters.prometheus import queries
from node_fleet.adapters.prometheus.http import PrometheusClient
from node_fleet.adapters.prometheus.reader import PrometheusReader
from node_fleet.settings import Settings

Rows = list[tuple[dict[str, str], float | str]]
BATCHES = (queries.NODES, queries.PODS, queries.PENDING, queries.WORKERS, queries.CUSTOM)
NOW = 1_780_300_800


@dataclass
class StepClock:
    """Time that moves only by `advance` and `sleep`."""

    at: int = NOW
    slept: list[float] = field(default_factory=list)

    def now(self) -> int:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += int(seconds)


@dataclass
class FakeSession:
    """Answers by figure. `script` is used up first: a response, or an exception to raise; None answers as usual."""

    clock: StepClock
    figures: dict[str, Rows] = field(default_factory=dict)
    texts: dict[str, Rows] = field(default_factory=dict)
    script: list[Any] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    seconds_per_request: int = 0
    password: str = "right"
    forms: list[dict[str, str]] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def send_until(self, deadline: float, request: requests.PreparedRequest, timeout: float) -> requests.Response:
        form = {name: values[0] for name, values in parse_qs(str(request.body)).items()}
        self.forms.append(form)
        self.urls.append(str(request.url))
        self.timeouts.append(timeout)
        scripted = self.script.pop(0) if self.script else None
        if isinstance(scripted, Exception):
            self.clock.at += int(timeout) if isinstance(scripted, requests.Timeout) else 0
            raise scripted
        self.clock.at += self.seconds_per_request
        if scripted is not None:
            assert isinstance(scripted, requests.Response)
            return scripted
        token = base64.b64encode(f"prometheus:{self.password}".encode()).decode()
        if request.headers["Authorization"] != f"Basic {token}":
            return reply(401, "Unauthorized\n", "text/plain")
        return self._answer(form["query"])

    def _answer(self, text: str) -> requests.Response:
        if any(part in text for part in self.refuses):
            return reply(400, json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}))
        for batch in BATCHES:
            if text == batch.text:
                rows = [({**labels, "figure": name}, v) for name in batch.parts for labels, v in self._rows(name)]
                return vector(rows)
            for name, part in batch.parts.items():
                if text == part:
                    return vector(self._rows(name))
        if text == queries.NODE_CPU_CADVISOR:
            return vector(self._rows("cadvisor"))
        if text == queries.PENDING_REQUESTS:
            return vector(self._rows("pending_requests"))
        return vector(self.texts.get(text, self._rows("not_ready") if text.startswith("time() - (") else []))

    def _rows(self, name: str) -> Rows:
        return self.figures.get(name, [])


def vector(rows: Rows) -> requests.Response:
    result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in rows]
    return reply(200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}))


def reply(status: int, text: str, kind: str = "application/json") -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response.headers["Content-Type"] = kind
    response._content, response._content_consumed = text.encode(), True
    return response


def worker_rows(name: str, **figures: float) -> dict[str, Rows]:
    """The rows of one healthy worker i-NAME; figures replace the usual ones."""
    usual = {"cpu": 50.0, "cores": 2.0, "memory_total": 4096 * 2**20, "memory_available": 1024 * 2**20}
    instance = f"i-{name}"
    rows: dict[str, Rows] = {
        "node": [({"node": instance, "provider_id": f"aws:///a/{instance}"}, 1)],
        "ready": [({"node": instance}, 1)],
        "unschedulable": [({"node": instance}, 0)],
        "allocatable": [
            ({"node": instance, "resource": "cpu"}, 1.9),
            ({"node": instance, "resource": "memory"}, 3600 * 2**20),
            ({"node": instance, "resource": "pods"}, 110),
        ],
        "requested": [({"node": instance, "resource": "cpu"}, 0.75)],
        "pods": [({"node": instance}, 4)],
    }
    return rows | {name: [({"instance_id": instance}, value)] for name, value in (usual | figures).items()}


def fleet_rows(*workers: dict[str, Rows]) -> dict[str, Rows]:
    """A cluster of these workers and its server, with nothing waiting."""
    found: dict[str, Rows] = {"nodes_known": [({}, len(workers) + 1)], "pods_known": [({}, 20)]}
    found |= {"ready": [({"node": "server"}, 1)], "unschedulable": [({"node": "server"}, 0)]}
    for rows in workers:
        for name, some in rows.items():
            found[name] = [*found.get(name, []), *some]
    return found


@dataclass
class Bench:
    """A reader over a fake session; `secret` is what the secret holds now, `remembered` what was read before."""

    settings: Settings = field(default_factory=Settings)
    clock: StepClock = field(default_factory=StepClock)
    secret: str = "right"
    remembered: str = "right"
    addresses: list[str] = field(default_factory=lambda: ["10.0.0.1"])
    looked_up: int = 0
    session: FakeSession = field(init=False)
    reader: PrometheusReader = field(init=False)

    def __post_init__(self) -> None:
        self.session = FakeSession(self.clock)
        client = PrometheusClient(
            self.session, self.settings, address=self._address, credentials=self._credentials, clock=self.clock
        )
        self.reader = PrometheusReader(client, self.settings)

    def _address(self) -> str:
        self.looked_up += 1
        return self.addresses[min(self.looked_up, len(self.addresses)) - 1]

    def _credentials(self, fresh: bool) -> tuple[str, str]:
        if fresh:
            self.remembered = self.secret
        return "prometheus", self.remembered


QUIET_REQUESTS = 5
"""Requests of a reading of a healthy fleet in which no pod waits."""


def bench(**figures: Rows) -> Bench:
    """A reader over two healthy workers; figures replace the usual ones."""
    found = Bench()
    found.session.figures = fleet_rows(worker_rows("a"), worker_rows("b")) | figures
    return found
