"""Records in cdk.context.json the instance types that EC2 selects for a cluster's instance_requirements.

The record is a change to review and commit. The next deployment gives its list to the functions.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from cdk_app.clusters import read_clusters
from cdk_app.config import ClusterConfig, ConfigurationError
from cdk_app.json_file import configuration_file
from cdk_app.recorded_types import RecordError, TypeRecord, read_records, write_record
from cli.live_prices import CurrentPrices, live_prices
from cli.output import CommandError
from cli.type_lookup import LOOKUP_ACTION, types_of_ec2
from node_fleet.domain.cost.type_choice import cheapest_first
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.instance_types import Architecture, capacity
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from node_fleet.settings.parsing import written

ANY_TYPE: dict[Architecture, str] = {"x86_64": "t3.small", "arm64": "t4g.small"}
"""Stands for the list while the other settings of the cluster are read, before EC2 is asked."""


@value_class
class Recording:
    """What was recorded where, the types of the earlier record, and what AWS did not answer."""

    record: TypeRecord
    path: Path
    earlier: tuple[str, ...]
    problems: tuple[str, ...]


def record_types(cluster_id: str, client_of: Callable[[str], Callable[..., Any]], now: float) -> Recording:
    """Ask EC2 for the types of the cluster and write the record. client_of: region -> the maker of clients.

    Raises:
        CommandError: cdk.json has no requirements for the cluster, EC2 does not answer, or no type is left.
    """
    path, entry = configuration_file(), _entry(cluster_id)
    requirements = Settings.requirements_of(entry.get("settings", {}))
    if requirements is None:
        hint = 'add it, such as {"vcpus": [2, 4], "memory_gib": [4, 16]}, and remove instance_types'
        raise CommandError(f"clusters[{cluster_id}].settings has no instance_requirements that can be read", hint=hint)
    day = f"{dt.datetime.fromtimestamp(now, tz=dt.UTC):%Y-%m-%d}"
    region = _region(entry)

    def recorded(types: tuple[str, ...]) -> TypeRecord:
        return TypeRecord(region=region, requirements=requirements, instance_types=types, asked_on=day)

    cluster = _checked(entry, recorded((ANY_TYPE[requirements.architecture],)))
    types, problems = _ask(cluster, requirements, client_of(region), now)
    record = recorded(types)
    _checked(entry, record)
    try:
        earlier = read_records(path).get(cluster_id, {}).get("instance_types", ())
        written_to = write_record(path, cluster_id, record)
    except (RecordError, OSError, AttributeError) as error:
        raise CommandError(f"the record cannot be written: {error}", hint="correct or remove the file") from error
    return Recording(record=record, path=written_to, earlier=tuple(earlier), problems=problems)


def _entry(cluster_id: str) -> dict[str, Any]:
    """The cluster in cdk.json as it is written there."""
    path = configuration_file()
    try:
        clusters = json.loads(path.read_text(encoding="utf-8"))["context"]["clusters"]
        return next(one for one in clusters if one["cluster_id"] == cluster_id)
    except StopIteration:
        hint = "give --cluster with one of its cluster ids"
        raise CommandError(f"{path} has no cluster {cluster_id}", hint=hint) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} has no list context.clusters ({type(error).__name__})") from error


def _region(entry: dict[str, Any]) -> str:
    return str(entry.get("region", ClusterConfig.model_fields["region"].default))


def _checked(entry: dict[str, Any], record: TypeRecord) -> ClusterConfig:
    """The cluster with that record. Raises CommandError, which lists every mistake."""
    try:
        return read_clusters([entry], {entry["cluster_id"]: record.as_data()})[0]
    except ConfigurationError as error:
        raise CommandError(str(error), hint="correct cdk.json; nothing was recorded") from error


def _ask(
    cluster: ClusterConfig, requirements: InstanceRequirements, client: Callable[..., Any], now: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The cheapest types that EC2 selects, of known size and price, and what AWS did not answer."""
    try:
        selected = types_of_ec2(client("ec2"), requirements)
    except (BotoCoreError, ClientError) as error:
        hint = f"your credentials need {LOOKUP_ACTION}; nothing was recorded"
        raise CommandError(
            f"EC2 does not answer the requirements of {cluster.cluster_id}: {error}", hint=hint
        ) from error
    current: CurrentPrices = live_prices(client, cluster.region, filter(capacity, selected), cluster.zones, now)
    tariff = cluster.settings.tariff(current.prices)
    ordered = cheapest_first(filter(capacity, selected), tariff, cluster.settings.spot_percent)
    if not ordered:
        named = f"{len(selected)} types, of which none has a size and prices that node-fleet knows"
        raise CommandError(
            f"instance_requirements={written(requirements)}: EC2 in {cluster.region} selects "
            f"{named if selected else 'no type'}",
            hint="widen the ranges or exclude less; node-fleet types shows why each type is excluded",
        )
    return tuple(ordered[: requirements.max_types]), current.problems
