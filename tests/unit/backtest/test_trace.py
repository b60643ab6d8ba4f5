"""Traces: what is one, what is refused with its row and reason, and that gaps stay gaps."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backtest import trace as trace_module
from backtest.trace import TraceError, from_rows, parse_csv, parse_file, parse_json, read_trace

GOOD = "timestamp,value\n2026-06-01T00:00:00Z,1\n2026-06-01T00:05:00Z,2.5\n"


def rows(*lines: str) -> str:
    return "time,value\n" + "\n".join(lines) + "\n"


def test_two_columns_with_or_without_a_header_are_a_trace() -> None:
    for text in (GOOD, GOOD.split("\n", 1)[1], GOOD.replace("timestamp", "time"), GOOD.replace("\n", "\r")):
        trace = parse_csv(text, name="t")
        assert trace.values == [1.0, 2.5]
        assert trace.interval_seconds == 300


def test_times_are_epoch_seconds_or_have_any_single_zone() -> None:
    zoned = rows("2026-06-01T06:00:00+06:00,1", "2026-06-01T06:01:00+06:00,2")
    for text in ("1780272000,1\n1780272060,2\n", zoned):
        assert parse_csv(text, name="t").start == 1780272000


@pytest.mark.parametrize(
    ("text", "row", "reason"),
    [
        ("", 0, "0 rows with data, at least 2 are needed"),
        ("time,value\n", 0, "0 rows with data"),
        (rows("2026-06-01T00:00:00Z,1"), 0, "1 row with data"),
        ("when,load\n2026-06-01T00:00:00Z,1\n", 1, "columns when, load, expected time,value"),
        ("time,value,unit\n", 1, "expected time,value"),
        (rows("2026-06-01T00:00:00Z,1,2"), 2, "3 columns"),
        (rows("2026-06-01T00:00:00Z"), 2, "1 column,"),
        (rows("2026-06-01T00:00:00Z,1", "2026-06-01T00:00:00Z,2"), 3, "the same time as the row before"),
        (rows("2026-06-01T00:05:00Z,1", "2026-06-01T00:00:00Z,2"), 3, "earlier than the row before"),
        (rows("2026-06-01T00:00:00Z,1", "2026-06-01T02:00:00+01:00,2"), 3, "another zone than the rows before"),
        (rows("2026-06-01T00:00:00Z,1", "1780272060,2"), 3, "another zone than the rows before"),
        (rows("2026-06-01T00:00:00,1"), 2, "has no zone"),
        ("1780272000000,1\n1780272060000,2\n", 1, "1780272000000 is no time, expected epoch seconds from 1970 to 9999"),
        ("253402300800,1\n", 1, "253402300800 is no time"),
        ("-1,1\n", 1, "-1 is no time"),
        (rows("yesterday,1"), 2, "'yesterday' is not a time"),
        (rows("2026-06-01T00:00:00Z,-3"), 2, "-3 is negative"),
        (rows("2026-06-01T00:00:00Z,nan"), 2, "not a finite number"),
        (rows("2026-06-01T00:00:00Z,inf"), 2, "not a finite number"),
        (rows("2026-06-01T00:00:00Z,lots"), 2, "'lots' is not a number"),
        ("1780272000,1\n1780272060," + "1" * 200_000, 2, "field larger than field limit"),
    ],
)
def test_an_invalid_trace_is_refused_with_row_and_reason(text: str, row: int, reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_csv(text, name="t")
    assert reason in str(caught.value)
    if row:
        assert f"row {row}" in str(caught.value)


def test_a_gap_divides_the_trace_and_has_no_values() -> None:
    at = [0, 60, 120, 600, 660]
    trace = from_rows([(second, 1.0) for second in at], name="t")
    assert [stretch.times for stretch in trace.stretches] == [(0, 60, 120), (600, 660)]
    assert sum(s.times[-1] - s.times[0] for s in trace.stretches) == 180


def test_one_late_reading_is_no_gap() -> None:
    assert len(from_rows([(0, 1), (60, 1), (180, 1), (240, 1)], name="t").stretches) == 1


def test_a_part_of_a_trace_has_its_readings_only() -> None:
    trace = from_rows([(second, float(second)) for second in range(0, 600, 60)], name="t")
    assert trace.between(120, 300).values == [120.0, 180.0, 240.0]
    with pytest.raises(TraceError, match="at least 2"):
        trace.between(0, 60)


def test_a_file_can_be_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "load.csv.gz"
    path.write_bytes(gzip.compress(GOOD.encode()))
    trace = read_trace(path)
    assert (trace.name, trace.values) == ("load", [1.0, 2.5])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.csv: No such file"):
        read_trace(tmp_path / "none.csv")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(TraceError, match=r"broken\.csv\.gz"):
        read_trace(broken)


ANSWER = '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": VALUES}]}}'


@pytest.mark.parametrize(
    "text", ["[[1780272000, 1], [1780272060, 2]]", ANSWER.replace("VALUES", '[[1780272000.2, "1"], [1780272060, "2"]]')]
)
def test_the_answer_of_a_range_query_and_a_list_are_traces(text: str, tmp_path: Path) -> None:
    for name, data in (("load.json", text.encode()), ("load.json.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(data)
        trace = read_trace(tmp_path / name)
        assert (trace.name, trace.values, trace.interval_seconds) == ("load", [1.0, 2.0], 60)


def test_a_value_of_prometheus_that_is_no_number_is_a_gap_and_that_of_a_list_is_refused() -> None:
    values = ", ".join(f'[{60 * n}, "{"NaN" if n == 2 else n}"]' for n in range(9))
    assert len(parse_json(ANSWER.replace("VALUES", f"[{values}]"), name="t").values) == 8
    with pytest.raises(TraceError, match="row 2: nan is not a finite number"):
        parse_json("[[0, 1], [60, NaN]]", name="t")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not the answer of query_range, and not a list of"),
        ("7", "not the answer of query_range"),
        ("[1, 2]", "not the answer of query_range"),
        ('{"status": "error", "error": "bad"}', "not the answer of query_range"),
        ("[[0, 1, 2]]", "not the answer of query_range"),
        ('[["x", 1]]', "not the answer of query_range"),
        ("[[1e999, 1], [2, 1]]", "not the answer of query_range"),
        ("[]", "0 rows with data"),
        ('{"data": {"result": []}}', "0 rows with data"),
        ('{"data": {"result": [{"values": []}, {"values": []}]}}', "2 series, expected one; sum them in the query"),
    ],
)
def test_json_that_is_no_trace_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_json(text, name="t")
    assert reason in str(caught.value)


def test_a_file_that_is_too_large_unpacked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MOST_BYTES", 99)
    assert parse_file(gzip.compress(GOOD.encode()), name="a.csv.gz").values == [1.0, 2.5]
    with pytest.raises(TraceError, match="more than 0 MiB when it is unpacked"):
        parse_file(gzip.compress(b"0" * 100), name="a.csv.gz")


def test_a_byte_order_mark_is_no_part_of_the_header() -> None:
    assert parse_file(b"\xef\xbb\xbf" + GOOD.encode(), name="a.csv").values == [1.0, 2.5]


def test_the_first_and_the_last_second_are_times() -> None:
    assert parse_csv("0,1\n253402300799,2\n", name="t").end == 253_402_300_799
