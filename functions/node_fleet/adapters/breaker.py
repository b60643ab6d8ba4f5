"""How a person closes the open circuit breaker: under the lock, like every other change of what is remembered."""

from __future__ import annotations

from dataclasses import replace

from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.run import Run
from node_fleet.domain.scaling.memory_update import reset_breaker


def reset(state: StateStore, person: str, now: int) -> str:
    """Forget the failed joins and launches, so that the next tick may launch; empty, or why that could not be done.

    While a run is at work nothing is changed: it would write its own memory over this.
    """
    run = Run(execution_id=f"person:{person}:{now}", trigger="manual", scheduled_at=0, started_at=now)
    acquired = state.acquire(run)
    if acquired.status != "acquired":
        return acquired.detail
    held = replace(run, fence=acquired.state.fence)
    return "" if state.release(held, reset_breaker(acquired.state.memory)) else "the lock was taken meanwhile"
