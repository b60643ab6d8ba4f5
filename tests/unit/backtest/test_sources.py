"""Traces from Prometheus and from the history table: what is asked, what is refused, and that gaps stay gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import requests

from backtest.sources import POINTS_AT_ONCE, Range, from_history, from_prometheus
from backtest.trace import TraceError

URL = "http://prometheus.test:9090"
ASKED = Range(query="sum(load)", since=0, until=600, step_seconds=60)


@dataclass
class Reply:
    body: Any
    status_code: int = 200

    def json(self) -> Any:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


@dataclass
class Session:
    """Answers in order and records what was asked."""

    replies: list[Any]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def post(self, url: str, *, data: dict[str, Any], timeout: float) -> Reply:
        assert timeout > 0
        self.asked.append({"url": url, **data})
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return Reply(reply) if not isinstance(reply, Reply) else reply


def series(*values: tuple[int, str]) -> dict[str, Any]:
    return {"status": "success", "data": {"result": [{"metric": {}, "values": [[at, v] for at, v in values]}]}}


def test_one_series_is_a_trace_and_what_is_not_finite_is_a_gap() -> None:
    answer = series((0, "1"), (60, "2"), (120, "NaN"), (180, "+Inf"), (240, "NaN"), (300, "3"), (360, "4"))
    session = Session([answer])
    trace = from_prometheus(session, URL + "/", ASKED)
    assert [s.values for s in trace.stretches] == [(1.0, 2.0), (3.0, 4.0)]
    assert session.asked == [
        {"url": f"{URL}/api/v1/query_range", "query": "sum(load)", "start": 0, "end": 600, "step": 60}
    ]


def test_a_long_range_is_queried_in_parts_that_prometheus_accepts() -> None:
    until = POINTS_AT_ONCE * 60 * 2 + 600
    session = Session([series((0, "1"), (60, "1")), series(), series((until, "1"))])
    from_prometheus(session, URL, Range(query="x", since=0, until=until))
    assert [one["start"] for one in session.asked] == [0, POINTS_AT_ONCE * 60, 2 * POINTS_AT_ONCE * 60]
    assert all((one["end"] - one["start"]) / 60 + 1 <= POINTS_AT_ONCE for one in session.asked)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"status": "error", "error": "parse error"}, "refuses sum.load.: parse error"),
        ({"status": "success", "data": {"result": []}}, "has 0 readings of sum"),
        (series((0, "1")), "has 1 reading of sum"),
        ([1], "status 200, the answer is not that of a range query"),
        ({"status": "success", "data": []}, "the answer is not that of a range query"),
        ({"status": "success", "data": {"result": [{"values": []}] * 3}}, "3 series, expected one"),
        (series((0, "1"), (60, "-1")), "row 2: -1 is negative"),
        (requests.ConnectionError("no"), "cannot be read: ConnectionError"),
        (requests.exceptions.InvalidURL("no"), "prometheus.test:9090 is not the URL of a Prometheus"),
        (ValueError("Invalid IPv6 URL"), "prometheus.test:9090 is not the URL of a Prometheus"),
        (Reply(requests.exceptions.JSONDecodeError("no", "", 0), 401), "status 401, the answer is not JSON"),
    ],
)
def test_an_answer_without_a_trace_is_refused_with_the_reason(reply: Any, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        from_prometheus(Session([reply]), URL, ASKED)


@pytest.mark.parametrize(
    ("reply", "step"),
    [
        (requests.ConnectTimeout("no"), "aws ssm start-session"),
        (Reply(requests.exceptions.JSONDecodeError("no", "", 0), 401), "NODE_FLEET_PROMETHEUS_USER"),
        (Reply(requests.exceptions.JSONDecodeError("no", "", 0), 200), "give the URL of a Prometheus"),
    ],
)
def test_a_prometheus_that_does_not_answer_comes_with_the_next_step(reply: Any, step: str) -> None:
    with pytest.raises(TraceError) as caught:
        from_prometheus(Session([reply]), URL, ASKED)
    assert step in caught.value.hint


@pytest.mark.parametrize("reply", [requests.ConnectionError("no"), series(), {"status": "error"}])
def test_a_password_in_the_url_is_in_no_message(reply: Any) -> None:
    with pytest.raises(TraceError, match=r"Prometheus at http://prometheus\.test:9090 ") as caught:
        from_prometheus(Session([reply]), "http://me:p@ss@prometheus.test:9090", ASKED)
    assert "p@ss" not in str(caught.value)


@pytest.mark.parametrize(("until", "step"), [(0, 60), (600, 0)])
def test_an_invalid_range_is_refused(until: int, step: int) -> None:
    with pytest.raises(TraceError, match="expected an end after the start"):
        from_prometheus(Session([]), URL, Range(query="x", since=0, until=until, step_seconds=step))


class Table:
    def __init__(self, *readings: dict[str, Any]) -> None:
        self._readings = readings

    def readings(self, since: int, until: int) -> tuple[dict[str, Any], ...]:
        return tuple(one for one in self._readings if since <= one["at"] < until)


def test_history_is_the_number_of_busy_workers_without_missing_readings() -> None:
    table = Table(
        {"at": 0, "cpu_percent": 50.0, "usable": 4},
        {"at": 120, "cpu_percent": 60.0, "usable": 5},
        {"at": 240, "usable": 5},
        {"at": 360, "cpu_percent": 60.0},
        {"at": 480, "cpu_percent": 10.0, "usable": 2},
        {"at": 600, "cpu_percent": 20.0, "usable": 2},
    )
    trace = from_history(table, 0, 10_000)
    assert trace.interval_seconds == 120
    assert [s.values for s in trace.stretches] == [(2.0, 3.0), (0.2, 0.4)]


def test_an_empty_history_is_no_trace() -> None:
    with pytest.raises(TraceError, match="trace history: 0 rows"):
        from_history(Table(), 0, 100)
