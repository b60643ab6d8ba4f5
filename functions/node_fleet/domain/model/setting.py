"""The specification that every setting carries as the metadata of its dataclass field.

The string below a setting's field is its meaning: docs/settings.md is generated from it.
"""

from __future__ import annotations

import typing
from dataclasses import Field, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spec:
    """The environment name of one setting and its allowed values. low and high are inclusive.

    old_env is an earlier environment name, and old_env in small letters the earlier name in cdk.json: both are accepted
    with a deprecation warning. old_choices: earlier value -> value.
    """

    env: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    old_env: str = ""
    old_choices: dict[str, str] = field(default_factory=dict)

    @property
    def range(self) -> str:
        """The allowed values in words, such as "1 to 100 %"; empty when every value of its type is allowed."""
        if self.choices:
            return ", ".join(self.choices)
        return "" if self.low is None else f"{self.low:.10g} to {self.high:.10g}{self.unit and ' ' + self.unit}"


def setting(
    env: str, default: Any, low: float | None = None, high: float | None = None, unit: str = "", **more: Any
) -> Any:
    """A dataclass field that carries its Spec."""
    return field(default=default, metadata={"spec": Spec(env, low, high, unit=unit, **more)})


def spec_of(f: Field[Any]) -> Spec:
    """The Spec that the field of a setting carries."""
    return typing.cast(Spec, f.metadata["spec"])
