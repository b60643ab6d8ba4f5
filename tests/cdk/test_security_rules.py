"""cdk-nag's AwsSolutions over both modes: nothing open, and each accepted finding has its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_app.components import findings
from tests.cdk.conftest import App

pytestmark = pytest.mark.whole


def report_of(app: App, plugin: str) -> dict[str, Any]:
    report = json.loads((app.folder / "validation-report.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = next(r for r in report["pluginReports"] if r["pluginName"] == plugin)
    return found


def test_no_finding_of_aws_solutions_is_open(judged_app: App) -> None:
    assert report_of(judged_app, findings.PACK)["violations"] == []


def test_cloudformation_finds_nothing_wrong_with_the_templates(judged_app: App) -> None:
    assert report_of(judged_app, "CloudFormation Validate")["violations"] == []


def test_every_accepted_finding_says_why(judged_app: App) -> None:
    accepted = report_of(judged_app, findings.PACK)["suppressedViolations"]
    assert accepted
    for finding in accepted:
        assert len(finding["reason"].split()) >= 5, finding["ruleName"]


def test_nothing_is_accepted_for_a_whole_stack(judged_app: App) -> None:
    accepted = report_of(judged_app, findings.PACK)["suppressedViolations"]
    assert not [f["ruleName"] for f in accepted if "/" not in f["acknowledgedAt"]]


def test_a_wildcard_is_accepted_for_the_very_resource_that_was_judged(judged_app: App) -> None:
    accepted = report_of(judged_app, findings.PACK)["suppressedViolations"]
    wild = [f["acknowledgedId"] for f in accepted if "IAM5" in f["ruleName"]]
    assert wild
    assert all("[Resource::" in identifier for identifier in wild)
