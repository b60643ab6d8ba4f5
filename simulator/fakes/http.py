"""The HTTP services that functions call through requests, in process: Prometheus on the server, and Slack's webhook.

Every other host is refused: nothing that runs in the simulator reaches a network by accident.
"""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from simulator.clock import VirtualClock

Answer = tuple[int, Mapping[str, str], bytes]
Fault = Literal["", "down", "slow", "unauthorized", "html", "query_error", "empty"]
EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
QUERY_ERROR = b'{"status":"error","errorType":"bad_data","error":"invalid parameter \\"query\\": parse error"}'
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


class PrometheusHandler(Protocol):
    """Answers as the HTTP API of Prometheus does."""

    def handle(self, path: str, params: Mapping[str, str], headers: Mapping[str, str]) -> Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebRequest:
    """One request that left a function."""

    at: float
    method: str
    url: str
    body: bytes
    status: int | None


@dataclass(slots=True, kw_only=True)
class Transport:
    """Routes the requests library. `fault` makes Prometheus fail; `slack_answers` are returned one after the other."""

    clock: VirtualClock
    prometheus: PrometheusHandler | None = None
    is_prometheus: Callable[[str], bool] = field(default=lambda netloc: False)
    credentials: tuple[str, str] | None = None
    fault: Fault = ""
    slow_seconds: float = 30.0
    slack_answers: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    sent: list[WebRequest] = field(default_factory=list)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """While open, every Session of requests sends through here."""
        adapter = _Adapter(self)
        with mock.patch.object(requests.Session, "get_adapter", lambda session, url: adapter):
            yield

    def slack(self) -> list[bytes]:
        """The bodies that Slack accepted."""
        return [one.body for one in self.sent if "hooks.slack.com" in one.url and one.status == 200]

    def answer(self, request: requests.PreparedRequest, timeout: float | None) -> Answer:
        parts = urlsplit(str(request.url))
        if self.prometheus is not None and self.is_prometheus(parts.netloc):
            return self._prometheus(request, timeout)
        if parts.hostname == "hooks.slack.com":
            status, headers = self.slack_answers.pop(0) if self.slack_answers else (200, {})
            return status, headers, b"ok" if status == 200 else b"error"
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
        params = dict(parse_qsl(parts.query)) | dict(parse_qsl(_body(request).decode()))
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


class _Adapter(BaseAdapter):
    def __init__(self, transport: Transport) -> None:
        super().__init__()
        self._transport = transport

    def send(  # noqa: PLR0917 - the signature of requests
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        limit = timeout[1] if isinstance(timeout, tuple) else timeout
        status: int | None = None
        try:
            status, headers, body = self._transport.answer(request, limit)
        finally:
            self._transport.sent.append(
                WebRequest(
                    at=self._transport.clock.now(),
                    method=str(request.method),
                    url=str(request.url),
                    body=_body(request),
                    status=status,
                )
            )
        return _response(request, status, headers, body)

    def close(self) -> None:
        """Nothing is held open."""


def _body(request: requests.PreparedRequest) -> bytes:
    body = request.body or b""
    return body.encode() if isinstance(body, str) else bytes(body)


def _response(
    request: requests.PreparedRequest, status: int, headers: Mapping[str, str], body: bytes
) -> requests.Response:
    response = requests.Response()
    response.status_code = status
    response.headers = CaseInsensitiveDict(headers)
    response.raw = io.BytesIO(body)
    response._content = body
    response.url = str(request.url)
    response.request = request
    response.encoding = "utf-8"
    return response
