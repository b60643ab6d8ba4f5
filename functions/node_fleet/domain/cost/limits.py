"""The limits of a fleet in money and vCPUs: what a worker weighs, and which pools still fit. Asks AWS nothing.

A worker costs its instance, volume and address at the shipped prices: On-Demand the list price, Spot its long-run
average. CPU credits are left out, because what a worker will use is not known when it is launched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field

from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.instance_types import vcpus_of
from node_fleet.domain.model.snapshot import MARKETS
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.model.weight import MILLION, NO_WEIGHT, USD_LIMIT, VCPU_LIMIT, LimitUse, Weight

MOST_LISTED = 5


@value_class
class Limits:
    """The limits and what workers weigh. max_usd_per_hour, max_vcpu: 0: no such limit. types: the configured ones."""

    max_usd_per_hour: float
    max_vcpu: int
    tariff: Tariff
    types: tuple[str, ...]
    spot_percent: int
    _known: dict[tuple[str, str], Weight] = field(default_factory=dict)

    @property
    def most(self) -> Weight:
        """Both limits."""
        return Weight(micro_usd=math.floor(self.max_usd_per_hour * MILLION + 1e-6), vcpu=self.max_vcpu)

    def weight(self, instance_type: str, market: str) -> Weight:
        """What such a worker takes. One whose price or vCPUs are not known counts as the heaviest configured type."""
        key = instance_type, market
        if key not in self._known:
            own = self._own(instance_type, market)
            heaviest = NO_WEIGHT if _is_complete(own) else self._heaviest()
            self._known[key] = Weight(
                micro_usd=heaviest.micro_usd if own[0] is None else own[0],
                vcpu=heaviest.vcpu if own[1] is None else own[1],
            )
        return self._known[key]

    def unknown(self) -> list[str]:
        """A sentence for each limit about the configured types whose price or vCPUs are not known."""
        own = {kind: [self._own(kind, market) for market in MARKETS] for kind in self.types}
        without_price = [kind for kind, both in own.items() if any(usd is None for usd, _ in both)]
        without_size = [kind for kind, both in own.items() if any(vcpu is None for _, vcpu in both)]
        found = [f"{USD_LIMIT}: no price is shipped for {listed(without_price)}"] if without_price else []
        return found + ([f"{VCPU_LIMIT}: the vCPUs are not known of {listed(without_size)}"] if without_size else [])

    def least(self, market: str) -> Weight:
        """The least that a worker of the configured types takes of each limit in that market."""
        weights = [self.weight(kind, market) for kind in self.types]
        return Weight(
            micro_usd=min((w.micro_usd for w in weights), default=0), vcpu=min((w.vcpu for w in weights), default=0)
        )

    def ceiling(
        self, pools: Iterable[tuple[str, str]], used: Weight, workers: int = 1
    ) -> tuple[Weight | None, tuple[LimitUse, ...]]:
        """The most that a worker of these pools (type, market) may weigh; None and the limits when no pool fits.

        workers: so many are to be launched. This one takes no more than its equal share of what is left, among as many
        of them as possible.
        """
        weights = [self.weight(*pool) for pool in dict.fromkeys(pools)]
        left = Weight(micro_usd=max(0, self.most.micro_usd - used.micro_usd), vcpu=max(0, self.most.vcpu - used.vcpu))
        for number in range(workers, 0, -1):
            share = Weight(micro_usd=left.micro_usd // number, vcpu=left.vcpu // number)
            if fit := [weight for weight in weights if weight.is_within(share)]:
                return _highest(fit), ()
        return None, self._against(weights, left, used)

    def admits(self, used: Weight, more: Weight) -> bool:
        """Whether `more` fits beside what is used."""
        return used.plus(more).is_within(self.most)

    def uses(self, used: Weight) -> tuple[LimitUse, ...]:
        """Each limit with its use, and what one more worker of each configured type and market takes."""
        markets = MARKETS if self.spot_percent else ("on-demand",)
        weights = {f"{kind}/{market}": self.weight(kind, market) for kind in self.types for market in markets}
        found = []
        if self.max_usd_per_hour:
            of_kind = {kind: weight.micro_usd for kind, weight in weights.items()}
            found.append(LimitUse(name=USD_LIMIT, most=self.most.micro_usd, used=used.micro_usd, of_kind=of_kind))
        if self.max_vcpu:
            of_kind = {kind: weight.vcpu for kind, weight in weights.items()}
            found.append(LimitUse(name=VCPU_LIMIT, most=self.most.vcpu, used=used.vcpu, of_kind=of_kind))
        return tuple(found)

    def _own(self, instance_type: str, market: str) -> tuple[int | None, int | None]:
        usd = self.tariff.without_credits(instance_type, market).known_usd if self.max_usd_per_hour else 0.0
        vcpu = vcpus_of(instance_type) or None if self.max_vcpu else 0
        return None if usd is None else round(usd * MILLION), vcpu

    def _heaviest(self) -> Weight:
        own = [self._own(kind, market) for kind in self.types for market in MARKETS]
        return _highest(Weight(micro_usd=usd or 0, vcpu=vcpu or 0) for usd, vcpu in own)

    def _against(self, weights: Sequence[Weight], left: Weight, used: Weight) -> tuple[LimitUse, ...]:
        """The limits that alone keep each pool away; all of them when only together they do."""
        alone = {
            USD_LIMIT: all(weight.micro_usd > left.micro_usd for weight in weights),
            VCPU_LIMIT: all(weight.vcpu > left.vcpu for weight in weights),
        }
        uses = self.uses(used)
        return tuple(use for use in uses if alone[use.name]) or uses


def listed(kinds: Sequence[str]) -> str:
    """The first of them, and how many more."""
    more = len(kinds) - MOST_LISTED
    return ", ".join(kinds[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _is_complete(own: tuple[int | None, int | None]) -> bool:
    return None not in own


def _highest(weights: Iterable[Weight]) -> Weight:
    highest = NO_WEIGHT
    for weight in weights:
        highest = highest.highest(weight)
    return highest
