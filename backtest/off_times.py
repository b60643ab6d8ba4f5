"""What the times off of the setting hibernate save: the same replay without the hours in which the fleet is off.

Standby workers stay stopped in these hours, and their volumes stay on the bill.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from backtest.compare import Assumptions, Study, study
from backtest.summary import usd_text
from backtest.trace import Trace
from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.model.hibernation import Times
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings


@value_class
class OffTimes:
    """The cost of the workers with the fleet always on, and without the hours off; hours of the trace."""

    hours: float
    hours_on: float
    always: Cost
    cost: Cost

    @property
    def saved_percent(self) -> float:
        """How much less the workers cost; the load of the hours off is not served."""
        return 100.0 * (1.0 - self.cost.usd / self.always.usd) if self.always.usd else 0.0

    @property
    def sentence(self) -> str:
        """For example: with the times off the fleet is on 60 of 168 h: the workers cost ..."""
        return (
            f"with the times off the fleet is on {self.hours_on:.0f} of {self.hours:.0f} h: the workers cost "
            f"{usd_text(self.cost)} USD instead of {usd_text(self.always)} USD, {self.saved_percent:.0f} % less, and "
            "the load of the hours off is not served"
        )

    def as_data(self) -> dict[str, Any]:
        """The same as numbers."""
        return {
            "hours": round(self.hours, 2),
            "hours_on": round(self.hours_on, 2),
            "usd": round(self.cost.usd, 4),
            "usd_always_on": round(self.always.usd, 4),
            "saved_percent": round(self.saved_percent, 1),
        }


def replay_off_times(trace: Trace, settings: Settings, assumptions: Assumptions, shown: Study) -> OffTimes | None:
    """The replay without the hours off, at the same load; None where the trace has no hours on or none off."""
    times = Times(windows=settings.hibernate, timezone=settings.timezone)
    readings = sum(not times.is_off(at) for stretch in trace.stretches for at in stretch.times)
    if not 2 <= readings < len(trace.values):
        return None
    on = trace.where(lambda at: not times.is_off(at))
    scaling = replace(assumptions.scaling, milli_per_unit=shown.load.milli_per_unit)
    found = study(on, settings, replace(assumptions, scaling=scaling))
    hours, hours_on = shown.load.seconds / 3600, found.load.seconds / 3600
    standby = Cost.of(found.tariff.stopped_lines(), settings.standby_workers * (hours - hours_on))
    return OffTimes(
        hours=hours,
        hours_on=hours_on,
        always=shown.cost(shown.configured),
        cost=Cost.total((found.cost(found.configured), standby)),
    )
