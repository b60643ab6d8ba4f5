"""top: what each worker's state says, which pods wait, and a screen that fits the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from rich.console import Console

from cli import top
from cli.cluster_status import ClusterStatus
from cli.output import CommandError
from cli.status_rows import status_rows
from cli.top import WIDE, picture, states_of, worker_rows
from node_fleet.adapters.records import Event
from node_fleet.domain.model.fleet_state import FleetState, Notice, Protection
from node_fleet.domain.model.memory import BackOff, Memory, Replacement, RollOut
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.model.timed_minimum import TimedMinimum
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from tests.support.handlers.fakes import NOW, A, B, C, aside, instance, scale_down, worker
from tests.support.launches import slot


def seen(**changes: Any) -> Snapshot:
    workers = tuple(worker(i, cpu_percent=41.7, memory_used_mib=500, memory_total_mib=2000, pods=7) for i in (A, B))
    fields: dict[str, Any] = {"at": NOW - 60, "source": "live", "pending": (), "workers": workers, **changes}
    return Snapshot(**fields)


def status_of(snapshot: Snapshot | None = None, ids: tuple[str, ...] = (A, B), **state: Any) -> ClusterStatus:
    data = {"snapshot": to_payload(snapshot or seen()), "decision": {"sentence": "idle -> no change"}}
    return ClusterStatus(
        place="here, after 14m",
        now=NOW,
        state=FleetState(cluster_id="c", **state),
        instances=tuple(instance(one) for one in ids),
        last=Event(kind="decision", at=NOW - 60, key="run-1", data=data),
        settings=Settings(),
    )


def screen(found: ClusterStatus, width: int = 120, height: int = 30) -> list[str]:
    stage = Console(width=width, height=height, file=io.StringIO(), color_system=None)
    stage.print(picture(found, width, height))
    shown: str = stage.file.getvalue()  # type: ignore[attr-defined]
    return shown.splitlines()


def test_the_screen_has_the_times_off_and_the_capacity_that_was_ordered_as_status_has_them() -> None:
    order = TimedMinimum(name="a1", workers=5, since=NOW - 60, until=NOW + 7200, by="ana", reason="a sale")
    found = status_of(timed_minimums=(order,))
    found = replace(found, settings=Settings.from_mapping({"hibernate": "Sun-Fri 20:00-07:00; Sat-Sun"}))
    rows, lines = dict(status_rows(found)), screen(found, width=200)
    for name in ("off times", "capacity for a time"):
        assert [" ".join(line.split()) for line in lines if line.startswith(name)] == [f"{name} {rows[name]}"]


def failed(instance_id: str, until: int) -> Memory:
    """The memory after the worker's drain has failed."""
    return Memory(back_offs=(BackOff(key=f"node:{instance_id}", failures=1, until=until),))


def launching(instance_id: str) -> Operation:
    return Operation(
        operation_id="up-1", kind="scale_up", phase="verify", started_at=NOW, requested=1, reason="x",
        execution_id="run-1", slots=(slot(1, outcome="launched", instance_id=instance_id),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, ["ready"]),
        ({"operation": scale_down("selected")}, ["to be drained"]),
        ({"operation": scale_down("draining")}, ["draining"]),
        ({"operation": scale_down("terminating")}, ["terminating"]),
        ({"operation": scale_down("skipped")}, ["ready"]),
        ({"operation": scale_down("undone")}, ["ready"]),
        ({"set_aside": (aside(A),)}, ["ready", "set aside"]),
        ({"memory": failed(A, NOW + 1)}, ["ready", "in back-off for 1 s"]),
        ({"memory": failed(A, NOW)}, ["ready"]),
        ({"memory": failed(B, NOW + 9)}, ["ready"]),
        (
            {"memory": Memory(roll_out=RollOut(current=Replacement(worker=B, reason="drifted", replacement=A)))},
            ["ready", "replacement"],
        ),
        ({"operation": launching(A)}, ["joining"]),
        ({"operation": launching(B)}, ["ready"]),
    ],
)  # fmt: skip
def test_the_state_of_a_worker_names_its_phase_and_everything_that_holds_for_it(
    state: dict[str, Any], words: list[str]
) -> None:
    found = status_of(**state)
    assert states_of(found, found.instances[0], worker(A)) == words


@pytest.mark.parametrize(
    ("phase", "ec2_state", "words"),
    [
        ("usable", "running", ["ready"]),
        ("not_ready", "running", ["NotReady"]),
        ("cordoned", "running", ["cordoned"]),
        ("unjoined", "running", ["did not join"]),
        ("usable", "shutting-down", ["shutting-down"]),
        ("usable", "pending", ["joining"]),
    ],
)
def test_the_phase_is_that_of_the_last_run_unless_ec2_says_otherwise(
    phase: Any, ec2_state: str, words: list[str]
) -> None:
    found = status_of()
    assert states_of(found, replace(found.instances[0], state=ec2_state), worker(A, phase=phase)) == words


def test_a_worker_that_no_run_has_seen_joins_and_has_no_figures() -> None:
    (_, _, row) = worker_rows(status_of(ids=(A, B, C)), seen())
    assert (row.instance_id, row.cpu, row.memory, row.pods, row.state) == (C, "", "", "", "joining")
    assert row.price.startswith("$0.0"), "the price without CPU credits"


def test_a_worker_is_shown_with_its_figures_and_its_price() -> None:
    row = worker_rows(status_of(), seen())[0]
    assert (row.cpu, row.memory, row.pods, row.market, row.instance_type) == ("42 %", "25 %", "7", "spot", "t3.small")
    assert row.price.startswith("$0.0") and row.age == "83 min"


def test_an_expired_a_noticed_and_a_protected_worker_are_named_so() -> None:
    notice = Notice(instance_id=A, kind="spot", at=NOW)
    protection = Protection(instance_id=A, by="ana", since=NOW, until=NOW + 1, reason="")
    found = status_of(notices=(notice,), protections=(protection,))
    found = replace(found, settings=Settings(expire_after_seconds=3600))
    assert states_of(found, found.instances[0], worker(A)) == ["ready", "spot notice", "protected", "expired"]
    over = replace(found, now=NOW + 1, settings=Settings())
    assert states_of(over, over.instances[0], worker(A)) == ["ready", "spot notice"]


def test_a_drifted_worker_is_named_so() -> None:
    found = status_of()
    found = replace(found, settings=Settings(subnets=("zone-b=subnet-b",)))
    assert states_of(found, replace(found.instances[0], subnet_id="subnet-a"), worker(A)) == ["ready", "drifted"]


def pending(count: int, example: str, oldest: int) -> PodShape:
    return PodShape(cpu_milli=500, memory_mib=256, count=count, oldest_seconds=oldest, example=example)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (None, "not known"),
        ((), "none (60 s ago)"),
        ((pending(3, "shop/web-1", 95),), "3 (60 s ago), the oldest waits for 95 s: 3 x 500m/256Mi shop/web-1"),
        (
            tuple(pending(1, f"shop/p{n}", 10 * n) for n in range(5)),
            "5 (60 s ago), the oldest waits for 40 s: 1 x 500m/256Mi shop/p0, 1 x 500m/256Mi shop/p1, 1 x 500m/256Mi"
            " shop/p2, and 2 other shapes",
        ),
    ],
)
def test_the_pods_that_wait_are_named_with_their_number_and_age(shapes: Any, text: str) -> None:
    shown = screen(status_of(seen(pending=shapes)), width=300)
    (line,) = [line for line in shown if line.startswith("pending pods")]
    assert line.removeprefix("pending pods").strip() == text


def test_without_a_recorded_run_the_workers_are_shown_all_the_same() -> None:
    shown = screen(replace(status_of(), last=None))
    assert any(line.startswith("pending pods   not known") for line in shown)
    assert sum(line.startswith("i-") for line in shown) == 2


@pytest.mark.parametrize("width", [80, WIDE - 1, WIDE, 200])
@pytest.mark.parametrize(("workers", "height"), [(0, 24), (2, 24), (100, 24), (100, 60), (10, 5)])
def test_the_screen_fits_the_terminal_and_says_how_many_workers_it_leaves_out(
    width: int, workers: int, height: int
) -> None:
    ids = tuple(f"i-{n:017x}" for n in range(1, workers + 1))
    shown = screen(status_of(ids=ids), width=width, height=height)
    listed = sum(line.startswith("i-") for line in shown)
    assert max(map(len, shown)) <= width and len(shown) <= max(height, 15)
    assert any("an hour" in line for line in shown if line.startswith("worker ")) == (width >= WIDE and workers > 0)
    assert any("no worker runs" in line for line in shown) == (workers == 0)
    left = f"and {workers - listed} more workers" if listed < workers else None
    assert (left in shown) if left else not any("more worker" in line for line in shown)


@pytest.mark.parametrize("width", [1, 15, 24, 40])
def test_a_narrow_terminal_is_no_error(width: int) -> None:
    assert screen(status_of(seen(pending=(pending(3, "shop/web-1", 95),))), width=width, height=3)


class Watched:
    """A watch whose keys are scripted and whose readings are counted. problem: what a reading or a page raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *keys: str, problem: Exception | None = None) -> None:
        self.reads = 0
        self.problem = problem
        self.left = list(keys)
        self.out = Console(width=300, height=30, file=io.StringIO(), color_system=None, force_terminal=True)
        monkeypatch.setattr(top, "_keys", self.keys)
        monkeypatch.setattr(top, "read_status", lambda _: self.read())
        monkeypatch.setattr(top, "last_execution", lambda _: self.read())

    @contextlib.contextmanager
    def keys(self) -> Iterator[Callable[[float | None], str]]:
        yield lambda _: self.left.pop(0)

    def read(self) -> ClusterStatus:
        self.reads += 1
        if self.problem:
            raise self.problem
        return status_of()

    def advance(self, seconds: float) -> bool:
        return True

    def run(self, wait: float, found: ClusterStatus | None = None) -> str:
        top._Watch(self, self.out, wait, 1).run(found or status_of())  # type: ignore[arg-type]
        return str(self.out.file.getvalue())  # type: ignore[attr-defined]


def test_keys_do_not_make_it_read_more_often_and_q_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Watched(monkeypatch, *["\x1b"] * 50, "q")
    held.run(3600)
    assert held.reads == 0
    due = Watched(monkeypatch, "", "x", "q")
    due.run(0)
    assert due.reads == 2


UNREACHABLE = EndpointConnectionError(endpoint_url="https://states.example")


@pytest.mark.parametrize("problem", [UNREACHABLE, CommandError("no execution within two hours")])
@pytest.mark.parametrize("key", ["", "r"])
def test_a_reading_that_fails_is_a_note_and_the_screen_stays(
    monkeypatch: pytest.MonkeyPatch, key: str, problem: Exception
) -> None:
    watched = Watched(monkeypatch, key, "q", problem=problem)
    assert str(problem) in watched.run(0 if key == "" else 3600)
    assert watched.left == []


def test_without_a_recorded_run_the_explanation_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, "e", "x", "q")
    assert "no run has recorded a decision within two hours" in watched.run(3600, replace(status_of(), last=None))
    assert watched.reads == 0


def test_a_terminal_that_has_ended_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr(os, "read", lambda *_: b"")
        with top._keys() as pressed:
            os.write(ours, b"x")
            assert pressed(5) == "q"
    os.close(ours)
