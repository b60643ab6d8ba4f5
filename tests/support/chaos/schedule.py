"""A schedule on a fleet of three workers, at least two, at most five: what is done to it, and clean ticks after that.

To make the fleet takes longer than to play most schedules. So it is made once, and each schedule is played in a forked
process, on a copy of its own: whatever it does, the next one finds the same instant of the same fleet.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.fleet_state import Pause, Protection
from node_fleet.domain.model.hibernation import Order, OrderKind
from node_fleet.domain.model.instance_types import vcpus_of
from node_fleet.domain.model.operation import TERMINATION_BEGUN
from node_fleet.domain.model.timed_minimum import TimedMinimum, not_ended
from simulator.aws.faults import FaultRule
from simulator.aws.moto_patches.ec2 import Ec2Delays
from simulator.cluster.load.applications import ApplicationSpec
from simulator.fakes.image_service import start_image_service
from tests.support.chaos.budgets import DrawnRules
from tests.support.chaos.copies import on_a_copy
from tests.support.chaos.fleet import Fleet, by_hand, simulated_fleet
from tests.support.chaos.hostile import HostileWorkers
from tests.support.chaos.invariants import SINGLE, Watch
from tests.support.chaos.matrix_cell import FAILED_AFTER_SECONDS, not_home, not_settled

BOOTED_SECONDS = 30
IDLE, BUSY, FLOOD = 20, 420, 900
ON_SECONDS = 7 * 86_400
EXPIRE_AFTER_SECONDS = 10 * 86_400
"""No worker of a schedule becomes so old by itself."""
SOON: dict[str, Any] = {
    "bake_seconds": 60,
    "expire_after_seconds": EXPIRE_AFTER_SECONDS,
    "interruption_settle_seconds": 60,
    "join_limit_seconds": 120,
    "terminate_limit_seconds": 120,
    "handle_rebalance": True,
    "rebalance_hold_seconds": 300,
    "scheduled_drain_lead_seconds": 300,
    "not_ready_replace_seconds": 300,
    "repair_reboot": True,
    "reboot_wait_seconds": 300,
    "hibernate": "Sun 00:00-06:00",
    "hibernate_drain_seconds": 60,
}
"""Short waits, rebalance recommendations that are followed, and reboots."""
Step = Callable[["Play"], Any]
STORE_ERRORS_IGNORED = contextlib.suppress(StateStoreError)
"""The operator sees the error; the fleet works on without the change."""


@dataclass(slots=True)
class Play:
    """One schedule as it is played. `number % workers` chooses a worker; nothing happens where there is none."""

    fleet: Fleet
    watch: Watch
    cordoned_by_hand: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    pulls_images: bool = False
    hostile: HostileWorkers = field(init=False)

    def __post_init__(self) -> None:
        self.hostile = HostileWorkers(self.fleet)
        self.watch.speaks_of_itself = self.hostile.speak_of_themselves

    @property
    def deployment(self) -> Any:
        return self.fleet.deployment

    def tick(self) -> None:
        self.fleet.tick()

    def time_passes(self, seconds: int) -> None:
        self.deployment.clock.advance(seconds)

    def budgets_are_deployed(self, rules: DrawnRules) -> None:
        """An operator deploys budgets and windows; the whole schedule is judged by them."""
        self.watch.rules, self.watch.rules_since = rules, self.deployment.clock.now()
        self.fleet.set_environment(rules.environment(self.watch.rules_since))

    def spot_is_learned(self, mode: str) -> None:
        """An operator deploys what is learned of Spot pools; one interruption makes a pool noisy for two hours.

        In a fleet that is to be all Spot, each worker that left a noisy pool can return.
        """
        share = {"SPOT_PERCENTAGE": "100"} if mode == "return" else {}
        self.fleet.set_environment({"SPOT_LEARNING": mode, "SPOT_NOISY_PER_100_HOURS": "0.52", **share})

    def limit_is_deployed(self, vcpu: int) -> None:
        """An operator limits the vCPUs before anything happens; the whole schedule is judged by it."""
        self.watch.max_vcpu = vcpu
        self.fleet.set_environment({"MAX_VCPU": str(vcpu)})

    def standby_workers_are_deployed(self, number: int) -> None:
        """An operator deploys another number of standby workers, as many as the limit lets be started."""
        if self.watch.max_vcpu:
            least = vcpus_of(self.fleet.settings.instance_types[0])
            number = min(number, self.watch.max_vcpu // least - self.fleet.settings.min_workers)
        self.fleet.set_environment({"STANDBY_WORKERS": str(number)})

    def standby_is_started_by_hand(self) -> None:
        if stopped := [i.id for i in self.fleet.stopped() if i.state == "stopped"]:
            with by_hand():
                self.fleet.cloud.client("ec2").start_instances(InstanceIds=stopped[:1])

    def starts_are_refused(self, code: str, seconds: int) -> None:
        """EC2 refuses to start a stopped instance for some time."""
        until = self.deployment.clock.now() + seconds
        self.fleet.cloud.faults.inject(FaultRule(operation="StartInstances", code=code, until=until))

    def standby_drifts(self) -> None:
        """An operator marks a standby worker for rotation."""
        if standby := self.fleet.standby():
            tags = [{"Key": "Rotate", "Value": "mira"}]
            self.fleet.cloud.client("ec2").create_tags(Resources=standby[:1], Tags=tags)

    def load_changes(self, rate: int) -> None:
        self.fleet.load(rate)

    def notice(self, number: int, taken: bool) -> None:
        if workers := sorted(self.fleet.workers()):
            self.fleet.cloud.ec2.warn_spot(workers[number % len(workers)], reclaim=taken)

    def worker_dies(self, number: int) -> None:
        if workers := sorted(self.fleet.workers()):
            self.fleet.cloud.ec2.reclaim(workers[number % len(workers)])

    def worker_falls_silent(self, number: int, heals: bool) -> None:
        """The kubelet stops; a reboot starts it again where it heals."""
        if workers := sorted(self.fleet.workers()):
            silent = workers[number % len(workers)]
            if self.fleet.sim.cluster.is_serving(silent):
                self.fleet.cloud.ec2.impair(silent, heals=heals)
                self.fleet.sim.cluster.fail_node(silent)
                self.silent.add(silent)

    def rebalance(self, number: int) -> None:
        if workers := sorted(self.fleet.workers()):
            self.fleet.cloud.ec2.recommend_rebalance(workers[number % len(workers)])

    def scheduled_change(self, number: int, seconds: int) -> None:
        """AWS announces maintenance; it ends the instance at its date."""
        if workers := sorted(self.fleet.workers()):
            instance_id, at = workers[number % len(workers)], self.deployment.clock.now() + seconds
            self.fleet.cloud.ec2.schedule_change(instance_id, not_before=at)
            self.deployment.clock.at(at, lambda: self.fleet.cloud.ec2.reclaim(instance_id))

    def worker_drifts(self, number: int) -> None:
        """An operator marks a worker for rotation, so that it counts as drifted."""
        if workers := sorted(self.fleet.workers()):
            tags = [{"Key": "Rotate", "Value": "mira"}]
            self.fleet.cloud.client("ec2").create_tags(Resources=[workers[number % len(workers)]], Tags=tags)

    def worker_expires(self, number: int) -> None:
        """A worker becomes as old as the age limit of the fleet."""
        if workers := sorted(self.fleet.workers()):
            instance = self.fleet.cloud.ec2.instance(workers[number % len(workers)])
            born = datetime.fromtimestamp(self.deployment.clock.now() - EXPIRE_AFTER_SECONDS, UTC)
            instance.launch_time = born.replace(tzinfo=None)  # as moto keeps it

    def instances_end_late(self, seconds: int) -> None:
        """From now on an instance stays that long in the state shutting-down, or stopping."""
        delays = self.fleet.cloud.ec2.delays
        delays.shutting_down_seconds = delays.stopping_seconds = float(seconds)

    def instances_are_listed_late(self, seconds: int) -> None:
        """From now on EC2 does not list an instance for that long after its launch."""
        self.fleet.cloud.ec2.delays.invisible_seconds = float(seconds)

    def server_clock_is_off(self, seconds: int) -> None:
        for shell in self.fleet.sim.shells:
            shell.seconds_ahead = seconds

    def run_by_hand(self, trigger: str, dry_run: bool) -> None:
        self.deployment.start_workflow({"trigger": trigger, "dry_run": dry_run})

    def the_same_tick_again(self) -> None:
        if self.deployment.ticks:
            self.deployment.tick(scheduled_at=self.deployment.ticks[-1])

    def pause(self, seconds: int) -> None:
        now = self.fleet.now()
        with STORE_ERRORS_IGNORED:
            self.fleet.store.set_pause(Pause(reason="a look", by="mira", since=now, until=now + seconds))

    def resume(self) -> None:
        with STORE_ERRORS_IGNORED:
            self.fleet.store.clear_pause()

    def protect(self, number: int, seconds: int) -> None:
        """As the command does it: a protection that came after the termination had begun is withdrawn and refused."""
        if workers := sorted(self.fleet.workers()):
            worker, now = workers[number % len(workers)], self.fleet.now()
            with STORE_ERRORS_IGNORED:
                order = Protection(instance_id=worker, by="mira", since=now, until=now + seconds)
                operation = self.fleet.store.protect(order).operation
                phases = {t.instance_id: t.phase for t in operation.targets} if operation else {}
                if phases.get(worker) in TERMINATION_BEGUN:
                    self.fleet.store.end_protection(worker)

    def order_capacity(self, workers: int, ahead: int, seconds: int) -> None:
        now, orders = self.fleet.now(), len(self.fleet.store.load().timed_minimums)
        since = now + ahead
        order = TimedMinimum(
            name=f"{now}-{orders}", workers=workers, since=since, until=since + seconds, by="mira", reason="a sale"
        )
        with STORE_ERRORS_IGNORED:
            self.fleet.store.change_timed_minimums(lambda state: (*not_ended(state.timed_minimums, now), order))

    def withdraw_capacity(self) -> None:
        with STORE_ERRORS_IGNORED:
            self.fleet.store.change_timed_minimums(lambda state: ())

    def order(self, kind: OrderKind, seconds: int) -> None:
        """As `node-fleet sleep` and `wake` store it."""
        now = self.fleet.now()
        with STORE_ERRORS_IGNORED:
            self.fleet.store.set_hibernate_order(Order(kind=kind, by="mira", since=now, until=now + seconds))

    def start_server_by_hand(self) -> None:
        """EC2 starts no server that is still being stopped."""
        ec2 = self.fleet.cloud.ec2
        server = ec2.instance(self.deployment.server_id)
        if server.state == "stopped":
            ec2.start(server)

    def unlock(self) -> None:
        with STORE_ERRORS_IGNORED:
            lease = self.fleet.store.load().lease
            if lease is not None:
                self.fleet.store.force_unlock(lease)

    def stop_a_run(self, number: int) -> None:
        if running := self.fleet.cloud.runner.running():
            self.fleet.stop(running[number % len(running)].arn)

    def cordon_by_hand(self, number: int) -> None:
        nodes = sorted(n.name for n in self.fleet.sim.cluster.nodes() if n.role != "server" and not n.unschedulable)
        if nodes:
            self.fleet.sim.cluster.cordon(nodes[number % len(nodes)], actor="mira")
            self.cordoned_by_hand.add(nodes[number % len(nodes)])

    def single_replica_appears(self, start_seconds: int) -> None:
        """Someone deploys an application of one replica that may be restarted before a drain."""
        if self.fleet.sim.cluster.find("deployments", "shop", SINGLE) is None:
            self.fleet.sim.cluster.add_application(
                ApplicationSpec(name=SINGLE, restart_before_drain=True, min_available=1, start_seconds=start_seconds)
            )

    def workers_pull_images(self, wait_seconds: int, pull_seconds: int) -> None:
        """From now on a new worker takes pods only when its images are pulled or its limit is over."""
        cluster = self.fleet.sim.cluster
        if not self.pulls_images:
            start_image_service(cluster, self.deployment.clock)
        self.pulls_images, cluster.image_wait_seconds = True, wait_seconds
        cluster.state.settings = replace(cluster.state.settings, image_pull_seconds=pull_seconds)
        cluster.settings = cluster.state.settings

    # what hostile workers state --------------------------------------------------------------------------------------

    def register_false_node(self, number: int, disguise: str = "ready") -> None:
        """A hostile worker registers an empty Node that states the identity of another worker."""
        if workers := sorted(self.fleet.workers()):
            self.hostile.register_false_node(workers[number % len(workers)], disguise)

    def state_figure(self, number: int, figure: str, value: float) -> None:
        """The exporter of a worker states an absurd figure of its own machine."""
        if workers := sorted(self.fleet.workers()):
            self.hostile.state_figure(workers[number % len(workers)], figure, value)

    def state_node(self, number: int, lie: str) -> None:
        """A kubelet states something absurd on its own Node."""
        if workers := sorted(self.fleet.workers()):
            self.hostile.state_node(workers[number % len(workers)], lie)

    def forge_series(self, number: int, job: str, figure: str, value: float) -> None:
        """A target states a series of kube-state-metrics about another worker."""
        if workers := sorted(self.fleet.workers()):
            self.hostile.forge_series(workers[number % len(workers)], job, figure, value)

    # how it goes ---------------------------------------------------------------------------------------------------

    def steps(self, schedule: Sequence[Step]) -> None:
        for step in schedule:
            self.watch.disturbed()
            step(self)
            self._check()

    def clean_ticks(self, *, to_the_minimum: bool) -> None:
        """Without faults and manual changes, at little load, the fleet settles in time and shrinks to its minimum."""
        self._clear_faults()
        settings = self.fleet.settings
        limit = settings.lease_seconds + FAILED_AFTER_SECONDS + settings.cooldown_up_seconds
        self._tick_until(limit, lambda: not_settled(self.fleet))
        if to_the_minimum:
            self._tick_until(limit, lambda: not_home(self.fleet, settings.min_workers))
        self.watch.finish()
        self._check()

    def _check(self) -> None:
        assert self.watch.broken == [], "\n".join([*self.watch.broken, self._story()])

    def _tick_until(self, limit_seconds: float, still: Callable[[], str]) -> None:
        begun, unsettled = self.deployment.clock.now(), "no tick yet"
        while unsettled and self.deployment.clock.now() - begun <= limit_seconds:
            self.fleet.tick()
            unsettled = still()
        assert unsettled == "", f"after {limit_seconds:.0f} s of clean ticks: {unsettled}\n{self._story()}"

    def _clear_faults(self) -> None:
        self.budgets_are_deployed(DrawnRules())  # they could hold the fleet above its minimum for ever
        self.fleet.clear_faults()
        self.fleet.cloud.faults.rules.clear()
        self.fleet.cloud.lambdas.faults.clear()
        self.fleet.cloud.commands.offline.clear()
        self.fleet.cloud.commands.lost.clear()
        self.deployment.transport.fault = ""
        self.deployment.transport.slack_answers.clear()
        self.fleet.cloud.ec2.delays = Ec2Delays()
        self.fleet.sim.cluster.image_wait_seconds = 0  # a pull that is longer than the join limit never ends by itself
        self.server_clock_is_off(0)
        self.fleet.store.clear_pause()
        self.order("wake", ON_SECONDS)
        for protection in self.fleet.store.load().protections:
            self.fleet.store.end_protection(protection.instance_id)
        self.fleet.store.change_timed_minimums(lambda state: ())
        self.fleet.load(IDLE)
        self.hostile.end()
        for instance_id in sorted(self.silent & set(self.fleet.workers())):
            self.fleet.cloud.ec2.heal(instance_id)
            self.fleet.sim.cluster.recover_node(instance_id)
        for name in sorted(self.cordoned_by_hand & {n.name for n in self.fleet.sim.cluster.nodes()}):
            self.fleet.sim.cluster.uncordon(name, actor="mira")
        self.watch.disturbed()

    def _story(self) -> str:
        runs = [e for e in self.fleet.sim.executions if e.path[-1:] != ["ReleaseLock"] or len(e.path) > 6]
        return "\n".join(
            f"{e.started_at:.0f} {e.machine} {e.status} {e.error or ''}: {' > '.join(e.path)}" for e in runs
        )


class Ran(NamedTuple):
    """One execution of a play: "autoscaler" or "interruption", how it ended, its states in order."""

    machine: str
    status: str
    path: list[str]


@dataclass(frozen=True, slots=True)
class PreparedFleet:
    """A fleet that stands and is watched, and that no schedule has touched."""

    play: Play

    def perform(self, schedule: Sequence[Step], *, to_the_minimum: bool = False) -> list[Ran]:
        """Play it on a copy; every execution of the play.

        Raises AssertionError with the other process's own account when anything is broken.
        """
        return on_a_copy(lambda: self._perform(schedule, to_the_minimum))

    def _perform(self, schedule: Sequence[Step], to_the_minimum: bool) -> list[Ran]:
        self.play.steps(schedule)
        self.play.clean_ticks(to_the_minimum=to_the_minimum)
        return [Ran(e.machine.rpartition("-")[2], e.status, list(e.path)) for e in self.play.deployment.executions]


@contextlib.contextmanager
def prepared_fleet() -> Iterator[PreparedFleet]:
    """Three workers, all of them Spot: each can be reclaimed at any time.

    A rehearsal comes first: what it leaves in the caches of this process, no copy has to work out again.
    """
    with _fleet() as rehearsal:
        rehearsal.steps([lambda play: play.notice(0, taken=True), lambda play: play.load_changes(FLOOD), Play.tick])
        rehearsal.clean_ticks(to_the_minimum=True)
    with _fleet() as play:
        gc.collect()
        gc.freeze()  # what a copy never changes, its collector need not look at
        try:
            yield PreparedFleet(play)
        finally:
            gc.unfreeze()


@contextlib.contextmanager
def _fleet() -> Iterator[Play]:
    with simulated_fleet(workers=3, market="spot", **SOON) as fleet:
        fleet.deployment.clock.advance(BOOTED_SECONDS)
        watch = Watch(fleet)
        watch.begin()
        yield Play(fleet, watch)
