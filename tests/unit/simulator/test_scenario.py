"""Scenario files: what they may contain, and the message for every mistake."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from node_fleet.settings import Settings
from simulator.clock import VirtualClock
from simulator.scenario.files import (
    ScenarioError,
    build_cluster,
    load_scenario,
    parse_scenario,
    scenario_names,
)
from simulator.scenario.model import EVENT_KEYS
from simulator.simulation import Simulation, synthesised_template

SHIPPED = {
    "flash-sale",
    "spot-storm",
    "timed-capacity",
    "money-limit",
    "dry-pool",
    "quota",
    "slow-boot",
    "never-joins",
    "prometheus-dies-mid-join",
    "quiet-night",
    "blocked-everywhere",
    "drain-times-out",
    "server-unreachable",
    "load-returns-mid-drain",
    "day-and-night",
    "image-rollout",
    "image-rollout-bad",
    "expiry-storm",
    "k3s-upgrade",
    "k3s-rollback",
    "impaired-workers",
    "single-replicas",
    "noisy-pool",
    "images-ready",
    "off-at-night",
    "standby",
}
SMALLEST = "name: small\ndescription: one worker\nduration: 10m\nworkers:\n  - {count: 1}\n"


def mistakes(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    return [str(problem) for problem in caught.value.problems]


def only_mistake(text: str) -> str:
    (found,) = mistakes(text)
    return found


@pytest.mark.parametrize("name", sorted(SHIPPED | set(scenario_names())))
def test_a_shipped_scenario_reads_and_bears_its_files_name(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert Settings.from_mapping(scenario.settings).max_workers >= scenario.worker_count


@pytest.mark.parametrize("name", sorted(SHIPPED - {"blocked-everywhere"}))
def test_the_start_workers_of_a_shipped_scenario_hold_its_first_pods(name: str) -> None:
    scenario = load_scenario(name)
    clock = VirtualClock(scenario.start_at)
    cluster = build_cluster(clock, scenario)
    cluster.add_server("i-server", scenario.azs[0])
    for place in range(scenario.worker_count):
        cluster.add_worker(f"i-{place}", instance_type=scenario.workers[0].instance_type)
    clock.advance(60)
    assert cluster.truth().unschedulable_pods == 0
    assert cluster.truth().pending_pods == 0


def test_the_smallest_scenario_has_sound_defaults() -> None:
    scenario = parse_scenario(SMALLEST)
    assert scenario.duration_seconds == 600
    assert (scenario.workers[0].instance_type, scenario.workers[0].market) == ("t3.small", "on-demand")
    assert scenario.azs == ("ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c")
    assert (scenario.events, scenario.applications, scenario.boot_rules) == ((), (), ())


def test_every_event_can_be_written_with_all_its_keys() -> None:
    values = {
        "for": "5m", "workers": "1", "share_percent": "50", "notice": "2m", "az": "ap-southeast-1a", "how": "kubelet",
        "instance_type": "t3.small", "market": "spot", "kind": "spot", "limit": "4", "call": "RunInstances",
        "reason": "maintenance", "application": "shop/web", "load": "{constant: 3}", "image": "ami-new",
        "k3s": "v1.36.2+k3s1",
            "check": "system", "reboot": "fails",
    }  # fmt: skip
    lines = [
        f"  - {{at: 1m, do: {action}{''.join(f', {key}: {values[key]}' for key in keys)}}}"
        for action, keys in EVENT_KEYS.items()
    ]
    text = f"{SMALLEST}applications:\n  - {{name: web}}\nevents:\n" + "\n".join(lines)
    assert [event.action for event in parse_scenario(text).events] == list(EVENT_KEYS)


def test_events_are_in_the_order_of_time() -> None:
    text = f"{SMALLEST}events:\n  - {{at: 5m, do: api_up}}\n  - {{at: 3m, do: api_down}}\n"
    assert [event.action for event in parse_scenario(text).events] == ["api_down", "api_up"]


def test_all_mistakes_are_told_at_once_with_line_and_key() -> None:
    text = """\
name: small
duraton: 10m
description: 3
workers:
  - {count: 0, instance_type: t3.smal}
applications:
  - name: web
    replicas: many
    budget: {min_available: 200%}
events:
  - {at: soon, do: quota}
"""
    assert mistakes(text) == [
        "line 1: duration: is missing",
        "line 2: duraton: unknown key; did you mean duration?",
        "line 3: description: expected text (quote true and numbers), found 3",
        "line 5: workers[0].count: expected 1 or more, found 0",
        "line 5: workers[0].instance_type: 't3.smal' is not known; did you mean t3.small?",
        "line 8: applications[0].replicas: expected a whole number, found 'many'",
        "line 9: applications[0].budget.min_available: expected a count or a share such as 50%, found '200%'",
        "line 11: events[0].at: expected a time such as 90s, 45m or 24h, found 'soon'",
        "line 11: events[0].limit: is missing",
    ]


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("settings: {max_worker: 3}", "line 6: settings.max_worker: max_worker is not a setting"),
        ("settings: {max_workers: 0}", "line 6: settings.max_workers: max_workers=0: expected 1 to 1000"),
        ("settings: {MAX_NODES: 0}", "line 6: settings.MAX_NODES: max_workers=0: expected 1 to 1000"),
        ("boot: [{kind: slwo}]", "boot[0].kind: 'slwo' is not known; did you mean slow?"),
        ("events: [{at: 1m, do: prometheus_dwn}]", "'prometheus_dwn' is not known; did you mean prometheus_down?"),
        ("events: [{at: 11m, do: api_down}]", "events[0].at: is after the scenario's end at 600 s"),
        ("events: [{at: 1m, do: resume, reason: x}]", "reason: resume does not take this key; it takes at, do"),
        ("events: [{at: 1m, do: pause}]", "events[0].reason: is missing"),
        ("events: [{at: 1m, do: load, application: shop/weeb, load: {constant: 1}}]", "no application 'shop/weeb'"),
        ("applications: [{name: a}, {name: a}]", "line 6: applications: shop/a is given twice"),
        ("applications: [{name: a, load: {constnt: 1}}]", "did you mean constant?"),
        ("applications: [{name: a, load: {linear: [[5m, 1], [2m, 3]]}}]", "the times of a curve's points must grow"),
        ("applications: [{name: a, load: {steps: [5m]}}]", "expected a pair of time and requests per second"),
        ("applications: [{name: a, load: {series: {file: none.csv}}}]", "there is no file"),
        ("applications: [{name: a, budget: {min_available: 1, max_unavailable: 1}}]", "expected exactly one of"),
        ("applications: [{name: a, autoscale: {min: 5, max: 2}}]", "autoscale.max: expected 5 to 10000, found 2"),
        ("applications: [{name: a, annotations: {x: true}}]", "annotations.x: expected text (quote true and numbers)"),
        ("workers: [{count: 1}]", "line 6: workers: is given twice"),
        ("start: 2026-06-01", "start: expected a time"),
        ("cluster: {boot: fast}", "cluster.boot: expected a time such as 90s, 45m or 24h, found 'fast'"),
        ("boot: [{kind: slow, instance_type: t3.tiny}]", "boot[0].instance_type: 't3.tiny' is not known"),
        ("pods: {name: x}", "pods: expected a list, found a mapping"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_line_the_key_and_what_would_be_right(addition: str, message: str) -> None:
    assert message in only_mistake(f"{SMALLEST}{addition}\n")


def test_what_is_not_yaml_is_told_with_its_line() -> None:
    assert only_mistake("name: [a\nduration: 3").startswith("line 2: (file): is not YAML")
    assert only_mistake("") == "line 1: (file): is empty"
    assert only_mistake("- a\n") == "line 1: (file): expected keys with values, found a list"
    assert only_mistake("time,value\n" * 900).endswith(" time,value time...")


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"did you mean flash-sale\?"):
        load_scenario("flash-sail")


def test_a_file_of_ones_own_reads_its_series_beside_it(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("7\n9\n")
    path = tmp_path / "mine.yaml"
    path.write_text(f"{SMALLEST}applications:\n  - {{name: a, load: {{series: {{file: load.csv, scale: 2}}}}}}\n")
    curve = load_scenario(path).applications[0].spec().curve
    assert [curve(0), curve(60)] == [14, 18]


def test_a_simulator_loads_no_part_of_the_deployment_that_it_does_not_use() -> None:
    """The models of cdk.json and the CDK would take 20 MiB and more of every simulation."""
    loaded = "import simulator.simulation, cdk_app.synth, sys; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    assert not {"cdk_app.clusters", "cdk_app.config", "aws_cdk", "handlers"} & set(modules)


@pytest.mark.parametrize(
    ("before", "inside"),
    [((700, 10, 10), (3_000, 10, 10)), ((100_000, 5, 100), (100_000, 10, 100))],
    ids=["as Python does", "seldom already"],
)
def test_a_simulation_collects_objects_seldom_until_it_ends(
    before: tuple[int, int, int], inside: tuple[int, int, int]
) -> None:
    outer = gc.get_threshold()
    gc.set_threshold(*before)
    try:
        with Simulation(parse_scenario(SMALLEST), template=synthesised_template()):
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == before
    finally:
        gc.set_threshold(*outer)
