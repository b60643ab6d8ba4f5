"""The HTTPS face of the simulated cluster: who may ask, what it refuses, what a watch sends."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.clock import VirtualClock
from simulator.cluster.api.delete_options import read_delete_options
from simulator.cluster.api.errors import ApiError
from simulator.cluster.api.https_server import KubernetesApi, kubernetes_api, parse_target
from simulator.cluster.api.patches import JSON_PATCH, MERGE, STRATEGIC, apply_patch
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.workloads import pod_object

NODE = {"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    cluster = SimulatedCluster(VirtualClock())
    cluster.add_server("i-server", "eu-west-1a")
    cluster.add_worker("i-w0")
    with kubernetes_api(cluster) as running:
        yield running


def connect(api: KubernetesApi) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cadata=api._certificate.decode())
    return http.client.HTTPSConnection("127.0.0.1", api._port, context=context, timeout=10)


def ask(
    api: KubernetesApi, method: str, path: str, body: Any = None, token: str = "node-fleet-token"
) -> tuple[int, Any]:
    connection = connect(api)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": MERGE}
        connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_without_a_known_token_nobody_is_answered(api: KubernetesApi) -> None:
    assert ask(api, "GET", "/api/v1/nodes", token="guess")[0] == 401


def test_who_changed_something_is_known_by_the_token(api: KubernetesApi) -> None:
    actors: list[str] = []
    api.cluster.on_change(lambda change: actors.append(change.actor))
    ask(api, "PATCH", "/api/v1/nodes/i-w0", {"metadata": {"annotations": {"a": "b"}}})
    ask(api, "PATCH", "/api/v1/nodes/i-w0", {"metadata": {"annotations": {"a": "c"}}}, token="person-token")
    assert actors == ["node-fleet", "person"]


def test_an_unknown_path_is_not_found(api: KubernetesApi) -> None:
    assert ask(api, "GET", "/apis/apps/v1/nodes")[0] == 404
    assert ask(api, "GET", "/api/v1/gadgets")[1]["reason"] == "NotFound"


def test_a_server_that_is_taken_down_refuses_and_comes_back_on_its_port(api: KubernetesApi) -> None:
    url = api.url
    api.take_down()
    with pytest.raises(ConnectionRefusedError):
        ask(api, "GET", "/api/v1/nodes")
    api.bring_up()
    assert api.url == url
    assert ask(api, "GET", "/api/v1/nodes")[0] == 200


def test_a_fault_answers_with_its_status(api: KubernetesApi) -> None:
    api.faults.status = 503
    assert ask(api, "GET", "/api/v1/nodes")[1]["reason"] == "ServiceUnavailable"


def test_a_watch_sends_the_present_the_bookmark_and_then_each_change(api: KubernetesApi) -> None:
    connection = connect(api)
    path = "/api/v1/pods?watch=true&sendInitialEvents=true&fieldSelector=metadata.namespace%3Dshop&timeoutSeconds=3"
    connection.request("GET", path, headers={"Authorization": "Bearer node-fleet-token"})
    answer = connection.getresponse()
    assert json.loads(answer.readline())["type"] == "BOOKMARK"
    threading.Thread(target=lambda: api.cluster.create("pods", pod_object("new"))).start()
    events = [json.loads(answer.readline()) for _ in range(2)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "new"),
        ("MODIFIED", "new"),
    ]
    connection.close()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/namespaces/shop", ("namespaces", "", "shop", "")),
        ("/api/v1/namespaces/shop/pods/web/eviction", ("pods", "shop", "web", "eviction")),
        ("/apis/policy/v1/poddisruptionbudgets", ("poddisruptionbudgets", "", "", "")),
        ("/apis/apps/v1/namespaces/shop/deployments/web", ("deployments", "shop", "web", "")),
    ],
)
def test_paths_are_taken_apart(path: str, found: tuple[str, str, str, str]) -> None:
    target = parse_target(path)
    assert target is not None
    assert (target.resource, target.namespace, target.name, target.subresource) == found


@pytest.mark.parametrize(
    ("kind", "patch", "taints"),
    [
        (MERGE, {"spec": {"taints": [{"key": "b"}]}}, ["b"]),
        (MERGE, {"spec": {"taints": None}}, []),
        (STRATEGIC, {"spec": {"taints": [{"key": "b"}]}}, ["a", "b"]),
        (STRATEGIC, {"spec": {"taints": [{"key": "a", "$patch": "delete"}]}}, []),
        (STRATEGIC, {"spec": {"taints": [{"key": "b"}, {"$patch": "replace"}]}}, ["b"]),
        (STRATEGIC, {"spec": {"$patch": "replace", "taints": [{"key": "c"}]}}, ["c"]),
        (JSON_PATCH, [{"op": "add", "path": "/spec/taints/-", "value": {"key": "b"}}], ["a", "b"]),
        (JSON_PATCH, [{"op": "add", "path": "/spec/taints/0", "value": {"key": "b"}}], ["b", "a"]),
        (JSON_PATCH, [{"op": "remove", "path": "/spec/taints/0"}], []),
        (JSON_PATCH, [{"op": "test", "path": "/spec/taints/0/key", "value": "a"}], ["a"]),
    ],
)
def test_the_three_patch_kinds(kind: str, patch: Any, taints: list[str]) -> None:
    patched = apply_patch(NODE, kind, patch)
    assert [taint["key"] for taint in patched["spec"].get("taints", [])] == taints
    assert len(NODE["spec"]["taints"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "patch", "code"),
    [
        (JSON_PATCH, [{"op": "test", "path": "/spec/taints/0/key", "value": "b"}], 422),
        (JSON_PATCH, [{"op": "remove", "path": "/spec/nothing"}], 422),
        (JSON_PATCH, [{"op": "move", "path": "/spec/taints"}], 400),
        (JSON_PATCH, {"spec": {}}, 400),
        (MERGE, ["spec"], 400),
    ],
)
def test_a_patch_that_cannot_be_applied_is_refused(kind: str, patch: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        apply_patch(NODE, kind, patch)
    assert caught.value.code == code


def test_delete_options_are_read_as_json_and_as_protobuf() -> None:
    assert read_delete_options(b"").grace_seconds is None
    assert read_delete_options(b'{"gracePeriodSeconds": 7, "preconditions": {"uid": "u"}}').uid == "u"
    message = b"\x08\x07\x12\x03\x0a\x01u"
    body = b"k8s\x00" + b"\x0a\x04\x0a\x02v1" + b"\x12" + bytes([len(message)]) + message
    options = read_delete_options(body)
    assert (options.grace_seconds, options.uid, options.dry_run) == (7.0, "u", False)
    with pytest.raises(ApiError, match="neither JSON nor protobuf"):
        read_delete_options(b"?")
