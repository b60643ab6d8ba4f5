"""The __init__ of a record of which many values are made, as source that is compiled once."""

from __future__ import annotations

import sys
from typing import Any

from node_fleet.domain.record import MISSING, PlainField


def compiled_init(cls: Any) -> Any:
    """The __init__ that dataclass() would have written, except that it fills slots directly, which is twice as fast."""
    fields = cls.__record_fields__.values()
    given: dict[str, Any] = {"_missing": MISSING}
    for f in fields:
        given[f"_set_{f.name}"] = getattr(cls, f.name).__set__
        given[f"_default_{f.name}"] = f.default if f.default_factory is MISSING else f.default_factory
    body = [_assignment(f) for f in fields] + ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    by_keyword = [_parameter(f) for f in fields if f.kw_only]
    parameters = ["self", *(_parameter(f) for f in fields if not f.kw_only), *["*"] * bool(by_keyword), *by_keyword]
    lines = "\n  ".join(body or ["pass"])
    source = f"def make({', '.join(given)}):\n def __init__({', '.join(parameters)}):\n  {lines}\n return __init__"
    made: dict[str, Any] = {}
    exec(source, sys.modules[cls.__module__].__dict__, made)
    init = made["make"](**given)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{f.name: f.type for f in fields}, "return": None}
    return init


def _assignment(f: PlainField) -> str:
    if f.default_factory is MISSING:
        return f"_set_{f.name}(self, {f.name})"
    return f"_set_{f.name}(self, _default_{f.name}() if {f.name} is _missing else {f.name})"


def _parameter(f: PlainField) -> str:
    if f.default_factory is not MISSING:
        return f"{f.name}=_missing"
    return f.name if f.default is MISSING else f"{f.name}=_default_{f.name}"
