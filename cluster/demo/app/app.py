"""The demo shop: a small web application whose load makes the fleet grow, with metrics of its own.

It is one file of standard-library Python, so it runs from a ConfigMap on a stock Python image. It must not keep state:
any replica can stop at any moment.
"""

from __future__ import annotations

import hashlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0)
TEXT = "text/plain; charset=utf-8"
EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The load of the shop. Times are CPU time of one request and of one queued order."""

    port: int = 8080
    page_milliseconds: int = 20
    order_milliseconds: int = 50
    queue_limit: int = 5000
    closing_seconds: int = 5

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Options:
        """Reads PORT, PAGE_MILLISECONDS and so on; only whole numbers of 0 or more are valid."""
        values: dict[str, int] = {}
        for name in cls.__dataclass_fields__:
            text = environment.get(name.upper(), "")
            if text:
                if not text.isdigit():
                    raise SystemExit(f"{name.upper()}={text!r}: expected a whole number of 0 or more")
                values[name] = int(text)
        return cls(**values)


@dataclass(slots=True)
class Metrics:
    """Counts requests and their durations; writes Prometheus's text format."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: dict[tuple[str, str, int], int] = field(default_factory=dict)
    buckets: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def observe(self, method: str, path: str, status: int, duration_seconds: float) -> None:
        with self.lock:
            self.requests[method, path, status] = self.requests.get((method, path, status), 0) + 1
            counts = self.buckets.setdefault((method, path), [0] * (len(BUCKETS_SECONDS) + 1))
            for index, bound in enumerate(BUCKETS_SECONDS):
                counts[index] += duration_seconds <= bound
            counts[-1] += 1
            self.seconds[method, path] = self.seconds.get((method, path), 0.0) + duration_seconds

    def exposition(self, queue_depth: int) -> str:
        with self.lock:
            lines = [*_queue_lines(queue_depth), *self._request_lines(), *self._duration_lines()]
        return "\n".join(lines) + "\n"

    def _request_lines(self) -> list[str]:
        lines = ["# HELP http_requests_total Requests answered.", "# TYPE http_requests_total counter"]
        for (method, path, status), count in sorted(self.requests.items()):
            lines.append(f'http_requests_total{{method="{method}",path="{path}",status="{status}"}} {count}')
        return lines

    def _duration_lines(self) -> list[str]:
        name = "http_request_duration_seconds"
        lines = [f"# HELP {name} Time from request to answer.", f"# TYPE {name} histogram"]
        for (method, path), counts in sorted(self.buckets.items()):
            labels = f'method="{method}",path="{path}"'
            for bound, count in zip((*map(str, BUCKETS_SECONDS), "+Inf"), counts, strict=True):
                lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {count}')
            lines.append(f"{name}_sum{{{labels}}} {self.seconds[method, path]:.6f}")
            lines.append(f"{name}_count{{{labels}}} {counts[-1]}")
        return lines


def _queue_lines(depth: int) -> list[str]:
    return [
        "# HELP app_queue_depth Orders waiting to be processed.",
        "# TYPE app_queue_depth gauge",
        f'app_queue_depth{{queue="default"}} {depth}',
    ]


def burn(milliseconds: int) -> str:
    """Uses the CPU for about this long, as rendering a page would, and returns what it computed."""
    digest, ends_at = hashlib.sha256(b"shop"), time.thread_time() + milliseconds / 1000
    while time.thread_time() < ends_at:
        for _ in range(100):
            digest.update(digest.digest())
    return digest.hexdigest()


class Shop:
    """The routes and the order queue, without HTTP around them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.metrics = Metrics()
        self.orders: queue.Queue[str] = queue.Queue(options.queue_limit)
        self.closing = threading.Event()
        self._routes: dict[tuple[str, str], Callable[[], tuple[int, str, str]]] = {
            ("GET", "/"): self.page,
            ("POST", "/orders"): self.order,
            ("GET", "/metrics"): self.show_metrics,
            ("GET", "/healthz"): lambda: (HTTPStatus.OK, TEXT, "alive\n"),
            ("GET", "/readyz"): self.readiness,
        }

    def answer(self, method: str, path: str) -> tuple[int, str, str]:
        """Status, content type and body; counted under its route, unknown paths together as "other"."""
        route = path.partition("?")[0]
        action = self._routes.get((method, route))
        started_at = time.monotonic()
        status, kind, body = action() if action else (HTTPStatus.NOT_FOUND, TEXT, "no such page\n")
        if route not in ("/metrics", "/healthz", "/readyz"):
            self.metrics.observe(method, route if action else "other", int(status), time.monotonic() - started_at)
        return int(status), kind, body

    def page(self) -> tuple[int, str, str]:
        return HTTPStatus.OK, TEXT, f"welcome {burn(self.options.page_milliseconds)[:8]}\n"

    def order(self) -> tuple[int, str, str]:
        try:
            self.orders.put_nowait("order")
        except queue.Full:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, "too many orders are waiting\n"
        return HTTPStatus.ACCEPTED, TEXT, "ordered\n"

    def show_metrics(self) -> tuple[int, str, str]:
        return HTTPStatus.OK, EXPOSITION, self.metrics.exposition(self.orders.qsize())

    def readiness(self) -> tuple[int, str, str]:
        if self.closing.is_set():
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, "closing\n"
        return HTTPStatus.OK, TEXT, "ready\n"

    def work_off_orders(self) -> None:
        """Runs in a thread of its own until the process ends."""
        while True:
            self.orders.get()
            burn(self.options.order_milliseconds)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, shop: Shop) -> None:
        super().__init__(("", shop.options.port), Handler)
        self.shop = shop


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self._reply("GET")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        self.rfile.read(int(length) if length.isdigit() else 0)
        self._reply("POST")

    def _reply(self, method: str) -> None:
        status, kind, body = self.server.shop.answer(method, self.path)
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are counted, not logged."""


def main() -> None:
    """Serves until SIGTERM, then fails its readiness probe, waits for the load balancer, and ends."""
    shop = Shop(Options.from_environment(os.environ))
    server = Server(shop)

    def close(_signal: int, _frame: FrameType | None) -> None:
        shop.closing.set()
        threading.Timer(shop.options.closing_seconds, server.shutdown).start()

    signal.signal(signal.SIGTERM, close)
    threading.Thread(target=shop.work_off_orders, daemon=True).start()
    print(f"demo shop on port {server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever(poll_interval=0.2)
    server.server_close()


if __name__ == "__main__":
    main()
