"""Scenario files: what the simulator starts with, what load it gets, and what goes wrong when.

Frozen data only; `simulator.local_deployment` runs it. Every mistake in a file is listed at once, with line and key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from simulator.cluster.model import SimulatedCluster
from simulator.cluster.state import Clock
from simulator.cluster.workloads import pod_object
from simulator.scenario.model import EVENT_KEYS, BarePod, Event, Scenario, ScenarioError, WorkerGroup
from simulator.scenario.reading import ScenarioReader
from simulator.scenario.yaml_reading import Problem, Section, nearest

SCENARIO_DIRECTORY: Final = Path(__file__).parent

__all__ = [
    "EVENT_KEYS",
    "SCENARIO_DIRECTORY",
    "BarePod",
    "Event",
    "Scenario",
    "ScenarioError",
    "WorkerGroup",
    "build_cluster",
    "load_scenario",
    "parse_scenario",
    "scenario_names",
]


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
    problems: list[Problem] = []
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise ScenarioError(source, [Problem(line=line, key="(file)", message=f"is not YAML: {error}")]) from error
    if root is None:
        raise ScenarioError(source, [Problem(line=1, key="(file)", message="is empty")])
    section = Section(root, "", problems)
    if problems:
        raise ScenarioError(source, problems)
    scenario = ScenarioReader(section, directory).scenario()
    if problems:
        raise ScenarioError(source, problems)
    return scenario


def build_cluster(clock: Clock, scenario: Scenario) -> SimulatedCluster:
    """The scenario's cluster with its applications and pods; its machines come from whoever starts instances."""
    cluster = SimulatedCluster(clock, settings=scenario.cluster, boot_rules=scenario.boot_rules)
    with cluster.changing():
        for spec in scenario.applications:
            cluster.add_application(spec)
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
