"""The HTTP services that functions call through requests, in process: Prometheus on the server, and Slack's webhook.

Every other host is refused: nothing that runs in the simulator reaches a network by accident.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from simulator.clock import VirtualClock

Answer = tuple[int, Mapping[str, str], bytes]
Fault = Literal["", "down", "slow", "unauthorized", "html", "query_error", "empty"]
EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
QUERY_ERROR = b'{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\": parse error"}'
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


class PrometheusHandler(Protocol):
    """Answers as the HTTP API of Prometheus does."""

    def handle(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Answer: ...


@dataclass(slots=True, kw_only=True)
class Transport:
    """Routes the requests library. `fault` makes Prometheus fail; `slack_answers` are returned one after the other.

    urls: of every request, in order. slack: the bodies that Slack accepted.
    """

    clock: VirtualClock
    prometheus: PrometheusHandler | None = None
    is_prometheus: Callable[[str], bool] = field(default=lambda netloc: False)
    credentials: tuple[str, str] | None = None
    fault: Fault = ""
    slow_seconds: float = 30.0
    slack_answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    slack: list[bytes] = field(default_factory=list)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """While open, every Session of requests sends through here."""
        adapter = _Adapter(self)
        with mock.patch.object(requests.Session, "get_adapter", lambda session, url: adapter):
            yield

    def answer(self, request: requests.PreparedRequest, timeout: float | None) -> Answer:
        parts = urlsplit(str(request.url))
        if self.prometheus is not None and self.is_prometheus(parts.netloc):
            return self._prometheus(request, timeout)
        if parts.hostname == "hooks.slack.com":
            status, headers = self.slack_answers.pop(0) if self.slack_answers else (200, {})
            if status != 200:
                return status, headers, b"error"
            self.slack.append(_body(request))
            return status, headers, b"ok"
        raise requests.ConnectionError(f"the simulator has no route to {parts.netloc}", request=request)

    def _prometheus(self, request: requests.PreparedRequest, timeout: float | None) -> Answer:
        if self.fault == "down":
            raise requests.ConnectionError(f"[Errno 111] Connection refused: {request.url}", request=request)
        if self.fault == "slow":
            self._be_slow(request, timeout)
        if self.fault == "unauthorized" or not self._authorized(request):
            return 401, {"WWW-Authenticate": "Basic"}, b"Unauthorized\n"
        if self.fault == "html":
            return 200, {"Content-Type": "text/html"}, HTML
        if self.fault in ("query_error", "empty"):
            wrong = self.fault == "query_error"
            return 400 if wrong else 200, {"Content-Type": "application/json"}, QUERY_ERROR if wrong else EMPTY
        assert self.prometheus is not None
        parts = urlsplit(str(request.url))
        fields = [*parts.query.split("&"), *_body(request).decode().split("&")]
        params = dict(pair for text in fields for pair in _pairs(text))
        return self.prometheus.handle(parts.path, params, dict(request.headers))

    def _be_slow(self, request: requests.PreparedRequest, timeout: float | None) -> None:
        limit = self.slow_seconds if timeout is None else min(timeout, self.slow_seconds)
        self.clock.wait(limit)
        if limit < self.slow_seconds:
            raise requests.ReadTimeout(f"Read timed out. (read timeout={timeout})", request=request)

    def _authorized(self, request: requests.PreparedRequest) -> bool:
        if self.credentials is None:
            return True
        wanted = base64.b64encode(":".join(self.credentials).encode()).decode()
        return bool(request.headers.get("Authorization") == f"Basic {wanted}")


class _Adapter(HTTPAdapter):
    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        timeout = options["timeout"]
        limit = timeout[1] if isinstance(timeout, tuple) else timeout
        self._transport.urls.append(str(request.url))
        status, headers, body = self._transport.answer(request, limit)
        received = HTTPResponse(io.BytesIO(body), status=status, headers=headers, preload_content=False)
        return self.build_response(request, received)


@functools.lru_cache(maxsize=256)
def _pairs(field: str) -> list[tuple[str, str]]:
    return parse_qsl(field)


def _body(request: requests.PreparedRequest) -> bytes:
    body = request.body or b""
    return body.encode() if isinstance(body, str) else bytes(body)
