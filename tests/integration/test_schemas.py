"""The JSON Schemas for editors, judged by an independent validator: they follow the code, accept what node-fleet
accepts, and mark the mistakes that node-fleet would refuse.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar

import pytest
import yaml
from jsonschema import Draft202012Validator

from cdk_app.clusters import read_clusters
from cdk_app.config import ConfigurationError
from cdk_app.workflow import ROOT
from node_fleet.settings import Settings, spec_of
from simulator.scenario.files import SCENARIO_DIRECTORY, ScenarioError, parse_scenario
from tools.schemas import FOLDER, schemas

MADE = schemas()
CDK = Draft202012Validator(json.loads(MADE["cdk.schema.json"]))
SCENARIO = Draft202012Validator(json.loads(MADE["scenario.schema.json"]))
ATTACHED = json.loads((ROOT / "cdk_app/attach.example.json").read_text(encoding="utf-8"))["clusters"][0]


class EditorLoader(yaml.SafeLoader):
    """YAML as editors read it: a time is text."""

    yaml_implicit_resolvers: ClassVar = {
        letter: [(tag, rule) for tag, rule in rules if not tag.endswith("timestamp")]
        for letter, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def app(*clusters: dict[str, Any]) -> dict[str, Any]:
    return {"app": "python -m cdk_app.app", "context": {"clusters": list(clusters)}}


def cluster(**more: Any) -> dict[str, Any]:
    return {"cluster_id": "shop", **more}


def scenario(**more: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((SCENARIO_DIRECTORY / "quiet-night.yaml").read_text(encoding="utf-8"))
    return {**found, **more}


@pytest.mark.parametrize("name", MADE)
def test_the_files_are_up_to_date(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == MADE[name], "run: PYTHONPATH=.:functions .venv/bin/python -m tools.schemas"


@pytest.mark.parametrize("validator", [CDK, SCENARIO], ids=["cdk", "scenario"])
def test_they_are_json_schemas(validator: Draft202012Validator) -> None:
    assert list(Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(validator.schema)) == []


def test_every_setting_has_a_type_and_a_meaning_for_the_editor() -> None:
    properties = SCENARIO.schema["$defs"]["Settings"]["properties"]
    for field in dataclasses.fields(Settings):
        found = properties[field.name]
        assert found["description"], field.name
        assert "type" in found or "enum" in found, field.name
        spec = spec_of(field)
        if spec.low is not None:
            assert (found["minimum"], found["maximum"]) == (spec.low, spec.high)


def test_the_shipped_cdk_json_names_its_schema_and_follows_it() -> None:
    shipped = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))
    assert (ROOT / shipped["$schema"]).resolve() == FOLDER / "cdk.schema.json"
    assert list(CDK.iter_errors(shipped)) == []


@pytest.mark.parametrize("path", sorted(SCENARIO_DIRECTORY.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_scenarios_name_their_schema_and_follow_it(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    first = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    wanted = "# yaml-language-server: $schema=../../docs/schemas/scenario.schema.json"
    assert (path.parent / first).resolve() == FOLDER / "scenario.schema.json", f"the first line is not: {wanted}"
    assert list(SCENARIO.iter_errors(yaml.load(text, EditorLoader))) == []


ACCEPTED = [
    cluster(),
    ATTACHED,
    cluster(mode="new", network={"zones": ["a", "b", "c"]}, server={"volume_gib": 16}),
    cluster(settings={"min_workers": 0, "spot_percent": 100, "instance_types": ["t3.small"], "drift": "report"}),
    cluster(settings={"custom_metrics": [{"name": "jobs", "query": "sum(jobs)", "high": 10, "low": 2}]}),
    cluster(settings={"disruption_budgets": [{"nodes": "20%", "reasons": ["idle"]}]}),
    cluster(settings={"instance_requirements": {"vcpus": [2, 4], "memory_gib": [4, 16]}}),
    cluster(settings={"headroom_pods": {"count": 3, "cpu_milli": 500, "memory_mib": 512}}),
    cluster(settings={"schedules": "Mon-Fri 08:00-18:00: 4", "removal_windows": []}),
]


@pytest.mark.parametrize("given", ACCEPTED, ids=range(len(ACCEPTED)))
def test_what_node_fleet_accepts_has_no_mark(given: dict[str, Any]) -> None:
    assert [error.message for error in CDK.iter_errors(app(given))] == []
    read_clusters([given])


REFUSED = [
    (cluster(cluster_id="Shop"), "cluster_id"),
    (cluster(regoin="x"), ""),
    (cluster(mode="both"), "mode"),
    (cluster(mode="attach"), ""),
    ({**ATTACHED, "network": {}}, "network"),
    (cluster(mode="new", attach=ATTACHED["attach"]), "attach"),
    (cluster(attach=ATTACHED["attach"]), "attach"),
    (cluster(server={"volume_gib": 1}), "volume_gib"),
    (cluster(settings={"min_workres": 2}), "settings"),
    (cluster(settings={"min_workers": 1001}), "min_workers"),
    (cluster(settings={"min_workers": "two"}), "min_workers"),
    (cluster(settings={"strategy": "guess"}), "strategy"),
    (cluster(settings={"region": "eu-west-1"}), "settings"),
    (cluster(settings={"custom_metrics": [{"name": "jobs"}]}), "custom_metrics"),
    (cluster(settings={"headroom_pods": {"count": 3}}), "headroom_pods"),
]


@pytest.mark.parametrize(("given", "place"), REFUSED, ids=range(len(REFUSED)))
def test_a_mistake_that_node_fleet_refuses_is_marked_at_its_place(given: dict[str, Any], place: str) -> None:
    marked = [error.absolute_path for error in CDK.iter_errors(app(given))]
    assert marked
    assert not place or any(place in map(str, path) for path in marked)
    with pytest.raises(ConfigurationError):
        read_clusters([given])


@pytest.mark.parametrize(
    "more",
    [{"settings": {"min_workers": 5000}}, {"settings": {"min_workres": 1}}, {"workers": "two"}, {"unknown": 1}],
    ids=["range", "name", "type", "key"],
)
def test_a_mistake_in_a_scenario_is_marked(more: dict[str, Any]) -> None:
    assert list(SCENARIO.iter_errors(scenario(**more)))
    with pytest.raises(ScenarioError):
        parse_scenario(yaml.safe_dump(scenario(**more)))


def test_a_scenario_may_name_its_schema_and_settings_by_their_environment_names() -> None:
    given = scenario(settings={"MIN_NODES": 2})
    assert list(SCENARIO.iter_errors(given)) == []
    assert parse_scenario(yaml.safe_dump({"$schema": "scenario.schema.json", **given})).settings == {"min_workers": 2}
