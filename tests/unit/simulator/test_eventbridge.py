"""Which events a rule matches, what its target receives, and when a schedule is due."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from simulator.aws.eventbridge import ScheduleError, cron_due, event, matches, period_seconds, target_input

EVENT = event(
    "aws.ec2",
    "EC2 Instance State-change Notification",
    {"instance-id": "i-0abc", "state": "terminated", "count": 5, "nested": {"tags": ["a", "b"]}},
    now=1_780_300_800,
    region="ap-southeast-1",
    account="123456789012",
)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({}, True),
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.states", "aws.ec2"]}, True),
        ({"source": ["aws.states"]}, False),
        ({"source": ["aws.ec2"], "detail": {"state": ["running"]}}, False),
        ({"detail": {"nested": {"tags": ["b"]}}}, True),
        ({"detail": {"state": [{"prefix": "term"}]}}, True),
        ({"detail": {"state": [{"suffix": "ing"}]}}, False),
        ({"detail": {"state": [{"anything-but": ["pending", "running"]}]}}, True),
        ({"detail": {"state": [{"anything-but": "terminated"}]}}, False),
        ({"detail": {"missing": [{"exists": False}]}}, True),
        ({"detail": {"state": [{"exists": False}]}}, False),
        ({"detail": {"instance-id": [{"wildcard": "i-*c"}]}}, True),
        ({"detail": {"count": [{"numeric": [">", 4, "<=", 5]}]}}, True),
        ({"detail": {"count": [{"numeric": ["<", 5]}]}}, False),
        ({"detail": {"missing": ["x"]}}, False),
    ],
)
def test_a_pattern_matches_as_eventbridge_does(pattern: dict[str, Any], expected: bool) -> None:
    assert matches(pattern, EVENT) is expected


def test_an_unknown_filter_is_named() -> None:
    with pytest.raises(ScheduleError, match="cidr"):
        matches({"detail": {"state": [{"cidr": "10.0.0.0/8"}]}}, EVENT)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"Input": '{"a": 1}'}, {"a": 1}),
        ({"InputPath": "$.detail.state"}, "terminated"),
        (
            {
                "InputTransformer": {
                    "InputPathsMap": {"time": "$.time", "id": "$.detail.instance-id", "none": "$.detail.none"},
                    "InputTemplate": '{"at": <time>, "text": "gone: <id>", "none": <none>}',
                }
            },
            {"at": "2026-06-01T08:00:00Z", "text": "gone: i-0abc", "none": None},
        ),
    ],
)
def test_a_target_receives_its_input(target: dict[str, Any], expected: Any) -> None:
    assert target_input(target, EVENT) == expected


def test_a_target_without_input_receives_the_event() -> None:
    assert target_input({}, EVENT) == EVENT


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("rate(2 minutes)", 120), ("rate(1 hour)", 3600), ("rate(1 day)", 86_400), ("cron(0 8 ? * MON *)", None)],
)
def test_a_schedule_has_a_period_or_is_cron(expression: str, seconds: int | None) -> None:
    assert period_seconds(expression) == seconds


def test_a_wrong_schedule_says_what_is_expected() -> None:
    with pytest.raises(ScheduleError, match=r"expected rate\(N minutes"):
        period_seconds("every 2 minutes")


@pytest.mark.parametrize(
    ("expression", "moment", "due"),
    [
        ("cron(0 8 ? * MON *)", "2026-06-01T08:00:00", True),
        ("cron(0 8 ? * MON *)", "2026-06-01T08:01:00", False),
        ("cron(0 8 ? * MON *)", "2026-06-02T08:00:00", False),
        ("cron(0/15 9-17 ? * MON-FRI *)", "2026-06-02T17:45:00", True),
        ("cron(0/15 9-17 ? * MON-FRI *)", "2026-06-06T17:45:00", False),
        ("cron(0 0 1 JUN,DEC ? *)", "2026-12-01T00:00:00", True),
        ("cron(*/20 * * * ? 2027)", "2026-12-01T00:00:00", False),
    ],
)
def test_cron_is_due_in_its_minutes(expression: str, moment: str, due: bool) -> None:
    assert cron_due(expression, dt.datetime.fromisoformat(f"{moment}+00:00").timestamp()) is due
