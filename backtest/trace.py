"""Load traces: reads rows of time,value and rejects an invalid row with its number and the reason.

A gap divides the trace into stretches; no value is assumed within a gap.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class

TIME_NAMES = ("time", "timestamp")
VALUE_NAME = "value"
GAP_INTERVALS = 2.5
DAY_SECONDS = 86400
LATEST = 253_402_300_799
"""The end of the year 9999. Milliseconds since 1970 are later."""
MOST_BYTES = 256 << 20
EXAMPLE = "expected two columns, e.g. 2026-06-01T00:00:00Z,17.5"


class TraceError(ValueError):
    """An invalid trace; the message names the source, the row and the reason. `hint` is what to do instead."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@value_class
class Stretch:
    """Readings without a gap between them: increasing epoch seconds, and their values."""

    times: tuple[int, ...]
    values: tuple[float, ...]


@value_class
class Trace:
    """A load over time. interval_seconds: the median time between two readings. Values have any unit."""

    name: str
    interval_seconds: int
    stretches: tuple[Stretch, ...]

    @property
    def values(self) -> list[float]:
        """Every value, in order."""
        return [value for stretch in self.stretches for value in stretch.values]

    @property
    def start(self) -> int:
        return self.stretches[0].times[0]

    @property
    def end(self) -> int:
        return self.stretches[-1].times[-1]

    def between(self, since: int, until: int) -> Trace:
        """The readings in [since, until); raises TraceError when fewer than two are left."""
        return self.where(lambda at: since <= at < until)

    def where(self, wanted: Callable[[int], bool]) -> Trace:
        """The readings at these times; raises TraceError when fewer than two are left."""
        rows = [
            (at, value)
            for stretch in self.stretches
            for at, value in zip(stretch.times, stretch.values, strict=True)
            if wanted(at)
        ]
        return from_rows(rows, name=self.name)


def read_trace(path: Path) -> Trace:
    """The trace in a file: CSV, the JSON of a range query of Prometheus, or one of them gzipped."""
    try:
        return parse_file(path.read_bytes(), name=str(path))
    except OSError as error:
        raise TraceError(f"trace {path}: {error.strerror or error}") from None


def parse_file(data: bytes, *, name: str) -> Trace:
    """The trace in the bytes of a file of that name."""
    try:
        text = (_unzipped(data, name) if name.endswith(".gz") else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise TraceError(f"trace {name}: not a readable text file ({error})") from None
    short = Path(name).name.removesuffix(".gz")
    if short.endswith(".json"):
        return parse_json(text, name=short.removesuffix(".json"))
    return parse_csv(text, name=short.removesuffix(".csv"))


def _unzipped(data: bytes, name: str) -> bytes:
    with gzip.open(io.BytesIO(data)) as file:
        text = file.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise TraceError(f"trace {name}: more than {MOST_BYTES >> 20} MiB when it is unpacked, expected less")
    return text


def parse_json(text: str, *, name: str) -> Trace:
    """The trace in what Prometheus answers to query_range, or in a list of [time, value]; times are epoch seconds."""
    try:
        rows = json.loads(text)
        if isinstance(rows, dict):
            series = rows["data"]["result"]
            if len(series) > 1:
                raise TraceError(f"trace {name}: {len(series)} series, expected one; sum them in the query")
            rows = [pair for one in series for pair in one["values"] if math.isfinite(float(pair[1]))]
        pairs = [(int(float(at)), float(value)) for at, value in rows]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"trace {name}: not the answer of query_range, and not a list of [time, value]") from None
    return from_rows(pairs, name=name)


def parse_csv(text: str, *, name: str) -> Trace:
    """The trace in a CSV text. The header is optional; times are ISO times with one zone, or epoch seconds."""
    return _checked(_parsed(text, name), name)


def from_rows(rows: Iterable[tuple[int, float]], *, name: str) -> Trace:
    """The trace of (epoch seconds, value) rows, checked for order and values; the first row is row 1."""
    return _checked(((number, at, value) for number, (at, value) in enumerate(rows, 1)), name)


def _checked(rows: Iterable[tuple[int, int, float]], name: str) -> Trace:
    times: list[int] = []
    values: list[float] = []
    for number, at, value in rows:
        if not math.isfinite(value):
            raise TraceError(f"trace {name}: row {number}: {value!r} is not a finite number")
        if value < 0:
            raise TraceError(f"trace {name}: row {number}: {value:g} is negative, a load is 0 or more")
        if not 0 <= at <= LATEST:
            raise TraceError(f"trace {name}: row {number}: {at} is no time, expected epoch seconds from 1970 to 9999")
        if times and at <= times[-1]:
            what = "the same time as the row before" if at == times[-1] else "earlier than the row before"
            raise TraceError(f"trace {name}: row {number}: {_shown(at)} is {what}, times must increase")
        times.append(at)
        values.append(value)
    if len(times) < 2:
        text = f"{count_of(len(times), 'row')} with data, at least 2 are needed"
        raise TraceError(f"trace {name}: {text}; {EXAMPLE}")
    interval = int(statistics.median(b - a for a, b in pairwise(times)))
    return Trace(name=name, interval_seconds=interval, stretches=tuple(_stretches(times, values, interval)))


def _stretches(times: list[int], values: list[float], interval: int) -> Iterator[Stretch]:
    """Divide the readings at each gap. A single reading between two gaps covers no time and is left out."""
    limit, begin = interval * GAP_INTERVALS, 0
    for index in range(1, len(times) + 1):
        if index == len(times) or times[index] - times[index - 1] > limit:
            if index - begin > 1:
                yield Stretch(times=tuple(times[begin:index]), values=tuple(values[begin:index]))
            begin = index


def _parsed(text: str, name: str) -> Iterator[tuple[int, int, float]]:
    """The row number in the file, the time and the value of each row."""
    zone: timedelta | str | None = None
    for number, row in _rows(text, name):
        if not row or (number == 1 and _is_header(row, name)):
            continue
        if len(row) != 2:
            raise TraceError(f"trace {name}: row {number}: {count_of(len(row), 'column')}, {EXAMPLE}")
        at, found = _time(row[0], name, number)
        if zone is not None and found != zone:
            raise TraceError(f"trace {name}: row {number}: {row[0]!r} has another zone than the rows before")
        zone = found
        yield number, at, _value(row[1], name, number)


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each row; lines end as on any system."""
    number = 0
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=None)), 1):
            yield number, row
    except csv.Error as error:
        raise TraceError(f"trace {name}: row {number + 1}: {error}; {EXAMPLE}") from None


def _is_header(row: list[str], name: str) -> bool:
    """Whether the first row names the columns; other names raise TraceError."""
    names = [cell.strip().lower() for cell in row]
    if not any(cell and cell[0].isalpha() and cell not in ("nan", "inf", "infinity") for cell in names):
        return False
    if len(names) == 2 and names[0] in TIME_NAMES and names[1] == VALUE_NAME:
        return True
    raise TraceError(f"trace {name}: row 1: columns {', '.join(row)!s:.80}, expected time,value")


def _time(text: str, name: str, number: int) -> tuple[int, timedelta | str]:
    """Epoch seconds, and the zone in the text: its offset, or "epoch"."""
    cell = text.strip()
    try:
        return int(float(cell)), "epoch"
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        raise TraceError(f"trace {name}: row {number}: {text!r:.60} is not a time; {EXAMPLE}") from None
    offset = moment.utcoffset()
    if offset is None:
        raise TraceError(f"trace {name}: row {number}: {text!r:.60} has no zone, write e.g. {cell}Z")
    return int(moment.timestamp()), offset


def _value(text: str, name: str, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise TraceError(f"trace {name}: row {number}: {text!r:.60} is not a number") from None


def _shown(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
