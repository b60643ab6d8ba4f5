"""The decorator of the classes whose objects are values: nothing is ever assigned to their fields again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_class(cls: type[_Class]) -> type[_Class]:
    """A dataclass with slots, made by field names; it can be compared and hashed.

    The type checker refuses an assignment to a field. Python does not: `frozen=True` makes each object take three times
    as long, and one decision makes thirty.
    """
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
