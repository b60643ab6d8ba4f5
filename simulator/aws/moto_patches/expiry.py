"""DynamoDB deletes items whose time to live has passed; moto only keeps the setting."""

from __future__ import annotations

from typing import Any

from simulator.aws.moto_patches import expect

EXPIRY_SECONDS = 6 * 3600.0
"""AWS promises a few days, so a function may find an item that has expired, and must not count on it."""


def delete_expired(account: str, region: str, now: float) -> None:
    """Delete the expired items of every table with a time to live."""
    from moto.dynamodb.models import dynamodb_backends

    for table in dynamodb_backends[account][region].tables.values():
        expect(table, "delete_item", "hash_key", "range_key")
        if table.ttl["TimeToLiveStatus"] == "ENABLED":
            name = table.ttl["AttributeName"]
            for item in [item for item in table.all_items() if _has_expired(item.attrs.get(name), now)]:
                table.delete_item(item.hash_key, item.range_key)


def _has_expired(until: Any, now: float) -> bool:
    return until is not None and until.type == "N" and float(until.value) < now
