"""What an operation's end leaves in the memory: the stamp that cooldowns count from, or the back-off of a failure.

A failed or empty action starts no cooldown. Pure: the handlers that end an operation store what comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from node_fleet.domain.model import back_off
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy


def succeeded(
    memory: Memory,
    action: Literal["scale_up", "scale_down"],
    reason: str,
    at: int,
    *,
    joined: Mapping[str, int] | None = None,
) -> Memory:
    """An action that changed the worker count ended at `at`.

    joined: instance id -> epoch when it became usable, so that the scheduler's grace counts from then. A scale-up
    with a join closes the circuit breaker.
    """
    forgotten = (back_off.JOIN, back_off.SCALE_UP) if action == "scale_up" else ()
    return replace(
        memory,
        last_action=action,
        last_action_at=at,
        last_reason=reason,
        back_offs=back_off.succeed(memory.back_offs, *forgotten),
        fresh={**memory.fresh, **(joined or {})},
    )


def failed(memory: Memory, key: str, at: int, policy: Policy) -> Memory:
    """An action failed at `at`; key is `join`, `scale_up` or `node:ID`. Cooldowns are untouched."""
    return replace(memory, back_offs=back_off.fail(memory.back_offs, key, at, policy))


def reset_breaker(memory: Memory) -> Memory:
    """A person has mended the cause: launches are allowed again at once."""
    return replace(memory, back_offs=back_off.succeed(memory.back_offs, back_off.JOIN, back_off.SCALE_UP))
