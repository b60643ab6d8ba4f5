"""Capacity for a time: an operator's order of at least so many workers from one moment to another. Values only."""

from __future__ import annotations

from collections.abc import Iterable

from node_fleet.domain.model.value_class import value_class

MOST_ORDERS = 20
"""Orders that have not ended, so that the state item stays small."""


@value_class
class TimedMinimum:
    """At least `workers` workers from `since` until `until` (epoch seconds), ordered by a person for a reason."""

    name: str
    workers: int
    since: int
    until: int
    by: str
    reason: str

    @property
    def text(self) -> str:
        """For example: ordered by ana: a sale."""
        return f"ordered by {self.by}: {self.reason}"


def minimum_in_force(orders: Iterable[TimedMinimum], now: int) -> TimedMinimum | None:
    """The order with the highest number at that time; of equals the one that ends last. None without one.

    Orders that overlap do not add up: each states how many workers run, and the highest holds.
    """
    in_force = (order for order in orders if order.since <= now < order.until)
    return max(in_force, key=lambda order: (order.workers, order.until, order.name), default=None)


def not_ended(orders: Iterable[TimedMinimum], now: int) -> tuple[TimedMinimum, ...]:
    """The orders that hold or will hold, those that begin first before the others."""
    return tuple(sorted((o for o in orders if o.until > now), key=lambda order: (order.since, order.name)))
