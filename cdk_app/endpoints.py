"""The names that AWS publishes for its services: which of them functions reach from a network with IPv6 egress only."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

CALLED_OVER_IPV6 = ("ec2", "ssm", "secretsmanager")
"""The services that functions in the VPC call. DynamoDB has a gateway endpoint there."""


@cache
def endpoint_names() -> dict[str, Any]:
    """endpoint_names.json: regions, and for each service its dual-stack name, where it exists, source and date."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("endpoint_names.json").read_text(encoding="utf-8"))
    return table


def services_without_ipv6(region: str) -> list[str]:
    """Services that functions in a network with IPv6 egress only cannot reach in this region."""
    services = endpoint_names()["services"]
    return [name for name in CALLED_OVER_IPV6 if region not in services[name]["dual_stack"]]
