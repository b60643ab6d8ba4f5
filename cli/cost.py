"""cost: the bills of the fleet and of the control plane, line by line, beside the cost of a fixed fleet.

Prices come from the dated tables, usage from counted runs and from the template. It changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cli.output import console, print_json, say, table
from cli.target import JsonOption, Opening, on_cluster
from cli.usage_per_run import PROFILES, STORED_GB_PER_RUN
from node_fleet.domain.cost.control_plane_cost import (
    PRICED_IN,
    BillLine,
    MonthlyUsage,
    monthly_bill,
    monthly_usage,
    totals,
)
from node_fleet.domain.cost.fleet_cost import (
    DATED,
    HOURS_PER_MONTH,
    Currency,
    fixed_usd,
    fleet_cost,
    saved_percent,
    usd_per_hour,
)
from node_fleet.domain.model.snapshot import Instance
from node_fleet.settings import Settings

DAYS_PER_MONTH = HOURS_PER_MONTH / 24
STANDING = {
    "alarms": ("AWS::CloudWatch::Alarm",),
    "dashboards": ("AWS::CloudWatch::Dashboard",),
    "secrets": ("AWS::SecretsManager::Secret",),
}
RUN_METRICS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Both bills in USD a month. fixed_usd: so many on-demand workers of the first type that always run."""

    workers: tuple[tuple[str, int, float | None], ...]
    workers_usd: float
    unpriced: tuple[str, ...]
    lines: tuple[BillLine, ...]
    fixed_workers: int
    fixed_usd: float | None

    @property
    def control_usd(self) -> tuple[float, float]:
        """At full price, and with the always-free tier."""
        return totals(self.lines)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog="Examples: node-fleet cost | node-fleet cost --local --at 20m --fixed 5 | node-fleet cost --json"
    )(cost)


@on_cluster(at="20m")
def cost(
    opening: Opening,
    *,
    fixed: Annotated[
        int, typer.Option("--fixed", min=0, help="Workers of the fixed fleet (0: from the settings).")
    ] = 0,
    changes: Annotated[int, typer.Option("--changes-per-day", min=0, help="Scale-ups, and as many scale-downs.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """Print the bill of the control plane and of the fleet line by line, with and without the always-free tier."""
    with opening as target:
        settings, instances = target.services.settings, target.services.ec2.instances()
    found = bill_of(settings, instances, fixed_workers=fixed or settings.baseline_workers, changes_per_day=changes)
    if as_json:
        print_json(as_data(found, settings))
        return
    show(found, settings)


def bill_of(settings: Settings, instances: tuple[Instance, ...], *, fixed_workers: int, changes_per_day: int) -> Bill:
    """The bill of a month in which what runs now always runs."""
    groups = Counter((one.instance_type, one.market) for one in instances)
    rows = tuple(
        (f"{kind} {market}", count, usd_per_hour(settings.region, kind, market))
        for (kind, market), count in sorted(groups.items())
    )
    fleet = fleet_cost(settings.region, instances)
    return Bill(
        workers=rows,
        workers_usd=fleet.usd_per_hour * HOURS_PER_MONTH,
        unpriced=fleet.unpriced,
        lines=monthly_bill(use_of(settings, changes_per_day)),
        fixed_workers=fixed_workers,
        fixed_usd=fixed_usd(
            settings.region, settings.instance_types[0], "on-demand", workers=fixed_workers, hours=HOURS_PER_MONTH
        ),
    )


def use_of(settings: Settings, changes_per_day: int) -> MonthlyUsage:
    """A month's runs, on top of what the deployed template holds."""
    ticks = HOURS_PER_MONTH * 3600 / settings.interval_seconds
    changes = changes_per_day * DAYS_PER_MONTH
    runs = {"quiet": max(0.0, ticks - 2 * changes), "scale_up": changes, "scale_down": changes}
    return monthly_usage(PROFILES, runs, standing_use(), kept_items=ticks * STORED_GB_PER_RUN)


def standing_use() -> MonthlyUsage:
    """Counted in the template: alarms, dashboards, secrets, metrics; and the server's one public address."""
    from simulator.simulation import synthesised_template

    template = synthesised_template()
    counted: dict[str, Any] = {name: len(list(template.resources(*kinds))) for name, kinds in STANDING.items()}
    filters = len(list(template.resources("AWS::Logs::MetricFilter")))
    nat = len(list(template.resources("AWS::EC2::NatGateway")))
    return MonthlyUsage(
        **counted, metrics=RUN_METRICS + filters, address_hours=HOURS_PER_MONTH, nat_hours=nat * HOURS_PER_MONTH
    )


def show(found: Bill, settings: Settings) -> None:
    """The answer first, then both bills line by line."""
    money = Currency(currency=settings.currency, per_usd=settings.currency_per_usd)
    full, free = found.control_usd
    console().print(_answer(found, money, free), markup=False, style="bold")
    rows = [
        (name, str(count), "unknown" if price is None else money.text(price * count * HOURS_PER_MONTH))
        for name, count, price in found.workers
    ]
    table(f"Workers, if what runs now always ran (prices of {DATED})", ("kind", "workers", "a month"), rows)
    lines = [
        (one.name, f"{_quantity(one.quantity)} {one.unit}", money.text(one.usd), money.text(one.usd_after_free))
        for one in found.lines
    ]
    lines.append(("total", "", money.text(full), money.text(free)))
    title = f"Control plane (prices of {PRICED_IN}, ap-southeast-1)"
    table(title, ("line", "used in a month", "full price", "with always-free tier"), lines)
    say("Use is counted from simulated runs and from the deployed template; the K3s server itself is not in it.")
    if found.unpriced:
        say(f"No price is known for {', '.join(found.unpriced)}: not counted.")


def _quantity(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _answer(found: Bill, money: Currency, control_usd: float) -> str:
    total = found.workers_usd + control_usd
    words = (
        f"{money.text(total)} a month: workers {money.text(found.workers_usd)}, control plane {money.text(control_usd)}"
    )
    if found.fixed_usd is None:
        return words
    saved = saved_percent(total, found.fixed_usd)
    fixed = f"{found.fixed_workers} fixed on-demand workers cost {money.text(found.fixed_usd)}"
    return f"{words}; {fixed}, so this is {abs(saved):.0f} % {'less' if saved >= 0 else 'more'}"


def as_data(found: Bill, settings: Settings) -> dict[str, Any]:
    """The same for machines, in USD."""
    full, free = found.control_usd
    return {
        "region": settings.region,
        "prices_dated": DATED,
        "workers": [{"kind": n, "count": c, "usd_per_hour": p} for n, c, p in found.workers],
        "workers_usd_per_month": found.workers_usd,
        "unpriced": list(found.unpriced),
        "control_plane": [
            {"name": o.name, "quantity": o.quantity, "unit": o.unit, "usd": o.usd, "usd_after_free": o.usd_after_free}
            for o in found.lines
        ],
        "control_plane_usd_per_month": full,
        "control_plane_usd_per_month_after_free_tier": free,
        "fixed_workers": found.fixed_workers,
        "fixed_usd_per_month": found.fixed_usd,
    }
