"""Settings that are each allowed but contradict one another: every one is named with both values."""

from __future__ import annotations

import zoneinfo
from typing import TYPE_CHECKING

from node_fleet.domain.policy import CustomMetric
from node_fleet.setting_values import nearest

if TYPE_CHECKING:
    from node_fleet.settings import Settings


def contradictions(s: Settings) -> list[str]:
    """Settings that are each allowed but contradict one another."""
    found: list[str] = []
    pairs = (
        ("min_workers", "max_workers", False),
        ("cpu_down_percent", "cpu_up_percent", True),
        ("cpu_up_percent", "cpu_urgent_percent", False),
        ("memory_down_percent", "memory_up_percent", True),
        ("on_demand_floor", "max_workers", False),
        ("interval_seconds", "reading_gap_seconds", True),
        ("lease_skew_seconds", "lease_seconds", True),
        ("join_limit_seconds", "operation_limit_seconds", True),
        ("step_normal", "step_urgent", False),
        ("interval_jitter_seconds", "interval_seconds", True),
        ("join_back_off_seconds", "join_back_off_most_seconds", False),
        ("scale_up_back_off_seconds", "scale_up_back_off_most_seconds", False),
        ("drain_back_off_seconds", "drain_back_off_most_seconds", False),
        ("predictive_min_days", "history_days", True),
    )
    for low, high, strict in pairs:
        a, b = getattr(s, low), getattr(s, high)
        if a > b or (strict and a == b):
            found.append(f"{s.env_name(low)}={a:g} must be {'below' if strict else 'at most'} {s.env_name(high)}={b:g}")
    if not _is_zone(s.timezone):
        near = nearest(s.timezone, zoneinfo.available_timezones())
        found.append(f"TIMEZONE={s.timezone}: expected an IANA zone such as Asia/Dhaka{near}")
    if not s.launch_template_version.isdigit():
        found.append(
            f"LAUNCH_TEMPLATE_VERSION={s.launch_template_version}: expected an explicit number, not $Default or $Latest"
        )
    found += _decision_problems(s)
    return found


def _is_zone(name: str) -> bool:
    """Asks for the one zone: the list of all is a walk through a directory, too slow for every start."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _decision_problems(s: Settings) -> list[str]:
    """Contradictions among the settings that only decisions use."""
    found = [problem for m in s.custom_metrics for problem in _metric_problems(m)]
    names = [m.name for m in s.custom_metrics]
    found += [
        f"CUSTOM_METRICS {name}: given {names.count(name)} times, expected once"
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    for w in s.schedules:
        if w.minimum > s.max_workers:
            found.append(f"SCHEDULES {w.text!r}: minimum {w.minimum} is above MAX_NODES={s.max_workers}")
    marks = [("cpu", s.cpu_down_percent, s.cpu_up_percent)]
    marks += [("memory", s.memory_down_percent, s.memory_up_percent)] if s.use_memory else []
    for label, down, up in marks:
        limit = up - s.projection_margin_percent
        if down < up and limit <= 0:
            found.append(
                f"PROJECTION_MARGIN={s.projection_margin_percent:g}: no worker could ever go, "
                f"expected under SCALE_UP_THRESHOLD_{label.upper()}={up:g}"
            )
    return found


def _metric_problems(m: CustomMetric) -> list[str]:
    found = []
    if not m.name:
        found.append("CUSTOM_METRICS: name is empty, expected a name")
    if not m.query:
        found.append(f"CUSTOM_METRICS {m.name}: query is empty, expected a PromQL query")
    if not 1 <= m.readings <= 30:
        found.append(f"CUSTOM_METRICS {m.name}: readings={m.readings}, expected 1 to 30")
    if not m.low < m.high:
        found.append(f"CUSTOM_METRICS {m.name}: low={m.low:g} must be below high={m.high:g}")
    if m.minimum_traffic < 0:
        found.append(f"CUSTOM_METRICS {m.name}: minimum_traffic={m.minimum_traffic:g}, expected 0 or more")
    if m.minimum_traffic > 0 and not m.traffic_query:
        found.append(f"CUSTOM_METRICS {m.name}: minimum_traffic without traffic_query, expected a PromQL query")
    return found
