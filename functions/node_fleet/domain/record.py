"""Dataclasses for a cold start: `@record`, field(), fields() and replace(), without `import dataclasses`.

That import costs half of what a start has to spare, and every class of it six compiled functions, few of them called.
A record shares its methods; its __init__ is compiled once so many values are made that it pays. Type checkers see a
dataclass, and so does the standard library, which is told the fields when it asks. Always with slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Literal

__all__ = ["Field", "field", "fields", "has_default", "is_record", "record", "replace"]

MISSING: Any = object()
_FILLED = 300
"""So many fields of a class's values are filled one by one, which takes as long as compiling its __init__ does."""


class PlainField:
    """What is known of one field, under the names of dataclasses.Field."""

    __slots__ = ("default", "default_factory", "kw_only", "metadata", "name", "type")

    def __init__(
        self,
        *,
        default: Any = MISSING,
        default_factory: Any = MISSING,
        kw_only: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.default, self.default_factory, self.metadata = default, default_factory, metadata or {}
        self.name, self.type, self.kw_only = "", "", kw_only


def _record(*, slots: Literal[True], frozen: bool = False, kw_only: bool = False) -> Callable[[type], type]:
    """Refuses with TypeError what it does not offer: bases, ClassVar, InitVar, own methods in place of the shared."""

    def made(cls: type) -> type:
        fields = _read_fields(cls, kw_only)
        left_out = {*fields, "__dict__", "__weakref__"}
        space = {name: value for name, value in vars(cls).items() if name not in left_out}
        shared = _shared(fields, frozen)
        if cls.__bases__ != (object,) or space.keys() & shared.keys():
            raise TypeError(f"record {cls.__name__}: no bases, and none of {', '.join(shared)}")
        return type(cls.__name__, (), {**space, **shared, "__qualname__": cls.__qualname__})

    return made


def _read_fields(cls: type, kw_only: bool) -> dict[str, PlainField]:
    found: dict[str, PlainField] = {}
    space = vars(cls)
    for name, kind in space.get("__annotations__", {}).items():
        given = space.get(name, MISSING)
        f = found[name] = given if isinstance(given, PlainField) else PlainField(default=given)
        f.name, f.type, f.kw_only = name, kind, kw_only if f.kw_only is None else f.kw_only
        if "ClassVar" in str(kind) or "InitVar" in str(kind) or type(given).__module__ == "dataclasses":
            raise TypeError(f"record {cls.__name__}: {name} is none of the fields that this module's field() makes")
        if type(f.default).__hash__ is None:
            raise ValueError(f"mutable default {type(f.default)} for field {name} is not allowed: use default_factory")
    return found


def _shared(fields: dict[str, PlainField], frozen: bool) -> dict[str, Any]:
    """What stands in the class beside its own methods."""
    values = _values(list(fields))

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    by_position = tuple(f.name for f in fields.values() if not f.kw_only)
    shared: dict[str, Any] = {"__slots__": tuple(fields), "__match_args__": by_position, "__record_fields__": fields}
    shared |= {"__init__": _Init(), "__repr__": _repr, "__eq__": __eq__, "__hash__": None, "__replace__": _replace}
    shared |= {name: _Standard(frozen) for name in _Standard.NAMES}
    if frozen:
        shared |= {"__hash__": __hash__, "__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        shared |= {"__getstate__": _state, "__setstate__": _restore}
    return shared


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What reads these attributes: a tuple also where they are one or none."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__record_fields__)
    return f"{type(self).__qualname__}({shown})"


def _replace(self: Any, /, **changes: Any) -> Any:
    return type(self)(**{**{name: getattr(self, name) for name in self.__record_fields__}, **changes})


def _refuse_set(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """For copy and pickle, which would set attributes otherwise."""
    return [getattr(self, name) for name in self.__record_fields__]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__record_fields__, state, strict=True):
        object.__setattr__(self, name, value)


class _Init:
    """Stands in for __init__ until there are many values, or somebody asks for it or calls it wrongly."""

    def __init__(self) -> None:
        self.filled = 0

    def __set_name__(self, owner: Any, name: str) -> None:
        self.cls = owner

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self.compiled()
        self.filled += len(self.cls.__record_fields__)
        return partial(self.fill if self.filled <= _FILLED else self.compiled(), instance)

    def compiled(self) -> Any:
        from node_fleet.domain.record_compiled import compiled_init

        self.cls.__init__ = found = compiled_init(self.cls)
        return found

    def fill(self, value: Any, /, *unnamed: Any, **given: Any) -> None:
        fields = self.cls.__record_fields__
        if unnamed or not given.keys() <= fields.keys():
            self.compiled()(value, *unnamed, **given)  # by position, or an error to be told as any other
            return
        fill = object.__setattr__
        for name, f in fields.items():
            if name in given:
                fill(value, name, given[name])
            elif f.default is not MISSING:
                fill(value, name, f.default)
            elif f.default_factory is not MISSING:
                fill(value, name, f.default_factory())
            else:
                self.compiled()(value, **given)
        if hasattr(self.cls, "__post_init__"):
            value.__post_init__()


class _Standard:
    """What the standard library looks for in a dataclass, made when it first looks."""

    NAMES = ("__dataclass_fields__", "__dataclass_params__")

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen

    def __set_name__(self, owner: type, name: str) -> None:
        self.cls, self.name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        from node_fleet.domain.record_standard import dataclass_like

        twin = dataclass_like(self.cls, self.frozen)
        for name in self.NAMES:
            setattr(self.cls, name, getattr(twin, name))
        return getattr(twin, self.name)


def _fields(kind: Any) -> tuple[PlainField, ...]:
    if hasattr(kind, "__record_fields__"):
        return tuple(kind.__record_fields__.values())
    from node_fleet.domain.record_standard import fields_of

    return fields_of(kind)


def _is_record(value: object) -> bool:
    return hasattr(value, "__record_fields__") or hasattr(value, "__dataclass_fields__")


def has_default(f: Any) -> bool:
    """Whether a value can be made without this field."""
    return f.default is not MISSING or f.default_factory is not MISSING


if TYPE_CHECKING:
    from dataclasses import Field, field, fields, replace
    from dataclasses import dataclass as record
    from dataclasses import is_dataclass as is_record
else:
    record, field, fields, is_record, Field = _record, PlainField, _fields, _is_record, PlainField

    def replace(value, /, **changes):
        """The same value with these fields changed."""
        return _replace(value, **changes)
