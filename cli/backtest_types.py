"""The option --types of backtest: the fleets to compare, as lists of types or as requirements, and what is printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from botocore.exceptions import BotoCoreError, ClientError

from backtest import type_study
from backtest.compare import Assumptions
from backtest.trace import Trace
from backtest.type_study import TypeStudy, study_types
from cli.live_prices import prices_for
from cli.output import CommandError, WrongUseError, note, print_json, say, table
from cli.target import Deployed, Target
from cli.type_lookup import LOOKUP_ACTION, types_of_ec2
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.type_choice import cheapest_first, matching_types
from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import architecture_of, capacity
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from node_fleet.settings.parsing import written

Asked = tuple[str, ...] | InstanceRequirements
LIST_HINT = "type it like --types t3.small,t3.small+t3.medium"
OBJECT_HINT = """type it like --types '{"vcpus": [2, 4], "memory_gib": [4, 8]}'"""


@value_class
class Market:
    """The prices of a region, and the types that EC2 selects for requirements; empty where it was not asked."""

    prices: PriceList
    selected: Mapping[InstanceRequirements, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, target: Target, asked: Iterable[Asked]) -> Market:
        """The prices in force of every type that is compared. Prints what AWS did not answer."""
        selected, types = {}, set(target.services.settings.instance_types)
        for one in asked:
            if isinstance(one, tuple):
                types.update(one)
            elif isinstance(target, Deployed):
                selected[one] = _selection(target, one)
                types.update(filter(capacity, selected[one]))
        current = prices_for(target, types)
        for problem in current.problems:
            note(problem)
        return cls(prices=current.prices, selected=selected)


def fleets_of(texts: Iterable[str]) -> tuple[Asked, ...]:
    """The fleets that the values of --types name: lists of types joined by +, or requirements as a JSON object."""
    found: list[Asked] = []
    for text in texts:
        if text.lstrip().startswith("{"):
            found.append(_requirements(text))
        else:
            found += [_list(one) for one in text.split(",") if one.strip()]
    return tuple(found)


def resolve(asked: Iterable[Asked], settings: Settings, market: Market) -> tuple[tuple[str, ...], ...]:
    """The types of each fleet; requirements stand for the cheapest types that meet them."""
    return tuple(one if isinstance(one, tuple) else _types_for(one, settings, market) for one in asked)


def compare_types(
    trace: Trace,
    settings: Settings,
    assumptions: Assumptions,
    asked: Iterable[Asked],
    *,
    market: Market | None,
    source: str,
    as_json: bool,
) -> None:
    """Replay the trace on every fleet and print the comparison under the source of the settings.

    market None: the shipped prices.
    """
    market = market or Market(prices=PriceList.shipped(settings.region))
    fleets = (settings.instance_types, *resolve(asked, settings, market))
    found = study_types(trace, settings, assumptions, fleets, settings.tariff(market.prices))
    note(source)
    _show(found, as_json=as_json)


def _show(found: TypeStudy, *, as_json: bool) -> None:
    if as_json:
        print_json(type_study.as_data(found))
        return
    say(type_study.answer(found))
    table("", type_study.COLUMNS, type_study.rows(found))
    for one in found.studies:
        if len(types := type_study.types_of(one)) > type_study.NAMED:
            note(f"{type_study.name_of(one)}: {', '.join(types)}")
    prices, compared = (
        found.configured.tariff.prices,
        {kind for one in found.studies for kind in type_study.types_of(one)},
    )
    sources = sorted({price.source for (kind, _), price in prices.instances.items() if kind in compared})
    note(f"instance prices of {prices.region}: {', '.join(sources) or 'none'}")


def _list(text: str) -> tuple[str, ...]:
    types = tuple(kind.strip() for kind in text.split("+"))
    if not all(types):
        raise WrongUseError(f"--types {text!r} has an empty name", hint=LIST_HINT)
    if len({architecture_of(kind) for kind in types}) > 1:
        raise WrongUseError(f"--types {text!r}: x86_64 and arm64 cannot share one image", hint=LIST_HINT)
    return tuple(dict.fromkeys(types))


def _requirements(text: str) -> InstanceRequirements:
    try:
        found = Settings.from_mapping({"instance_requirements": text}, ("t3.small",)).instance_requirements
    except InvalidSettingsError as error:
        raise WrongUseError(f"--types: {error.problems[0]}", hint=OBJECT_HINT) from error
    assert found is not None
    return found


def _selection(target: Target, requirements: InstanceRequirements) -> tuple[str, ...]:
    """The types that EC2 selects; those of the shipped table that meet the requirements when it does not answer."""
    try:
        return types_of_ec2(target.client("ec2"), requirements)
    except (ClientError, BotoCoreError) as error:
        note(f"EC2 did not select types ({error}; your credentials need {LOOKUP_ACTION}): the shipped table decides")
    return tuple(matching_types(requirements, PriceList.shipped(target.services.settings.region).types))


def _types_for(requirements: InstanceRequirements, settings: Settings, market: Market) -> tuple[str, ...]:
    selected: Sequence[str] = market.selected.get(requirements, ()) or matching_types(requirements, market.prices.types)
    known = [kind for kind in selected if capacity(kind)]
    ordered = cheapest_first(known, settings.tariff(market.prices), settings.spot_percent)
    if not ordered:
        text = f"--types {written(requirements)}: no type with a known price in {market.prices.region} meets it"
        raise CommandError(text, hint="widen the ranges; node-fleet types shows why each type is excluded")
    return tuple(ordered[: requirements.max_types])
