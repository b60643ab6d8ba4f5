"""IAM's service authorization reference, as policy_sentry ships it: actions, their resources and condition keys.

The reference does not list every resource that AWS checks for ec2:CreateFleet. AWS's own managed policies do, as moto
ships them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from moto.iam.aws_managed_policies import aws_managed_policies_data
from policy_sentry.querying.actions import get_action_data

# Keys of every request, from IAM's list of global condition keys (read on 2026-11-28):
# https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
GLOBAL_KEYS = ("aws:SecureTransport", "aws:SourceAccount", "aws:SourceArn", "aws:PrincipalArn")
# In every request that an instance signs with the credentials of its role.
INSTANCE_KEYS = ("ec2:SourceInstanceARN",)
OPERATORS = {
    *("StringEquals", "StringNotEquals", "StringEqualsIgnoreCase", "StringLike", "StringNotLike", "Bool", "Null"),
    "StringEqualsIfExists",
    *("ArnEquals", "ArnLike", "ArnNotEquals", "ArnNotLike", "IpAddress", "NotIpAddress", "NumericEquals"),
}
_VARIABLE = re.compile(r"\$\{([^}]+)\}")


MANAGED_POLICIES = ("AmazonECSInfrastructureRolePolicyForManagedInstances", "AmazonEMRServicePolicy_v2")
"""Policies of AWS's services that launch with CreateFleet, and that name the resources."""


@dataclass
class ReferenceAction:
    """One action: its condition keys, and the ARN formats of the resources that it supports with their own keys."""

    keys: set[str] = field(default_factory=set)
    resources: dict[str, set[str]] = field(default_factory=dict)


@cache
def action(name: str) -> ReferenceAction | None:
    """An action such as ec2:CreateTags, or None for one that does not exist."""
    prefix, _, operation = name.partition(":")
    found: Any = get_action_data(prefix, operation)
    if not found:
        return None
    result = ReferenceAction()
    for row in found[prefix]:
        keys = {key.lower() for key in row["condition_keys"]}
        result.keys |= keys
        result.resources.setdefault(row["resource_arn_format"], set()).update(keys)
    for kind in managed_kinds(name) - {"image"} if name == "ec2:CreateFleet" else ():
        result.resources.setdefault("arn:${Partition}:ec2:${Region}:${Account}:" + kind + "/${Id}", set())
    return result


KEY_IS_LEFT_TO_IAM = {"Effect": "Allow", "Action": "kms:*", "Resource": "*"}
"""The statement of AWS's default key policy, for the account itself: without it no IAM policy could name the key."""


@cache
def managed_kinds(name: str) -> frozenset[str]:
    """The kinds of resources of EC2 that the managed policies of AWS's services name for an action."""
    found, policies = set[str](), json.loads(aws_managed_policies_data)
    for policy in MANAGED_POLICIES:
        for statement in listed(policies[policy]["Document"]["Statement"]):
            if name in listed(statement.get("Action", [])):
                named = (resource.split(":", 5)[5] for resource in listed(statement["Resource"]))
                found |= {resource.partition("/")[0] for resource in named}
    return frozenset(found)


def problems(statement: dict[str, Any]) -> list[str]:
    """What the reference does not know in one statement: actions, resource types, condition keys, policy variables."""
    if text(statement.get("Principal", {})).endswith(":root") and KEY_IS_LEFT_TO_IAM.items() <= statement.items():
        return []
    found = []
    resources = [text(resource) for resource in listed(statement.get("Resource", "*"))]
    conditions = [(op, key) for op, pairs in statement.get("Condition", {}).items() for key in pairs]
    for name in listed(statement["Action"]):
        known = action("kms:GenerateDataKey" if name == "kms:GenerateDataKey*" else name)
        if known is None:
            found.append(f"{name} is no action")
            continue
        found += [f"{name} supports no resource {r}" for r in resources if not _supports(known, r)]
        found += [f"{name} has no condition key {key}" for _, key in conditions if not _knows(known, key, resources)]
        variables = {v for v in _VARIABLE.findall(text(statement)) if "::" not in v}
        found += [f"{name} has no policy variable {v}" for v in sorted(variables) if not _knows(known, v, resources)]
    found += [f"{op} is no operator" for op, _ in conditions if op.rpartition(":")[2] not in OPERATORS]
    return found


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def text(value: Any) -> str:
    """A value of a template as one string; * stands for a part that only CloudFormation knows."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator.join(text(part) for part in parts))
    if isinstance(value, dict) and "Fn::Sub" in value:
        return re.sub(r"\$\{[^}]+\}", "*", str(value["Fn::Sub"]))
    if isinstance(value, dict) and not {"Ref", "Fn::GetAtt", "Fn::GetStackOutput", "Fn::ImportValue"} & set(value):
        return " ".join(text(part) for part in value.values())
    return " ".join(text(part) for part in value) if isinstance(value, list) else "*"


def _supports(known: ReferenceAction, resource: str) -> bool:
    if resource.startswith("*"):
        return True
    return any(_overlaps(format_, resource) for format_ in known.resources if format_ != "*")


def _overlaps(format_: str, resource: str) -> bool:
    """Whether the pattern of a statement names resources of this ARN format."""
    example = _VARIABLE.sub("x", format_)
    parts, given = example.split(":", 5), resource.split(":", 5)
    if len(given) < 6:
        return False
    if not all(fnmatchcase(p, g) or p == "x" or g == "*" for p, g in zip(parts[:5], given[:5], strict=True)):
        return False
    as_pattern = _VARIABLE.sub("*", format_.split(":", 5)[5])
    return fnmatchcase(given[5], as_pattern) or fnmatchcase(parts[5], given[5])


def _knows(known: ReferenceAction, key: str, resources: list[str]) -> bool:
    """Whether the key is of every request, or of the action on one of these resources."""
    if key.lower() in {k.lower() for k in (*GLOBAL_KEYS, *INSTANCE_KEYS)}:
        return True
    keys = {k for format_, own in known.resources.items() for k in own if _concerns(format_, resources)}
    return any(fnmatchcase(key.lower(), _VARIABLE.sub("*", k)) for k in keys)


def _concerns(format_: str, resources: list[str]) -> bool:
    return any(resource.startswith("*") or format_ == "*" or _overlaps(format_, resource) for resource in resources)
