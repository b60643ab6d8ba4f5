"""Back-offs: after a failure the same action pauses, twice as long after each failure in a row, until it succeeds.

Keys: `join` (no launched instance joined), `scale_up` (EC2 launched no instance), `node:ID` (a drain failed),
`removal` (EC2 refuses to terminate workers), `spot` (no On-Demand worker could return to Spot), `standby` (EC2 launched
or stopped no standby worker).
"""

from __future__ import annotations

from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.policy import Policy

JOIN = "join"
SCALE_UP = "scale_up"
REMOVAL = "removal"
SPOT = "spot"
OWN_PODS_WEIGHT = 5
"""How many failures a drain counts as that ended because pods of the worker found no other place: its next drain would
probably end in the same way."""


def node_key(instance_id: str) -> str:
    """The key of the back-off of one worker whose drain failed."""
    return f"node:{instance_id}"


def fail(back_offs: tuple[BackOff, ...], key: str, at: int, policy: Policy, *, weight: int = 1) -> tuple[BackOff, ...]:
    """One more failure of `key` at `at`; joins back off only from the failure that opens the circuit breaker.

    weight: how many failures it counts as.
    """
    failures = next((b.failures for b in back_offs if b.key == key), 0) + weight
    entry = BackOff(key=key, failures=failures, until=at + _back_off_seconds(key, failures, policy))
    return (*(b for b in back_offs if b.key != key), entry)


def succeed(back_offs: tuple[BackOff, ...], *keys: str) -> tuple[BackOff, ...]:
    """Remove the back-offs of these keys, after a success or when an operator resets the circuit breaker."""
    return tuple(b for b in back_offs if b.key not in keys)


def active(back_offs: tuple[BackOff, ...], key: str, now: int) -> BackOff | None:
    """The back-off of `key` if it has not ended."""
    return next((b for b in back_offs if b.key == key and b.until > now), None)


def seconds_left(back_offs: tuple[BackOff, ...], key: str, now: int) -> int:
    """How long the back-off of `key` still lasts; 0 without one."""
    found = active(back_offs, key, now)
    return found.until - now if found else 0


def _back_off_seconds(key: str, failures: int, policy: Policy) -> int:
    if key == JOIN:
        over = failures - policy.join_failures_to_open
        return _doubled(policy.join_back_off_seconds, over, policy.join_back_off_max_seconds) if over >= 0 else 0
    if key == SCALE_UP:
        return _doubled(policy.scale_up_back_off_seconds, failures - 1, policy.scale_up_back_off_max_seconds)
    if key == REMOVAL:
        return _doubled(6 * policy.drain_back_off_seconds, failures - 1, policy.drain_back_off_max_seconds)
    return _doubled(policy.drain_back_off_seconds, failures - 1, policy.drain_back_off_max_seconds)


def _doubled(first: int, times: int, maximum: int) -> int:
    return int(min(first * 2 ** min(times, 32), maximum))
