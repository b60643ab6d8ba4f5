"""What a stored lock says: readable or corrupt, expired or not, and what taking it over should tell people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_fleet.domain.model.fleet_state import Lease

CORRUPT_AHEAD_SECONDS = 86_400
"""An expiry more than a day ahead cannot be ours (a lease is at most an hour): it was written wrongly."""


def readable_lease(item: Mapping[str, Any]) -> tuple[Lease | None, tuple[str, ...]]:
    """The lease in a state item, and what is wrong with it. A corrupt one counts as expired (expires_at 0)."""
    if "lock_owner" not in item:
        return None, ()
    wrong = [
        f"lock attribute {name} is {item.get(name)!r}, expected epoch seconds"
        for name in ("lock_acquired_at", "lock_expires_at")
        if not _whole(item.get(name))
    ]
    lease = Lease(
        owner=str(item["lock_owner"]),
        fence=item["lock_fence"] if _whole(item.get("lock_fence")) else 0,
        acquired_at=item["lock_acquired_at"] if _whole(item.get("lock_acquired_at")) else 0,
        expires_at=item["lock_expires_at"] if _whole(item.get("lock_expires_at")) else 0,
    )
    return lease, tuple(wrong)


def describe_takeover(item: Mapping[str, Any], new_owner: str, now: int) -> str:
    """One sentence when a lock was taken from somebody else or was corrupt; empty for a free or own lock."""
    lease, wrong = readable_lease(item)
    if lease is None or lease.owner == new_owner:
        return ""
    if wrong:
        return f"took over a corrupt lock of {lease.owner}: {'; '.join(wrong)}"
    if lease.expires_at > now + CORRUPT_AHEAD_SECONDS:
        return f"took over a corrupt lock of {lease.owner}: it would expire at {lease.expires_at}, over a day ahead"
    return f"took over the lock of {lease.owner}, which expired {now - lease.expires_at} s ago"


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
