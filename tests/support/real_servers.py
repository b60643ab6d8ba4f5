"""Starts the real Prometheus and Alertmanager, and small local servers beside them. Loopback addresses only.

A tool that is not on this machine skips the test by name; where CI is set that is a failure instead.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"
PATIENCE_SECONDS = 60
VALUES = {
    "CLUSTER_ID": "node-fleet-prod",
    "AWS_REGION": "ap-southeast-1",
    "ALERT_TOPIC_ARN": "arn:aws:sns:ap-southeast-1:123456789012:node-fleet-alerts",
}


def tool(*names: str) -> str:
    """The path of the first of these commands that exists, beside this Python or on the PATH."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for name in names:
        path = shutil.which(name, path=places)
        if path:
            return path
    message = f"{' or '.join(names)} is not on this machine"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """The condition's first true answer; fails, naming what was waited for, when it never comes."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < ends_at:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.1)
    pytest.fail(f"waited {PATIENCE_SECONDS} s in vain for {what}")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError, http.client.HTTPException, TimeoutError):
        return False


@contextlib.contextmanager
def process(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """Runs a server for the length of the block and ends it afterwards."""
    with log.open("w") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **(environment or {})})
        try:
            yield
        finally:
            running.terminate()
            running.wait(timeout=20)


def rendered(file: str) -> dict[str, Any]:
    """A configuration of the bundle with its placeholders filled, as data."""
    text = (CLUSTER / file).read_text()
    for name, value in VALUES.items():
        text = text.replace(f"${{{name}}}", value)
    loaded = yaml.safe_load(text)
    assert isinstance(loaded, dict)
    return loaded


class Prometheus:
    """A running Prometheus and the questions one asks it."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str | float) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as reply:
            return json.load(reply)["data"]

    def vector(self, query: str, **parameters: float) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        result = self.get("query", query=query, **parameters)["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]


@contextlib.contextmanager
def prometheus(folder: Path, configuration: dict[str, Any], *options: str) -> Iterator[Prometheus]:
    """A real Prometheus with this configuration and the bundle's rules, on a free port."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copy(CLUSTER / "monitoring/prometheus/rules.yml", folder / "rules.yml")
    port = free_port()
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        *options,
    ]
    with process(command, folder / "prometheus.log"):
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"), "Prometheus")
        yield Prometheus(port)


@contextlib.contextmanager
def alertmanager(folder: Path, configuration: dict[str, Any], port: int, **environment: str) -> Iterator[None]:
    """A real Alertmanager with this configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
    command = [
        tool("prometheus-alertmanager", "alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with process(command, folder / "alertmanager.log", environment):
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/-/ready"), "Alertmanager")
        yield


Answer = Callable[[BaseHTTPRequestHandler, bytes], tuple[int, str, str]]


@contextlib.contextmanager
def local_server(answer: Answer) -> Iterator[int]:
    """An HTTP server that gives every request to a function: status, content type, text."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, kind, text = answer(self, self.rfile.read(length))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
