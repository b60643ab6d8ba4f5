"""What workers take of the limits in money and vCPUs, and what one limit leaves. Whole numbers: no rounding decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from node_fleet.domain.model.value_class import value_class

MILLION = 1_000_000
"""Money is counted in millionths of a USD."""
USD_LIMIT, VCPU_LIMIT = "max_usd_per_hour", "max_vcpu"

LIMIT_TEXT = "the limit"
"""How the sentence about a limit begins."""


@value_class
class Weight:
    """Millionths of a USD an hour, and vCPUs; 0 where there is no limit."""

    micro_usd: int = 0
    vcpu: int = 0

    def plus(self, other: Weight) -> Weight:
        """The sum of both."""
        return Weight(micro_usd=self.micro_usd + other.micro_usd, vcpu=self.vcpu + other.vcpu)

    def is_within(self, most: Weight) -> bool:
        """Whether neither number is above that of `most`."""
        return self.micro_usd <= most.micro_usd and self.vcpu <= most.vcpu

    def highest(self, other: Weight) -> Weight:
        """The higher of each number."""
        return Weight(micro_usd=max(self.micro_usd, other.micro_usd), vcpu=max(self.vcpu, other.vcpu))


NO_WEIGHT = Weight()


@value_class
class LimitUse:
    """One limit in a snapshot, in millionths of a USD an hour or in vCPUs.

    used: by the workers that count and by reservations. of_kind: "type/market" -> what one more such worker takes, for
    each configured type and market.
    """

    name: str
    most: int
    used: int
    of_kind: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """For example: max_usd_per_hour: 0.2722 of 0.3 USD an hour."""
        if self.name == USD_LIMIT:
            return f"{self.name}: {self.used / MILLION:.4f} of {self.most / MILLION:g} USD an hour"
        return f"{self.name}: {self.used} of {self.most} vCPU"


def at_limits(limits: Iterable[LimitUse]) -> str:
    """For example: the limit allows no further worker (max_vcpu: 8 of 8 vCPU)."""
    uses = tuple(limits)
    verb = "s allow" if len(uses) > 1 else " allows"
    return f"{LIMIT_TEXT}{verb} no further worker ({'; '.join(use.text for use in uses)})"


def fitting(limits: Iterable[LimitUse], wanted: Iterable[Iterable[str]]) -> tuple[list[bool], tuple[LimitUse, ...]]:
    """Which of these workers fit one after the other, and the limits that keep the first other one away.

    wanted: for each worker the "type/market" that may serve; empty: every configured one. A worker takes the least.
    """
    uses = tuple(limits)
    left = {use.name: use.most - use.used for use in uses}
    fits: list[bool] = []
    against: tuple[LimitUse, ...] = ()
    for kinds in wanted:
        chosen = _cheapest(uses, left, tuple(kinds))
        fits.append(chosen is not None)
        if chosen is not None:
            left = {use.name: left[use.name] - use.of_kind[chosen] for use in uses}
        against = against or (() if chosen is not None else _against(uses, left, tuple(kinds)))
    return fits, against


def _known(uses: tuple[LimitUse, ...], kinds: tuple[str, ...]) -> list[str]:
    known = uses[0].of_kind
    return [kind for kind in kinds if kind in known] or list(known)


def _cheapest(uses: tuple[LimitUse, ...], left: Mapping[str, int], kinds: tuple[str, ...]) -> str | None:
    fit = [kind for kind in _known(uses, kinds) if all(use.of_kind[kind] <= left[use.name] for use in uses)]
    return min(fit, key=lambda kind: [use.of_kind[kind] for use in uses], default=None)


def _against(uses: tuple[LimitUse, ...], left: Mapping[str, int], kinds: tuple[str, ...]) -> tuple[LimitUse, ...]:
    """The limits that alone keep each of these away; all of them when only together they do."""
    known = _known(uses, kinds)
    alone = tuple(use for use in uses if all(use.of_kind[kind] > left[use.name] for kind in known))
    return alone or uses
