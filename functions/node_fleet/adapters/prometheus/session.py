"""The HTTP session to Prometheus. It ends every exchange at a deadline, however slowly the server answers.

A timeout of requests bounds the wait for the next bytes: a server that sends one byte at a time would
hold the function until Lambda stops it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from http.client import HTTPResponse
from socket import socket
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from node_fleet.adapters.prometheus.http import AnswerError


class DeadlineSession(requests.Session):
    """A session without proxies and .netrc of the environment: the server is inside the VPC."""

    def __init__(self, clock: Any) -> None:
        super().__init__()
        self.trust_env = False
        self._clock = clock
        self._deadline = 0.0
        respond = partial(_Response, self._time_left)
        for prefix in ("http://", "https://"):
            adapter = HTTPAdapter()
            pools = adapter.poolmanager.pool_classes_by_scheme
            adapter.poolmanager.pool_classes_by_scheme = {key: _answering(pool, respond) for key, pool in pools.items()}
            self.mount(prefix, adapter)

    def send_until(self, deadline: float, request: requests.PreparedRequest, timeout: float) -> requests.Response:
        """The response, of which the body is still unread; reading it ends at `deadline` (by the clock) as well.

        The adapter sends it, which follows no redirect and keeps no cookie.

        Raises:
            AnswerError: the headers do not end in time.
        """
        self._deadline = deadline
        return self.get_adapter(str(request.url)).send(request, timeout=timeout, stream=True)

    def _time_left(self) -> float:
        left: float = self._deadline - self._clock.now()
        return left


def _answering(pool: type[Any], respond: Callable[..., HTTPResponse]) -> type[Any]:
    """The same pool, of which the connections make their responses with `respond`."""
    connection = type("Connection", (pool.ConnectionCls,), {"response_class": respond})
    return type("Pool", (pool,), {"ConnectionCls": connection})


class _Response(HTTPResponse):
    def __init__(self, time_left: Callable[[], float], sock: socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_TimedReads(self.fp.detach(), sock, time_left))


class _TimedReads(io.RawIOBase):
    """The bytes of a socket. Each read waits for its timeout, and never longer than the time that is left."""

    def __init__(self, raw: io.RawIOBase, sock: socket, time_left: Callable[[], float]) -> None:
        self._raw = raw
        self._sock = sock
        self._timeout = sock.gettimeout()
        self._time_left = time_left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._time_left()
        if left <= 0:
            raise AnswerError("the answer did not end in time")
        self._sock.settimeout(min(self._timeout or left, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
