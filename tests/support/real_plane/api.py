"""A client of a real API server: requests with a token, and watches. Replies are plain dictionaries.

A refusal is an `ApiError`, as in the simulated cluster.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from simulator.cluster.api.errors import ApiError
from simulator.cluster.objects import Obj

GROUPS = {
    "deployments": "apis/apps/v1",
    "replicasets": "apis/apps/v1",
    "statefulsets": "apis/apps/v1",
    "daemonsets": "apis/apps/v1",
    "jobs": "apis/batch/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "priorityclasses": "apis/scheduling.k8s.io/v1",
}
GRACE_NONE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}


def path_of(resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    parts = ["", GROUPS.get(resource, "api/v1")]
    parts += ["namespaces", namespace] if namespace else []
    return "/".join([*parts, resource, *([name] if name else []), *([subresource] if subresource else [])])


class RealApi:
    """Requests of one user. Each thread has a connection of its own."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self._context = ssl.create_default_context()
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE  # loopback, and a certificate that the server made for itself
        self._own = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []

    def connect(self, timeout: float | None = 60) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context, timeout=timeout)
        self._connections.append(connection)
        return connection

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Obj:
        """The reply's object; raises ApiError when the API server refuses."""
        status, reply = self.answer(method, path, body, kind)
        if status >= 400:
            raise ApiError(
                code=status,
                reason=reply.get("reason", ""),
                message=reply.get("message", ""),
                causes=(reply.get("details") or {}).get("causes", ()),
            )
        return reply

    def answer(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Obj]:
        """HTTP status and object, refusals included."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        text = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
        for attempt in (1, 2):
            connection = getattr(self._own, "connection", None)
            if connection is None:
                connection = self._own.connection = self.connect()
            try:
                connection.request(method, path, text, headers)
                reply = connection.getresponse()
                content = reply.read()
                break
            except (http.client.HTTPException, OSError):  # the server closed the connection meanwhile
                connection.close()
                self._own.connection = None
                if attempt == 2:
                    raise
        try:
            return reply.status, json.loads(content)
        except ValueError:
            return reply.status, {"message": content.decode(errors="replace")}

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    def find(self, resource: str, namespace: str, name: str) -> Obj | None:
        try:
            return self.request("GET", path_of(resource, namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def list(self, resource: str, namespace: str = "") -> list[Obj]:
        items: list[Obj] = self.request("GET", path_of(resource, namespace))["items"]
        return items

    def create(self, resource: str, obj: Obj) -> Obj:
        """Store an object, and its status where it has one."""
        namespace = obj["metadata"].get("namespace", "")
        stored = self.request("POST", path_of(resource, namespace), obj)
        if obj.get("status"):
            stored = self.set_status(resource, stored, lambda fresh: fresh["status"].update(obj["status"]))
        return stored

    def update(self, resource: str, namespace: str, name: str, edit: Callable[[Obj], None]) -> Obj:
        """Read, edit and write until no other change came between; the status of a node is written as well."""
        return self._write(resource, namespace, name, "", edit)

    def set_status(self, resource: str, obj: Obj, edit: Callable[[Obj], None]) -> Obj:
        metadata = obj["metadata"]
        return self._write(resource, metadata.get("namespace", ""), metadata["name"], "status", edit)

    def _write(self, resource: str, namespace: str, name: str, part: str, edit: Callable[[Obj], None]) -> Obj:
        while True:
            obj = self.request("GET", path_of(resource, namespace, name))
            edit(obj)
            try:
                return self.request("PUT", path_of(resource, namespace, name, part), obj)
            except ApiError as error:
                if error.code != 409 or error.reason != "Conflict":
                    raise

    def delete(self, resource: str, namespace: str, name: str, options: Obj | None = None) -> Obj:
        return self.request("DELETE", path_of(resource, namespace, name), options)

    def watch(self, resource: str, stopping: threading.Event) -> Iterator[tuple[str, Obj]]:
        """(ADDED, MODIFIED or DELETED, object) for all objects that exist, then for every change.

        It ends when the server ends and `stopping` is set.
        """
        version = ""
        while not stopping.is_set():
            try:
                if not version:
                    listed = self.request("GET", path_of(resource))
                    version = listed["metadata"]["resourceVersion"]
                    yield from (("ADDED", obj) for obj in listed["items"])
                version = yield from self._changes(resource, version)
            except (http.client.HTTPException, OSError):
                if not stopping.wait(0.2):  # the API server starts again
                    version = ""

    def _changes(self, resource: str, version: str) -> Generator[tuple[str, Obj], None, str]:
        """The changes of one watch request; answers the last version, or an empty text when a new list is needed."""
        connection = self.connect(timeout=None)
        path = f"{path_of(resource)}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}"
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            with connection.getresponse() as lines:
                for line in lines:
                    change = json.loads(line)
                    if change["type"] == "ERROR":
                        return ""
                    version = change["object"]["metadata"]["resourceVersion"]
                    if change["type"] != "BOOKMARK":
                        yield change["type"], change["object"]
            return version
        finally:
            connection.close()
