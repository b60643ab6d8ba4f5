"""DeleteOptions as a client sends them: JSON, or the protobuf that typed Go clients (drain's delete) prefer.

Only the fields that the world honours are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from simulator.cluster.api.errors import bad_request

_MAGIC: Final = b"k8s\x00"
_VARINT: Final = 0
_BYTES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How to delete: grace None means the pod's own."""

    grace_seconds: float | None = None
    uid: str = ""
    dry_run: bool = False


def read_delete_options(body: bytes) -> DeleteOptions:
    if not body:
        return DeleteOptions()
    return _from_protobuf(body) if body.startswith(_MAGIC) else _from_json(body)


def options_from(fields: dict[str, Any]) -> DeleteOptions:
    return DeleteOptions(
        grace_seconds=fields.get("gracePeriodSeconds"),
        uid=(fields.get("preconditions") or {}).get("uid", ""),
        dry_run=bool(fields.get("dryRun")),
    )


def _from_json(body: bytes) -> DeleteOptions:
    try:
        return options_from(json.loads(body))
    except ValueError as error:
        raise bad_request(f"the DeleteOptions are neither JSON nor protobuf: {error}") from error


def _from_protobuf(body: bytes) -> DeleteOptions:
    """runtime.Unknown: field 2 is the message; in DeleteOptions 1 is grace, 2 preconditions (1 uid), 5 dryRun."""
    raw = dict(_fields(body[len(_MAGIC) :])).get(2, b"")
    fields = dict(_fields(raw)) if isinstance(raw, bytes) else {}
    preconditions = fields.get(2, b"")
    uid = dict(_fields(preconditions)).get(1, b"") if isinstance(preconditions, bytes) else b""
    grace = fields.get(1)
    return DeleteOptions(
        grace_seconds=float(grace) if isinstance(grace, int) else None,
        uid=uid.decode() if isinstance(uid, bytes) else "",
        dry_run=5 in fields,
    )


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        value, place = _varint(data, place)
        if wire == _VARINT:
            yield number, value
        elif wire == _BYTES:
            yield number, data[place : place + value]
            place += value
        else:
            raise bad_request(f"the DeleteOptions carry an unknown protobuf wire type {wire}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if place >= len(data):
            raise bad_request("the DeleteOptions end in the middle of a number")
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
