"""How the value of a setting is parsed and written, by kind of value. Knows nothing about contradictions."""

from __future__ import annotations

import json
import math
import typing
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import Field
from typing import Any

from node_fleet.domain.model.budget import Budget, RemovalWindow
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.custom_metric import BUILT_IN, CustomMetric, with_built_in_defaults
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.local_time import DAY_NAMES, DailyWindow
from node_fleet.domain.model.policy import ScheduleWindow
from node_fleet.domain.model.setting import spec_of
from node_fleet.payload import from_payload, to_payload


def parsed(f: Field[Any], value: Any) -> Any:
    """The value of that setting. Raises ValueError, which names the allowed values."""
    spec = spec_of(f)
    found = _PARSERS.get(f.name, _PARSERS.get(str(f.type), _text))(value)
    if isinstance(found, str) and found in spec.old_choices:
        old, found = found, spec.old_choices[found]
        warnings.warn(f"{spec.env}={old} is deprecated: use {found}, which means the same", FutureWarning, stacklevel=5)
    if spec.choices and found not in spec.choices:
        raise ValueError(f"expected one of {spec.range}{nearest(str(found), spec.choices)}")
    if spec.low is not None and spec.high is not None and not spec.low <= found <= spec.high:
        raise ValueError(f"expected {spec.range}")
    return found


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("expected a whole number")
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError("expected a whole number") from None


def _number(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number):
        raise ValueError("expected a number")
    return number


def _switch(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _text(value: Any) -> str:
    if not isinstance(value, str | int):
        raise ValueError("expected text")
    return str(value).strip()


def _texts(value: Any) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError("expected a comma-separated list")
    return tuple(str(item).strip() for item in items if str(item).strip())


def _subnets(value: Any) -> tuple[str, ...]:
    entries = _texts([f"{k}={v}" for k, v in value.items()] if isinstance(value, Mapping) else value)
    for entry in entries:
        if "=" not in entry or not entry.split("=", 1)[1].startswith("subnet-"):
            raise ValueError(f"expected zone=subnet-id, found {entry!r}")
    return entries


def _custom_metrics(value: Any) -> tuple[CustomMetric, ...]:
    try:
        data = json.loads(value or "[]") if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f"expected a JSON list ({error})") from None
    if isinstance(data, tuple) and all(isinstance(m, CustomMetric) for m in data):
        return data
    if not isinstance(data, list | tuple):
        raise ValueError("expected a JSON list of metrics")
    found: list[CustomMetric] = []
    problems: list[str] = []
    for index, entry in enumerate(data):
        try:
            found.append(_custom_metric(entry, index))
        except (InvalidInputError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(found)


def _custom_metric(entry: Any, index: int) -> CustomMetric:
    fields = with_built_in_defaults(entry)
    name = fields.get("name") if isinstance(fields, Mapping) else None
    if name and (absent := [field for field in ("query", "high", "low") if fields.get(field) is None]):
        near = nearest(str(name), [m.name for m in BUILT_IN]) if "query" in absent else ""
        raise ValueError(f"metric {name} has no {' and no '.join(absent)}, expected a query and two thresholds{near}")
    return typing.cast(CustomMetric, from_payload(CustomMetric, fields, path=f"metric {name or index + 1}"))


def _instance_requirements(value: Any) -> InstanceRequirements | None:
    if value is None or value == "" or isinstance(value, InstanceRequirements):
        return value or None
    try:
        data = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(
            f'expected a JSON object such as {{"vcpus": [2, 4], "memory_gib": [4, 16]}} ({error})'
        ) from None
    if absent := [name for name in ("vcpus", "memory_gib") if isinstance(data, Mapping) and name not in data]:
        raise ValueError(f"it lacks {', '.join(absent)}, expected the smallest and the largest value, as in [2, 4]")
    try:
        found = typing.cast(InstanceRequirements, from_payload(InstanceRequirements, data, path="requirements"))
    except InvalidInputError as error:
        raise ValueError(str(error)) from None
    if problems := list(found.problems()):
        raise ValueError("; ".join(problems))
    return found


def _schedules(value: Any) -> tuple[ScheduleWindow, ...]:
    from node_fleet.domain.scaling.schedule import parse_schedules

    return parse_schedules(value)


def _budgets(value: Any) -> tuple[Budget, ...]:
    from node_fleet.settings.budget_parsing import parse_budgets

    return parse_budgets(value)


def _removal_windows(value: Any) -> tuple[RemovalWindow, ...]:
    from node_fleet.settings.budget_parsing import parse_removal_windows

    return parse_removal_windows(value)


def _hibernate(value: Any) -> tuple[DailyWindow, ...]:
    if value in ("", ()):
        return ()
    from node_fleet.domain.model.hibernation import parse_windows

    return parse_windows(value)


def _headroom_pods(value: Any) -> HeadroomPods | None:
    if value is None or value == "" or isinstance(value, HeadroomPods):
        return value or None
    example = 'an object such as {"count": 3, "cpu_milli": 500, "memory_mib": 512}'
    try:
        data = json.loads(value) if isinstance(value, str) else value
        found: HeadroomPods = from_payload(HeadroomPods, data, path="headroom")
    except (json.JSONDecodeError, InvalidInputError) as error:
        raise ValueError(f"expected {example} ({error})") from None
    if problem := found.problem():
        raise ValueError(problem)
    return found


def _weekend_days(value: Any) -> tuple[str, ...]:
    names = tuple(name.lower()[:3] for name in _texts(value))
    if unknown := [name for name in names if name not in DAY_NAMES]:
        raise ValueError(f"{unknown[0]!r} is not a day, expected mon to sun{nearest(unknown[0], DAY_NAMES)}")
    return names


_PARSERS: dict[str, Any] = {
    "int": _whole,
    "float": _number,
    "bool": _switch,
    "tuple[str, ...]": _texts,
    "subnets": _subnets,
    "custom_metrics": _custom_metrics,
    "instance_requirements": _instance_requirements,
    "schedules": _schedules,
    "disruption_budgets": _budgets,
    "removal_windows": _removal_windows,
    "headroom_pods": _headroom_pods,
    "hibernate": _hibernate,
    "weekend_days": _weekend_days,
}


def written(value: Any) -> str:
    """The text that parses to this value again."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return ""
    if isinstance(value, InstanceRequirements):
        return json.dumps(given_requirements(value), separators=(",", ":"))
    if isinstance(value, HeadroomPods):
        return json.dumps(to_payload(value), separators=(",", ":"))
    if isinstance(value, tuple):
        if value and isinstance(value[0], Budget | RemovalWindow):
            from node_fleet.settings import budget_parsing

            return budget_parsing.written(value)
        if value and isinstance(value[0], DailyWindow):
            return "; ".join(w.text for w in value)
        if value and isinstance(value[0], CustomMetric):
            return json.dumps([to_payload(m) for m in value], separators=(",", ":"))
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def given_requirements(requirements: InstanceRequirements) -> dict[str, Any]:
    """The JSON object that gives these requirements: the ranges, and what differs from the defaults."""
    data, defaults = to_payload(requirements), to_payload(InstanceRequirements())
    found = {name: value for name, value in data.items() if value != defaults[name]}
    ranges = {name: [_plain(end) for end in found[name]] for name in ("vcpus", "memory_gib") if name in found}
    return {**found, **ranges}


def _plain(number: float) -> float:
    return int(number) if number % 1 == 0 else number


def shown(value: Any) -> str:
    """The value for an error message, cut where it is long."""
    return f"{value!s:.60}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name nearest to a wrong one, in brackets; empty when none is near."""
    import difflib  # only wrong settings need it

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (nearest: {near[0]})" if near else ""
