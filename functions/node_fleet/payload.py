"""Converts typed values to JSON and back. A missing, unknown or wrongly typed field is one clear error.

One codec serves the state machine's payload, the state item and the records.
"""

from __future__ import annotations

import binascii
import functools
import json
import math
import operator
import types
import typing
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, Union

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.run import Alert

Reader = Callable[[Any], Any]
Writer = Callable[[Any], Any]
LONG_TABLE_ROWS, PACKED_TABLE_ROWS = 10, 60
PLAIN_CHARACTERS = 4000
UNPACKED_BYTES = 8 * 2**20
"""The largest packed value, unpacked. A payload of 256 KB could unpack to 250 MB."""
_SCALARS: dict[type, str] = {int: "a whole number", float: "a finite number", str: "text"}
_PLAIN = frozenset({str, int, bool, type(None)})
"""The types whose values are their own JSON form."""
_DIGITS = 4
"""Of a float, after the point."""
_FLOATS = {float}
_REQUIRED = object()


class _Malformed(InvalidInputError):
    """A value that is not what its type asks. Its place grows on the way out: a sound value costs no path."""

    def __init__(self, text: str, place: str = "") -> None:
        self.text, self.place = text, place

    def within(self, part: str) -> _Malformed:
        """The same, seen from the list or record around it. part: ".field" or "[index]"."""
        self.place = part + self.place
        return self


def to_payload(value: Any) -> Any:
    """The JSON form of a dataclass, tuple, dict or scalar. Floats are rounded to 4 digits."""
    kind: Any = type(value)
    return value if kind in _PLAIN else _writer(kind)(value)


def from_payload(cls: Any, data: Any, *, path: str = "") -> Any:
    """Build a `cls` from its JSON form. Raises InvalidInputError naming the field, its value and what is expected."""
    try:
        return _reader(cls)(data)
    except _Malformed as wrong:
        name = path or getattr(cls, "__name__", str(cls))
        raise InvalidInputError(f"{name}{wrong.place} {wrong.text}") from wrong.__cause__


def _write_sequence(items: typing.Sequence[Any]) -> Any:
    kinds = set(map(type, items))
    if kinds <= _PLAIN:
        return list(items)
    if kinds == _FLOATS:
        return [round(item, _DIGITS) for item in items]
    if all(map(is_dataclass, kinds)):
        kind: Any = type(items[0])
        names, values_of = _fields(kind)
        rows = [[v if type(v) in _PLAIN else to_payload(v) for v in values_of(item)] for item in items]
        return _shortened(names, rows) if len(rows) >= LONG_TABLE_ROWS else {"columns": names, "rows": rows}
    return [to_payload(item) for item in items]


@functools.cache
def _fields(kind: type[Any]) -> tuple[list[str], Callable[[Any], Iterable[Any]]]:
    """The names of a dataclass's fields, and their values in an object."""
    names = [f.name for f in fields(kind)]
    if len(names) > 1:
        return names, operator.attrgetter(*names)
    return names, lambda value: [getattr(value, name) for name in names]


def _shortened(names: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    """A long table: a value that all rows share is written once, and a very long table is packed.

    A payload of the state machine stays under 32 KB with 100 workers and two weeks of hourly data.
    """
    same = {
        name: column[0]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
        if column.count(column[0]) == len(column)
    }
    columns = [name for name in names if name not in same]
    places = [place for place, name in enumerate(names) if name not in same]
    kept = [[row[place] for place in places] for row in rows]
    if len(rows) < PACKED_TABLE_ROWS:
        return {"columns": columns, "same": same, "rows": kept}
    return {"columns": columns, "same": same, "packed": _pack(kept)}


def table_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table, each with all its fields. Raises InvalidInputError for a malformed table."""
    try:
        return _table_rows(data)
    except _Malformed as wrong:
        raise InvalidInputError(f"table {wrong.text}") from wrong.__cause__


def _table_rows(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        rows = data["rows"] if "rows" in data else _unpack(data["packed"])
        return [{**data.get("same", {}), **dict(zip(data["columns"], row, strict=True))} for row in rows]
    except (TypeError, ValueError, zlib.error) as error:
        raise _wrong(data, f"a table ({error})") from error


@functools.cache
def _writer(kind: Any) -> Writer:
    if is_dataclass(kind):
        names, values_of = _fields(typing.cast(type, kind))
        return lambda value: {
            name: item if type(item) in _PLAIN else to_payload(item)
            for name, item in zip(names, values_of(value), strict=True)
        }
    if issubclass(kind, tuple | list):
        return _write_sequence
    if issubclass(kind, Mapping):
        return lambda value: {str(key): to_payload(item) for key, item in value.items()}
    if issubclass(kind, float):
        return lambda value: round(value, _DIGITS)
    return lambda value: value


@functools.cache
def _reader(kind: Any) -> Reader:
    origin = typing.get_origin(kind)
    if is_dataclass(kind):
        return _record_reader(typing.cast(type, kind))
    if origin is Literal:
        return _literal_reader(typing.get_args(kind))
    if origin in (Union, types.UnionType):
        return _union_reader(typing.get_args(kind))
    if origin is tuple:
        return _tuple_reader(typing.get_args(kind)[0])
    if origin is dict:
        return _dict_reader(typing.get_args(kind)[1])
    if kind is Any:
        return lambda data: data
    return _scalar_reader(kind)


def _is_object(data: Any) -> typing.TypeGuard[Mapping[str, Any]]:
    """Whether it is an object of JSON; only of other types the slow question is asked."""
    return type(data) is dict or (type(data) is not list and isinstance(data, Mapping))


def _wrong(data: Any, expected: str) -> _Malformed:
    return _Malformed(f"is {data!r:.80}, expected {expected}")


def _scalar_reader(kind: type) -> Reader:
    def read(data: Any) -> Any:
        if type(data) is kind:
            return data
        raise _wrong(data, _SCALARS.get(kind, kind.__name__))

    return _read_float if kind is float else read


def _read_float(data: Any) -> float:
    if type(data) is float and math.isfinite(data):
        return data
    try:
        finite = isinstance(data, int | float) and not isinstance(data, bool) and math.isfinite(data)
    except OverflowError:  # a whole number with more than 308 digits
        finite = False
    if finite:
        return float(data)
    raise _wrong(data, _SCALARS[float])


def _literal_reader(choices: tuple[Any, ...]) -> Reader:
    def read(data: Any) -> Any:
        if data in choices:
            return data
        raise _wrong(data, "one of " + ", ".join(map(str, choices)))

    return read


def _union_reader(kinds: tuple[Any, ...]) -> Reader:
    optional = type(None) in kinds
    inner = [_reader(k) for k in kinds if k is not type(None)]
    if optional and len(inner) == 1:
        only = inner[0]
        return lambda data: None if data is None else only(data)

    def read(data: Any) -> Any:
        if data is None and optional:
            return None
        failure: InvalidInputError | None = None
        for reader in inner:
            try:
                return reader(data)
            except InvalidInputError as error:
                failure = failure or error
        raise failure or _wrong(data, "a value")

    return read


def _tuple_reader(kind: Any) -> Reader:
    item, only = _reader(kind), {kind} & _PLAIN

    def read(data: Any) -> Any:
        if _is_object(data) and set(data) - {"same"} in ({"columns", "rows"}, {"columns", "packed"}):
            data = _table_rows(data)
        if not isinstance(data, list | tuple):
            raise _wrong(data, "a list")
        kinds = set(map(type, data))
        if kinds == only or (kind is float and kinds == _FLOATS and all(map(math.isfinite, data))):
            return tuple(data)  # of none of its entries the place is needed
        found: list[Any] = []
        try:
            for entry in data:
                found.append(item(entry))
        except _Malformed as wrong:
            raise wrong.within(f"[{len(found)}]") from wrong.__cause__
        return tuple(found)

    return read


def _dict_reader(kind: Any) -> Reader:
    item = _reader(kind)

    def read(data: Any) -> Any:
        if not _is_object(data):
            raise _wrong(data, "an object")
        return {str(key): value for key, value in _read_values(data, dict.fromkeys(data, item)).items()}

    return read


def _record_reader(cls: type) -> Reader:
    hints = typing.get_type_hints(cls)
    readers = {f.name: _reader(hints[f.name]) for f in fields(cls)}
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}

    def read(data: Any) -> Any:
        if not _is_object(data):
            raise _wrong(data, "an object")
        if not readers.keys() >= data.keys():
            unknown = min(data.keys() - readers.keys())
            raise _Malformed(f"has unknown field {unknown!r}, expected {', '.join(sorted(readers))}")
        if not data.keys() >= required:
            raise _Malformed(f"lacks field {min(required - data.keys())!r}")
        return cls(**_read_values(data, readers))

    return read


def _read_values(data: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    name = ""
    try:
        for name, value in data.items():
            found[name] = readers[name](value)
    except _Malformed as wrong:
        raise wrong.within(f".{name}") from wrong.__cause__
    return found


def packed(value: Any) -> dict[str, str]:
    """A value in payload form, compressed."""
    return {"packed": _pack(value)}


def unpacked(data: Any, path: str = "value") -> Any:
    """The value that packed() compressed; any other value unchanged. Raises InvalidInputError for a damaged one."""
    if not isinstance(data, Mapping) or set(data) != {"packed"}:
        return data
    try:
        return _unpack(data["packed"])
    except (TypeError, ValueError, zlib.error) as error:
        raise InvalidInputError(f"{path} is {data!r:.80}, expected a packed value ({error})") from error


def packed_lines(text: str) -> Any:
    """The lines of a text, compressed when the text is long."""
    lines = text.splitlines()
    return packed(lines) if len(text) > PLAIN_CHARACTERS else lines


def _pack(value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), check_circular=False)
    return binascii.b2a_base64(zlib.compress(text.encode(), 9), newline=False).decode()


def _unpack(text: str) -> Any:
    """Raises ValueError, TypeError or zlib.error for a damaged text, and for one that would fill the memory."""
    stream = zlib.decompressobj()
    data = stream.decompress(binascii.a2b_base64(text), UNPACKED_BYTES)
    if stream.unconsumed_tail:
        raise ValueError(f"it is larger than {UNPACKED_BYTES // 2**20} MiB")
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def take(event: Mapping[str, Any], key: str, kind: Any, *, default: Any = _REQUIRED) -> Any:
    """One key of the state machine's payload as a `kind`; `default`, if given, when the key is missing.

    Raises InvalidInputError when the key is missing or malformed.
    """
    if key not in event and default is not _REQUIRED:
        return default
    if key not in event:
        raise InvalidInputError(f"the payload lacks {key!r}")
    return from_payload(kind, event[key], path=key)


def known(event: Mapping[str, Any], key: str, kind: Any) -> Any:
    """One key of the payload as a `kind`; None when it is missing or malformed: a figure must not fail a run."""
    try:
        return from_payload(kind, event[key], path=key) if event.get(key) else None
    except InvalidInputError:
        return None


def put(event: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """The payload with these keys set to the JSON form of the values."""
    return {**event, **{key: to_payload(value) for key, value in values.items()}}


def add_alerts(event: Mapping[str, Any], *, notes: Iterable[str] = (), alerts: Iterable[Alert] = ()) -> dict[str, Any]:
    """The payload with these notes and alerts after those of earlier states; an equal one is added once."""
    earlier: tuple[Alert, ...] = from_payload(tuple[Alert, ...], event.get("alerts", []))
    return {
        **event,
        "notes": list(dict.fromkeys([*event.get("notes", []), *(note for note in notes if note)])),
        "alerts": to_payload(tuple(dict.fromkeys([*earlier, *alerts]))),
    }
