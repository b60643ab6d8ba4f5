"""The world's HTTPS face, good enough for the real kubectl: discovery, tables, watches, patches, evictions.

Bound to the loopback address. It translates; the rules are in `simulator.cluster`. The real kubectl compares times in
objects with the wall clock, so a world that it drains must stand at the present and be pumped in real time.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from simulator.clock import real_sleep
from simulator.cluster.api.certificate import self_signed_certificate
from simulator.cluster.api.delete_options import options_from, read_delete_options
from simulator.cluster.api.discovery import document
from simulator.cluster.api.errors import ApiError, bad_request
from simulator.cluster.api.realtime import realtime_pump
from simulator.cluster.api.store import RESOURCES
from simulator.cluster.api.tables import table_object
from simulator.cluster.api.verbs import ApiVerbs, Query
from simulator.cluster.api.watching import watch_events
from simulator.cluster.model import OUR_ACTOR, SimulatedCluster
from simulator.cluster.objects import Obj

PERSON_ACTOR: Final = "person"
_PATH: Final = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?$"
)
_NAMESPACE_PATH: Final = re.compile(r"^/api/v1/namespaces(?:/(?P<name>[^/]+))?(?:/(?:status|finalize))?$")


@dataclass(slots=True)
class ApiFaults:
    """What is wrong with the server at the moment; settable while it runs."""

    delay_seconds: float = 0.0
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A request's path, taken apart."""

    resource: str
    namespace: str
    name: str
    subresource: str


def parse_target(path: str) -> Target | None:
    found = _NAMESPACE_PATH.match(path)
    if found:
        return Target(resource="namespaces", namespace="", name=found["name"] or "", subresource="")
    found = _PATH.match(path)
    if not found or found["resource"] not in RESOURCES:
        return None
    if RESOURCES[found["resource"]].group != (found["group"] or ""):
        return None
    return Target(
        resource=found["resource"],
        namespace=found["namespace"] or "",
        name=found["name"] or "",
        subresource=found["subresource"] or "",
    )


class KubernetesApi:
    """Serves one world. `kubeconfig` and `person_kubeconfig` are files that kubectl can use."""

    def __init__(self, cluster: SimulatedCluster, directory: Path) -> None:
        self.cluster = cluster
        self.faults = ApiFaults()
        self.requests: list[str] = []
        self.tokens = {"node-fleet-token": OUR_ACTOR, "person-token": PERSON_ACTOR}
        self._directory = directory
        certificate, key = self_signed_certificate("127.0.0.1")
        self._certificate = certificate
        pem = directory / "server.pem"
        pem.write_bytes(key + certificate)
        pem.chmod(0o600)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._server: _Server | None = None
        self._port = 0
        self.closing = threading.Event()
        self.bring_up()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        return self._write_kubeconfig("node-fleet-token")

    @property
    def person_kubeconfig(self) -> Path:
        return self._write_kubeconfig("person-token")

    def kubeconfig_for(self, token: str) -> Path:
        """A kubeconfig with any token, known to the server or not."""
        return self._write_kubeconfig(token)

    def bring_up(self) -> None:
        """Listen (again), on the same port as before."""
        if self._server is not None:
            return
        self.closing.clear()
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.api, self._server.context = self, self._context
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def take_down(self) -> None:
        """Refuse connections and cut the open ones, as a server that is gone does."""
        if self._server is None:
            return
        self.closing.set()
        with self.cluster.state.lock:
            self.cluster.state.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._server.cut_connections()
        self._server = None

    def _write_kubeconfig(self, token: str) -> Path:
        path = self._directory / f"{token}.kubeconfig"
        authority = base64.b64encode(self._certificate).decode()
        entry = {"server": self.url, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulated", "cluster": entry}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "user"}}],
            "current-context": "simulated",
        }
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    api: KubernetesApi
    context: ssl.SSLContext

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """The handshake happens in the connection's own thread, so that a slow client holds up nobody."""
        try:
            secured = self.context.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            return
        self._open.add(secured)
        try:
            super().finish_request(secured, client_address)
        finally:
            self._open.discard(secured)
            with suppress(OSError):
                secured.close()

    def cut_connections(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news."""


@dataclass(slots=True)
class _Request:
    method: str
    path: str
    parameters: dict[str, str]
    accept: str
    content_type: str
    body: bytes
    verbs: ApiVerbs
    target: Target | None = field(default=None)

    @property
    def wants_table(self) -> bool:
        return "as=Table" in self.accept

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.parameters

    def json(self) -> Any:
        try:
            return json.loads(self.body or b"{}")
        except ValueError as error:
            raise bad_request(f"the body of {self.method} {self.path} is not JSON: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet; `KubernetesApi.requests` records what came."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self) -> None:
        api = self.server.api
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api.requests.append(f"{self.command} {self.path}")
        if api.faults.delay_seconds:
            real_sleep(api.faults.delay_seconds)
        try:
            self._answer_request(api, body)
        except ApiError as error:
            self._send(error.code, error.status())

    def _answer_request(self, api: KubernetesApi, body: bytes) -> None:
        if api.faults.status is not None:
            reason = http.client.responses.get(api.faults.status, "Unknown").replace(" ", "")
            raise ApiError(
                code=api.faults.status, reason=reason, message="the server is currently unable to handle the request"
            )
        address = urlsplit(self.path)
        if address.path in ("/readyz", "/livez", "/healthz"):
            self._send_text("ok")
            return
        request = self._read_request(api, address.path, address.query, body)
        found = document(request.path)
        if found is not None:
            self._send(200, found)
            return
        request.target = parse_target(request.path)
        if request.target is None:
            raise ApiError(code=404, reason="NotFound", message="the server could not find the requested resource")
        self._route(request, request.target)

    def _read_request(self, api: KubernetesApi, path: str, query: str, body: bytes) -> _Request:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        actor = api.tokens.get(token)
        if actor is None:
            raise ApiError(code=401, reason="Unauthorized", message="Unauthorized")
        return _Request(
            method=self.command,
            path=path,
            parameters={key: values[-1] for key, values in parse_qs(query, keep_blank_values=True).items()},
            accept=self.headers.get("Accept", ""),
            content_type=self.headers.get("Content-Type", "").split(";")[0],
            body=body,
            verbs=ApiVerbs(api.cluster, actor),
        )

    def _route(self, request: _Request, target: Target) -> None:
        if request.method == "GET" and request.parameters.get("watch") in ("1", "true"):
            self._watch(request, _query(request, target))
        elif request.method == "GET":
            self._read(request, target)
        else:
            code, answer = _CHANGES[request.method](request, target)
            self._send(code, answer)

    def _read(self, request: _Request, target: Target) -> None:
        cluster = self.server.api.cluster
        objects = (
            [request.verbs.get(target.resource, target.namespace, target.name)]
            if target.name
            else request.verbs.list(_query(request, target))
        )
        if request.wants_table:
            self._send(200, table_object(target.resource, objects, cluster.now(), cluster.store.version))
        elif target.name:
            self._send(200, objects[0])
        else:
            entry = RESOURCES[target.resource]
            metadata = {"resourceVersion": str(cluster.store.version)}
            self._send(
                200,
                {"kind": f"{entry.kind}List", "apiVersion": entry.api_version, "metadata": metadata, "items": objects},
            )

    def _watch(self, request: _Request, query: Query) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cluster = self.server.api.cluster
        try:
            for event in watch_events(cluster, request.parameters, query, self.server.api.closing.is_set):
                self._send_event(request, query, event)
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, ssl.SSLError):
            self.close_connection = True

    def _send_event(self, request: _Request, query: Query, event: tuple[str, Obj]) -> None:
        kind, obj = event
        cluster = self.server.api.cluster
        if request.wants_table and kind != "BOOKMARK":
            obj = table_object(query.resource, [obj], cluster.now(), cluster.store.version)
        line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _send_text(self, text: str) -> None:
        self._send_bytes(200, text.encode(), "text/plain")

    def _send(self, code: int, body: Any) -> None:
        self._send_bytes(code, json.dumps(body).encode(), "application/json")

    def _send_bytes(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _query(request: _Request, target: Target) -> Query:
    return Query(
        resource=target.resource,
        namespace=target.namespace,
        name=target.name,
        label_selector=request.parameters.get("labelSelector", ""),
        field_selector=request.parameters.get("fieldSelector", ""),
    )


def _post(request: _Request, target: Target) -> tuple[int, Obj]:
    body = request.json()
    if target.subresource == "eviction":
        options = options_from(body.get("deleteOptions") or {})
        request.verbs.evict(
            target.namespace,
            target.name,
            grace_seconds=options.grace_seconds,
            dry_run=options.dry_run or request.dry_run,
        )
        return 201, _success()
    if request.dry_run:
        return 201, body
    return 201, request.verbs.create(target.resource, target.namespace, body)


def _put(request: _Request, target: Target) -> tuple[int, Obj]:
    return 200, request.verbs.replace(target.resource, target.namespace, target.name, request.json())


def _patch(request: _Request, target: Target) -> tuple[int, Obj]:
    if request.dry_run:
        return 200, request.verbs.get(target.resource, target.namespace, target.name)
    return 200, request.verbs.patch(
        target.resource, target.namespace, target.name, request.content_type, request.json()
    )


def _delete(request: _Request, target: Target) -> tuple[int, Obj]:
    options = read_delete_options(request.body)
    found = request.verbs.get(target.resource, target.namespace, target.name)
    if request.dry_run or options.dry_run:
        return 200, found
    gone = request.verbs.delete(
        target.resource, target.namespace, target.name, grace_seconds=options.grace_seconds, uid=options.uid
    )
    if target.resource == "pods":
        return 200, gone
    details = {"name": target.name, "kind": target.resource, "uid": found["metadata"]["uid"]}
    return 200, {**_success(), "details": details}


def _success() -> Obj:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


_CHANGES: Final[dict[str, Callable[[_Request, Target], tuple[int, Obj]]]] = {
    "POST": _post,
    "PUT": _put,
    "PATCH": _patch,
    "DELETE": _delete,
}


@contextmanager
def kubernetes_api(cluster: SimulatedCluster) -> Iterator[KubernetesApi]:
    """A running API server for this world, with its kubeconfig files in a directory that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="node-fleet-api-") as directory:
        api = KubernetesApi(cluster, Path(directory))
        try:
            yield api
        finally:
            api.take_down()


__all__ = ["PERSON_ACTOR", "ApiFaults", "KubernetesApi", "kubernetes_api", "parse_target", "realtime_pump"]
