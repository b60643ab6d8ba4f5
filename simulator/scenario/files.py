"""Reads scenario files and lists every mistake at once, each with its line, its key and what would be right.

The models say what a file may hold; here are the lines, the wording and the relations between keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from node_fleet.domain.model.errors import InvalidSettingsError
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.settings import Settings
from simulator.cluster.model import SimulatedCluster
from simulator.cluster.state import Clock
from simulator.cluster.workloads import pod_object
from simulator.scenario.model import EVENT_KEYS, REQUIRED_EVENT_KEYS, SETTING_NAMES, Scenario, by_field_name
from simulator.scenario.values import duration_seconds, nearest, unknown

SCENARIO_DIRECTORY: Final = Path(__file__).parent
EVENT_SPECIFIC_KEYS: Final = {key for keys in EVENT_KEYS.values() for key in keys}

Location = tuple[str | int, ...]
LONGEST_SHOWN = 60
"""Characters of a wrong value that a message quotes."""


@value_class
class Problem:
    """One mistake: the line it is on, the key it is under, and what would be right."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.message}"


class ScenarioError(ValueError):
    """A scenario file with mistakes: `problems` holds them all, the message lists them."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        lines = [f"{source} has {count_of(len(problems), 'mistake')}:"]
        super().__init__("\n  ".join([*lines, *map(str, self.problems)]))


def scenario_names() -> list[str]:
    """The names of the scenarios that are shipped."""
    return sorted(path.stem for path in SCENARIO_DIRECTORY.glob("*.yaml"))


def load_scenario(name_or_path: str | Path) -> Scenario:
    """A shipped scenario by name, or any file by path."""
    path = Path(name_or_path)
    if not path.suffix and not path.exists():
        path = SCENARIO_DIRECTORY / f"{name_or_path}.yaml"
    if not path.is_file():
        hint = nearest(str(name_or_path), scenario_names()) or f"; shipped: {', '.join(scenario_names())}"
        problem = Problem(line=1, key="(file)", message=f"there is no such scenario{hint}")
        raise ScenarioError(str(name_or_path), [problem])
    return parse_scenario(path.read_text(), source=path.name, directory=path.parent)


def parse_scenario(text: str, *, source: str = "scenario", directory: Path = SCENARIO_DIRECTORY) -> Scenario:
    """Read a scenario from text; `directory` is where its series files are looked for.

    Raises:
        ScenarioError: with every mistake of the text.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ScenarioError(source, [Problem(line=line, key="(file)", message=f"is not YAML: {error}")]) from error
    if root is None:
        raise ScenarioError(source, [Problem(line=1, key="(file)", message="is empty")])
    document = _Document(root)
    if isinstance(document.data, dict):
        document.data.pop("$schema", None)  # for editors
    try:
        scenario = Scenario.model_validate(
            document.data, context={"directory": directory}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        scenario = None
        for details in error.errors():
            document.add(*_worded(details))
    for location, message in _relations(document.data):
        document.add(location, message)
    if document.problems or scenario is None:
        raise ScenarioError(source, document.problems)
    return scenario


class _Document:
    """The plain values of a YAML file, the line of each key and item, and the mistakes found."""

    def __init__(self, root: yaml.Node) -> None:
        self.problems: list[Problem] = []
        self._lines: dict[Location, int] = {(): root.start_mark.line + 1}
        self.data = self._plain(root, ())

    def add(self, location: Location, message: str) -> None:
        """A mistake at a location; a key that is missing there counts as on the line of its mapping."""
        known = location
        while known not in self._lines:
            known = known[:-1]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
        self.problems.append(Problem(line=self._lines[known], key=key or "(file)", message=message))

    def _plain(self, node: yaml.Node, location: Location) -> Any:
        if isinstance(node, yaml.SequenceNode):
            for place, item in enumerate(node.value):
                self._lines[(*location, place)] = item.start_mark.line + 1
            return [self._plain(item, (*location, place)) for place, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return yaml.SafeLoader("").construct_object(node)
        values: dict[str, Any] = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            self._lines[(*location, key)] = key_node.start_mark.line + 1
            if key in values:
                self.add((*location, key), "is given twice")
            values[key] = self._plain(value, (*location, key))
        return values


def _worded(details: ErrorDetails) -> tuple[Location, str]:
    """The location and the message of one error of pydantic."""
    location, kind, value = details["loc"], details["type"], details["input"]
    context: dict[str, Any] = details.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys_of(location[:-1])
        return location, f"unknown key{nearest(str(location[-1]), known) or '; known: ' + ', '.join(known)}"
    found = f", found {_shown(value)}"
    messages = {
        "missing": "is missing",
        "literal_error": unknown(value, re.findall(r"'([^']+)'", str(context.get("expected")))),
        "value_error": str(context.get("error")),
        "string_type": f"expected text (quote true and numbers){found}",
        "string_pattern_mismatch": f"{value!r} does not match {context.get('pattern')}",
        "int_type": f"expected a whole number{found}",
        "float_type": f"expected a number{found}",
        "finite_number": f"expected a number{found}",
        "bool_type": f"expected true or false{found}",
        "greater_than_equal": f"expected {context.get('ge', 0):g} or more{found}",
        "less_than_equal": f"expected {context.get('le', 0):g} or less{found}",
        "tuple_type": f"expected a list{found}",
        "list_type": f"expected a list{found}",
        "too_short": f"expected at least one item{found}",
        "model_type": f"expected keys with values{found}",
        "model_attributes_type": f"expected keys with values{found}",
        "dict_type": f"expected keys with values{found}",
    }
    return location, messages.get(kind, f"{details['msg']}{found}")


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _keys_of(location: Location) -> list[str]:
    """The keys that the JSON Schema knows in the mapping at a location."""
    schema = Scenario.model_json_schema()

    def target(node: dict[str, Any]) -> dict[str, Any]:
        choices = [node, *node.get("anyOf", ())]
        name = next((one["$ref"] for one in choices if "$ref" in one), None)
        return schema["$defs"][name.rpartition("/")[2]] if name else node

    node = schema
    for part in location:
        node = target(node["items"] if isinstance(part, int) else node["properties"][part])
    return list(node["properties"])


def _relations(data: Any) -> Iterator[tuple[Location, str]]:
    """What contradicts what, whether or not the rest of the file is right."""
    if not isinstance(data, dict):
        return
    yield from _setting_problems(data.get("settings"))
    names = [f"{one.get('namespace', 'shop')}/{one.get('name')}" for _, one in _mappings(data, "applications")]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield ("applications",), f"{name} is given twice"
    end = _seconds(data.get("duration"))
    for place, event in _mappings(data, "events"):
        at = _seconds(event.get("at"))
        if at is not None and end is not None and at > end:
            yield ("events", place, "at"), f"is after the scenario's end at {end:g} s"
        keys = EVENT_KEYS.get(str(event.get("do")), tuple(event))
        taken = ", ".join(("at", "do", *keys))
        for key in event:
            if key in EVENT_SPECIFIC_KEYS and key not in keys:
                yield ("events", place, key), f"{event['do']} does not take this key; it takes {taken}"
        for key in keys:
            if key in REQUIRED_EVENT_KEYS and key not in event:
                yield ("events", place, key), "is missing"
        wanted = event.get("application")
        if isinstance(wanted, str) and wanted not in names:
            known = nearest(wanted, names) or f"; there are: {', '.join(names) or 'none'}"
            yield ("events", place, "application"), f"no application {wanted!r}{known}"


def _mappings(data: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    found = data.get(key)
    items = found if isinstance(found, list) else []
    return [(place, item) for place, item in enumerate(items) if isinstance(item, dict)]


def _seconds(value: Any) -> float | None:
    try:
        return duration_seconds(value)
    except ValueError:
        return None


def _setting_problems(given: Any) -> Iterator[tuple[Location, str]]:
    if not isinstance(given, dict):
        return
    other_names = SETTING_NAMES | {name: env for env, name in SETTING_NAMES.items()}
    try:
        Settings.from_mapping(by_field_name(given))
    except InvalidSettingsError as error:
        for message in error.problems:
            words = set(re.findall(r"\w+", message))
            key = next((key for key in given if {key, other_names.get(key)} & words), next(iter(given)))
            yield ("settings", key), message


def build_cluster(clock: Clock, scenario: Scenario) -> SimulatedCluster:
    """The scenario's cluster with its applications and pods, without machines."""
    rules = tuple(boot.rule() for boot in scenario.boot_rules)
    cluster = SimulatedCluster(clock, settings=scenario.cluster_settings(), boot_rules=rules)
    with cluster.changing():
        for application in scenario.applications:
            cluster.add_application(application.spec())
        for pod in scenario.pods:
            cluster.create(
                "pods",
                pod_object(
                    pod.name,
                    namespace=pod.namespace,
                    cpu_milli=pod.cpu_request_milli,
                    memory_mib=pod.memory_request_mib,
                    annotations=pod.annotations,
                ),
            )
    return cluster
