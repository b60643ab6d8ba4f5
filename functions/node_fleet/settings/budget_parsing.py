"""Reads and writes disruption budgets and removal windows, the rows and texts of two settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from node_fleet.domain.disruption.budgets import MACROS
from node_fleet.domain.model.budget import REASONS, Budget, Reason, RemovalWindow, WindowKind, duration_text
from node_fleet.domain.model.local_time import WINDOW, is_zone, parse_window

LONGEST_HOURS = 366 * 24
_KEYS = ("nodes", "reasons", "schedule", "duration", "timezone")
_REMOVAL_WINDOW = re.compile(rf"^(?:(?P<kind>only|never):\s*)?{WINDOW}$")


def parse_budgets(value: Any) -> tuple[Budget, ...]:
    """The budgets of a list, or of its JSON text.

    Raises:
        ValueError: lists every mistake with its row, its value and what would be right.
    """
    try:
        rows = json.loads(value or "[]") if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f'expected a JSON list such as [{{"nodes": "1"}}] ({error})') from None
    if not isinstance(rows, list | tuple):
        raise ValueError('expected a list such as [{"nodes": "1"}]')
    found: list[Budget] = []
    problems: list[str] = []
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Budget):
            found.append(row)
        elif not isinstance(row, Mapping):
            problems.append(f'row {number}, {row!r}: expected an object such as {{"nodes": "1"}}')
        elif wrong := _problems(row):
            problems += [f"row {number}: {problem}" for problem in wrong]
        else:
            found.append(_budget(row))
    if problems:
        raise ValueError("; ".join(problems))
    return tuple(found)


def _problems(row: Mapping[str, Any]) -> list[str]:
    found = [f"{key} is not known, expected {', '.join(_KEYS)}" for key in row if key not in _KEYS]
    if not _is_nodes(row.get("nodes")):
        given = f"nodes={row['nodes']!r}" if "nodes" in row else "nodes is missing"
        found.append(f'{given}: expected a number of workers such as "2", or a percentage from "0%" to "100%"')
    reasons = row.get("reasons", REASONS)
    if not isinstance(reasons, list | tuple) or not reasons or any(reason not in REASONS for reason in reasons):
        found.append(f"reasons={reasons!r}: expected a list of {', '.join(REASONS)}, or no reasons for all of them")
    if ("schedule" in row) != ("duration" in row):
        found.append("schedule and duration: expected both, or none for a budget that always holds")
    if "schedule" in row and (wrong := _schedule_problem(row["schedule"])):
        found.append(f'schedule={row["schedule"]!r}: {wrong}, expected five fields such as "0 9 * * mon-fri" or @daily')
    if "duration" in row and not _seconds(row["duration"]):
        text = f'expected hours and minutes such as "8h", "30m" or "1h30m", at most {LONGEST_HOURS}h'
        found.append(f"duration={row['duration']!r}: {text}")
    if "timezone" in row and not (isinstance(row["timezone"], str) and is_zone(row["timezone"])):
        found.append(f"timezone={row['timezone']!r}: expected an IANA zone such as Asia/Dhaka")
    if "timezone" in row and "schedule" not in row:
        found.append("timezone: only a schedule has one, expected schedule and duration beside it")
    return found


def _is_nodes(value: Any) -> bool:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    found = re.fullmatch(r"(\d{1,4})(%?)", text) if isinstance(text, str) else None
    return found is not None and (not found[2] or int(found[1]) <= 100)


def _schedule_problem(text: Any) -> str:
    """What is wrong with a schedule; empty when it has a next time."""
    if not isinstance(text, str):
        return "it is no text"
    fields = MACROS.get(text, text)
    if len(fields.split()) != 5:
        return f"it has {len(fields.split())} fields"
    from cronsim import CronSim, CronSimError

    try:
        has_a_time = next(CronSim(fields, datetime.fromtimestamp(0, UTC)), None) is not None
    except CronSimError as error:
        return str(error).replace("Bad", "wrong")
    return "" if has_a_time else "no day matches it"


def _seconds(text: Any) -> int:
    """The duration; 0 when it is not one."""
    found = re.fullmatch(r"(?:(\d{1,5})h)?(?:(\d{1,6})m)?", text) if isinstance(text, str) else None
    if found is None:
        return 0
    seconds = int(found[1] or 0) * 3600 + int(found[2] or 0) * 60
    return seconds if seconds <= LONGEST_HOURS * 3600 else 0


def _budget(row: Mapping[str, Any]) -> Budget:
    return Budget(
        nodes=str(row["nodes"]),
        reasons=tuple(cast(Reason, reason) for reason in row.get("reasons", ())),
        schedule=row.get("schedule", ""),
        duration_seconds=_seconds(row["duration"]) if "duration" in row else 0,
        timezone=row.get("timezone", ""),
    )


def parse_removal_windows(value: Any) -> tuple[RemovalWindow, ...]:
    """Read windows such as "only: Mon-Fri 09:00-17:00; Sat 10:00-12:00; never: 2026-11-27 00:00-24:00".

    A window without "only:" or "never:" is of the kind of the window before it.

    Raises:
        ValueError: names the window that cannot be read and shows the form.
    """
    texts = value.split(";") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError('expected text such as "only: Mon-Fri 09:00-17:00"')
    found: list[RemovalWindow] = []
    for each in texts:
        if isinstance(each, RemovalWindow):
            found.append(each)
        elif text := str(each).strip():
            found.append(_removal_window(text, found))
    return tuple(found)


def _removal_window(text: str, before: list[RemovalWindow]) -> RemovalWindow:
    match = _REMOVAL_WINDOW.match(text)
    kind = match and (match["kind"] or (before[-1].kind if before else ""))
    if not match or not kind:
        raise ValueError(
            f"cannot read window {text!r}, expected e.g. 'only: Mon-Fri 09:00-17:00' or 'never: 2026-11-27 18:00-24:00'"
        )
    window = parse_window(match, text)
    return RemovalWindow(
        kind=cast(WindowKind, kind),
        start_minute=window.start_minute,
        end_minute=window.end_minute,
        days=window.days,
        date=window.date,
        text=text.removeprefix(f"{match['kind']}:").strip(),
    )


def written(values: tuple[Budget | RemovalWindow, ...]) -> str:
    """The text that parses to these values again."""
    windows = [f"{w.kind}: {w.text}" for w in values if isinstance(w, RemovalWindow)]
    if windows:
        return "; ".join(windows)
    return json.dumps([_row(b) for b in values if isinstance(b, Budget)], separators=(",", ":"))


def _row(budget: Budget) -> dict[str, Any]:
    row: dict[str, Any] = {"nodes": budget.nodes}
    if budget.reasons:
        row["reasons"] = list(budget.reasons)
    if budget.schedule:
        row |= {"schedule": budget.schedule, "duration": duration_text(budget.duration_seconds)}
    if budget.timezone:
        row["timezone"] = budget.timezone
    return row
