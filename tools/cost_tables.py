"""The tables of docs/cost.md that follow from the model: worked bills, and the cost of types at a load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from node_fleet.domain.cost.cpu_credits import mixed_hour
from node_fleet.domain.cost.fleet_cost import BillLine, lines_total, monthly_line, monthly_lines
from node_fleet.domain.cost.prices import HOURS_PER_MONTH, PriceList
from node_fleet.domain.cost.tariff import Currency, Tariff
from node_fleet.domain.cost.type_choice import types_meeting
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings.parsing import written

REGION = "ap-southeast-1"
PRICES = PriceList.shipped(REGION)
SERVER = Tariff(prices=PRICES, volume_gib=30)
SPOT_PERCENT = 70
LOADS = (10, 20, 30, 40, 50, 60, 70, 80)
TYPES = ("t3.small", "t3a.small", "t4g.small", "c5.large", "c6i.large", "m6i.large")


@value_class
class Machine:
    """One worker of a worked bill."""

    instance_type: str
    market: str
    zone: str = ""


@value_class
class WorkedBill:
    """A fleet whose bill the document works out."""

    title: str
    tariff: Tariff
    workers: tuple[Machine, ...]
    cpu_percent: float

    @property
    def lines(self) -> tuple[BillLine, ...]:
        """The lines of the workers, then those of the server without its CPU credits, which are not measured."""
        server = SERVER.lines("t3.medium", "on-demand", None)
        fixed = [monthly_line(f"server t3.medium: {line.name}", line, 1) for line in server if line.usd is not None]
        return (*monthly_lines(self.tariff, self.workers, self.cpu_percent), *fixed)


def _workers(instance_type: str, *, spot: int, on_demand: int) -> tuple[Machine, ...]:
    return tuple(
        Machine(instance_type=instance_type, market=market)
        for market, count in (("spot", spot), ("on-demand", on_demand))
        for _ in range(count)
    )


WORKED_BILLS = (
    WorkedBill(
        title="Two quiet workers, at 10 % CPU",
        tariff=Tariff(prices=PRICES),
        workers=_workers("t3.small", spot=1, on_demand=1),
        cpu_percent=10,
    ),
    WorkedBill(
        title="Five busy workers, at 50 % CPU",
        tariff=Tariff(prices=PRICES),
        workers=_workers("t3.small", spot=4, on_demand=1),
        cpu_percent=50,
    ),
    WorkedBill(
        title="Four workers of a type that is not burstable, with 40 GiB and without public addresses",
        tariff=Tariff(prices=PRICES, volume_gib=40, public_address=False),
        workers=_workers("c6i.large", spot=3, on_demand=1),
        cpu_percent=60,
    ),
)


def bills() -> str:
    """The worked bills, line by line."""
    money = Currency()
    parts = []
    for bill in WORKED_BILLS:
        rows = [
            (one.name, f"{one.quantity / HOURS_PER_MONTH:.0f}", money.text(one.usd or 0.0), one.basis)
            for one in bill.lines
        ]
        rows.append(("**total**", "", f"**{money.cost(lines_total(bill.lines))}**", ""))
        parts.append(f"**{bill.title}**\n\n{_table(('line', 'machines', 'USD a month', 'price'), rows)}")
    return "\n\n".join(parts)


def required_types() -> str:
    """What example requirements stand for, by the shipped table of the default region."""
    tariff = Tariff(prices=PRICES)
    rows = [
        (f"`{written(one)}`", ", ".join(types_meeting(one, tariff, SPOT_PERCENT)))
        for one in (
            InstanceRequirements(vcpus=(2, 2), memory_gib=(2, 4), burstable="required"),
            InstanceRequirements(vcpus=(2, 4), memory_gib=(4, 8), burstable="excluded", generations=("current",)),
            InstanceRequirements(vcpus=(2, 2), memory_gib=(2, 4), architecture="arm64"),
            InstanceRequirements(vcpus=(2, 8), memory_gib=(2, 32), excluded=("t3.*", "m*"), max_types=3),
        )
    ]
    return _table(("instance_requirements", "instance types"), rows)


def types_by_load() -> str:
    """What one worker of each type costs a month at each load of two vCPUs."""
    tariff = Tariff(prices=PRICES)
    rows = [
        (kind, *(f"{mixed_hour(tariff, kind, cpu, SPOT_PERCENT).usd * HOURS_PER_MONTH:.2f}" for cpu in LOADS))
        for kind in TYPES
    ]
    return _table(("type", *(f"{cpu} %" for cpu in LOADS)), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    right = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, right, *rows))
