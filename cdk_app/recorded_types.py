"""The instance types that EC2 selected for instance_requirements, recorded in cdk.context.json for review.

The record makes the deployed list explicit: it changes only when `node-fleet types --record` runs again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdk_app.json_file import JsonFileError, read_json
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings.parsing import given_requirements

CONTEXT_KEY = "node-fleet:instance-types"
FILE_NAME = "cdk.context.json"
"""Where the CDK keeps answers of AWS that a synthesis uses, for version control."""


class RecordError(ValueError):
    """The record of a cluster cannot be used; the text says why."""


@value_class
class TypeRecord:
    """The types of one cluster, cheapest first, and the requirements and the region for which EC2 named them.

    asked_on: the day, as an ISO date.
    """

    region: str
    requirements: InstanceRequirements
    instance_types: tuple[str, ...]
    asked_on: str

    def as_data(self) -> dict[str, Any]:
        """The record for cdk.context.json."""
        return {
            "region": self.region,
            "requirements": given_requirements(self.requirements),
            "instance_types": list(self.instance_types),
            "asked_on": self.asked_on,
        }


def recorded_types(records: Any, cluster_id: str, region: str, requirements: InstanceRequirements) -> tuple[str, ...]:
    """The recorded types of the cluster; none without a record.

    Raises:
        RecordError: the record is damaged, or EC2 was asked for other requirements or another region.
    """
    record = records.get(cluster_id) if isinstance(records, Mapping) else None
    if record is None:
        return ()
    again = f"run node-fleet types --record --cluster {cluster_id}, and review {FILE_NAME}"
    types = record.get("instance_types") if isinstance(record, Mapping) else None
    if not isinstance(types, list) or not types or not all(isinstance(one, str) for one in types):
        raise RecordError(f"the record of {cluster_id} in {FILE_NAME} has no list instance_types: {again}")
    asked, wanted = (record.get("region"), record.get("requirements")), (region, given_requirements(requirements))
    if asked != wanted:
        raise RecordError(
            f"{FILE_NAME} has the types for {json.dumps(asked[1])} in {asked[0]}, and cdk.json requires "
            f"{json.dumps(wanted[1])} in {region}: {again}"
        )
    return tuple(types)


def context_file(configuration: Path) -> Path:
    """The file of the record, beside that cdk.json."""
    return configuration.with_name(FILE_NAME)


def read_records(configuration: Path) -> Any:
    """The records beside that cdk.json; empty without them.

    Raises:
        RecordError: the file is not a JSON object.
    """
    return _context(context_file(configuration)).get(CONTEXT_KEY, {})


def write_record(configuration: Path, cluster_id: str, record: TypeRecord) -> Path:
    """Add the record to the file, and keep everything else in it. Returns the file."""
    path = context_file(configuration)
    context = _context(path)
    records = context.get(CONTEXT_KEY)
    context[CONTEXT_KEY] = {**(records if isinstance(records, dict) else {}), cluster_id: record.as_data()}
    path.write_text(json.dumps(context, indent=2) + "\n", encoding="utf-8")
    return path


def _context(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = read_json(path)
    except JsonFileError as error:
        raise RecordError(str(error)) from error
    if not isinstance(found, dict):
        raise RecordError(f"{path} is not a JSON object")
    return found
