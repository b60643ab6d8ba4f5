"""types: instance types with size, price and the pods that they take, and why each is or is not a choice.

The candidates are the configured types, the named ones and every type with a shipped price. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from cli.live_prices import CurrentPrices, prices_for
from cli.output import WrongUseError, note, print_json, say, table
from cli.target import JsonOption, Opening, on_cluster
from node_fleet.domain.cost.cpu_credits import mixed_hour
from node_fleet.domain.cost.prices import HOURS_PER_MONTH, Price, PriceList
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.instance_types import PODS_PER_NODE, baseline_percent, capacity, is_arm, offered
from node_fleet.settings import Settings

COLUMNS = ("type", "vCPU", "GiB", "base", "on-d.", "Spot", "a month", "pods", "excluded")
"""base: CPU baseline of a burstable type. on-d., Spot: an hour of the instance. excluded: why the type is no choice."""
ANY = (0.0, float("inf"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a type must meet. vcpus, memory_gib: ranges with both ends. excluded: names, with * for any text."""

    vcpus: tuple[float, float] = ANY
    memory_gib: tuple[float, float] = ANY
    burstable: bool = True
    excluded: tuple[str, ...] = ()

    @property
    def are_given(self) -> bool:
        """Whether any of them differs from the default, which every type meets."""
        return self != Requirements()

    def refusal(self, instance_type: str, vcpus: float, memory_gib: float) -> str:
        """The first requirement that the type does not meet; empty when it meets all."""
        for name, value, (low, high) in (("vCPU", vcpus, self.vcpus), ("GiB", memory_gib, self.memory_gib)):
            if not low <= value <= high:
                return f"{value:g} {name}, {f'under {low:g}' if value < low else f'over {high:g}'}"
        if not self.burstable and baseline_percent(instance_type) is not None:
            return "burstable"
        matches = (name for name in self.excluded if fnmatchcase(instance_type, name))
        return next((f"matches {name}" for name in matches), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeLine:
    """One type. Prices are USD for an hour; spot: by zone, or under "" for the whole region.

    usd_a_month: a worker at the wanted Spot share with volume and address, without CPU credits. None: not known.
    pods: equal pods that fit on an empty worker. excluded: why the type is no choice; empty when it is one.
    """

    instance_type: str
    vcpus: int | None
    memory_gib: float | None
    baseline_percent: float | None
    on_demand: float | None
    spot: dict[str, float]
    usd_a_month: float | None
    pods: int
    excluded: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "types",
        epilog="Examples: node-fleet types | node-fleet types --vcpus 2-4 --memory 4-16 --no-burstable | "
        "node-fleet types c7i.large --pod-cpu 500 --pod-memory 3072",
    )(types)


@on_cluster(at="14m")
def types(
    opening: Opening,
    named: Annotated[list[str] | None, typer.Argument(help="Further instance types to list.")] = None,
    *,
    vcpus: Annotated[str, typer.Option("--vcpus", help="Required vCPUs, such as 2 or 2-4.")] = "",
    memory: Annotated[str, typer.Option("--memory", help="Required memory in GiB, such as 4-16.")] = "",
    burstable: Annotated[bool, typer.Option("--burstable/--no-burstable", help="Allow burstable types.")] = True,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Excluded types, such as t2.*.")] = None,
    pod_cpu: Annotated[int, typer.Option("--pod-cpu", min=1, help="Requests of a pod: CPU milli.")] = 250,
    pod_memory: Annotated[int, typer.Option("--pod-memory", min=1, help="Requests of a pod: MiB.")] = 128,
    as_json: JsonOption = False,
) -> None:
    """List instance types with size, CPU baseline, prices, the pods that they take, and why a type is excluded."""
    required = Requirements(
        vcpus=_range("--vcpus", vcpus),
        memory_gib=_range("--memory", memory),
        burstable=burstable,
        excluded=tuple(exclude or ()),
    )
    with opening as target:
        settings = target.services.settings
        candidates = dict.fromkeys(
            (*settings.instance_types, *(named or ()), *PriceList.shipped(settings.region).types)
        )
        current = prices_for(target, candidates)
    lines = type_lines(candidates, settings, current, required, pod=(pod_cpu, pod_memory))
    if as_json:
        print_json({"types": [asdict(line) for line in lines], "problems": list(current.problems)})
        return
    table("", COLUMNS, map(_row, lines))
    for problem in current.problems:
        note(problem)
    say(
        f"pods: of {pod_cpu}m CPU and {pod_memory} MiB, without DaemonSets. a month: USD of a worker with "
        f"{settings.spot_percent} % Spot, volume and address, without CPU credits. "
        f"Prices: {_sources(current.prices, candidates)}"
    )


def type_lines(
    candidates: Iterable[str],
    settings: Settings,
    current: CurrentPrices,
    required: Requirements,
    *,
    pod: tuple[int, int],
) -> list[TypeLine]:
    """One line for each candidate: first those that are a choice, the cheapest first."""
    tariff = settings.tariff(current.prices)
    lines = [_line(kind, settings, tariff, required, pod) for kind in candidates]
    return sorted(lines, key=lambda one: (bool(one.excluded), one.usd_a_month or float("inf"), one.instance_type))


def _line(kind: str, settings: Settings, tariff: Tariff, required: Requirements, pod: tuple[int, int]) -> TypeLine:
    size, free = capacity(kind), offered(kind)
    on_demand = tariff.prices.instance(kind, "on-demand")
    hour = mixed_hour(tariff, kind, 0.0, settings.spot_percent).known_usd
    pods = min(PODS_PER_NODE, *(have // need for have, need in zip(free, pod, strict=True))) if free else 0
    line = TypeLine(
        instance_type=kind,
        vcpus=size[0] if size else None,
        memory_gib=size[1] / 1024 if size else None,
        baseline_percent=baseline_percent(kind),
        on_demand=on_demand.usd if on_demand else None,
        spot={zone: price.usd for zone, price in _spot_prices(kind, settings, tariff.prices).items()},
        usd_a_month=None if hour is None else hour * HOURS_PER_MONTH,
        pods=pods,
        excluded="",
    )
    return replace(line, excluded=_why_excluded(line, settings, required))


def _spot_prices(kind: str, settings: Settings, prices: PriceList) -> dict[str, Price]:
    by_zone = {zone: prices.spot_pools[kind, zone] for zone in settings.zones if (kind, zone) in prices.spot_pools}
    everywhere = prices.instance(kind, "spot")
    return by_zone or ({"": everywhere} if everywhere else {})


def _why_excluded(line: TypeLine, settings: Settings, required: Requirements) -> str:
    kind, configured = line.instance_type, settings.instance_types
    if is_arm(kind) != is_arm(configured[0]):
        return "arm64, not x86_64" if is_arm(kind) else "x86_64, not arm64"
    if line.vcpus is None or line.memory_gib is None:
        return "its size is not known"
    if refusal := required.refusal(kind, line.vcpus, line.memory_gib):
        return refusal
    if not line.pods:
        return "the pod does not fit"
    if line.on_demand is None and not line.spot:
        return f"no price in {settings.region}"
    return "" if required.are_given or kind in configured else "not in instance_types"


def _row(line: TypeLine) -> tuple[object, ...]:
    spot = ", ".join(f"{zone[-1:]} {usd:.4f}".strip() for zone, usd in line.spot.items())
    return (
        line.instance_type,
        line.vcpus,
        "" if line.memory_gib is None else f"{line.memory_gib:g}",
        "" if line.baseline_percent is None else f"{line.baseline_percent:g} %",
        "unknown" if line.on_demand is None else f"{line.on_demand:.4f}",
        spot or "unknown",
        "unknown" if line.usd_a_month is None else f"{line.usd_a_month:.2f}",
        line.pods,
        line.excluded,
    )


def _sources(prices: PriceList, candidates: Iterable[str]) -> str:
    listed = set(candidates)
    return (
        ", ".join(sorted({price.source for (kind, _), price in prices.instances.items() if kind in listed})) or "none"
    )


def _range(option: str, text: str) -> tuple[float, float]:
    """The range in texts such as 2 and 2-4; every value without a text."""
    if not text:
        return ANY
    low, dash, high = text.partition("-")
    try:
        found = (float(low), float(high if dash else low))
    except ValueError:
        found = (1.0, 0.0)
    if not 0 <= found[0] <= found[1]:
        raise WrongUseError(f"{option} {text!r} is not a number or a range", hint=f"type it like {option} 2-4")
    return found
