"""types: instance types with size, price and the pods that they take, and why each is or is not a choice.

The candidates are the configured types, the named ones, every type with a shipped price and those that EC2 selects for
the requirements. It changes nothing but, with --record, cdk.context.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any, get_args

import typer
from botocore.exceptions import BotoCoreError, ClientError

from cli.configured import cluster_named
from cli.live_prices import CurrentPrices, live_prices
from cli.output import WrongUseError, note, print_json, say, table
from cli.target import Deployed, JsonOption, Opening, Target, maker_of_clients, on_cluster
from cli.type_choice import Choice, TypeLine
from cli.type_lookup import LOOKUP_ACTION, types_of_ec2
from cli.type_record import Recording, record_types
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import Architecture, Generation, architecture_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from node_fleet.settings.parsing import written

COLUMNS = ("type", "vCPU", "GiB", "base", "on-d.", "Spot", "a month", "pods", "excluded")
"""base: CPU baseline of a burstable type. on-d., Spot: an hour of the instance. excluded: why the type is no choice."""

MOST_LINES = 50


@value_class
class Source:
    """The settings that decide, and the account that answers. client: None without an account."""

    settings: Settings
    zones: tuple[str, ...]
    client: Callable[..., Any] | None
    now: float

    @classmethod
    def of_target(cls, target: Target) -> Source:
        """The settings in force."""
        settings, services = target.services.settings, target.services
        client = target.client if isinstance(target, Deployed) else None
        return cls(settings=settings, zones=tuple(settings.zones), client=client, now=services.clock.now())

    @classmethod
    def of_configuration(cls, cluster_id: str, *, local: bool) -> Source:
        """The settings of cdk.json, with prices of the account unless `local`."""
        found = cluster_named(cluster_id)
        client = None if local else maker_of_clients(found.region)
        return cls(settings=found.settings, zones=found.zones, client=client, now=time.time())


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "types",
        epilog="Examples: node-fleet types | node-fleet types --vcpus 2-4 --memory 4-16 --no-burstable | "
        "node-fleet types c7i.large --pod-cpu 500 --pod-memory 3072 | node-fleet types --configured --local | "
        "node-fleet types --record",
    )(types)


@on_cluster(at="14m")
def types(
    opening: Opening,
    *,
    cluster: str,
    region: str,
    local: bool,
    named: Annotated[list[str] | None, typer.Argument(help="Further instance types to list.")] = None,
    vcpus: Annotated[str, typer.Option("--vcpus", help="Required vCPUs, such as 2 or 2-4.")] = "",
    memory: Annotated[str, typer.Option("--memory", help="Required memory in GiB, such as 4-16.")] = "",
    architecture: Annotated[str, typer.Option("--architecture", help="x86_64 or arm64.")] = "",
    burstable: Annotated[
        bool | None, typer.Option("--burstable/--no-burstable", help="Include or exclude burstable types.")
    ] = None,
    generation: Annotated[str, typer.Option("--generation", help="current or previous.")] = "",
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Excluded types, such as t2.*.")] = None,
    pod_cpu: Annotated[int, typer.Option("--pod-cpu", min=1, help="Requests of a pod: CPU milli.")] = 250,
    pod_memory: Annotated[int, typer.Option("--pod-memory", min=1, help="Requests of a pod: MiB.")] = 128,
    configured: Annotated[bool, typer.Option("--configured", help="Use cdk.json, not the deployed settings.")] = False,
    record: Annotated[bool, typer.Option("--record", help="Record what EC2 selects for cdk.json.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List instance types with size, CPU baseline, prices, the pods that they take, and why a type is excluded."""
    options = {
        "vcpus": _range("--vcpus", vcpus),
        "memory_gib": _range("--memory", memory),
        "architecture": _one_of("--architecture", architecture, get_args(Architecture)),
        "burstable": None if burstable is None else "included" if burstable else "excluded",
        "generations": _one_of("--generation", generation, get_args(Generation)) and (generation,),
        "excluded": tuple(exclude or ()) or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if record:
        if local or region or given or named:
            raise WrongUseError("--record with other options", hint="it records what cdk.json requires: give it alone")
        _show_recording(record_types(cluster, maker_of_clients, time.time()), as_json=as_json)
        return
    pod, names = (pod_cpu, pod_memory), tuple(named or ())
    if configured:
        show_types(Source.of_configuration(cluster, local=local), given, names, pod, as_json=as_json)
        return
    with opening as target:
        show_types(Source.of_target(target), given, names, pod, as_json=as_json)


def show_types(
    source: Source, given: dict[str, Any], named: tuple[str, ...], pod: tuple[int, int], *, as_json: bool
) -> None:
    """Print the types, with the requirements of the settings, or those of the options in their place."""
    settings = source.settings
    requirements = requirements_of(settings, given)
    selected, refused = _selected(source, requirements)
    candidates = tuple(
        dict.fromkeys(
            (*settings.instance_types, *named, *PriceList.shipped(settings.region).types, *sorted(selected or ()))
        )
    )
    current = _prices(source, candidates)
    choice = Choice(
        settings=settings,
        current=current,
        zones=source.zones,
        requirements=requirements,
        selected=selected,
        pod=pod,
    )
    lines, problems = choice.lines(candidates), (*refused, *current.problems, *_differences(choice, candidates, given))
    if as_json:
        print_json({"types": [asdict(line) for line in lines], "problems": list(problems)})
        return
    table("", COLUMNS, map(_row, lines[:MOST_LINES]))
    if further := lines[MOST_LINES:]:
        note(f"{len(further)} further types are excluded; --json lists all")
    for problem in problems:
        note(problem)
    if requirements:
        say(f"requirements: {written(requirements)}, by {'the shipped table' if selected is None else 'EC2'}")
    say(
        f"pods: of {pod[0]}m CPU and {pod[1]} MiB, without DaemonSets. a month: USD of a worker with "
        f"{settings.spot_percent} % Spot, volume and address, without CPU credits. "
        f"Prices: {_sources(current.prices, candidates)}"
    )


def requirements_of(settings: Settings, given: dict[str, Any]) -> InstanceRequirements | None:
    """The requirements of the settings with those of the options in their place; None without either."""
    if not given:
        return settings.instance_requirements
    base = settings.instance_requirements or InstanceRequirements(
        architecture=architecture_of(settings.instance_types[0])
    )
    found = replace(base, **given)
    if problems := [one for one in found.problems() if one.startswith("excluded")]:
        raise WrongUseError("; ".join(problems), hint="type it like --exclude 't2.*'")
    return found


def _selected(
    source: Source, requirements: InstanceRequirements | None
) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """The types that EC2 selects, and why it could not be asked."""
    if requirements is None or source.client is None:
        return None, ()
    try:
        return frozenset(types_of_ec2(source.client("ec2"), requirements)), ()
    except ClientError as error:
        reason = f"{error.response['Error']['Code']}; your credentials need {LOOKUP_ACTION}"
    except BotoCoreError as error:
        reason = str(error)[:160]
    return None, (f"EC2 did not select types ({reason}): the facts that node-fleet ships decide",)


def _prices(source: Source, candidates: tuple[str, ...]) -> CurrentPrices:
    if source.client is None:
        return CurrentPrices(prices=PriceList.shipped(source.settings.region))
    return live_prices(source.client, source.settings.region, candidates, source.zones, source.now)


def _differences(choice: Choice, candidates: Iterable[str], given: dict[str, Any]) -> tuple[str, ...]:
    """Where the list of the functions is not what its requirements stand for today."""
    if choice.settings.instance_requirements is None or given:
        return ()
    small = replace(choice, pod=(1, 1))
    found, used = [one.instance_type for one in small.lines(candidates) if not one.excluded], choice.settings
    if set(found) == set(used.instance_types):
        return ()
    return (
        f"instance_types is {', '.join(used.instance_types)}, and the requirements stand for "
        f"{', '.join(found) or 'no type'} today: node-fleet types --record and a deployment change the list",
    )


def _show_recording(found: Recording, *, as_json: bool) -> None:
    if as_json:
        print_json({**found.record.as_data(), "earlier": list(found.earlier), "problems": list(found.problems)})
        return
    types = found.record.instance_types
    for problem in found.problems:
        note(problem)
    added, removed = ([one for one in a if one not in b] for a, b in ((types, found.earlier), (found.earlier, types)))
    changes = [f"added: {', '.join(added)}"] if added else []
    changes += [f"removed: {', '.join(removed)}"] if removed else []
    say(f"recorded in {found.path.name}: {', '.join(types)} ({'; '.join(changes) or 'the same types as before'})")
    say("Review and commit the file. The functions use the list after the next node-fleet cdk deploy.")


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


def _one_of(option: str, text: str, allowed: tuple[str, ...]) -> str | None:
    """The text, if it is one of the allowed; None without a text."""
    if text and text not in allowed:
        raise WrongUseError(f"{option} {text!r} is not known", hint=f"give {' or '.join(allowed)}")
    return text or None


def _range(option: str, text: str) -> tuple[float, float] | None:
    """The range in texts such as 2 and 2-4; None without a text."""
    if not text:
        return None
    low, dash, high = text.partition("-")
    try:
        found = (float(low), float(high if dash else low))
    except ValueError:
        found = (1.0, 0.0)
    if not 0 <= found[0] <= found[1]:
        raise WrongUseError(f"{option} {text!r} is not a number or a range", hint=f"type it like {option} 2-4")
    return found
