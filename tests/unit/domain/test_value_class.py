"""value_class: what Python holds of it, and what the type checker does."""

from __future__ import annotations

from dataclasses import field, is_dataclass, replace

import pytest

from node_fleet.domain.model.value_class import value_class


@value_class
class Point:
    x: int
    y: int = 0
    names: dict[str, int] = field(default_factory=dict, compare=False, hash=False)


def test_equal_fields_make_equal_values_with_one_hash() -> None:
    assert Point(x=1) == Point(x=1, y=0, names={"a": 1}) != Point(x=2)
    assert len({Point(x=1), Point(x=1), replace(Point(x=2), x=1)}) == 1


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[call-arg]


def test_no_other_field_can_be_added() -> None:
    assert is_dataclass(Point)
    with pytest.raises(AttributeError):
        Point(x=1).z = 2  # type: ignore[attr-defined]


def test_type_checkers_refuse_to_assign_to_a_field() -> None:
    marks = value_class.__dataclass_transform__  # type: ignore[attr-defined]
    marks = {**marks["kwargs"], **marks}  # Python 3.11 keeps frozen_default among the unknown ones
    assert marks["frozen_default"] and marks["kw_only_default"]
