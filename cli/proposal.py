"""Settings that are proposed for what another autoscaler has configured, with the differences that remain.

Values only: autoscaler_flags.py and scaling_group.py fill it, import_settings.py prints it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one part of the other configuration becomes. settings: name -> value; empty when there is no equivalent."""

    source: str
    difference: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
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
