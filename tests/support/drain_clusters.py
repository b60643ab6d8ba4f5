"""Random clusters, and one removal as the workflow does it: inspect, choose, drain, terminate, forget."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from node_fleet.domain.model.drain_limits import DrainLimits
from node_fleet.domain.model.operation import Target
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.drain import CommandResult, judge_check, judge_drain
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import parse_inspection, parse_node_check
from node_fleet.domain.scale_down.selection import choose
from simulator.cluster.load.applications import ApplicationSpec
from simulator.cluster.workloads import pod_object
from tests.support.clusters import AnyCluster
from tests.support.shipped_scripts import script

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
ZONES = ("eu-west-1a", "eu-west-1b")
OPERATION_ID = "down-1-1"
LIMITS = DrainLimits(drain_seconds=300, delivery_seconds=30)


@dataclass(frozen=True)
class Plan:
    """A random cluster as data: hypothesis shrinks it, and its text says what failed."""

    workers: int
    applications: tuple[ApplicationSpec, ...]
    bare_pods: tuple[str | None, ...]
    second_budget: bool


Shell = Callable[[str, dict[str, str]], tuple[int, str, str]]
Mutation = Callable[[str, str], str]


TIGHT: list[dict[str, Any]] = [{"max_unavailable": 1}, {"min_available": "75%"}, {"min_available": 3}]
LOOSE: list[dict[str, Any]] = [{}, {"min_available": 1}, {"min_available": "50%"}, {"max_unavailable": "25%"}]
CLOSED: list[dict[str, Any]] = [{"max_unavailable": 0}, {"min_available": "100%"}]


BLOCKING: list[dict[str, Any]] = [
    {"kind": "StatefulSet", "replicas": 1},
    {"kind": "StatefulSet", "replicas": 2, "volume": "local-path"},
    {"replicas": 1},
    {"replicas": 1, "volume": "local-path", "annotations": {SAFE: "true"}},
    {"replicas": 2, "annotations": {SAFE: "false"}},
    *({"replicas": 2, **budget} for budget in CLOSED),
]


def times(dice: random.Random, quick: bool) -> dict[str, Any]:
    """How long pods take to stop and start; quick for clusters in real time."""
    if quick:
        return {"grace_seconds": 30, "shutdown_seconds": 1.0, "start_seconds": 1.0}
    return {
        "grace_seconds": dice.choice([10, 60, 400]),
        "shutdown_seconds": dice.choice([1.0, 5.0, 15.0, 90.0, 350.0]),
        "start_seconds": dice.choice([1.0, 5.0, 20.0]),
    }


def movable(dice: random.Random, name: str, quick: bool) -> ApplicationSpec:
    """Several replicas, often more than its budget lets go at once: what a careless drain breaks."""
    return ApplicationSpec(
        name=name,
        replicas=dice.choice([4, 5, 6, 8]),
        cpu_request_milli=dice.choice([50, 100]),
        volume=dice.choice(["none", "none", "emptyDir"]),
        annotations=dice.choice([{}, {}, {SAFE: "true"}]),
        **dice.choice(TIGHT + LOOSE),
        **times(dice, quick),
    )


def random_plan(number: int, quick: bool) -> Plan:
    """Every number its own cluster; most have at least one eligible worker, and reasons that keep others."""
    dice = random.Random(number)
    movables = [movable(dice, f"app-{n}", quick) for n in range(dice.randint(1, 3))]
    kept = [
        ApplicationSpec(name=f"kept-{n}", cpu_request_milli=50, **dice.choice(BLOCKING), **times(dice, quick))
        for n in range(dice.choice([0, 0, 1, 1, 2]))
    ]
    return Plan(
        workers=dice.randint(2 + len(kept), 5),
        applications=tuple(movables + kept),
        bare_pods=tuple(dice.choice([[], [], [], [None], ["false"]])),
        second_budget=dice.random() < 0.1,
    )


def plans(quick: bool = False) -> st.SearchStrategy[Plan]:
    return st.integers(0, 2**32).map(lambda number: random_plan(number, quick))


def worker_name(number: int) -> str:
    return f"i-{number + 1:017x}"


def build(plan: Plan, cluster: AnyCluster) -> tuple[Instance, ...]:
    """The plan's cluster in this cluster; answers its workers as EC2 shows them."""
    cluster.add_server("i-0000000000000000f", ZONES[0])
    fleet = []
    for number in range(plan.workers):
        zone = ZONES[number % 2]
        cluster.add_worker(worker_name(number), az=zone)
        fleet.append(
            Instance(
                instance_id=worker_name(number),
                zone=zone,
                instance_type="t3.small",
                market="on-demand",
                state="running",
                launched_at=number,
            )
        )
    for application in plan.applications:
        cluster.add_application(application)
    for mark in plan.bare_pods:
        cluster.create("pods", pod_object("bare", annotations={SAFE: mark} if mark else {}))
    if plan.second_budget:
        labels = {"app": plan.applications[0].name}
        cluster.add_budget("second", namespace="shop", labels=labels, min_available=1)
    return tuple(fleet)


def remove_one(
    cluster: AnyCluster,
    fleet: tuple[Instance, ...],
    shell: Shell,
    settle: Callable[[float], None],
    mutation: Mutation,
    *,
    order: str = "balance",
) -> str:
    """One removal as the states do it; answers what it came to. `mutation` may spoil a script or a verdict."""
    inspection = parse_inspection(shell(mutation("inspect_nodes", script("inspect_nodes")), {})[1])
    assert inspection.known
    judged = judge_workers(inspection, fleet, under_notice=frozenset(), back_offs=(), now=0)
    plan = choose(judged, count=1, minimum=1, order=order, spot_percent=0)
    if not plan.targets:
        return "no worker"
    name = plan.targets[0].node.node_name
    target = Target(instance_id=name, node_name=name, phase="draining", started_at=0)
    verdict = drain(shell, target, mutation)
    if verdict != "drained":
        shell(script("uncordon_node"), {"NODE_NAME": name, "OPERATION_ID": OPERATION_ID})
        return verdict
    cluster.instance_ended(name, voluntary=True)
    settle(60)
    forgotten = shell(script("forget_node"), {"NODE_NAME": name, "INSTANCE_ID": name})
    return f"removed {name}" if forgotten[0] == 0 else f"not forgotten: {forgotten[1]}"


def drain(shell: Shell, target: Target, mutation: Mutation) -> str:
    code, out, err = shell(
        mutation("drain_node", script("drain_node")),
        {
            "NODE_NAME": target.node_name,
            "OPERATION_ID": OPERATION_ID,
            "NOT_AFTER": "99999999999",
            "DRAIN_TIMEOUT_SECONDS": "300",
            "DRAIN_MODE": "voluntary",
        },
    )
    result = CommandResult(
        status="Success" if code == 0 else "Failed", exit_code=code, stdout=out, stderr=err, final=True, known=True
    )
    verdict = judge_drain(result, target, LIMITS, 1)
    if mutation("verdict", verdict.status) != "drained":
        return verdict.status
    seen = parse_node_check(shell(script("check_node"), {"NODE_NAME": target.node_name})[1], target.node_name)
    looked = judge_check(seen, target, OPERATION_ID, dead=False, waited=1, limit=0).status
    return mutation("verdict", looked)


def as_shipped(_what: str, text: str) -> str:
    return text


def deleting(what: str, text: str) -> str:
    """The mutant that deletes pods instead of evicting them."""
    return (
        text.replace('drain "$left" || give_up', 'drain "$left" --disable-eviction || give_up')
        if what == "drain_node"
        else text
    )


def terminating_early(what: str, text: str) -> str:
    """The mutant that terminates a cordoned worker before it is empty."""
    if what == "drain_node":
        return text.replace("--ignore-daemonsets", "--dry-run=client --ignore-daemonsets")
    return "drained" if what == "verdict" else text
