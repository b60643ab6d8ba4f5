"""A server that sends its answer byte by byte does not hold a function longer than the budget of its reading."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from node_fleet.adapters.prometheus.http import PrometheusClient
from node_fleet.adapters.prometheus.session import DeadlineSession
from node_fleet.domain.model.errors import MetricsUnavailableError
from node_fleet.settings import Settings
from tests.support.fake_prometheus import NOW

SECONDS_PER_LOOK = 4
BUDGET = Settings().prometheus_budget_seconds
LOOKS = BUDGET // SECONDS_PER_LOOK + 1
LOOKS_AFTERWARDS = 3
"""One that finds no time left, two to leave Prometheus alone for a while."""


class DrippingClock:
    """Each look at the clock takes four seconds, in which the server sends one more byte."""

    def __init__(self) -> None:
        self.looks = 0
        self.bytes_due = threading.Semaphore(0)

    def now(self) -> int:
        self.looks += 1
        self.bytes_due.release()
        return NOW + SECONDS_PER_LOOK * (self.looks - 1)

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a reading without time waits {seconds} s")


@contextmanager
def dripping_server(clock: DrippingClock, at_once: bytes, drop: bytes) -> Iterator[str]:
    """The address of a server that sends `at_once`, then `drop` once for each look at the clock."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.sendall(at_once)
            while clock.looks <= LOOKS:
                clock.bytes_due.acquire()
                peer.sendall(drop)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        clock.looks = LOOKS + 1
        clock.bytes_due.release()
        thread.join()


@pytest.mark.parametrize(
    ("at_once", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b" "),
    ],
    ids=[
        "status line",
        "one header",
        "many headers",
        "body",
        "length of a chunk",
        "many chunks",
        "body without length",
    ],
)
def test_an_answer_that_drips_ends_with_the_budget_of_the_reading(at_once: bytes, drop: bytes) -> None:
    clock = DrippingClock()
    with dripping_server(clock, at_once, drop) as url:
        client = PrometheusClient(
            DeadlineSession(clock),
            Settings(prometheus_url=url),
            address=lambda: "127.0.0.1",
            credentials=lambda fresh: ("prometheus", "right"),
            clock=clock,
        )
        with pytest.raises(MetricsUnavailableError, match="query nodes: the answer did not end in time"):
            client.query("nodes", "up", NOW, NOW + BUDGET)
        assert clock.looks <= LOOKS + LOOKS_AFTERWARDS
