"""A Kubernetes API server over the simulated cluster, complete enough for the shipped scripts with the real kubectl.

It answers discovery, get, list, merge patch, delete and eviction over plain HTTP on the loopback address, and ignores
delete options. The real kubectl compares times in objects with the wall clock, so a cluster that it drains stands at
the present and moves in real time (`realtime_pump`).
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from simulator.clock import VirtualClock, real_monotonic
from simulator.cluster.api.errors import ApiError, bad_request
from simulator.cluster.api.store import RESOURCES, Resource
from simulator.cluster.api.verbs import ApiVerbs, parse_target
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster

Json = dict[str, Any]
SUCCESS: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
PATCH_TYPES = ("application/merge-patch+json", "application/strategic-merge-patch+json")  # alike without lists


class KubernetesApi(ThreadingHTTPServer):
    """Serves one cluster until `take_down`; `kubeconfig` is a file for kubectl."""

    daemon_threads = True

    def __init__(self, cluster: SimulatedCluster, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.verbs = ApiVerbs(cluster, OUR_ACTOR)
        self.kubeconfig = directory / "kubeconfig"
        entry = {"cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}, "name": "simulated"}
        context = {"context": {"cluster": "simulated", "user": ""}, "name": "simulated"}
        config = {"apiVersion": "v1", "kind": "Config", "clusters": [entry], "contexts": [context]}
        self.kubeconfig.write_text(json.dumps({**config, "current-context": "simulated"}))
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def take_down(self) -> None:
        """Refuse connections, as a server that does not run does."""
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: KubernetesApi

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._send(200, self._answer(body))
        except ApiError as error:
            self._send(error.code, error.status())
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # an answer, whatever the request contains
            refused = ApiError(code=500, reason="InternalError", message=f"{type(error).__name__}: {error}")
            self._send(refused.code, refused.status())

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self, body: bytes) -> Json:
        verbs, path = self.server.verbs, urlsplit(self.path).path
        if self.command == "GET":
            return discovery(path) or verbs.read(self.path)
        target = parse_target(path)
        if self.command == "PATCH":
            if self.headers["Content-Type"] not in PATCH_TYPES:
                raise bad_request(f"unsupported patch type {self.headers['Content-Type']}")
            return verbs.patch(target.resource, target.namespace, target.name, _decoded(body))
        if self.command == "POST" and target.subresource == "eviction":
            verbs.evict(target.namespace, target.name)
            return SUCCESS
        if self.command == "POST":
            return verbs.create(target.resource, target.namespace, _decoded(body))
        if self.command == "PUT":
            return verbs.replace(target.resource, target.namespace, target.name, _decoded(body))
        if self.command == "DELETE":
            return verbs.delete(target.resource, target.namespace, target.name)
        raise bad_request(f"the server of the tests does not answer {self.command} {path}")

    def _send(self, code: int, answer: Json) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def discovery(path: str) -> Json | None:
    """The groups, versions and resources of the server; None when the path is not a discovery path."""
    groups = sorted({entry.group for entry in RESOURCES.values() if entry.group})
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        rows = []
        for name in groups:
            version = {"groupVersion": f"{name}/v1", "version": "v1"}
            rows.append({"name": name, "versions": [version], "preferredVersion": version})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}
    for group in ("", *groups):
        if path == (f"/apis/{group}/v1" if group else "/api/v1"):
            rows = [_discovery_row(entry) for entry in RESOURCES.values() if entry.group == group]
            if not group:
                eviction = {"name": "pods/eviction", "singularName": "", "namespaced": True, "kind": "Eviction"}
                rows.append({**eviction, "group": "policy", "version": "v1", "verbs": ["create"]})
            version = f"{group}/v1".removeprefix("/")
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}
    return None


def _discovery_row(entry: Resource) -> Json:
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    row = {"name": entry.name, "singularName": entry.singular, "namespaced": entry.namespaced, "kind": entry.kind}
    return {**row, "verbs": verbs}


@contextmanager
def kubernetes_api(cluster: SimulatedCluster) -> Iterator[KubernetesApi]:
    """A running API server for this cluster, with its kubeconfig in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="node-fleet-api-") as directory:
        api = KubernetesApi(cluster, Path(directory))
        try:
            yield api
        finally:
            api.take_down()


@contextmanager
def realtime_pump(cluster: SimulatedCluster, clock: VirtualClock) -> Iterator[None]:
    """Move the cluster's clock in step with the wall clock while the block runs."""
    stop = threading.Event()
    begun, origin = real_monotonic(), clock.now()
    failures: list[BaseException] = []

    def pump() -> None:
        try:
            while not stop.wait(0.02):
                with cluster.state.lock:
                    clock.advance_to(origin + real_monotonic() - begun)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failures:
            raise failures[0]
