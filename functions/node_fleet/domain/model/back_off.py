"""Back-offs: what failed is left alone, longer after each failure in a row, and a success forgets it.

Keys: `join` (launched, but nothing joined), `scale_up` (nothing could be launched), `node:ID` (a drain failed).
"""

from __future__ import annotations

from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.policy import Policy

JOIN = "join"
SCALE_UP = "scale_up"


def node_key(instance_id: str) -> str:
    """The back-off of one worker whose drain failed."""
    return f"node:{instance_id}"


def fail(back_offs: tuple[BackOff, ...], key: str, at: int, policy: Policy) -> tuple[BackOff, ...]:
    """One more failure of `key` at `at`; joins rest only from the failure on that opens the circuit breaker."""
    failures = next((b.failures for b in back_offs if b.key == key), 0) + 1
    entry = BackOff(key=key, failures=failures, until=at + _rest_seconds(key, failures, policy))
    return (*(b for b in back_offs if b.key != key), entry)


def succeed(back_offs: tuple[BackOff, ...], *keys: str) -> tuple[BackOff, ...]:
    """Forget the failures of these keys; also what a person does who resets the circuit breaker."""
    return tuple(b for b in back_offs if b.key not in keys)


def active(back_offs: tuple[BackOff, ...], key: str, now: int) -> BackOff | None:
    """The back-off of `key` while it lasts."""
    return next((b for b in back_offs if b.key == key and b.until > now), None)


def _rest_seconds(key: str, failures: int, policy: Policy) -> int:
    if key == JOIN:
        over = failures - policy.join_failures_to_open
        return _doubled(policy.join_back_off_seconds, over, policy.join_back_off_most_seconds) if over >= 0 else 0
    if key == SCALE_UP:
        return _doubled(policy.scale_up_back_off_seconds, failures - 1, policy.scale_up_back_off_most_seconds)
    return _doubled(policy.drain_back_off_seconds, failures - 1, policy.drain_back_off_most_seconds)


def _doubled(first: int, times: int, most: int) -> int:
    return int(min(first * 2 ** min(times, 32), most))
