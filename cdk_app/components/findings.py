"""Accepts findings of cdk-nag, each with its reason, at the construct that it concerns.

Every wildcard resource is accepted by the exact text that cdk-nag prints, so a new wildcard is a new finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from constructs import IConstruct

PACK = "AwsSolutions"


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding of AwsSolutions here, for this reason."""
    _acknowledge(construct, {rule: reason})


def accept_wildcards(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """Accept the policy resources that contain a wildcard, each for its reason."""
    wildcards = [one for one in reasons if "*" in one]
    resolved = zip(wildcards, cdk.Stack.of(construct).resolve(wildcards), strict=True)
    _acknowledge(construct, {f"IAM5[Resource::{_shown(value)}]": reasons[one] for one, value in resolved})


def _acknowledge(construct: IConstruct, reasons: Mapping[str, str]) -> None:
    """In one call: each call of the CDK goes to a process of its own."""
    found = [cdk.Acknowledgment(id=f"{PACK}::{PACK}-{rule}", reason=reason) for rule, reason in reasons.items()]
    cdk.Validations.of(construct).acknowledge(*found)


def _shown(value: Any) -> str:
    """An ARN as cdk-nag prints it: references in angle brackets."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        return "".join(_shown(part) for part in value["Fn::Join"][1])
    if "Fn::GetAtt" in value:
        return f"<{'.'.join(value['Fn::GetAtt'])}>"
    if "Fn::GetStackOutput" in value:
        return f"<{value['Fn::GetStackOutput']['OutputName']}>"
    return f"<{value['Ref']}>"
