"""Fakes of the services that handlers use: they answer what a test gives them and record what a handler does."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from node_fleet.adapters.ec2 import ServerMachine
from node_fleet.adapters.records import Event
from node_fleet.adapters.server import ServerCommands
from node_fleet.domain.model.errors import (
    MetricsUnavailableError,
    PausedError,
    ServerNotFoundError,
    ServerUnreachableError,
)
from node_fleet.domain.model.fleet_state import FleetState, Notice, Pause, Protection
from node_fleet.domain.model.hibernation import Hibernation, Order
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.set_aside import SetAside
from node_fleet.domain.model.snapshot import (
    STATUS_CHECK,
    HourlyLoad,
    Instance,
    NodeReading,
    PodShape,
    Reading,
    Snapshot,
    Worker,
)
from node_fleet.domain.notify.message import Message
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.domain.scaling.decision import Decision
from node_fleet.payload import put, to_payload
from node_fleet.settings import Settings

NOW = 1_000_000
A, B, C = (f"i-{n:017x}" for n in (1, 2, 3))
OPERATION_ID = "down-7-1000000"
RUN = Run(execution_id="run-1", trigger="schedule", scheduled_at=NOW, started_at=NOW, fence=7)
LOST_VOLUME = "volume shop/data pvc-1 shop/db-0\n"
"""What drain_node.sh and forget_node.sh print of a volume that ends with its worker."""
DRAINED = f"node/{A} drained\nresult: drained {A}\n"
Handler = Callable[[dict[str, Any], object], dict[str, Any]]


def answer(stdout: str = "", code: int = 0, status: str = "", stderr: str = "") -> CommandResult:
    """What SSM answers of a command."""
    shown = status or ("Success" if code == 0 else "Failed")
    return CommandResult(
        status=shown,
        exit_code=code,
        stdout=stdout,
        stderr=stderr,
        final=shown not in ("Pending", "InProgress", "Delayed", "InvocationDoesNotExist"),
        known=shown in ("Success", "Failed"),
    )


RUNNING = answer(status="InProgress", code=-1)
TIMED_OUT = answer(status="TimedOut", code=-1)


def inspection_text(*workers: str, at: int = NOW, zones: Sequence[str] = ("a", "b")) -> str:
    """What inspect_nodes.sh prints of these lines."""
    lines = [f"nf1 {at} {' '.join(zones)}", *workers]
    return "\n".join([*lines, f"end {len(lines)} {zlib.crc32(chr(10).join(lines).encode()):08x}"])


def worker_line(
    instance_id: str, flags: str = "RWJ", cordon: str = "-", blockers: str = "-", *, name: str = "=", zone: int = 0
) -> str:
    """A node with its flags: R ready, C cordoned, T tainted, W worker, S server, J one of several removals."""
    return f"w {instance_id} {name} {zone} {flags} 900 2/1/0/0 500/2000/400/1900/110 - {cordon} - {blockers} 0/0 -"


def check_text(
    instance_id: str = A, owner: str = OPERATION_ID, left: int = 0, going: int = 0, ready: str = "ready"
) -> str:
    """What check_node.sh prints of a node: the owner of its cordon, the pods left and those that shut down."""
    cordon = "cordoned" if owner else "open"
    return f"node {instance_id} {instance_id} {cordon} {owner or '-'} {ready} {left} {going}\nend\n"


ALL_FREE = inspection_text(*(worker_line(i) for i in (A, B, C)))
A_CORDONED = inspection_text(worker_line(A, "RCW", OPERATION_ID), worker_line(B), worker_line(C))


def inspected(text: str) -> dict[str, Any]:
    """The `inspection` of the payload that InspectNodes leaves."""
    return {"known": True, "detail": "3 nodes", "lines": text.splitlines()}


@dataclass
class Clock:
    time: int = NOW

    def now(self) -> int:
        return self.time


@dataclass
class State:
    """The state item as StateStore shows it."""

    clock: Clock
    item: FleetState = field(default_factory=lambda: FleetState(cluster_id="c"))
    calls: list[str] = field(default_factory=list)
    closed: list[Memory] = field(default_factory=list)

    def load(self, *, with_memory: bool = True) -> FleetState:
        return self.item if with_memory else replace(self.item, memory=Memory())

    def renew(self, run: Run, *, even_paused: bool = False) -> FleetState:
        self.calls.append("renew")
        if self.item.pause and self.item.pause.until > self.clock.now() and not even_paused:
            raise PausedError(f"paused by {self.item.pause.by}")
        return self.item

    def save_operation(self, run: Run, operation: Operation, set_aside: SetAside | None = None) -> None:
        self.calls.append(f"save {'+'.join(t.phase for t in operation.targets)}")
        self.item = replace(self.item, operation=operation)
        self._keep(set_aside)

    def begin_termination(self, run: Run, operation: Operation, instance_id: str) -> None:
        if protection := self.item.active_protections(self.clock.now()).get(instance_id):
            act = "rebooted" if operation.reboot else "terminated"
            raise PausedError(f"worker {instance_id} was not {act}: {protection.sentence}")
        self.save_operation(run, operation)

    def close_operation(
        self, run: Run, memory: Memory, *, node_count: int | None = None, set_aside: SetAside | None = None
    ) -> None:
        self.calls.append("close")
        self.closed.append(memory)
        self.item = replace(self.item, operation=None, memory=memory)
        self._keep(set_aside)

    def save_hibernation(self, run: Run, hibernation: Hibernation, order: Order | None = None) -> None:
        self.calls.append(f"hibernation {hibernation.phase}")
        self.item = replace(self.item, hibernation=hibernation, hibernate_order=order or self.item.hibernate_order)

    def update_set_aside(self, run: Run, removal: SetAside) -> None:
        self._keep(removal)

    def _keep(self, removal: SetAside | None) -> None:
        if removal:
            self.calls.append(f"set aside {removal.kind}")
            found = {r.instance_id: r for r in (*self.item.set_aside, removal)}
            self.item = replace(self.item, set_aside=tuple(found.values()))

    def drop_set_aside(self, run: Run, instance_id: str) -> None:
        self.calls.append("drop set aside")
        kept = tuple(r for r in self.item.set_aside if r.instance_id != instance_id)
        self.item = replace(self.item, set_aside=kept)

    @property
    def phases(self) -> list[TargetPhase]:
        """The phases of the recorded targets."""
        return [target.phase for target in self.item.operation.targets] if self.item.operation else []


@dataclass
class Ec2:
    fleet: tuple[Instance, ...] = ()
    state: dict[str, str] = field(default_factory=dict)
    terminated: list[str] = field(default_factory=list)
    rebooted: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    image_questions: int = 0
    impaired_since: dict[str, int] = field(default_factory=dict)
    consoles: dict[str, str] = field(default_factory=dict)
    server_state: str = "running"
    switched: list[str] = field(default_factory=list)
    error: Exception | None = None
    standby: tuple[Instance, ...] = ()
    stopped: list[str] = field(default_factory=list)
    tags: dict[str, dict[str, str]] = field(default_factory=dict)
    stop_error: Exception | None = None
    tag_error: Exception | None = None

    def server_machine(self) -> ServerMachine:
        if not self.server_state:
            raise ServerNotFoundError("no instance carries the tag Role=k3s-master; add it to the K3s server")
        return ServerMachine(instance_id="i-server", state=self.server_state)

    def stop(self, instance_id: str) -> None:
        self._switch(f"stop {instance_id}")

    def start(self, instance_id: str) -> None:
        self._switch(f"start {instance_id}")

    def _switch(self, what: str) -> None:
        if self.error:
            raise self.error
        self.switched.append(what)

    def console_output(self, instance_id: str) -> str:
        if self.error:
            raise self.error
        return self.consoles.get(instance_id, "")

    def impaired(self, before: int) -> dict[str, str]:
        if self.error:
            raise self.error
        return {i: STATUS_CHECK for i, since in self.impaired_since.items() if since <= before}

    def launch_image(self, version: str) -> str:
        self.image_questions += 1
        if self.error:
            raise self.error
        return self.images[version]

    def instances(self) -> tuple[Instance, ...]:
        return self.fleet

    def with_standby(self) -> tuple[tuple[Instance, ...], tuple[Instance, ...]]:
        return self.fleet, self.standby

    def find(self, ids: Iterable[str]) -> dict[str, Instance]:
        """Of an instance that only its state is known for, the rest does not matter."""
        known = {i.instance_id: i for i in (*self.fleet, *self.standby)}
        states = {i: state for i, state in self.states(ids).items() if state != "gone"}
        return {i: replace(known.get(i) or instance(i), state=state) for i, state in states.items()}

    def tag(self, ids: Iterable[str], tags: dict[str, str]) -> None:
        if self.tag_error:
            raise self.tag_error
        self.tags |= {i: tags for i in ids}

    def stop_worker(self, instance_id: str) -> None:
        if self.stop_error:
            raise self.stop_error
        self.stopped.append(instance_id)

    def states(self, ids: Iterable[str]) -> dict[str, str]:
        return {i: self.state.get(i, "gone") for i in ids}

    def terminate(self, ids: Iterable[str]) -> None:
        if self.error:
            raise self.error
        self.terminated += list(ids)

    def reboot(self, instance_id: str) -> None:
        if self.error:
            raise self.error
        self.rebooted.append(instance_id)

    def unattached_volumes(self) -> tuple[tuple[str, int], ...]:
        if self.error:
            raise self.error
        return (("vol-1", 100),)


class Server(ServerCommands):
    """Records the commands and gives each document its answer: a result, results used up one by one, or an error.

    The id of a command is the name of its document. A drain takes `drain_seconds`.
    """

    def __init__(self, clock: Any, *, unreachable: bool = False) -> None:  # nothing of SSM is used
        self.clock = self._clock = clock
        self.unreachable = unreachable
        self.drain_seconds = 0.0
        self.ends_at: dict[str, float] = {}
        self.sent_at: list[float] = []
        self.answers: dict[str, Any] = {"DrainNode": RUNNING}
        self.commands: list[tuple[str, dict[str, str]]] = []
        self.log: list[str] = []

    def says(self, document: str, stdout: str = "", code: int = 0, status: str = "") -> None:
        self.unreachable = False
        self.answers[document] = answer(stdout, code, status)

    def run(self, document: str, parameters: dict[str, str]) -> CommandResult:
        return self._answer(self.send(document, parameters))

    def send(self, document: str, parameters: dict[str, str]) -> str:
        if self.unreachable:
            raise ServerUnreachableError("the K3s server is not managed by SSM")
        self.commands.append((document, dict(parameters)))
        self.log.append(document)
        self.sent_at.append(self.clock.now())
        if document == "DrainNode":
            self.ends_at[document] = self.clock.now() + self.drain_seconds
        return document

    def result(self, command_id: str) -> CommandResult:
        self.log.append(f"result {command_id}")
        return self._answer(command_id)

    def cancel(self, command_id: str) -> None:
        self.log.append(f"cancel {command_id}")
        self.commands.append(("cancel", {"CommandId": command_id}))
        if self.answers.get(command_id) is RUNNING:
            self.answers[command_id] = answer(status="Cancelled", code=-1)

    def wait(self, command_id: str) -> CommandResult:
        self.log.append(f"wait {command_id}")
        return self._answer(command_id)

    def documents(self) -> list[str]:
        return [document for document, _ in self.commands]

    def _answer(self, command_id: str) -> CommandResult:
        if self.clock.now() < self.ends_at.get(command_id, 0):
            return replace(RUNNING, command_id=command_id)
        found = self.answers.get(command_id, answer(code=69, stdout="result: unreadable nothing was prepared"))
        if isinstance(found, Exception):
            raise found
        result: CommandResult = found.pop(0) if isinstance(found, list) else found
        return replace(result, command_id=command_id)


@dataclass
class Prometheus:
    """Returns the given nodes, pods and reading; `down` makes every query fail as the real reader does."""

    down: bool = False
    known_nodes: tuple[NodeReading, ...] = ()
    shapes: tuple[PodShape, ...] | None = ()
    reading: Reading | None = None
    found: tuple[float, ...] = ()

    def values(self, name: str, query: str, now: int) -> tuple[float, ...]:
        self._check()
        return self.found

    def nodes(self, now: int) -> tuple[NodeReading, ...]:
        self._check()
        return self.known_nodes

    def pending(self, now: int) -> tuple[PodShape, ...] | None:
        self._check()
        return self.shapes

    def read(self, now: int) -> Reading:
        self._check()
        assert self.reading is not None
        return self.reading

    def _check(self) -> None:
        if self.down:
            raise MetricsUnavailableError("Prometheus at http://10.0.0.1:30090 does not answer")


@dataclass
class Publisher:
    messages: list[tuple[str, Any]] = field(default_factory=list)
    error: Exception | None = None

    def publish(self, message: Message) -> None:
        if self.error:
            raise self.error
        self.messages.append((message.subject, to_payload(message)))


@dataclass
class Records:
    """The two tables: what is stored in this run, what is there from before, and which spans are asked for."""

    stored: list[Event] = field(default_factory=list)
    readings: list[Snapshot] = field(default_factory=list)
    snapshot: Snapshot | None = None
    past: list[Event] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    error: Exception | None = None

    def latest_snapshot(self, since: int) -> Snapshot | None:
        return self.snapshot if self.snapshot and self.snapshot.read_at >= since else None

    def put_reading(self, snapshot: Snapshot) -> None:
        self.readings.append(snapshot)

    def put_event(self, kind: str, at: int, data: Any, *, key: str = "") -> None:
        if self.error:
            raise self.error
        self.stored.append(Event(kind=kind, at=at, key=key, data=data))

    def events(self, since: int, until: int) -> tuple[Event, ...]:
        self.asked.append((since, until))
        return tuple(event for event in self.past if since <= event.at < until)

    def hourly_loads(self, since: int, until: int) -> tuple[HourlyLoad, ...]:
        self.asked.append((since, until))
        return (HourlyLoad(hour_epoch=0, cpu_percent=1.0, readings=30),)


class FakeServices:
    """What load_services() returns: three running workers A, B and C."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.settings = Settings()
        self.ec2 = Ec2(fleet=tuple(instance(i) for i in (A, B, C)))
        self.server = self.reports = Server(self.clock)
        self.prometheus = Prometheus()
        self.publisher = Publisher()
        self.records = Records()
        self.state = State(self.clock)
        self.workflows: Any = None

    def reported(self) -> dict[str, Any]:
        """The last report that the server was to write into the cluster."""
        word = next(sent["Report"] for document, sent in reversed(self.server.commands) if document == "RecordEvents")
        packed = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        found: dict[str, Any] = json.loads(zlib.decompress(packed))
        return found

    def notice(self, instance_id: str) -> None:
        notice = Notice(instance_id=instance_id, kind="spot", at=NOW)
        self.state.item = replace(self.state.item, notices=(*self.state.item.notices, notice))

    def protect(self, instance_id: str) -> None:
        protection = Protection(instance_id=instance_id, by="ana", since=NOW, until=NOW + 7200, reason="a long job")
        self.state.item = replace(self.state.item, protections=(protection,))

    def set_aside(self, instance_id: str, **changes: Any) -> None:
        """Put a removal into the item that an earlier run has set aside."""
        self.state._keep(aside(instance_id, **changes))
        self.state.calls.clear()

    def pause(self) -> None:
        self.state.item = replace(self.state.item, pause=Pause(reason="a sale", by="ana", since=NOW, until=NOW + 600))

    def begun(self, *phases: TargetPhase, not_ready: bool = False) -> None:
        """Put an operation with targets A, B, C in these phases into the item."""
        self.state.item = replace(self.state.item, operation=scale_down(*phases, not_ready=not_ready))

    def payload(self, **more: Any) -> dict[str, Any]:
        """The payload that a scale-down state gets: decided, with three usable workers, nothing pending."""
        decision = Decision(action="scale_down", count=1, rule="idle", sentence="idle -> -1", reasons=())
        base = put(
            {},
            run=RUN,
            memory=Memory(),
            decision={k: v for k, v in to_payload(decision).items() if k != "memory"},
            snapshot=Snapshot(at=NOW, source="live", pending=(), workers=tuple(worker(i) for i in (A, B, C))),
            operation=self.state.item.operation,
            alerts=(),
            notes=(),
        )
        return put(base, **more)

    def run(self, handler: Handler, **more: Any) -> dict[str, Any]:
        """What the handler answers to that payload."""
        return handler(self.payload(**more), None)


def worker(instance_id: str, **changes: Any) -> Worker:
    fields: dict[str, Any] = {
        "zone": "a",
        "market": "spot",
        "instance_type": "t3.small",
        "phase": "usable",
        "launched_at": NOW - 5000,
        "node_name": instance_id,
        **changes,
    }
    return Worker(instance_id=instance_id, **fields)


def instance(instance_id: str) -> Instance:
    return Instance(
        instance_id=instance_id,
        zone="a",
        instance_type="t3.small",
        market="spot",
        state="running",
        launched_at=NOW - 5000,
    )


def target(instance_id: str, phase: TargetPhase, *, not_ready: bool = False) -> Target:
    """A worker that a scale-down removes; its drain is the server's command DrainNode."""
    begun = phase != "selected"
    return Target(
        instance_id=instance_id,
        node_name=instance_id,
        zone="a",
        phase=phase,
        command_id="DrainNode" if begun else "",
        started_at=NOW if begun else 0,
        not_ready=not_ready,
    )


def aside(instance_id: str, **changes: Any) -> SetAside:
    """A removal that was set aside ten minutes ago."""
    fields: dict[str, Any] = {"kind": "termination", "detail": "EC2 state shutting-down", "since": NOW - 600, **changes}
    return SetAside(instance_id=instance_id, node_name=instance_id, operation_id=OPERATION_ID, **fields)


def scale_down(*phases: TargetPhase, not_ready: bool = False, **changes: Any) -> Operation:
    """A scale-down whose targets A, B and C are in these phases."""
    targets = tuple(target(name, phase, not_ready=not_ready) for name, phase in zip((A, B, C), phases, strict=False))
    fields: dict[str, Any] = {
        "operation_id": OPERATION_ID,
        "kind": "scale_down",
        "phase": "draining",
        "started_at": NOW,
        "requested": len(targets),
        "reason": "idle for 600 s",
        "execution_id": "run-1",
        "targets": targets,
        "workers_before": 3,
        "phase_at": NOW,
        **changes,
    }
    return Operation(**fields)
