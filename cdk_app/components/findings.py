"""Accepts findings of cdk-nag, each with its reason, at the construct that it concerns.

Every wildcard resource is accepted by the exact text that cdk-nag prints, so a new wildcard is a new finding.
"""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
from constructs import IConstruct

PACK = "AwsSolutions"


def accept(construct: IConstruct, rule: str, reason: str) -> None:
    """Accept one finding of AwsSolutions here, for this reason."""
    identifier = f"{PACK}::{PACK}-{rule}"
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=identifier, reason=reason))


def accept_wildcards(construct: IConstruct, resources: list[str], reason: str) -> None:
    """Accept the policy resources that contain a wildcard."""
    for resource in (one for one in resources if "*" in one):
        accept(construct, f"IAM5[Resource::{_shown(cdk.Stack.of(construct).resolve(resource))}]", reason)


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
