"""Settings of times off: written back as they were given, and refused with what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.settings import Settings

NIGHT = {"hibernate": "Mon-Fri 20:00-07:00"}


def problem(**raw: Any) -> str:
    with pytest.raises(InvalidSettingsError) as caught:
        Settings.from_mapping(raw)
    return str(caught.value)


@pytest.mark.parametrize("given", ["Mon-Fri 20:00-07:00; Sat-Sun", ["Sat-Sun", "2026-12-24"], "Sun 22:00-24:00", ""])
def test_windows_survive_the_environment_of_the_functions(given: Any) -> None:
    settings = Settings.from_mapping({"hibernate": given})
    assert Settings.from_env(settings.to_env()) == settings
    assert len(settings.hibernate) == (len(given) if isinstance(given, list) else given.count(";") + bool(given))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"hibernate": "at night"}, "cannot read window 'at night', expected e.g. 'Mon-Fri 20:00-07:00', 'Sat-Sun'"),
        ({"hibernate": 7}, 'hibernate=7: expected text such as "Sun-Fri 20:00-07:00; Sat-Sun"'),
        ({"hibernate": "Mon 00:00-01:09"}, "it is 69 min long, expected at least 70 min"),
        ({"hibernate": "Mon-Sun"}, "hibernate=Mon-Sun: the fleet would never be on"),
        ({"hibernate": "Mon-Sun 12:00-11:59; Mon-Sun 11:00-13:00"}, "the fleet would never be on, expected less"),
        ({**NIGHT, "hibernate_drain_seconds": 0, "hibernate_at_limit": "stay-on"}, "no worker is drained"),
        ({**NIGHT, "hibernate_lead_seconds": 119}, "hibernate_lead_seconds=119: expected 120 to 3600 s"),
        ({**NIGHT, "hibernate_lead_seconds": 3601}, "expected 120 to 3600 s"),
        ({**NIGHT, "hibernate_drain_seconds": 14401}, "expected 0 to 14400 s"),
        ({**NIGHT, "hibernate_at_limit": "end"}, "expected one of terminate, stay-on"),
    ],
)
def test_what_can_never_work_is_refused_with_what_would(raw: dict[str, Any], expected: str) -> None:
    assert expected in problem(**raw)


def test_the_longest_run_has_all_workers_of_the_operation_that_switches_the_fleet_off() -> None:
    assert Settings.from_mapping({"drain_poll_seconds": 4}).drain_poll_seconds == 4
    assert "a run could write" in problem(**NIGHT, drain_poll_seconds=4)


@pytest.mark.parametrize(
    "raw",
    [
        {"hibernate": "Mon 00:00-01:10"},
        {"hibernate": "Mon-Sun 12:00-11:59"},
        {**NIGHT, "hibernate_drain_seconds": 0},
        {**NIGHT, "hibernate_lead_seconds": 3600, "hibernate_drain_seconds": 14400},
    ],
)
def test_what_just_works_is_accepted(raw: dict[str, Any]) -> None:
    assert Settings.from_mapping(raw).hibernate
