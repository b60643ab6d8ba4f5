"""What noisy Spot pools change in the plan of a launch, in words and in money. Plans nothing itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.operation import LaunchSlot
from node_fleet.domain.model.spot_pools import pool_name
from node_fleet.domain.model.text import count_of


def moved_sentence(
    slots: Sequence[LaunchSlot], usual: Sequence[LaunchSlot], noisy: Collection[str], tariff: Tariff
) -> str:
    """How the plan differs from the usual one, which uses noisy pools like all others; empty when it does not.

    The price is that of the whole plan: later slots balance what earlier ones changed.
    """
    before = {slot.number: slot for slot in usual}
    pairs = [(before[slot.number], slot) for slot in slots if slot.number in before]
    changed = [(old, new) for old, new in pairs if _pool(old) != _pool(new)]
    moved = [pair for pair in changed if pair[0].market == "spot" and _name(pair[0]) in noisy]
    if not moved:
        return ""
    old, new = moved[0]
    text = (
        f"planned {count_of(len(moved), 'worker')} away from a noisy Spot pool: {_pool(new)} in place of {_pool(old)}"
    )
    prices = [tariff.instance_usd(s.instance_type, s.market) for pair in changed for s in pair]
    known = [usd for usd in prices if usd is not None]
    if len(known) < len(prices):
        return text
    more = sum(known[1::2]) - sum(known[::2])
    return f"{text}, {abs(more):.4f} USD an hour {'less' if more < 0 else 'more'}"


def _pool(slot: LaunchSlot) -> str:
    return f"{slot.instance_type} {slot.market} in {slot.zone}"


def _name(slot: LaunchSlot) -> str:
    return pool_name(slot.zone, slot.instance_type)
