"""Reads traces from a Prometheus server and from the history table. Gaps stay gaps.

Clients are passed in; nothing here reads a clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Protocol

from backtest.trace import Trace, TraceError, from_rows
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class

POINTS_AT_ONCE = 10_000
FORWARD_PORT = (
    "Prometheus on the K3s server answers inside the VPC only: forward its port with aws ssm start-session"
    " --target SERVER_INSTANCE_ID --document-name AWS-StartPortForwardingSession"
    " --parameters portNumber=30090,localPortNumber=30090, then use http://localhost:30090"
)
LOG_IN = "set NODE_FLEET_PROMETHEUS_USER and NODE_FLEET_PROMETHEUS_PASSWORD when Prometheus requires a login"
TIMEOUT_SECONDS = 30


@value_class
class Range:
    """One query of Prometheus: an expression that gives one series, from `since` to `until`, every step."""

    query: str
    since: int
    until: int
    step_seconds: int = 60


def is_url(text: str) -> bool:
    """Whether the text names a Prometheus, and not a file."""
    return text.lower().startswith(("http://", "https://"))


class Readings(Protocol):
    """The history table."""

    def readings(self, since: int, until: int) -> tuple[dict[str, Any], ...]: ...


def from_prometheus(session: Any, url: str, asked: Range) -> Trace:
    """The trace of a range; a value that is missing or not finite leaves a gap.

    Raises:
        TraceError: Prometheus cannot be reached or refuses the query, or the answer has no series or several.
    """
    if asked.step_seconds < 1 or asked.until <= asked.since:
        text = f"range {asked.since} to {asked.until} every {asked.step_seconds} s"
        raise TraceError(f"trace {asked.query}: {text}, expected an end after the start and a step of 1 s or more")
    rows: list[tuple[int, float]] = []
    for since, until in _parts(asked):
        rows += _rows(_ask(session, url, asked, since, until), asked.query)
    if len(rows) < 2:
        text = f"Prometheus at {_shown(url)} has {count_of(len(rows), 'reading')} of {asked.query} in this range"
        raise TraceError(text, hint="try the query there, and check how far back its data reaches")
    return from_rows(rows, name=asked.query)


def from_history(records: Readings, since: int, until: int) -> Trace:
    """The number of busy workers over time: mean CPU times usable workers. One unit is the whole CPU of one worker.

    A saturated fleet uses no more than its own CPU, so the trace does not contain demand that was not served.
    """
    rows = [
        (int(reading["at"]), float(reading["cpu_percent"]) / 100 * int(reading["usable"]))
        for reading in records.readings(since, until)
        if reading.get("cpu_percent") is not None and reading.get("usable")
    ]
    return from_rows(rows, name="history")


def _parts(asked: Range) -> Iterator[tuple[int, int]]:
    """The range in parts of at most POINTS_AT_ONCE points (Prometheus refuses more than 11,000)."""
    length = POINTS_AT_ONCE * asked.step_seconds
    for since in range(asked.since, asked.until, length):
        yield since, min(asked.until, since + length - asked.step_seconds)


def _ask(session: Any, url: str, asked: Range, since: int, until: int) -> list[dict[str, Any]]:
    import requests

    shown = _shown(url)
    data = {"query": asked.query, "start": since, "end": until, "step": asked.step_seconds}
    try:
        reply = session.post(f"{url.rstrip('/')}/api/v1/query_range", data=data, timeout=TIMEOUT_SECONDS)
        answer = reply.json()
    except requests.exceptions.JSONDecodeError:
        text = f"Prometheus at {shown}: status {reply.status_code}, the answer is not JSON"
        raise TraceError(text, hint=LOG_IN if reply.status_code == 401 else "give the URL of a Prometheus") from None
    except ValueError:
        text = f"{shown} is not the URL of a Prometheus"
        raise TraceError(text, hint="type it like http://localhost:30090") from None
    except requests.RequestException as error:
        text = f"Prometheus at {shown} cannot be read: {type(error).__name__}"
        raise TraceError(text, hint=FORWARD_PORT) from None
    try:
        if answer["status"] != "success":
            raise TraceError(f"Prometheus at {shown} refuses {asked.query}: {answer.get('error', 'without a reason')}")
        found: list[dict[str, Any]] = answer["data"]["result"]
    except (KeyError, TypeError):
        text = f"Prometheus at {shown}: status {reply.status_code}, the answer is not that of a range query"
        raise TraceError(text, hint="give the URL of a Prometheus") from None
    return found


def _shown(url: str) -> str:
    """The URL without a password."""
    return re.sub("//.*@", "//", url)


def _rows(series: list[dict[str, Any]], query: str) -> list[tuple[int, float]]:
    if len(series) > 1:
        raise TraceError(f"trace {query}: {len(series)} series, expected one; sum them, e.g. sum({query})")
    rows = [(int(float(at)), float(value)) for one in series for at, value in one["values"]]
    return [(at, value) for at, value in rows if math.isfinite(value)]
