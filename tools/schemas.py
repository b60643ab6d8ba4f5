"""The JSON Schemas of cdk.json and of scenario files, made from the classes that read them: completion in editors.

`python -m tools.schemas` writes them to docs/schemas; a test fails while they are out of date. A schema accepts a value
in its plain type. node-fleet also reads texts ("5", "a,b") and checks what a schema cannot, such as min_workers above
max_workers.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

from cdk_app.clusters import FOREIGN_SECTIONS, SET_BY_DEPLOYMENT
from cdk_app.config import ClusterConfig
from cdk_app.workflow import ROOT
from node_fleet.domain.model.budget import REASONS
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.custom_metric import CustomMetric
from node_fleet.domain.model.instance_requirements import InstanceRequirements
from node_fleet.settings import Settings, spec_of
from simulator.scenario.model import Scenario
from tools.generate_docs import meanings_of

Json = dict[str, Any]
FOLDER = ROOT / "docs" / "schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Json = {"type": "string"}
TEXTS: Json = {"type": ["array", "string"], "items": TEXT}
WINDOWS: Json = {"type": ["array", "string"], "items": {"type": ["string", "object"]}}
BUDGET: Json = {
    "type": "object",
    "required": ["nodes"],
    "properties": {
        "nodes": {"type": ["string", "integer"], "description": 'a number such as 2, or a share such as "20%"'},
        "reasons": {"type": "array", "items": {"enum": list(REASONS)}},
        "schedule": {**TEXT, "description": "cron times at which the budget begins, for its duration"},
        "duration": {"description": "for how long, such as 8h"},
        "timezone": {**TEXT, "description": "an IANA zone such as Asia/Bangkok"},
    },
}
SCALARS = {"int": "integer", "float": "number", "bool": "boolean", "str": "string"}
PLAIN = {int: "integer", float: "number", bool: "boolean", str: "string"}


def schemas() -> dict[str, str]:
    """File name and text of each schema."""
    made = {"cdk.schema.json": cdk_schema(), "scenario.schema.json": scenario_schema()}
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in made.items()}


def cdk_schema() -> Json:
    """cdk.json: the clusters are checked, the other keys of the CDK are free."""
    cluster = ClusterConfig.model_json_schema()
    definitions = cluster.pop("$defs")
    cluster["required"].remove("settings")
    cluster["properties"]["settings"] = {"$ref": "#/$defs/Settings"}
    cluster["allOf"] = [_mode("attach", requires=["attach"]), _mode("new", requires=[])]
    settings = settings_schema(without={*SET_BY_DEPLOYMENT})
    clusters = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/Cluster"}}
    return {
        "$schema": DRAFT,
        "title": "cdk.json of node-fleet",
        "type": "object",
        "required": ["app", "context"],
        "properties": {
            "$schema": TEXT,
            "app": TEXT,
            "context": {"type": "object", "required": ["clusters"], "properties": {"clusters": clusters}},
        },
        "$defs": {**definitions, "Cluster": cluster, "Settings": settings},
    }


def scenario_schema() -> Json:
    """A scenario file; its settings may also have the names of the environment."""
    schema = Scenario.model_json_schema()
    settings = settings_schema(without=set())
    settings["patternProperties"] = {"^[A-Z][A-Z0-9_]*$": {}}
    schema["properties"] = {**schema["properties"], "settings": {"$ref": "#/$defs/Settings"}}
    return {"$schema": DRAFT, **schema, "$defs": {**schema["$defs"], "Settings": settings}}


def settings_schema(without: set[str]) -> Json:
    """Every setting with type, range, default and meaning; earlier names are marked as deprecated."""
    meanings: dict[str, str] = {}
    for group in Settings.__mro__:
        meanings = {**meanings_of(group), **meanings} if dataclasses.is_dataclass(group) else meanings
    properties: Json = {}
    for field in dataclasses.fields(Settings):
        if field.name not in without:
            properties[field.name] = {**_type_of(field), "description": meanings.get(field.name, "")}
            if old := spec_of(field).old_env:
                properties[old.lower()] = {"deprecated": True, "description": f"Earlier name of {field.name}."}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _mode(mode: str, *, requires: list[str]) -> Json:
    """In that mode some sections are missing and others required."""
    foreign: Json = {name: {"not": {}} for name in FOREIGN_SECTIONS[mode]}
    condition: Json = {"properties": {"mode": {"const": mode}}}
    if mode != "new":  # the default
        condition["required"] = ["mode"]
    return {"if": condition, "then": {"properties": foreign, "required": requires}}


def _type_of(field: dataclasses.Field[Any]) -> Json:
    """Type, range and default of one setting."""
    structured: dict[str, Json] = {
        "custom_metrics": {"type": ["array", "string"], "items": _rows(CustomMetric)},
        "disruption_budgets": {"type": ["array", "string"], "items": BUDGET},
        "removal_windows": WINDOWS,
        "hibernate": WINDOWS,
        "schedules": WINDOWS,
        "instance_requirements": {**_rows(InstanceRequirements), "required": ["vcpus", "memory_gib"]},
        "headroom_pods": _rows(HeadroomPods),
        "subnets": {"type": ["array", "object", "string"]},
    }
    if field.name in structured:
        return structured[field.name]
    spec, kind = spec_of(field), SCALARS.get(str(field.type))
    if str(field.type) == "tuple[str, ...]":
        return {**TEXTS, "default": list(field.default)} if isinstance(field.default, tuple) else TEXTS
    found: Json = {"type": kind or "string", "default": field.default}
    if spec.choices:
        found["enum"] = [*spec.choices, *spec.old_choices]
    if spec.low is not None:
        found |= {"minimum": spec.low, "maximum": spec.high}
    return found


def _rows(kind: type) -> Json:
    """An object with the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    properties = {field.name: _plain(hints[field.name]) for field in dataclasses.fields(kind)}
    required = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _plain(hint: Any) -> Json:
    if typing.get_origin(hint) is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) in (tuple, list):
        return {}
    return {"type": PLAIN[hint]}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
