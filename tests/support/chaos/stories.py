"""Short stories that between them walk through every task state of both workflows, each a few ticks long.

A story brings a small fleet to the point where something is about to happen; ticks do the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any, Literal

from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.value_class import value_class
from tests.support.chaos.faults import Uses
from tests.support.chaos.fleet import Fleet, simulated_fleet
from tests.support.chaos.invariants import Watch
from tests.support.chaos.task_states import AUTOSCALER, TASKS


@value_class
class Story:
    """How the fleet starts, what is done to it before the first watched tick, and how many ticks it may take."""

    name: str
    ticks: int
    workers: int = 2
    market: str = "on-demand"
    boot: tuple[str, ...] = ()
    warm_ticks: int = 0
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    begin: Callable[[Fleet], object] = lambda fleet: None


@value_class
class Course:
    """How a story goes when nothing goes wrong: who runs, what each asks for, where the fleet ends, what broke."""

    uses: dict[str, Uses]
    workers: int
    broken: tuple[str, ...]


@contextmanager
def on_stage(story: Story) -> Iterator[tuple[Fleet, Watch]]:
    """The fleet just before the story begins, watched from here on."""
    with simulated_fleet(workers=story.workers, market=story.market, boot=story.boot, **story.settings) as fleet:
        for _ in range(story.warm_ticks):
            fleet.tick()
        watch = Watch(fleet)
        watch.begin()
        yield fleet, watch


@functools.cache
def course(story: Story) -> Course:
    """The story without a fault, played once in this process."""
    asked: set[str] = set()
    with on_stage(story) as (fleet, watch):
        transport = fleet.deployment.transport
        for key in list(fleet.functions):
            state = fleet.state_of(key)
            fleet.surround(state, _noting(transport.urls, state, asked))
        first = len(fleet.cloud.recorder.calls)
        story.begin(fleet)
        for _ in range(story.ticks):
            fleet.tick()
        watch.finish()
        calls = [call for call in list(fleet.cloud.recorder.calls)[first:] if call.function]
        ran = {fleet.state_of(i.function) for i in fleet.cloud.lambdas.invocations}
        uses = {
            state: Uses(
                calls=tuple(call for call in calls if fleet.state_of(call.function) == state),
                asks_prometheus=state in asked,
            )
            for state in ran
        }
        return Course(uses=uses, workers=len(fleet.workers()), broken=tuple(watch.broken))


def _noting(urls: list[str], state: str, asked: set[str]) -> Callable[[Any, Any, Any], Any]:
    def around(handler: Any, event: Any, context: Any) -> Any:
        before = len(urls)
        answer = handler(event, context)
        if any("/api/v1/" in url for url in urls[before:]):
            asked.add(state)
        return answer

    return around


# the stories ------------------------------------------------------------------------------------------------------


def _left_to_undo(fleet: Fleet) -> None:
    """A drain that was begun and whose run died long ago: its cordon stands, its operation is past its limit."""
    victim = sorted(fleet.workers())[-1]
    node = next(n for n in fleet.sim.cluster.nodes() if n.instance_id == victim)
    age = fleet.settings.operation_limit_seconds + 1
    target = Target(instance_id=victim, node_name=node.name, phase="draining", started_at=fleet.now() - age)
    operation = Operation(
        operation_id="down-left-behind",
        kind="scale_down",
        phase="draining",
        started_at=fleet.now() - age,
        requested=1,
        reason="left behind",
        execution_id="dead",
        workers_before=3,
        targets=(target,),
    )
    fleet.leave(operation)

    _cordon(fleet, node.name, operation.operation_id)


def _cordon(fleet: Fleet, node_name: str, operation_id: str) -> None:
    def cordon(found: dict[str, Any]) -> None:
        found["spec"]["unschedulable"] = True
        found["metadata"].setdefault("annotations", {})["node-fleet.io/cordoned-by"] = operation_id

    fleet.sim.cluster.update("nodes", "", node_name, cordon)


def _left_aside(fleet: Fleet) -> None:
    """A rollback and a termination that an earlier run set aside; the instance of the latter has ended since."""
    cordoned, ended = sorted(fleet.workers())[-2:]
    fleet.cloud.client("ec2").terminate_instances(InstanceIds=[ended])
    _cordon(fleet, cordoned, "down-left-aside")
    run = Run(execution_id="dead", trigger="manual", scheduled_at=0, started_at=fleet.now())
    held = replace(run, fence=fleet.store.acquire(run).state.fence)
    kinds: dict[str, Literal["termination", "rollback"]] = {cordoned: "rollback", ended: "termination"}
    for name, kind in kinds.items():
        removal = SetAside(
            instance_id=name,
            node_name=name,
            kind=kind,
            operation_id="down-left-aside",
            since=fleet.now(),
            detail="left aside",
        )
        fleet.store.update_set_aside(held, removal)
    fleet.store.release(held)


def _stray(fleet: Fleet) -> None:
    """An instance of ours that no state item knows and that never joins."""
    placed = next(iter(fleet.settings.zones.values()))
    tags = {
        "Project": "node-fleet",
        "Role": "k3s-worker",
        "ManagedBy": "node-fleet",
        "Cluster": fleet.settings.cluster_id,
        "Operation": "up-lost",
        "Name": "k3s-worker",
    }
    fleet.cloud.client("ec2").run_instances(
        ImageId="ami-12345678",
        InstanceType="t3.small",
        SubnetId=placed,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": text} for key, text in tags.items()]}
        ],
    )


def _warned(fleet: Fleet) -> None:
    fleet.cloud.ec2.warn_spot(sorted(fleet.workers())[0])


def _spared(fleet: Fleet) -> None:
    fleet.cloud.ec2.warn_spot(sorted(fleet.workers())[0], reclaim=False)


def _retired(fleet: Fleet) -> None:
    """AWS schedules the end of a worker in ten minutes; the response is due in three."""
    worker, when = sorted(fleet.workers())[0], fleet.now() + 600
    fleet.cloud.ec2.schedule_change(worker, not_before=when)
    fleet.deployment.clock.at(when, lambda: fleet.cloud.ec2.reclaim(worker))


def _marked(fleet: Fleet) -> None:
    """An operator marks a worker for rotation."""
    tags = [{"Key": "Rotate", "Value": "mira"}]
    fleet.cloud.client("ec2").create_tags(Resources=[sorted(fleet.workers())[0]], Tags=tags)


def _silent(fleet: Fleet) -> None:
    """The kubelet of a worker stops, and a reboot starts it again."""
    fleet.sim.cluster.fail_node(sorted(fleet.workers())[0])


def _without_spot(fleet: Fleet) -> None:
    """EC2 has no Spot capacity at first."""
    fleet.cloud.ec2.dry_pool(market="spot", until=fleet.now() + 200)


def _ordered_off(fleet: Fleet) -> None:
    """An operator switches the fleet off for the day."""
    now = fleet.now()
    fleet.store.set_hibernate_order(Order(kind="sleep", by="mira", since=now, until=now + 8 * 3600))


def _ordered_on(fleet: Fleet) -> None:
    """The fleet was switched off in an earlier time off; an operator needs it again."""
    for worker in fleet.workers():
        fleet.cloud.ec2.reclaim(worker)
        fleet.sim.cluster.delete("nodes", "", worker)
    fleet.cloud.client("ec2").stop_instances(InstanceIds=[fleet.deployment.server_id])
    run = Run(execution_id="dead", trigger="manual", scheduled_at=0, started_at=fleet.now())
    held = replace(run, fence=fleet.store.acquire(run).state.fence)
    order = Order(kind="wake", by="mira", since=fleet.now(), until=fleet.now() + 3600)
    fleet.store.save_hibernation(held, Hibernation(phase="off", since=fleet.now()), order)
    fleet.store.release(held)


def _more_needed(fleet: Fleet) -> None:
    """An operator deploys a higher minimum."""
    fleet.set_environment({"MIN_NODES": "3"})


def _standby_drifted(fleet: Fleet) -> None:
    """An operator marks the stopped standby workers for rotation."""
    tags = [{"Key": "Rotate", "Value": "mira"}]
    fleet.cloud.client("ec2").create_tags(Resources=fleet.standby(), Tags=tags)


QUIET = Story(name="a quiet tick", ticks=2)
GROWING = Story(name="a worker is added", ticks=2, settings={"min_workers": 3})
UNJOINED = Story(
    name="a worker never joins",
    ticks=4,
    boot=("{kind: never_joins, count: 1}",),
    settings={"min_workers": 3, "join_limit_seconds": 100},
)
SHRINKING = Story(name="a worker is removed", ticks=4, workers=3)
UNDOING = Story(name="an old drain is undone", ticks=4, workers=3, warm_ticks=1, begin=_left_to_undo)
ASIDE = Story(name="removals were set aside", ticks=4, workers=4, warm_ticks=1, begin=_left_aside)
STRAYING = Story(
    name="a stray instance is reaped",
    ticks=6,
    boot=("{kind: never_joins, count: 1}",),
    settings={"join_limit_seconds": 100},
    begin=_stray,
)
WARNED = Story(name="a Spot worker is taken", ticks=4, market="spot", warm_ticks=1, begin=_warned)
SPARED = Story(name="a Spot worker is spared", ticks=4, market="spot", warm_ticks=1, begin=_spared)
RETIRED = Story(
    name="a worker is retired",
    ticks=7,
    warm_ticks=1,
    settings={"join_limit_seconds": 120, "scheduled_drain_lead_seconds": 300, "interruption_settle_seconds": 60},
    begin=_retired,
)
ROLLING = Story(name="a worker is replaced", ticks=8, warm_ticks=1, settings={"bake_seconds": 60}, begin=_marked)
REPLACING = ("SelectNodes", "LaunchNodes", "CheckJoin", "CompleteScaleUp", "TerminateNodes", "CompleteScaleDown")
"""The states that treat a replacement in another way than a launch or a removal for the load."""
REBOOTING = Story(
    name="a worker is rebooted",
    ticks=10,
    workers=3,
    warm_ticks=1,
    settings={
        "min_workers": 3,
        "repair_reboot": True,
        "not_ready_replace_seconds": 300,
        "reboot_wait_seconds": 300,
    },
    begin=_silent,
)
REPAIRING = ("SelectNodes", "StartDrain", "TerminateNodes", "ConfirmTermination", "UndoDrain", "CompleteScaleDown")
"""The states that treat a reboot in another way than a removal."""
RETURNING = Story(
    name="a worker returns to Spot",
    ticks=6,
    settings={
        "spot_learning": "return",
        "on_demand_minimum": 1,
        "bake_seconds": 60,
        "drain_back_off_seconds": 60,
        "pool_back_off_seconds": 60,
    },
    begin=_without_spot,
)
RETURNED = ("LaunchNodes", "FailScaleUp")
"""The states that treat a return in another way than the replacement of an outdated worker."""
STANDING = Story(name="a standby worker is made", ticks=4, settings={"standby_workers": 1})
STANDBY_STARTING = Story(
    name="a standby worker is started", ticks=6, warm_ticks=2, settings={"standby_workers": 1}, begin=_more_needed
)
RENEWING = Story(
    name="a standby worker is renewed", ticks=6, warm_ticks=2, settings={"standby_workers": 1}, begin=_standby_drifted
)
MADE = ("LaunchNodes", "CompleteScaleUp", "SelectNodes", "TerminateNodes", "ConfirmTermination", "ForgetNodes")
STARTED = ("LaunchNodes", "CheckJoin", "CompleteScaleUp")
"""The states that treat a standby worker in another way than other workers."""
STANDBY_CELLS = [(STANDING, s) for s in MADE] + [(STANDBY_STARTING, s) for s in STARTED] + [(RENEWING, "ReapUnjoined")]
"""Played with --all only."""
NIGHTS: dict[str, Any] = {"hibernate": "Sun 00:00-06:00", "hibernate_drain_seconds": 60}
SLEEPING = Story(name="the fleet is switched off", ticks=6, warm_ticks=1, settings=NIGHTS, begin=_ordered_off)
DRAINING = ("StartDrain", "CheckDrain", "TerminateNodes", "ConfirmTermination", "UndoDrain", "CompleteScaleDown")
"""The states that treat a fleet that is switched off in another way than a removal."""
WAKING = Story(name="the fleet is switched on", ticks=4, warm_ticks=1, settings=NIGHTS, begin=_ordered_on)
STARTING = ("Hibernate", "LaunchNodes")
STORIES = (
    QUIET, GROWING, SHRINKING, UNDOING, ASIDE, UNJOINED, STRAYING, WARNED, SPARED, RETIRED, ROLLING, REBOOTING,
    RETURNING, SLEEPING, WAKING,
)  # fmt: skip


def story_of(state: str) -> Story | None:
    """The first story whose course without faults has that state; the story of an interruption begins with a notice."""
    order = STORIES if TASKS[state] == AUTOSCALER else (WARNED, SPARED, *STORIES)
    return next((story for story in order if state in course(story).uses), None)
