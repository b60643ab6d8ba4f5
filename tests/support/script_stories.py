"""Stories of the shipped scripts that are compared between the simulated cluster and a real one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.cluster.kubectl.fake import CommandResult
from simulator.cluster.load.applications import ApplicationSpec
from tests.support.clusters import AnyCluster, nodes_of, pods_of
from tests.support.shipped_scripts import script

TARGET = "i-0a1b2c3d4e5f60718"
Step = tuple[str, dict[str, str]]

DRAIN: Step = ("drain_node", {"OPERATION_ID": "op-1", "DRAIN_TIMEOUT_SECONDS": "40", "NOT_AFTER": "{now+60}"})
LONG_DRAIN: Step = ("drain_node", {**DRAIN[1], "DRAIN_TIMEOUT_SECONDS": "150"})
LATE: Step = ("drain_node", {**DRAIN[1], "NOT_AFTER": "{now-60}"})
DEADLINE: Step = ("drain_node", {**DRAIN[1], "DRAIN_TIMEOUT_SECONDS": "30", "DRAIN_MODE": "deadline"})
CHECK: Step = ("check_node", {})
INSPECT: Step = ("inspect_nodes", {})
UNCORDON: Step = ("uncordon_node", {"OPERATION_ID": "op-1"})
UNCORDON_OTHER: Step = ("uncordon_node", {"OPERATION_ID": "op-2"})
FORGET: Step = ("forget_node", {"INSTANCE_ID": TARGET})
OTHER_INSTANCE: Step = ("forget_node", {"INSTANCE_ID": "i-0fffffffffffffff"})


@dataclass(frozen=True, kw_only=True)
class Story:
    """Scripts that run one after the other on a cluster with two workers."""

    name: str
    setup: Callable[[AnyCluster], None]
    steps: tuple[Step, ...]


def app(cluster: AnyCluster, name: str, **fields: Any) -> None:
    spec = {"cpu_request_milli": 50, "memory_request_mib": 16, "shutdown_seconds": 1.0, "start_seconds": 1.0}
    cluster.add_application(ApplicationSpec(name=name, **{**spec, **fields}))


def on_target(**fields: Any) -> Callable[[AnyCluster], None]:
    """The application's pods start on the worker that the story drains."""

    def setup(cluster: AnyCluster) -> None:
        cluster.cordon(OTHER)
        app(cluster, "web", **{"replicas": 3, **fields})
        cluster.settle()
        cluster.uncordon(OTHER)

    return setup


OTHER = "i-0bbbbbbbbbbbbbbbb"


def blocked(cluster: AnyCluster) -> None:
    cluster.cordon(OTHER)
    app(cluster, "db", kind="StatefulSet", replicas=2, volume="local-path")
    cluster.settle()
    cluster.uncordon(OTHER)


def cordoned_by_a_person(cluster: AnyCluster) -> None:
    on_target()(cluster)
    cluster.cordon(TARGET)


def under_two_budgets(cluster: AnyCluster) -> None:
    on_target(max_unavailable=1)(cluster)
    cluster.add_budget("second", namespace="shop", labels={"app": "web"}, max_unavailable=1)


def single_replica(cluster: AnyCluster) -> None:
    """Its second pod takes longer to start than the limit of a request to the API."""
    on_target(replicas=1, min_available=1, restart_before_drain=True, start_seconds=18.0)(cluster)


def single_replica_without_a_place(cluster: AnyCluster) -> None:
    on_target(replicas=1, restart_before_drain=True)(cluster)
    cluster.cordon(OTHER)


STORIES = (
    Story(name="inspect, drain, check", setup=on_target(), steps=(INSPECT, DRAIN, CHECK)),
    Story(name="drain past a budget", setup=on_target(max_unavailable=1), steps=(DRAIN, CHECK)),
    Story(name="drain twice, then uncordon", setup=on_target(), steps=(DRAIN, DRAIN, UNCORDON, CHECK)),
    Story(name="too late", setup=on_target(), steps=(LATE, CHECK)),
    Story(name="an only replica moves without downtime", setup=single_replica, steps=(INSPECT, LONG_DRAIN, CHECK)),
    Story(name="no second pod", setup=single_replica_without_a_place, steps=(DRAIN, CHECK, DRAIN, UNCORDON, CHECK)),
    Story(name="blocked", setup=blocked, steps=(DRAIN, CHECK, UNCORDON)),
    Story(name="blocked by two budgets", setup=under_two_budgets, steps=(INSPECT, DRAIN, UNCORDON, CHECK)),
    Story(name="before a deadline budgets give way", setup=on_target(max_unavailable=0), steps=(DEADLINE, CHECK)),
    Story(name="a person's cordon stays", setup=cordoned_by_a_person, steps=(DRAIN, UNCORDON, CHECK)),
    Story(name="only the operation's own cordon is removed", setup=on_target(), steps=(DRAIN, UNCORDON_OTHER, CHECK)),
    Story(name="a ready node is not forgotten", setup=on_target(), steps=(DRAIN, FORGET, OTHER_INSTANCE, CHECK)),
)


def prepare_story(story: Story, cluster: AnyCluster) -> None:
    cluster.add_server("i-0aaaaaaaaaaaaaaaa", "eu-west-1a")
    cluster.add_worker(OTHER, az="eu-west-1a")
    cluster.add_worker(TARGET, az="eu-west-1a")
    story.setup(cluster)
    cluster.settle()


def variables_of(step: Step, now: float) -> dict[str, str]:
    times = {"{now+60}": str(int(now) + 60), "{now-60}": str(int(now) - 60)}
    return {"NODE_NAME": TARGET, **{name: times.get(value, value) for name, value in step[1].items()}}


def ending_of(ended: CommandResult) -> list[Any]:
    """The exit and the last line, which the workflow reads, without times and generated names; without a checksum."""
    last = re.sub(r"\b\d{10}\b", "TIME", (ended.stdout.splitlines() or [""])[-1])
    last = re.sub(r"within \d+ s", "within N s", last)
    last = re.sub(r"-[0-9a-f]{8,10}-[a-z0-9]{5}\b", "-POD", last)
    return [ended.exit_code, " ".join(last.split()[:2]) if last.startswith("end ") else last]


def story_record(story: Story, cluster: AnyCluster) -> dict[str, Any]:
    """Run the story; how its scripts end, and the cluster afterwards."""
    prepare_story(story, cluster)
    ended = [cluster.script(script(step[0]), variables_of(step, cluster.now())) for step in story.steps]
    cluster.wait(5)
    return story_state(ended, cluster)


def story_state(ended: list[CommandResult], cluster: AnyCluster) -> dict[str, Any]:
    marks = ("node-fleet.io/cordoned-by", "node-fleet.io/undone")
    nodes = [[*node[:2], [mark for mark in node[3] if mark[0] in marks]] for node in nodes_of(cluster)]
    return {"steps": [ending_of(one) for one in ended], "nodes": nodes, "pods": pods_of(cluster)}
