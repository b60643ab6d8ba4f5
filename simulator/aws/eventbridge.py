"""EventBridge: which rule an event matches, what its target then receives, and when a schedule is due.

Pure functions on patterns, templates and times; delivering is the simulator's work.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PERIODS = {"minute": 60, "hour": 3600, "day": 86_400}
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.-]+)>")
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class ScheduleError(ValueError):
    """A schedule expression that EventBridge would refuse, or that is not known here."""


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event matches a pattern, with the content filters that rules may use."""
    return all(_field_matches(rule, event.get(name), name in event) for name, rule in pattern.items())


def _field_matches(rule: Any, value: Any, present: bool) -> bool:
    if isinstance(rule, Mapping):
        return isinstance(value, Mapping) and matches(rule, value)
    values = value if isinstance(value, list) else [value]
    return any(_filter_matches(one, each, present) for one in rule for each in values)


def _filter_matches(rule: Any, value: Any, present: bool) -> bool:
    if not isinstance(rule, Mapping):
        return present and bool(rule == value)
    ((kind, argument),) = rule.items()
    if kind == "exists":
        return present is bool(argument)
    if kind == "anything-but":
        return present and value not in (argument if isinstance(argument, list) else [argument])
    if kind == "numeric":
        steps = zip(argument[::2], argument[1::2], strict=True)
        return isinstance(value, int | float) and all(COMPARE[sign](value, limit) for sign, limit in steps)
    text = value if isinstance(value, str) else ""
    if kind == "wildcard":
        return re.fullmatch(".*".join(map(re.escape, argument.split("*"))), text) is not None
    if kind in ("prefix", "suffix"):
        return text.startswith(argument) if kind == "prefix" else text.endswith(argument)
    raise ScheduleError(f"event pattern: the filter {kind!r} is not known here")


def target_input(target: Mapping[str, Any], event: Mapping[str, Any]) -> Any:
    """What a target receives: its constant, a part of the event, the transformed event, or the event."""
    if "Input" in target:
        return json.loads(target["Input"])
    if "InputPath" in target:
        return _at(target["InputPath"], event)
    if "InputTransformer" not in target:
        return dict(event)
    transformer = target["InputTransformer"]
    found = {name: _at(path, event) for name, path in transformer.get("InputPathsMap", {}).items()}
    found["aws.events.event.ingestion-time"] = event.get("time")
    template: str = transformer["InputTemplate"]
    return json.loads(PLACEHOLDER.sub(lambda match: _put(found.get(match[1]), match, template), template))


def _put(value: Any, match: re.Match[str], template: str) -> str:
    """Inside a string of the template the bare text, elsewhere the JSON of the value."""
    inside = template[: match.start()].replace('\\"', "").count('"') % 2 == 1
    return value if inside and isinstance(value, str) else json.dumps(value)


def _at(path: str, event: Mapping[str, Any]) -> Any:
    value: Any = event
    for part in path.removeprefix("$").strip(".").split("."):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def event(
    source: str, detail_type: str, detail: Mapping[str, Any], *, now: float, region: str, account: str, **more: Any
) -> dict[str, Any]:
    """An event in EventBridge's envelope."""
    return {
        "version": "0",
        "id": f"{int(now):032x}",
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": iso(now),
        "region": region,
        "resources": [],
        "detail": dict(detail),
        **more,
    }


def iso(epoch: float) -> str:
    return dt.datetime.fromtimestamp(int(epoch), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def period_seconds(expression: str) -> int | None:
    """The period of rate(...); None for cron(...)."""
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if found:
        return int(found[1]) * PERIODS[found[2]]
    if re.fullmatch(r"cron\((\S+ ){5}\S+\)", expression):
        return None
    raise ScheduleError(f"schedule {expression!r}: expected rate(N minutes|hours|days) or cron(six fields)")


def cron_due(expression: str, epoch: float) -> bool:
    """Whether cron(minute hour day month weekday year), in UTC, is due in the minute of epoch."""
    moment = dt.datetime.fromtimestamp(epoch, tz=dt.UTC)
    weekday = moment.isoweekday() % 7 + 1
    actual = (moment.minute, moment.hour, moment.day, moment.month, weekday, moment.year)
    return all(now in set(_cron_values(text, now)) for text, now in zip(expression[5:-1].split(), actual, strict=True))


def _cron_values(text: str, now: int) -> Iterator[int]:
    for part in text.upper().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span in ("*", "?"):
            if now % int(step or 1) == 0:
                yield now
        elif step and not last:
            yield from range(int(first), now + 1, int(step))
        else:
            yield from range(_number(first), _number(last or first) + 1, int(step or 1))


def _number(text: str) -> int:
    if text in DAYS:
        return DAYS.index(text) + 1
    return MONTHS.index(text) + 1 if text in MONTHS else int(text)
