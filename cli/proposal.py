"""Settings that are proposed for what another autoscaler has configured, with the differences that remain.

Values only: autoscaler_flags.py and scaling_group.py fill it, import_settings.py prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings

OPERATION_MARGIN_SECONDS = 300
LONGEST_OPERATION_SECONDS = 7200


@value_class
class Line:
    """What one part of the other configuration becomes. settings: name -> value; empty when there is no equivalent."""

    source: str
    difference: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@value_class
class Proposal:
    """Every line, and what could not be read. attach: the ids of mode attach, where they are known."""

    lines: tuple[Line, ...]
    problems: tuple[str, ...] = ()
    attach: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings; of two lines about one setting the later one counts."""
        return {name: value for line in self.lines for name, value in line.settings.items()}

    def refused(self) -> tuple[str, ...]:
        """Why node-fleet would refuse the settings together: one text for each mistake."""
        try:
            Settings.from_mapping(self.settings)
        except InvalidSettingsError as error:
            return tuple(error.problems)
        return ()


def with_longer_operations(lines: Iterable[Line]) -> tuple[Line, ...]:
    """The lines, and one more when an operation would be closed before its join or drain has ended."""
    kept = tuple(lines)
    given = {name: value for line in kept for name, value in line.settings.items()}
    longest = max(given.get("join_limit_seconds", 0), given.get("drain_timeout_seconds", 0))
    if longest + OPERATION_MARGIN_SECONDS <= Settings().operation_limit_seconds:
        return kept
    settings = {"operation_limit_seconds": min(longest + OPERATION_MARGIN_SECONDS, LONGEST_OPERATION_SECONDS)}
    why = "a scale-up or scale-down is closed at this age, which must be above the limits of join and drain"
    return (*kept, Line(source="(follows)", settings=settings, difference=why))


def within(wanted: float, low: int, high: int, unit: str = "") -> tuple[Any, str]:
    """The value moved into the range of a setting, and the words that say so; no words when it was in the range."""
    value = min(max(wanted, low), high)
    return value, f"node-fleet allows {low} to {high}{unit}; " if value != wanted else ""
