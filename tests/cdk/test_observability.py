"""Nine alarms that say what to do, ten metrics on one dashboard."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from node_fleet.logs import NAMESPACE, UNITS
from tests.cdk.conftest import ATTACHED, LONG_NEW, NEW, App

NAMES = {
    "NoCompletedTick",
    "ScalingFailures",
    "PrometheusUnavailable",
    "AtMaximum",
    "JoinFailures",
    "DrainFailures",
    "QuotaExceeded",
    "LockHeld",
    "EventsUndelivered",
}


def stats_of(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """Namespace, name, dimensions and period of each metric of an alarm."""
    parts = [one["MetricStat"] for one in alarm.get("Metrics", ()) if "MetricStat" in one]
    return [{**one["Metric"], "Period": one["Period"]} for one in parts] or [alarm]


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_every_alarm_is_there(app: App, cluster: str) -> None:
    alarms = app.resources(f"{cluster}-observability", "AWS::CloudWatch::Alarm").values()
    assert {a["AlarmName"] for a in alarms} == {f"{cluster}-{name}" for name in NAMES}


def test_every_alarm_tells_people_what_to_do(app: App) -> None:
    for alarm in app.resources(f"{NEW}-observability", "AWS::CloudWatch::Alarm").values():
        sentences = re.split(r"[.?;:] ", alarm["AlarmDescription"])
        assert len(sentences) >= 2, alarm["AlarmName"]
        assert len(alarm["AlarmDescription"]) <= 1024
        assert alarm["AlarmActions"]
        assert alarm["AlarmActions"] == alarm["OKActions"]


@pytest.mark.parametrize(
    ("name", "minutes"),
    [("NoCompletedTick", 10), ("PrometheusUnavailable", 10), ("AtMaximum", 15), ("LockHeld", 30)],
)
def test_an_alarm_waits_as_long_as_it_says(app: App, name: str, minutes: int) -> None:
    alarms = app.resources(f"{NEW}-observability", "AWS::CloudWatch::Alarm").values()
    (alarm,) = [a for a in alarms if a["AlarmName"] == f"{NEW}-{name}"]
    assert {alarm["EvaluationPeriods"] * one["Period"] for one in stats_of(alarm)} == {minutes * 60}
    assert f"{minutes} minutes" in alarm["AlarmDescription"]


def test_missing_data_fires_only_the_alarms_about_missing_data(app: App) -> None:
    alarms = app.resources(f"{NEW}-observability", "AWS::CloudWatch::Alarm").values()
    ringing = {a["AlarmName"].removeprefix(f"{NEW}-") for a in alarms if a["TreatMissingData"] == "breaching"}
    assert ringing == {"NoCompletedTick", "PrometheusUnavailable"}


@pytest.mark.parametrize("cluster", [NEW, ATTACHED])
def test_at_maximum_follows_the_setting(app: App, cluster: str) -> None:
    alarms = app.resources(f"{cluster}-observability", "AWS::CloudWatch::Alarm").values()
    (alarm,) = [a for a in alarms if a["AlarmName"] == f"{cluster}-AtMaximum"]
    assert alarm["Threshold"] == {NEW: 10, ATTACHED: 6}[cluster]


def test_alarms_use_the_names_that_functions_write(app: App) -> None:
    stack = f"{NEW}-observability"
    filters = app.resources(stack, "AWS::Logs::MetricFilter").values()
    counted = {t["MetricName"] for f in filters for t in f["MetricTransformations"]}
    alarms = app.resources(stack, "AWS::CloudWatch::Alarm").values()
    for metric in (one for alarm in alarms for one in stats_of(alarm)):
        if metric["Namespace"] == NAMESPACE:
            assert metric["MetricName"] in UNITS
            assert metric["Dimensions"] == [{"Name": "ClusterId", "Value": NEW}]
        elif metric["Namespace"] == f"{NAMESPACE}/{NEW}":
            assert metric["MetricName"] in counted


def test_the_alarm_about_the_lock_fires_only_while_every_tick_finds_it_held(app: App) -> None:
    """A tick that acquires the lock is a 0, so that one long operation after the other is no reason to call someone."""
    stack = f"{NEW}-observability"
    (alarm,) = [a for a in app.resources(stack, "AWS::CloudWatch::Alarm").values() if a.get("MetricName") == "LockHeld"]
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Minimum", 1)
    filters = app.resources(stack, "AWS::Logs::MetricFilter").values()
    (lines,) = [f for f in filters if f["MetricTransformations"][0]["MetricName"] == "LockHeld"]
    assert lines["FilterPattern"] == '{ $.message = "lock" }'
    assert lines["MetricTransformations"][0]["MetricValue"] == "$.held"


def test_the_alarm_about_missing_figures_waits_for_the_end_of_the_run_that_holds_the_lock(app: App) -> None:
    alarms = app.resources(f"{NEW}-observability", "AWS::CloudWatch::Alarm").values()
    (alarm,) = [a for a in alarms if a["AlarmName"] == f"{NEW}-PrometheusUnavailable"]
    by_id = {one["Id"]: one for one in alarm["Metrics"]}
    assert by_id["expr_1"]["Expression"] == "FILL(measured, 0) + FILL(held, 0)"
    assert by_id["measured"]["MetricStat"]["Stat"] == "SampleCount"
    held = by_id["held"]["MetricStat"]
    assert (held["Metric"]["MetricName"], held["Stat"]) == ("LockHeld", "Sum")


def test_the_dashboard_shows_each_metric_of_the_functions_for_its_cluster(app: App) -> None:
    (dashboard,) = app.resources(f"{NEW}-observability", "AWS::CloudWatch::Dashboard").values()
    body = dashboard["DashboardBody"]
    text = body if isinstance(body, str) else "".join(p if isinstance(p, str) else "-" for p in body["Fn::Join"][1])
    rows = [row for widget in json.loads(text)["widgets"] for row in widget["properties"].get("metrics", ())]
    shown = [row for row in rows if row[0] == NAMESPACE]
    assert {row[1] for row in shown} == set(UNITS)
    assert {tuple(row[2:4]) for row in shown} == {("ClusterId", NEW)}


def test_cloudwatch_may_publish_to_the_topic_that_alarms_name(app: App) -> None:
    policies = json.dumps(list(app.resources(f"{NEW}-autoscaler", "AWS::SNS::TopicPolicy").values()))
    assert "cloudwatch.amazonaws.com" in policies
    assert "aws:SecureTransport" in policies


def test_the_alarm_about_missing_figures_counts_runs_that_find_the_fleet_off(variants: App) -> None:
    stack = f"{LONG_NEW}-observability"
    alarms = variants.resources(stack, "AWS::CloudWatch::Alarm").values()
    (alarm,) = [a for a in alarms if a["AlarmName"] == f"{LONG_NEW}-PrometheusUnavailable"]
    by_id = {one["Id"]: one for one in alarm["Metrics"]}
    assert by_id["expr_1"]["Expression"] == "FILL(measured, 0) + FILL(off, 0) + FILL(held, 0)"
    assert by_id["measured"]["MetricStat"]["Metric"]["MetricName"] == "CpuPercent"
    assert by_id["off"]["MetricStat"]["Metric"]["MetricName"] == "SwitchedOff"
    filters = variants.resources(stack, "AWS::Logs::MetricFilter").values()
    off = [f for f in filters if f["MetricTransformations"][0]["MetricName"] == "SwitchedOff"]
    assert [f["MetricTransformations"][0]["DefaultValue"] for f in off] == [0, 0], "by day it is 0, not missing"
    assert sorted(f["FilterPattern"] for f in off) == [
        '{ $.message = "hibernate" && $.status != "on" }',
        '{ $.message = "lock" && $.status = "off" }',
    ]
