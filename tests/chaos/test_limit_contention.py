"""Many launches reserve capacity at once below a limit in money and one in vCPUs: together they never exceed either.

Which type EC2 chooses is drawn among those that a launch may ask for, after its reservation. The order of the requests
is drawn too, and in one round of ten each contender runs on a thread of its own.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb.models import dynamodb_backends

from node_fleet.adapters.launcher import Launcher, placement_from
from node_fleet.adapters.state_store import StateStore
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.fleet_state import FleetState, Reservation
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.model.weight import Weight
from node_fleet.domain.scale_up.launch import slot_key
from node_fleet.domain.scale_up.requests import open_pools
from node_fleet.settings import Settings
from tests.chaos.test_lock_contention import OneAtATime
from tests.support.simulated_aws import create_table
from tests.support.tiers import Tier

START = 1_790_000_000
CONTENDERS, ROUNDS, QUICK_ROUNDS = 64, 300, 2
SETTINGS = Settings(
    max_workers=1000, min_workers=2, instance_types=("t3.small", "t3.medium", "t3.large", "m5.large", "t2.small"),
    subnets=("a=subnet-1", "b=subnet-2"), max_usd_per_hour=1.3, max_vcpu=36,
)  # fmt: skip
MONEY_FIRST = replace(SETTINGS, max_usd_per_hour=0.6, max_vcpu=200)
"""Of the other settings, the vCPUs are the first limit."""
ZONES = tuple(SETTINGS.zones)
BESIDE = 20 * 0.096 / 730 + 0.005
USD = {
    "t3.small": (0.0264, 0.0087), "t3.medium": (0.0528, 0.0174), "t3.large": (0.1056, 0.0348),
    "m5.large": (0.12, 0.0456), "t2.small": (0.0292, 0.0088),
}  # fmt: skip
VCPU = {"t2.small": 1}


class Clock:
    def now(self) -> int:
        return START


@dataclass
class Ec2:
    """The instances that run; each costs what the published prices say, added here without the product's code."""

    running: dict[str, Instance] = field(default_factory=dict)
    highest: tuple[float, int] = (0.0, 0)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def instances(self) -> tuple[Instance, ...]:
        with self.lock:
            return tuple(self.running.values())

    def add(self, instance: Instance) -> None:
        with self.lock:
            self.running[instance.instance_id] = instance
            usd = sum(USD[i.instance_type][i.market == "spot"] + BESIDE for i in self.running.values())
            vcpu = sum(VCPU.get(i.instance_type, 2) for i in self.running.values())
            self.highest = max(self.highest[0], usd), max(self.highest[1], vcpu)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with mock_aws():
        made = boto3.client("dynamodb", region_name="ap-southeast-1")
        create_table(made, SETTINGS.state_table, "cluster_id")
        yield OneAtATime(dynamodb_backends[DEFAULT_ACCOUNT_ID]["ap-southeast-1"])


def insist(work: Callable[[], None]) -> None:
    """As Step Functions repeats a step that other writers kept from its own."""
    while True:
        with contextlib.suppress(StateStoreError):
            work()
            return


@dataclass
class Contender:
    """One launch: it reserves, EC2 chooses a pool, and the reservation becomes the instance."""

    name: str
    store: StateStore
    ec2: Ec2
    chosen: random.Random
    settings: Settings
    reserved: Operation | None = None
    launched: bool = False

    def reserve(self) -> None:
        number = self.chosen.randint(1, 2)
        slots = tuple(
            LaunchSlot(number=n, zone=ZONES[0], subnet_id="subnet-1", instance_type="t3.small", market="spot")
            for n in range(1, number + 1)
        )
        operation = Operation(
            operation_id=self.name, kind="scale_up", phase="begin", started_at=START, requested=number, reason="",
            execution_id=self.name, slots=slots,
        )  # fmt: skip
        launcher = Launcher(
            ec2=self.ec2, state=self.store, clock=Clock(), settings=self.settings, guard=lambda _: None,
            record=lambda _: None,
        )  # type: ignore[arg-type]  # fmt: skip
        try:
            self.reserved = launcher.reserve(operation)
        except StateStoreError:  # too many others wrote: the next run tries again
            keys = [slot_key(self.name, slot.number) for slot in slots]
            insist(lambda: self.store.unreserve(keys))

    def launch(self) -> None:
        if self.reserved is None or self.launched:
            return
        self.launched, placement = True, placement_from(self.settings)
        for slot in self.reserved.slots:
            if slot.outcome != "planned":
                continue
            pool = self.chosen.choice(open_pools(slot, placement, ZONES, frozenset()))
            instance = Instance(
                instance_id=f"i-{self.name}-{slot.number}", zone=pool.zone, market=pool.market, state="running",
                instance_type=pool.instance_type, launched_at=START, operation_id=self.name, slot=str(slot.number),
            )  # fmt: skip
            self.ec2.add(instance)
            key = slot_key(self.name, slot.number)
            insist(lambda: self.store.confirm(key, instance.instance_id, pool=pool.name))  # noqa: B023

    def run(self) -> None:
        self.reserve()
        self.launch()


def at_once(work: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=one) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def emptied(client: Any, store: StateStore) -> None:
    held = store.load().reservations
    while held:  # a thread may have given up beside others
        store.unreserve(one.key for one in held)
        held = store.load().reservations


def contend(client: Any, seed: int, settings: Settings, *, threads: bool) -> tuple[Ec2, int]:
    """One round: the instances afterwards, and how many launches were refused."""
    order, ec2, store = random.Random(seed), Ec2(), StateStore(client, SETTINGS, Clock())
    emptied(client, store)
    contenders = [
        Contender(name=f"c{n}", store=store, ec2=ec2, chosen=random.Random(1000 * seed + n), settings=settings)
        for n in range(CONTENDERS)
    ]
    if threads:
        at_once([one.run for one in contenders])
    else:
        steps = [step for one in contenders for step in (one.reserve, one.launch)]
        order.shuffle(steps)  # a launch whose reservation comes later launches nothing then
        for step in steps:
            step()
        for one in contenders:
            one.launch()
    slots = [slot for one in contenders if one.reserved for slot in one.reserved.slots]
    return ec2, sum(slot.outcome == "failed" for slot in slots)


def test_64_contenders_never_exceed_the_limit_in_money_or_vcpus(
    client: Any, tier: Tier, record_property: pytest.RecordProperty
) -> None:
    rounds, nearest = ROUNDS if tier.whole else QUICK_ROUNDS, (0.0, 0.0)
    for number in range(rounds):
        settings = SETTINGS if number % 2 else MONEY_FIRST
        ec2, refused = contend(client, 7919 * tier.seed + number, settings, threads=number % 10 in (1, 2))
        usd, vcpu = ec2.highest
        assert usd <= settings.max_usd_per_hour + 1e-9 and vcpu <= settings.max_vcpu, f"round {number}: {ec2.highest}"
        assert refused and len(ec2.running) >= 5, "the limit was reached"
        nearest = max(nearest[0], usd / settings.max_usd_per_hour), max(nearest[1], vcpu / settings.max_vcpu)
    record_property(
        "figures",
        f"limits: {CONTENDERS} contenders x {rounds} rounds, at most {nearest[0]:.1%} of the money, {nearest[1]:.1%} "
        "of the vCPUs",
    )


class ReadThenWrite(StateStore):
    """The mutant: reserves by an unconditional write."""

    def _write_reservations(self, version: int, reservations: tuple[Reservation, ...]) -> bool:
        BARRIER.wait()
        return super()._write_reservations(self.load().slots_version, reservations)


BARRIER = threading.Barrier(8)


def test_a_store_that_reads_first_and_writes_then_exceeds_the_limit(client: Any) -> None:
    ec2 = Ec2()
    store = ReadThenWrite(client, SETTINGS, Clock())
    emptied(client, StateStore(client, SETTINGS, Clock()))
    free = [Weight(vcpu=36)]

    def weigh(state: FleetState) -> Weight | None:
        used = sum(one.weight.vcpu for one in state.reservations)
        return Weight(vcpu=36) if used + free[0].vcpu <= SETTINGS.max_vcpu else None

    won: list[Reservation | None] = []

    def one(number: int) -> None:
        try:
            won.append(store.reserve(f"m{number}", lambda _: 0, maximum=9, until=START + 60, weigh=weigh))
        except (StateStoreError, threading.BrokenBarrierError):
            BARRIER.abort()

    at_once([lambda n=n: one(n) for n in range(BARRIER.parties)])  # type: ignore[misc]
    assert sum(reserved is not None for reserved in won) > 1
    assert not ec2.running
