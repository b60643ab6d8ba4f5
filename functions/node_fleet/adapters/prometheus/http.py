"""Sends one instant query to Prometheus over HTTP and turns each failure into one clear sentence.

It does not know what a query means. Values that are not finite are left out: missing, never a number.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from node_fleet.adapters.secrets import SecretError
from node_fleet.domain.model.errors import Ec2Error, MetricsUnavailableError, ServerNotFoundError
from node_fleet.settings import Settings

_RETRIED_STATUS = (429, 500, 502, 504)
_PAUSE_SECONDS = 1
_UNAVAILABLE_SECONDS = 20
MAX_ANSWER_BYTES = 32 * 2**20
"""Decompressed. The nodes and pods of a cluster at its limits take a few MiB."""
PIECE_BYTES = 64 * 1024
_HEADERS = {
    "Content-Type": "application/x-www-form-urlencoded",
    "Accept": "application/json",
    "Accept-Encoding": "gzip",
    "User-Agent": "node-fleet",
}


class QueryRefusedError(MetricsUnavailableError):
    """Prometheus refuses this query; other queries may succeed."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels and its finite value."""

    labels: Mapping[str, str]
    value: float


class AnswerError(Exception):
    """The answer is too large or takes too long. PrometheusClient turns it into a MetricsUnavailableError."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the server, decompressed."""

    status_code: int
    kind: str
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; what is not UTF-8 is replaced."""
        return self.body.decode(errors="replace")


class PrometheusClient:
    """`address` returns the server's private IP, `credentials` (fresh?) user name and password; called when needed."""

    def __init__(
        self,
        session: Any,
        settings: Settings,
        *,
        address: Callable[[], str],
        credentials: Callable[[bool], tuple[str, str]],
        clock: Any,
    ) -> None:
        self._session = session
        self._settings = settings
        self._address = address
        self._credentials = credentials
        self._clock = clock
        self._url = ""
        self._unavailable_reason = ""
        self._unavailable_until = 0

    def deadline(self) -> float:
        """The end of a reading that starts now, by settings.prometheus_budget_seconds.

        After a query that used up a whole budget no query is sent for 20 s: one step of the workflow may read more
        than once, and must end before its timeout.

        Raises:
            MetricsUnavailableError: with the sentence of that failure.
        """
        if self._clock.now() < self._unavailable_until:
            raise MetricsUnavailableError(self._unavailable_reason)
        return float(self._clock.now() + self._settings.prometheus_budget_seconds)

    def query(self, name: str, text: str, at: int, deadline: float) -> list[Series]:
        """The result of one instant query at `at` (epoch seconds); empty when no series matches.

        Raises:
            QueryRefusedError: Prometheus refuses this query; the message names it.
            MetricsUnavailableError: Prometheus gives no usable answer; the message says why.
        """
        response = self._get(name, f"query={_encoded(text)}&time={at}", deadline)
        return _series(name, self._payload(name, response))

    def _get(self, name: str, form: str, deadline: float) -> Answer:
        response = self._try(name, form, deadline, fresh=False)
        if response.status_code == 401:
            response = self._try(name, form, deadline, fresh=True)
        if response.status_code in (401, 403):
            secret = self._settings.prometheus_secret
            raise MetricsUnavailableError(
                f"Prometheus at {self._url} refuses the user name and password of secret {secret}"
                f" (HTTP {response.status_code})"
            )
        return response

    def _try(self, name: str, form: str, deadline: float, *, fresh: bool) -> Answer:
        """One request, repeated after a temporary failure until the deadline."""
        from requests import RequestException

        request, failure = self._request(form, fresh), ""
        for attempt in range(self._settings.prometheus_retries + 1):
            if attempt:
                self._clock.sleep(min(_PAUSE_SECONDS * attempt, max(0.0, deadline - self._clock.now())))
            left = deadline - self._clock.now()
            if left <= 0:
                break
            timeout = min(float(self._settings.prometheus_timeout_seconds), left)
            try:
                response = self._send(request, timeout, deadline)
            except AnswerError as error:
                raise self._unreachable(name, str(error), deadline) from None
            except RequestException as error:
                failure = _reason(error, timeout)
                continue
            if response.status_code not in _RETRIED_STATUS and not _starting(response):
                return response
            failure = f"HTTP {response.status_code} {_excerpt(response.text)}".strip()
        raise self._unreachable(name, failure, deadline)

    def _send(self, request: Any, timeout: float, deadline: float) -> Answer:
        """Read the answer in pieces: its size, compressed or not, is not the server's choice."""
        received = self._session.send_until(deadline, request, timeout)
        body = bytearray()
        try:
            for piece in received.iter_content(PIECE_BYTES):
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    raise AnswerError(f"the answer is larger than {MAX_ANSWER_BYTES // 2**20} MiB")
        finally:
            received.close()
        kind = str(received.headers.get("Content-Type", "no content type"))
        return Answer(received.status_code, kind, bytes(body))

    def _request(self, form: str, fresh: bool) -> Any:
        from requests import RequestException

        url, auth = self._base_url() + "/api/v1/query", self._auth(fresh)
        try:
            if not url.startswith(("http://", "https://")):
                raise ValueError(url)
            request = _unsent(url, auth).copy()
            request.prepare_body(form, None)
            return request
        except (RequestException, ValueError):
            raise MetricsUnavailableError(
                f"prometheus_url={self._url} is not a URL, expected http://HOST:PORT or https://HOST/PATH"
            ) from None

    def _unreachable(self, name: str, failure: str, deadline: float) -> MetricsUnavailableError:
        url, self._url = self._url, ""
        why = failure or f"{self._settings.prometheus_budget_seconds} s for all queries are over"
        sentence = f"Prometheus at {url} gives no answer to query {name}: {why}"
        if self._clock.now() >= deadline:
            self._unavailable_reason, self._unavailable_until = sentence, self._clock.now() + _UNAVAILABLE_SECONDS
        return MetricsUnavailableError(sentence)

    def _base_url(self) -> str:
        if not self._url:
            self._url = self._settings.prometheus_url.rstrip("/") or self._server_url()
        return self._url

    def _server_url(self) -> str:
        try:
            return f"http://{self._address()}:{self._settings.prometheus_port}"
        except (ServerNotFoundError, Ec2Error) as error:
            raise MetricsUnavailableError(f"the address of Prometheus is unknown: {error}") from None

    def _auth(self, fresh: bool) -> tuple[str, str]:
        try:
            return self._credentials(fresh)
        except SecretError as error:
            raise MetricsUnavailableError(f"Prometheus cannot be queried: {error}") from None

    def _payload(self, name: str, response: Answer) -> Mapping[str, Any]:
        try:
            payload = json.loads(response.body)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, Mapping) or "status" not in payload:
            kind = response.kind.partition(";")[0]
            raise MetricsUnavailableError(
                f"{self._url} does not answer as Prometheus does: HTTP {response.status_code}, {kind},"
                f" beginning {_excerpt(response.text)!r}; expected JSON"
            )
        if payload["status"] != "success":
            reason = f"{payload.get('errorType', 'error')}: {payload.get('error', 'no text')}"
            raise QueryRefusedError(f"Prometheus refuses query {name}: {reason:.300}")
        return payload


@functools.lru_cache(maxsize=1)
def _unsent(url: str, auth: tuple[str, str]) -> Any:
    """What all queries have in common. Raises ValueError or RequestException for a URL that is none."""
    from requests import Request

    username, password = (text.encode() for text in auth)  # requests would send them in Latin-1
    return Request("POST", url, headers=_HEADERS, auth=(username, password)).prepare()


@functools.lru_cache(maxsize=64)
def _encoded(text: str) -> str:
    """The query as a form field: the longest queries exceed the URL length that some proxies accept, hence POST."""
    return quote_plus(text, safe="()[],:=~*/!")


def _series(name: str, payload: Mapping[str, Any]) -> list[Series]:
    try:
        data = payload["data"]
        if data["resultType"] == "scalar":
            found = [Series({}, float(data["result"][1]))]
        elif data["resultType"] == "vector":
            found = [Series(entry["metric"], float(entry["value"][1])) for entry in data["result"]]
        else:
            raise QueryRefusedError(f"query {name} gives a {data['resultType']}, expected one value for each series")
    except (KeyError, IndexError, OverflowError, TypeError, ValueError):
        raise MetricsUnavailableError(f"Prometheus' answer to query {name} is not a vector of numbers") from None
    return [series for series in found if math.isfinite(series.value)]


def _starting(response: Answer) -> bool:
    """Prometheus answers 503 in plain text while it starts; 503 with JSON is the error of a query."""
    return response.status_code == 503 and not response.kind.startswith("application/json")


def _reason(error: Exception, timeout: float) -> str:
    kind = type(error).__name__
    if "Timeout" in kind:
        return f"no answer within {timeout:g} s"
    if kind == "ConnectionError":
        return "cannot connect"
    return f"{kind}"


def _excerpt(text: str) -> str:
    return " ".join(text[:200].split())[:60]
