"""What the standard library is told of a record, and a record of a dataclass: loaded when one of them asks."""

from __future__ import annotations

import dataclasses
from typing import Any

from node_fleet.domain.record import MISSING, PlainField


def dataclass_like(cls: Any, frozen: bool) -> type:
    """A dataclass with the fields of this record."""
    listed = [(f.name, f.type, _standard(f)) for f in cls.__record_fields__.values()]
    return dataclasses.make_dataclass(cls.__name__, listed, frozen=frozen)


def _standard(f: PlainField) -> Any:
    given: dict[str, Any] = {"default": f.default, "default_factory": f.default_factory}
    known = {name: value for name, value in given.items() if value is not MISSING}
    return dataclasses.field(**known, kw_only=bool(f.kw_only), metadata=f.metadata)


def fields_of(kind: Any) -> tuple[PlainField, ...]:
    """The fields of a dataclass that is no record, as a record has them."""
    return tuple(_plain(f) for f in dataclasses.fields(kind))


def _plain(f: dataclasses.Field[Any]) -> PlainField:
    given: dict[str, Any] = {"default": f.default, "default_factory": f.default_factory, "metadata": f.metadata}
    own = PlainField(**{name: value for name, value in given.items() if value is not dataclasses.MISSING})
    own.name, own.type, own.kw_only = f.name, str(f.type), bool(f.kw_only)
    return own
