"""Recording stand-ins for what the scale-down states touch: state item, EC2, server, Prometheus, clock."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest

from node_fleet.adapters.server import ServerCommands
from node_fleet.domain.model.errors import LeaseLostError, PausedError
from node_fleet.domain.model.fleet_state import FleetState, Notice, Pause
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation, Target, TargetPhase
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Instance, PodShape, Snapshot, Worker
from node_fleet.domain.scale_down.drain import CommandResult
from node_fleet.domain.scaling.decision import Decision
from node_fleet.payload import put, to_payload
from node_fleet.settings import Settings

NOW = 1_000_000
A, B, C = (f"i-{n:017x}" for n in (1, 2, 3))
OPERATION_ID = "down-7-1000000"
RUN = Run(execution_id="run-1", trigger="schedule", scheduled_at=NOW, started_at=NOW, fence=7)
DRAINED = f"node/{A} drained\nresult: drained {A}\n"


def answer(stdout: str = "", code: int = 0, status: str = "", stderr: str = "") -> CommandResult:
    shown = status or ("Success" if code == 0 else "Failed")
    return CommandResult(
        status=shown,
        exit_code=code,
        stdout=stdout,
        stderr=stderr,
        final=shown not in ("Pending", "InProgress", "Delayed", "InvocationDoesNotExist"),
        known=shown in ("Success", "Failed"),
    )


def inspection_text(*workers: str, at: int = NOW) -> str:
    lines = [f"nf1 {at} a b", *workers]
    return "\n".join([*lines, f"end {len(lines)} {zlib.crc32(chr(10).join(lines).encode()):08x}"])


def worker_line(instance_id: str, flags: str = "RW", cordon: str = "-", blockers: str = "-", pods: int = 2) -> str:
    return f"w {instance_id} = 0 {flags} 900 {pods}/1/0/0 500/2000 - {cordon} - {blockers} 0"


def look_text(
    instance_id: str = A, owner: str = OPERATION_ID, left: int = 0, going: int = 0, ready: str = "ready"
) -> str:
    cordon = "cordoned" if owner else "open"
    return f"node {instance_id} {instance_id} {cordon} {owner or '-'} {ready} {left} {going}\nend\n"


@dataclass
class Clock:
    time: int = NOW

    def now(self) -> int:
        return self.time


@dataclass
class State:
    """The state item as StateStore shows it; lost: another run holds the lease."""

    clock: Clock
    item: FleetState = field(default_factory=lambda: FleetState(cluster_id="c"))
    lost: bool = False
    calls: list[str] = field(default_factory=list)
    closed: list[Memory] = field(default_factory=list)

    def renew(self, run: Run, *, even_paused: bool = False) -> FleetState:
        self.calls.append("renew")
        if self.lost:
            raise LeaseLostError("the lock is another's")
        if self.item.pause and self.item.pause.until > self.clock.now() and not even_paused:
            raise PausedError(f"paused by {self.item.pause.by}")
        return self.item

    def save_operation(self, run: Run, operation: Operation) -> None:
        self.calls.append(f"save {'+'.join(t.phase for t in operation.targets)}")
        self.item = replace(self.item, operation=operation)

    def close_operation(self, run: Run, memory: Memory, *, node_count: int | None = None) -> None:
        self.calls.append("close")
        self.closed.append(memory)
        self.item = replace(self.item, operation=None, memory=memory)


@dataclass
class Ec2:
    fleet: tuple[Instance, ...] = ()
    state: dict[str, str] = field(default_factory=dict)
    terminated: list[str] = field(default_factory=list)
    error: Exception | None = None

    def instances(self) -> tuple[Instance, ...]:
        return self.fleet

    def states(self, ids: Iterable[str]) -> dict[str, str]:
        return {i: self.state.get(i, "gone") for i in ids}

    def terminate(self, ids: Iterable[str]) -> None:
        if self.error:
            raise self.error
        self.terminated += list(ids)


@dataclass
class Server(ServerCommands):
    """Answers each document from `says` (a result, a list of results used up one by one, or an error)."""

    says: dict[str, Any] = field(default_factory=dict)
    drain_result: CommandResult = field(default_factory=lambda: answer(status="InProgress", code=-1))
    sent: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    after_cancel: CommandResult | None = None
    log: list[str] = field(default_factory=list)

    def send(self, document: str, parameters: dict[str, str]) -> str:
        self._note(document, parameters)
        return f"c-{len(self.sent)}"

    def run(self, document: str, parameters: dict[str, str]) -> CommandResult:
        self._note(document, parameters)
        found = self.says.get(document, answer(code=69, stdout="result: unreadable nothing was prepared"))
        if isinstance(found, Exception):
            raise found
        result: CommandResult = found.pop(0) if isinstance(found, list) else found
        return result

    def result(self, command_id: str) -> CommandResult:
        self.log.append(f"result {command_id}")
        return self.drain_result

    def cancel(self, command_id: str) -> None:
        self.log.append(f"cancel {command_id}")
        self.cancelled.append(command_id)

    def wait(self, command_id: str) -> CommandResult:
        self.log.append(f"wait {command_id}")
        self.drain_result = self.after_cancel or answer(status="Cancelled", code=-1)
        return self.drain_result

    def documents(self) -> list[str]:
        return [document for document, _ in self.sent]

    def _note(self, document: str, parameters: dict[str, str]) -> None:
        self.sent.append((document, dict(parameters)))
        self.log.append(document)


@dataclass
class Prometheus:
    shapes: tuple[PodShape, ...] | None = ()
    error: Exception | None = None

    def pending(self, now: int) -> tuple[PodShape, ...] | None:
        if self.error:
            raise self.error
        return self.shapes


@dataclass
class Tools:
    """What load_services() gives, in one hand."""

    clock: Clock = field(default_factory=Clock)
    settings: Settings = field(default_factory=Settings)
    ec2: Ec2 = field(default_factory=Ec2)
    server: Server = field(default_factory=Server)
    prometheus: Prometheus = field(default_factory=Prometheus)
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(self.clock)
        self.ec2.fleet = tuple(instance(i) for i in (A, B, C))

    def notice(self, instance_id: str) -> None:
        notice = Notice(instance_id=instance_id, kind="spot", at=NOW)
        self.state.item = replace(self.state.item, notices=(*self.state.item.notices, notice))

    def pause(self, until: int = NOW + 600) -> None:
        self.state.item = replace(self.state.item, pause=Pause(reason="a sale", by="ana", since=NOW, until=until))

    def begun(self, *phases: TargetPhase, not_ready: bool = False) -> Operation:
        """Put an operation with targets A, B, C in these phases into the item; its command is c-9."""
        found = operation(*phases, not_ready=not_ready)
        self.state.item = replace(self.state.item, operation=found)
        return found


def instance(instance_id: str, **changed: Any) -> Instance:
    plain = Instance(
        instance_id=instance_id,
        zone="a",
        instance_type="t3.small",
        market="spot",
        state="running",
        launched_at=NOW - 5000,
    )
    return replace(plain, **changed)


def operation(*phases: TargetPhase, not_ready: bool = False) -> Operation:
    targets = tuple(
        Target(
            instance_id=name,
            node_name=name,
            zone="a",
            phase=phase,
            command_id="" if phase == "selected" else "c-9",
            started_at=0 if phase == "selected" else NOW,
            not_ready=not_ready,
        )
        for name, phase in zip((A, B, C), phases, strict=False)
    )
    return Operation(
        operation_id=OPERATION_ID,
        kind="scale_down",
        phase="draining",
        started_at=NOW,
        requested=len(targets),
        reason="idle for 600 s",
        execution_id="run-1",
        targets=targets,
        workers_before=3,
        phase_at=NOW,
    )


def event(tools: Tools, **more: Any) -> dict[str, Any]:
    """The payload that a scale-down state gets: decided, with three usable workers, nothing pending."""
    workers = tuple(
        Worker(
            instance_id=i,
            zone="a",
            market="spot",
            instance_type="t3.small",
            phase="usable",
            launched_at=NOW - 5000,
            node_name=i,
        )
        for i in (A, B, C)
    )
    decision = Decision(action="scale_down", count=1, rule="idle", sentence="idle -> -1", reasons=())
    base = put(
        {},
        run=RUN,
        memory=Memory(),
        decision={k: v for k, v in to_payload(decision).items() if k != "memory"},
        snapshot=Snapshot(at=NOW, source="live", pending=(), workers=workers),
        operation=tools.state.item.operation,
        alerts=(),
        notes=(),
    )
    return put(base, **more)


ALL_FREE = inspection_text(*(worker_line(i) for i in (A, B, C)))
A_CORDONED = inspection_text(worker_line(A, "RCW", OPERATION_ID), worker_line(B), worker_line(C))


def inspected(text: str) -> dict[str, Any]:
    """The `inspection` of the payload that InspectNodes leaves."""
    return {"known": True, "detail": "3 nodes", "lines": text.splitlines()}


def wired(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> Tools:
    """Give a handler these services."""
    tools = Tools()
    monkeypatch.setattr(module, "load_services", lambda: tools)
    return tools
