"""cost: the bills of the fleet, the server and the control plane, line by line, beside the cost of a fixed fleet.

Prices are live in an account, else shipped; usage comes from counted runs, measured CPU and the template. It changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from typing import Annotated, Any

import typer

from cdk_app.workflow import ROOT
from cli.live_prices import CurrentPrices, prices_for
from cli.output import console, print_json, say, table, working
from cli.target import JsonOption, Opening, Target, on_cluster
from cli.usage_per_run import PROFILES, STORED_GB_PER_RUN
from node_fleet.domain.cost.fleet_cost import (
    STANDBY_LINE,
    BillLine,
    fixed_fleet,
    headroom_month,
    lines_total,
    monthly_line,
    monthly_lines,
    spread_cpu,
    standby_monthly_lines,
)
from node_fleet.domain.cost.prices import DATED, HOURS_PER_MONTH
from node_fleet.domain.cost.tariff import Cost, Currency, Tariff, saved_percent
from node_fleet.domain.model.hibernation import off_minutes
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from simulator.report.control_plane_cost import MonthlyUsage, monthly_bill, monthly_usage

DAYS_PER_MONTH = HOURS_PER_MONTH / 24
DAY_SECONDS = 86400
WEEK_HOURS = 168
STANDING = {
    "dashboards": ("AWS::CloudWatch::Dashboard",),
    "secrets": ("AWS::SecretsManager::Secret",),
    "keys": ("AWS::KMS::Key",),
}
RUN_METRICS = 10
GRAFANA_PAGES = ROOT / "cluster" / "monitoring" / "grafana" / "dashboards"
GRAFANA_REFRESHES_PER_HOUR = 120
NOT_COUNTED = (
    "Not counted, because no reading has them: data between zones (0.01 USD per GB in each direction), data to the "
    "internet, and snapshots of the server."
)


@value_class
class ServerMachine:
    """The K3s server as it is billed."""

    instance_type: str
    volume_gib: int
    has_public_address: bool


@value_class
class Bill:
    """The bills of a month in which what runs now always runs. cpu_percent: measured, the mean of the fleet."""

    cpu_percent: float | None
    workers: tuple[BillLine, ...]
    server: tuple[BillLine, ...]
    control: tuple[BillLine, ...]
    fixed_workers: int
    fixed: Cost
    problems: tuple[str, ...] = ()
    headroom_workers: float = 0.0
    headroom: Cost = field(default_factory=Cost)
    off_hours: float = 0.0
    """Hours of a week in which the fleet is off."""

    @property
    def total(self) -> Cost:
        """Workers and control plane, with the always-free tier. Both fleets need the server, so it is left out."""
        return Cost.total((lines_total(self.workers), lines_total(self.control, after_free=True)))

    @property
    def off_saves(self) -> Cost:
        """What the hours off save in a month: workers, and the server; volumes of stopped machines are on the bill."""
        workers = [line for line in self.workers if not line.name.startswith(STANDBY_LINE)]
        machine = [line for line in self.server if "volume" not in line.name]
        always = lines_total((*workers, *machine))
        return replace(always, usd=always.usd * self.off_hours / WEEK_HOURS)

    @property
    def saved_percent(self) -> float | None:
        """Against the fixed fleet."""
        return saved_percent(self.total, self.fixed)


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
    grafana_hours: Annotated[
        int, typer.Option("--grafana-hours", min=0, help="Hours a month in which a Grafana page is open.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """Print the bill of the workers, the server and the control plane, with and without the always-free tier."""
    with opening as target, working("reading the instances, the metrics and the prices"):
        settings, (instances, standby) = target.services.settings, target.services.ec2.with_standby()
        machine, cpu = server_of(target), measured_cpu(target)
        types = {*settings.instance_types, machine.instance_type, *(one.instance_type for one in instances)}
        current = prices_for(target, types)
    found = bill_of(
        settings,
        current,
        instances,
        machine,
        cpu_percent=cpu,
        fixed_workers=fixed or settings.baseline_workers,
        usage=usage_of(settings, changes, grafana_hours),
        standby=len(standby),
    )
    if as_json:
        print_json(as_data(found, settings))
        return
    show(found, settings.money)


def bill_of(
    settings: Settings,
    current: CurrentPrices,
    instances: tuple[Instance, ...],
    machine: ServerMachine,
    *,
    cpu_percent: float | None,
    fixed_workers: int,
    usage: MonthlyUsage,
    standby: int = 0,
) -> Bill:
    """The bill of a month in which what runs now always runs, at this mean CPU. standby: stopped workers."""
    tariff, first = settings.tariff(current.prices), settings.instance_types[0]
    spread = spread_cpu(cpu_percent, instances, first, fixed_workers)
    return Bill(
        cpu_percent=cpu_percent,
        workers=(*monthly_lines(tariff, instances, cpu_percent), *standby_monthly_lines(tariff, standby)),
        server=server_lines(current, machine),
        control=monthly_bill(usage),
        fixed_workers=fixed_workers,
        fixed=fixed_fleet(tariff, first, spread, workers=fixed_workers, hours=HOURS_PER_MONTH),
        problems=current.problems,
        headroom_workers=settings.headroom_in_workers,
        off_hours=off_minutes(settings.hibernate) / 60,
        headroom=headroom_month(tariff, first, settings.spot_percent, settings.headroom_in_workers),
    )


def server_lines(current: CurrentPrices, machine: ServerMachine) -> tuple[BillLine, ...]:
    """The server, an On-Demand instance whose CPU node-fleet does not read. EC2 launches T3 in mode unlimited."""
    tariff = Tariff(prices=current.prices, volume_gib=machine.volume_gib, public_address=machine.has_public_address)
    lines = tariff.lines(machine.instance_type, "on-demand", None)
    return tuple(monthly_line(f"{machine.instance_type}: {line.name}", line, 1) for line in lines)


def server_of(target: Target) -> ServerMachine:
    """The server as EC2 describes it."""
    ec2 = target.client("ec2")
    answer = ec2.describe_instances(InstanceIds=[target.services.ec2.server_machine().instance_id])
    raw = answer["Reservations"][0]["Instances"][0]
    volumes = [one["Ebs"]["VolumeId"] for one in raw.get("BlockDeviceMappings", ()) if "Ebs" in one]
    described = ec2.describe_volumes(VolumeIds=volumes)["Volumes"] if volumes else ()
    return ServerMachine(
        instance_type=raw["InstanceType"],
        volume_gib=sum(one["Size"] for one in described),
        has_public_address=bool(raw.get("PublicIpAddress")),
    )


def measured_cpu(target: Target) -> float | None:
    """The mean CPU of the workers in the recorded readings of the last 24 hours; None when there are none."""
    now = target.services.clock.now()
    return mean_of_readings(target.services.records.readings(now - DAY_SECONDS, now + 1))


def mean_of_readings(readings: Iterable[Mapping[str, Any]]) -> float | None:
    """Their mean CPU, each reading weighted with its usable workers."""
    known = [(one["cpu_percent"], one.get("usable", 0)) for one in readings if one.get("cpu_percent") is not None]
    workers = sum(weight for _, weight in known)
    return sum(cpu * weight for cpu, weight in known) / workers if workers else None


def usage_of(settings: Settings, changes_per_day: int, grafana_hours: int) -> MonthlyUsage:
    """A month's runs, on top of what the deployed template holds."""
    ticks = HOURS_PER_MONTH * 3600 / settings.interval_seconds
    changes = changes_per_day * DAYS_PER_MONTH
    runs = {"quiet": max(0.0, ticks - 2 * changes), "scale_up": changes, "scale_down": changes}
    standing = standing_usage(metric_requests=grafana_hours * GRAFANA_REFRESHES_PER_HOUR * metrics_of_a_page())
    return monthly_usage(PROFILES, runs, standing, kept_items=ticks * STORED_GB_PER_RUN)


def standing_usage(*, metric_requests: float) -> MonthlyUsage:
    """Counted in the template: alarms, dashboards, secrets, keys, metrics, NAT gateways.

    CloudWatch bills an alarm once for each metric in its formula (Infracost counts the same).
    """
    from simulator.simulation import synthesised_template

    template = synthesised_template()
    counted: dict[str, Any] = {name: len(list(template.resources(*kinds))) for name, kinds in STANDING.items()}
    alarms = [
        one.properties.get("Metrics", ({"MetricStat": {}},)) for one in template.resources("AWS::CloudWatch::Alarm")
    ]
    filters = len(list(template.resources("AWS::Logs::MetricFilter")))
    nat = len(list(template.resources("AWS::EC2::NatGateway")))
    return MonthlyUsage(
        **counted,
        alarms=sum("MetricStat" in metric for metrics in alarms for metric in metrics),
        metrics=RUN_METRICS + filters,
        metric_requests=metric_requests,
        nat_hours=nat * HOURS_PER_MONTH,
    )


def metrics_of_a_page() -> int:
    """CloudWatch metrics that one refresh of the Grafana page with the most of them requests."""
    return max(_metrics(json.loads(path.read_text(encoding="utf-8"))) for path in GRAFANA_PAGES.glob("*.json"))


def _metrics(page: dict[str, Any]) -> int:
    targets = [target for panel in page["panels"] for target in panel.get("targets", ())]
    return sum(bool(target.get("metricName")) for target in targets)


def show(found: Bill, money: Currency) -> None:
    """The answer first, then the bills line by line."""
    console().print(answer_of(found, money), markup=False, style="bold")
    cpu = "CPU not measured" if found.cpu_percent is None else f"CPU {found.cpu_percent:.0f} %, the mean of 24 h"
    for title, lines in (
        (f"Workers, if what runs now always ran ({cpu})", found.workers),
        ("K3s server", found.server),
    ):
        rows = [(one.name, f"{one.quantity / HOURS_PER_MONTH:.0f}", _text(one.usd, money), one.basis) for one in lines]
        rows.append(("total", "", money.cost(lines_total(lines)), ""))
        table(title, ("line", "machines", "a month", "price"), rows)
    rows = [(one.name, _used(one), _text(one.usd, money), _text(one.usd_after_free, money)) for one in found.control]
    rows.append(
        (
            "total",
            "",
            money.cost(lines_total(found.control)),
            money.cost(lines_total(found.control, after_free=True)),
        )
    )
    title = f"Control plane, with and without the always-free tier (prices shipped {DATED}, ap-southeast-1)"
    table(title, ("line", "used in a month", "full price", "after free tier"), rows)
    if found.headroom_workers:
        say(
            f"The chosen headroom, {found.headroom_workers:.2g} workers that are kept free, costs "
            f"{money.cost(found.headroom)} a month; the bill of the workers contains it."
        )
    if found.off_hours:
        say(
            f"Off {found.off_hours:.0f} of {WEEK_HOURS} h a week (hibernate): {money.cost(found.off_saves)} a month "
            "less than these bills for the workers and the server; its volume remains."
        )
    say("The use of the control plane is counted from simulated runs and from the deployed template.")
    say(NOT_COUNTED)
    for problem in (*found.problems, *(f"Not known: {name}." for name in missing_of(found))):
        say(problem)


def missing_of(found: Bill) -> tuple[str, ...]:
    """What no sum contains, by name."""
    return lines_total((*found.workers, *found.server)).missing


def _used(line: BillLine) -> str:
    """For example: 10 alarm metrics, 1 dashboard."""
    return f"{_quantity(line.quantity)} {line.unit.removesuffix('s') if line.quantity == 1 else line.unit}"


def _quantity(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(usd: float | None, money: Currency) -> str:
    return "unknown" if usd is None else money.text(usd)


def answer_of(found: Bill, money: Currency) -> str:
    """The month in one sentence."""
    workers, control = lines_total(found.workers), lines_total(found.control, after_free=True)
    words = (
        f"{money.cost(found.total)} a month: workers {money.cost(workers)}, control plane {money.cost(control)}; "
        f"the K3s server costs {money.cost(lines_total(found.server))} more"
    )
    saved = found.saved_percent
    fixed = f"{found.fixed_workers} fixed On-Demand workers cost {money.cost(found.fixed)}"
    if saved is None:
        return f"{words}; {fixed}"
    return f"{words}; {fixed}, so this is {abs(saved):.0f} % {'less' if saved >= 0 else 'more'}"


def as_data(found: Bill, settings: Settings) -> dict[str, Any]:
    """The same for machines, in USD. A sum of which `missing` names a part is the least that it can be."""
    return {
        "region": settings.region,
        "prices_dated": DATED,
        "cpu_percent": found.cpu_percent,
        "workers": [asdict(one) for one in found.workers],
        "workers_usd_per_month": lines_total(found.workers).usd,
        "server": [asdict(one) for one in found.server],
        "server_usd_per_month": lines_total(found.server).usd,
        "control_plane": [asdict(one) for one in found.control],
        "control_plane_usd_per_month": lines_total(found.control).usd,
        "control_plane_usd_per_month_after_free_tier": lines_total(found.control, after_free=True).usd,
        "missing": list(missing_of(found)),
        "fixed_workers": found.fixed_workers,
        "fixed_usd_per_month": found.fixed.usd,
        "saved_percent": found.saved_percent,
        "headroom_workers": found.headroom_workers,
        "headroom_usd_per_month": found.headroom.usd,
        "problems": list(found.problems),
        "off_hours_a_week": found.off_hours,
        "off_saves_usd_per_month": found.off_saves.usd,
    }
