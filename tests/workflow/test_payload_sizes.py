"""No state's input or output comes near the limit, with 100 workers, 2,000 waiting pods and a long memory.

The real workflow runs with what such a fleet would bring into it: only the first looks are made larger than life.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node_fleet.domain.model.errors import DrainFailedError, StateStoreError
from node_fleet.domain.model.memory import BackOff, Memory, PoolBackOff, ReadingPoint, SpotPool
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import HourlyLoad, Instance, PodShape, Snapshot, Worker
from node_fleet.domain.model.spot_pools import POOLS_KEPT
from node_fleet.domain.notify.incident_state import MOST_UNSENT, UNSENT_LENGTH
from node_fleet.domain.notify.totals import MOST_KEYS, packed
from node_fleet.domain.scale_down.hibernation import MOST_TARGETS, ending, switch_off
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.payload import from_payload, packed_lines, to_payload, unpacked
from tests.support.chaos.task_states import AUTOSCALER, TASKS
from tests.support.decisions import START, idle, snapshot, worker
from tests.support.workflow_harness import Stage, stage

LIMIT_BYTES = 32 * 1024
SPARE_BYTES = 2048
"""What must be left of the limit, so that a new field or setting does not reach it."""
WORKERS, PODS = 100, 2000
LEARNING = {"spot_learning": "avoid"}
UNVISITED = {
    "CheckSetAside": "its payload is that of AcquireLock and one sentence",
    "Hibernate": "its payload is that of AcquireLock and an operation, which is added below",
    "ReapUnjoined": "its payload is that of Decide and one sentence",
}
Change = Callable[[dict[str, Any]], dict[str, Any]]


def many_shapes(count: int) -> tuple[PodShape, ...]:
    return tuple(
        PodShape(cpu_milli=10 * n, memory_mib=20 * n, count=count // 20, example=f"shop/web-{n}") for n in range(1, 21)
    )


def a_month(now: int) -> tuple[HourlyLoad, ...]:
    """What a prediction asks for: two weeks of hours."""
    return tuple(
        HourlyLoad(hour_epoch=now - h * 3600, cpu_percent=51.12, readings=30, workers=94.12) for h in range(14 * 24)
    )


def different_worker(number: int) -> Worker:
    """A worker that has little in common with the others: its id, name, load, requests, zone and times."""
    digest = hashlib.sha256(str(number).encode()).hexdigest()
    a, b, c, d = (int(digest[n : n + 2], 16) for n in range(0, 8, 2))
    return worker(
        digest[:17],
        node_name=f"ip-10-{a}-{b}-{c}.ap-southeast-1.compute.internal",
        zone=f"ap-southeast-1{'abc'[number % 3]}",
        market=("spot", "on-demand")[number % 2],
        launched_at=START - 86_400 - 97 * d,
        cpu_percent=a / 4.0,
        cores=2.0,
        cpu_requested_milli=1000 + 5 * a,
        memory_used_mib=400 + b,
        memory_total_mib=1950,
        memory_requested_mib=800 + c,
        pods=8 + d % 20,
        template_version=str(7 + number % 2),
    )


def crowd(fleet: Stage, make: Callable[..., Snapshot], **fields: Any) -> Change:
    """CollectMetrics' answer with the fleet's own workers among 100."""

    def change(event: dict[str, Any]) -> dict[str, Any]:
        seen = from_payload(Snapshot, event["snapshot"])
        more = [different_worker(n) for n in range(WORKERS - len(seen.workers))]
        full = make(fleet.now(), workers=(*seen.workers, *more), hourly=a_month(fleet.now()), **fields)
        return {**event, "snapshot": to_payload(full)}

    return change


def crowded_inspection(event: dict[str, Any]) -> dict[str, Any]:
    """The server's answer with 96 more workers, each with two blockers and pods by kind."""
    lines = unpacked(event["inspection"]["lines"])[:-1]
    more = [
        f"w i-{n:017x} = 0 RW 86400 14/3/2/1 512/2000/{900 + n}/1900/110 - - - "
        f"shop/orders-db-{n}:s,shop/cache-{n}:v 5/0 0a2a{n:04x}"
        for n in range(WORKERS - len(lines) + 1)
    ]
    lines = [*lines, *more]
    text = "\n".join([*lines, f"end {len(lines)} {zlib.crc32(chr(10).join(lines).encode()):08x}"])
    return {**event, "inspection": {**event["inspection"], "lines": packed_lines(text)}}


def long_memory(now: int) -> Memory:
    """A memory after bad days: back-offs, dry pools, alerts sent and the readings of the last ticks."""
    return Memory(
        last_action="scale_up",
        last_action_at=now - 7200,
        last_reason="pending 2000 > 0",
        readings=tuple(
            ReadingPoint(at=now - 120 * n, cpu_percent=51.12, memory_percent=40.03, pending=2000, usable=100)
            for n in range(10, 0, -1)
        ),
        back_offs=tuple(BackOff(key=f"node:i-{n:017x}", failures=2, until=now + 600) for n in range(5)),
        dry_pools=tuple(
            PoolBackOff(zone=f"ap-southeast-1{z}", instance_type=t, market=m, until=now + 300)  # type: ignore[arg-type]
            for z in "abc"
            for t in ("t3a.small",)
            for m in ("spot", "on-demand")
        ),
        alerted={f"drain_failed:i-{n:017x}": now - 60 for n in range(5)},
        fresh={f"i-{n:017x}": now - 60 for n in range(5)},
        totals=packed({f"launches/not_joined/custom_metric_{n:03}": 1000 + n for n in range(MOST_KEYS)}),
        succeeded_at=now - 60,
        spot_pools=tuple(
            SpotPool(
                pool=f"ap-southeast-1{'abc'[n % 3]}/t3.{n}",
                hours=99.1234 + n,
                lost=n / 7,
                lost_at=now - 997 * n,
                seen=n,
            )
            for n in range(POOLS_KEPT)
        ),
        spot_at=now - 60,
        unsent=tuple(
            Alert(kind=f"volumes_lost:i-{n:017x}", text=f"{n}" * UNSENT_LENGTH, is_critical=True)
            for n in range(MOST_UNSENT)
        ),
    )


def remember(fleet: Stage) -> None:
    run = Run(execution_id="past", trigger="manual", scheduled_at=0, started_at=fleet.now())
    held = replace(run, fence=fleet.store.acquire(run).state.fence)
    fleet.store.release(held, long_memory(fleet.now()))


def sizes_of(fleet: Stage) -> dict[str, int]:
    return {name: size for name, size in fleet.cloud.lambdas.payload_bytes.items() if TASKS.get(name) == AUTOSCALER}


def growing(*, boot: tuple[str, ...] = ()) -> dict[str, int]:
    with stage(
        workers=2, warm_up=1, max_workers=WORKERS + 10, step_urgent=10, join_poll_seconds=30, more=boot, **LEARNING
    ) as f:
        remember(f)
        f.answer_state("CollectMetrics", crowd(f, snapshot, cpu_percent=95.0, pending=many_shapes(PODS)))
        f.tick()
        return sizes_of(f)


def shrinking(error: Exception | None = None, state: str = "CheckDrain") -> dict[str, int]:
    with stage(workers=4, warm_up=1, idle_seconds=60, cooldown_down_seconds=0, max_targets=3, **LEARNING) as f:
        remember(f)
        f.answer_state("CollectMetrics", crowd(f, idle))
        f.answer_state("InspectNodes", crowded_inspection)
        if error:
            f.break_state(state, error)
        f.tick_until(lambda run: "SelectNodes" in run.path)
        return sizes_of(f)


def switching_off() -> Operation:
    """The operation that ends as many workers as one may."""
    workers = [
        Instance(
            instance_id=f"i-{n:017x}",
            zone="ap-southeast-1a",
            instance_type="t3.small",
            market="on-demand",
            state="running",
            launched_at=1_800_000_000,
        )
        for n in range(MOST_TARGETS + 1)
    ]
    targets = ending(workers, Inspection(known=True), 1_800_000_000)
    return switch_off(
        targets, operation_id="x" * 80, execution_id="x" * 80, now=1_800_000_000, workers=len(workers), reason="x" * 300
    )


def test_every_states_payload_stays_under_32_kb(record_property: Any) -> None:
    stories = (
        growing(),
        growing(boot=("boot:", "  - {kind: never_joins}")),
        shrinking(),
        shrinking(DrainFailedError("it broke: " + "x" * 200)),
        shrinking(StateStoreError("it broke"), "ForgetNodes"),
    )
    most: dict[str, int] = {}
    for sizes in stories:
        for name, size in sizes.items():
            most[name] = max(most.get(name, 0), size)
    missed = {name for name, machine in TASKS.items() if machine == AUTOSCALER} - most.keys()
    assert missed == set(UNVISITED)
    most["Hibernate"] = most["AcquireLock"] + len(json.dumps(to_payload(switching_off())))
    record_property("figures", f"payloads: largest {max(most.values())} bytes in {max(most, key=most.__getitem__)}")
    assert {name: size for name, size in most.items() if size > LIMIT_BYTES - SPARE_BYTES} == {}


def test_an_alert_list_grows_by_one_sentence_at_most_for_each_target() -> None:
    rows = to_payload(tuple(Alert(kind=f"drain_failed:i-{n:017x}", text="x" * 300) for n in range(10)))
    assert len(json.dumps(rows)) < 4000
