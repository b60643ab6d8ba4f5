"""Gives Prometheus the metrics of node-fleet: what the last run left in the state item, and the ages of lock and
operation.

It runs on the server as a service, with the standard library and the AWS command line, and listens on loopback alone.
It reads four attributes of one item and changes nothing. Its answer is bounded; DynamoDB is asked at most every 30 s.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

ADDRESS = ("127.0.0.1", 9117)
ATTRIBUTES = "exposition, lock_acquired_at, operation, pause"
LEAST_SECONDS = 30
MOST_LINES = 500
MOST_BYTES = 64 * 1024
LINE = re.compile(r'(# (HELP|TYPE) )?node_fleet_[a-z_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? [^\n]{1,200}')


def read_item(region: str, table: str, cluster_id: str) -> dict[str, Any]:
    """The attributes of the state item in DynamoDB's JSON; empty before the first run. OSError when it is refused."""
    command = ["aws", "dynamodb", "get-item", "--region", region, "--table-name", table, "--output", "json"]
    command += ["--key", json.dumps({"cluster_id": {"S": cluster_id}}), "--projection-expression", ATTRIBUTES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=8, check=False)
        if done.returncode != 0:
            raise OSError(" ".join(done.stderr.split())[:300])
        found = json.loads(done.stdout or "{}").get("Item") or {}
    except (subprocess.TimeoutExpired, ValueError, AttributeError) as error:
        raise OSError(str(error)) from None
    return found if isinstance(found, dict) else {}


def number(value: Any) -> float | None:
    """A number attribute; None when it is missing or of another type."""
    try:
        return float(value["N"])
    except (KeyError, TypeError, ValueError):
        return None


def in_map(item: dict[str, Any], attribute: str, name: str) -> Any:
    """A value in a map attribute."""
    return ((item.get(attribute) or {}).get("M") or {}).get(name)


def stored_text(value: Any) -> str:
    """The text that a run has stored, at most 64 KB of it; empty when it is missing or damaged."""
    try:
        return zlib.decompressobj().decompress(base64.b85decode(value["S"]), MOST_BYTES).decode()
    except (KeyError, TypeError, ValueError, zlib.error):
        return ""


def gauge(name: str, text: str, value: float, labels: str = "") -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name}{labels} {value:.10g}"]


def metrics(item: dict[str, Any], now: float) -> str:
    """The metrics of one state item at a time (epoch seconds). A line that is no metric of node-fleet is left out."""
    text = stored_text(item.get("exposition"))
    lines = [line for line in text.splitlines()[:MOST_LINES] if LINE.fullmatch(line)]
    acquired, paused = number(item.get("lock_acquired_at")), number(in_map(item, "pause", "until"))
    started, kind = number(in_map(item, "operation", "started_at")), in_map(item, "operation", "kind") or {}
    lines += gauge("node_fleet_state_read", "1 when the state item could be read", 1)
    lines += gauge("node_fleet_lock_held", "1 while a run holds the lock", acquired is not None)
    lines += gauge("node_fleet_paused", "1 while the fleet is paused", paused is not None and paused > now)
    if acquired is not None:
        lines += gauge("node_fleet_lock_age_seconds", "For how long a run has held the lock", max(0, now - acquired))
    if started is not None:
        shown = kind.get("S") if kind.get("S") in ("scale_up", "scale_down") else "unknown"
        age, text = max(0, now - started), "For how long an operation has been open"
        lines += gauge("node_fleet_operation_age_seconds", text, age, f'{{kind="{shown}"}}')
    return "\n".join(lines) + "\n"


class Source:
    """The state item, kept for some seconds."""

    def __init__(self, region: str, table: str, cluster_id: str) -> None:
        self._place = (region, table, cluster_id)
        self._lock = Lock()
        self._asked_at = 0.0
        self._item: dict[str, Any] | None = None

    def text(self) -> str:
        """The metrics; only node_fleet_state_read 0 when the item cannot be read."""
        with self._lock:
            if time.monotonic() - self._asked_at >= LEAST_SECONDS or not self._asked_at:
                try:
                    self._item = read_item(*self._place)
                except OSError as error:
                    self._item = None
                    print(f"the state item could not be read: {error}", file=sys.stderr)
                self._asked_at = time.monotonic()
            item = self._item
        if item is None:
            return "\n".join(gauge("node_fleet_state_read", "1 when the state item could be read", 0)) + "\n"
        return metrics(item, time.time())


def serve(source: Source, address: tuple[str, int] = ADDRESS) -> ThreadingHTTPServer:
    """The server, which answers /metrics once its serve_forever is called."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/metrics"
            body = source.text().encode() if known else b"only /metrics is here\n"
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing: Prometheus asks every minute."""

    return ThreadingHTTPServer(address, Handler)


if __name__ == "__main__":
    place = Source(os.environ["AWS_REGION"], os.environ["STATE_TABLE"], os.environ["CLUSTER_ID"])
    serve(place).serve_forever()
