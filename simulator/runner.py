"""Starting executions and following them: the path, the payloads and the edges that each one walked.

It reads moto's history and keeps a small record of its own, so that thousands of finished executions fit.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import marshal
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.model.value_class import value_class
from simulator.clock import VirtualClock

Edge = tuple[str, str]
RUNNING = "RUNNING"
FINISHED_KEPT = 200
HISTORIES_KEPT = 20
LIKE_BYTES = 32_768  # zlib looks no further back
ENTERED = "StateEntered"
SCALARS = frozenset({str, int, float, bool, type(None)})


class RunnerError(RuntimeError):
    """An execution could not be started or followed."""


@value_class
class StateVisit:
    """One state of one execution, from its entry to its exit; exited_at is None when it was never left."""

    name: str
    type: str
    entered_at: float
    exited_at: float | None
    input: Any
    output: Any


@dataclass(slots=True, kw_only=True, eq=False)
class Execution:
    """One execution. What it did can be asked while it runs; its full history is kept compressed once it ended.

    _like: a history of the same state machine; what both have in common takes no place.
    """

    arn: str
    name: str
    machine: str
    input: Any
    started_at: float
    status: str = RUNNING
    ended_at: float | None = None
    error: str | None = None
    cause: str | None = None
    events_count: int = 0
    _events: Callable[[], list[dict[str, Any]]] = field(default=list)
    _packed: bytes = b""
    _like: bytes = b""

    @property
    def running(self) -> bool:
        return self.status == RUNNING

    @property
    def events(self) -> list[dict[str, Any]]:
        """The history events as Step Functions lists them."""
        if not self._packed:
            return self._events()
        unpacked: list[dict[str, Any]] = marshal.loads(zlib.decompressobj(zdict=self._like).decompress(self._packed))
        return unpacked

    @property
    def output(self) -> Any:
        """What a succeeded execution answered; None otherwise."""
        if self.status != "SUCCEEDED":
            return None
        return json.loads(self.events[-1]["executionSucceededEventDetails"]["output"])

    @property
    def path(self) -> list[str]:
        """The names of the states entered, in order."""
        return [
            event["stateEnteredEventDetails"]["name"] for event in self.events if "stateEnteredEventDetails" in event
        ]

    @property
    def history(self) -> list[StateVisit]:
        """The states in the order they were entered, with what went in and what came out."""
        return list(_visits(self.events))

    @property
    def edges(self) -> set[Edge]:
        """The pairs of states between which it went, and from a Parallel or Map into its branches."""
        return set(_walked(self.events))

    def output_of(self, state: str) -> Any:
        """What came out of a state the last time it was left."""
        return self._last(state).output

    def pack(self, like: bytes) -> bytes:
        """Keep the history compressed, and return it as it was before. A payload of several events is in it once."""
        events = self._events()
        packed, self.events_count, self._like = marshal.dumps(_plain(events)), len(events), like
        packer = zlib.compressobj(3, zdict=like)
        self._packed = packer.compress(packed) + packer.flush()
        self._events = list
        return packed

    def _last(self, state: str) -> StateVisit:
        visits = [visit for visit in self.history if visit.name == state]
        if not visits:
            raise RunnerError(f"execution {self.name!r} never entered {state!r}; it went {' > '.join(self.path)}")
        return visits[-1]


class Runner:
    """The executions of all state machines, in the order of their start."""

    def __init__(self, clock: VirtualClock, client: Callable[[], Any]) -> None:
        self.executions: list[Execution] = []
        self.on_change: list[Callable[[Execution], object]] = []
        self.default_machine: str | None = None
        self._clock = clock
        self._client = client
        self._by_moto: dict[int, Execution] = {}
        self._finished: list[Any] = []
        self._histories: dict[str, bytes] = {}
        self._numbers = itertools.count(1)

    def start(self, input: Any = None, name: str | None = None, *, machine: str | None = None) -> Execution:
        """Starts an execution through the API. machine is an ARN; the default is `default_machine`."""
        arn = machine or self.default_machine
        if arn is None:
            raise RunnerError("no state machine: create one, or name it by its ARN")
        reply = self._client().start_execution(
            stateMachineArn=arn, name=name or f"run-{next(self._numbers):06d}", input=json.dumps(input or {})
        )
        return self.get(reply["executionArn"])

    def run(self, input: Any = None, name: str | None = None, *, machine: str | None = None) -> Execution:
        """Starts an execution and runs the clock until it has ended."""
        execution = self.start(input, name, machine=machine)
        self.finish(execution)
        return execution

    def finish(self, execution: Execution, *, limit_seconds: float = 86_400.0) -> None:
        """Runs the clock until an execution has ended."""
        limit = self._clock.now() + limit_seconds
        if not self._clock.run_until(lambda: not execution.running, limit=limit):
            raise RunnerError(f"{execution.name!r} still runs after {limit_seconds:g} s: {' > '.join(execution.path)}")

    def stop(self, execution: Execution, *, error: str = "", cause: str = "") -> None:
        self._client().stop_execution(executionArn=execution.arn, error=error, cause=cause)

    def get(self, arn: str) -> Execution:
        for execution in reversed(self.executions):
            if execution.arn == arn:
                return execution
        raise RunnerError(f"no execution {arn!r}")

    def running(self) -> list[Execution]:
        return list(self._by_moto.values())

    def started(self, execution: Any) -> None:
        """Called by the patch just before moto begins."""
        record = Execution(
            arn=execution.exec_arn,
            name=execution.name,
            machine=execution.state_machine.name,
            input=execution.input_data,
            started_at=self._clock.now(),
        )
        record._events = lambda: _events_of(execution)
        self._by_moto[id(execution)] = record
        self.executions.append(record)
        self._announce(record)

    def finished(self, execution: Any) -> None:
        """Called by the patch when moto has ended an execution."""
        record = self._by_moto.pop(id(execution))
        _fail_on_runtime_error(execution)
        record.status = execution.exec_status.value
        record.ended_at = self._clock.now()
        record.error, record.cause = execution.error, execution.cause
        self._announce(record)  # its listeners read the history, which is quicker before it is packed
        history = record.pack(self._histories.get(record.machine, b""))
        self._histories.setdefault(record.machine, history[-LIKE_BYTES:])
        self._prune(execution)

    def _announce(self, record: Execution) -> None:
        for listener in self.on_change:
            listener(record)

    def _prune(self, execution: Any) -> None:
        """moto keeps everything for ever; the records here are enough, but for the most recent ones."""
        self._finished.append(execution)
        for older in self._finished[-HISTORIES_KEPT - 1 : -HISTORIES_KEPT]:
            older.exec_worker.env.event_manager._history_event_list.clear()
        if len(self._finished) > FINISHED_KEPT:
            oldest = self._finished.pop(0)
            siblings = _siblings(oldest)
            if oldest in siblings:
                siblings.remove(oldest)


def _siblings(execution: Any) -> list[Any]:
    backend = execution.state_machine.backend
    for machine in backend.state_machines:
        if machine.name == execution.state_machine.name:
            executions: list[Any] = machine.executions
            return executions
    return []


def _events_of(execution: Any) -> list[dict[str, Any]]:
    env = execution.exec_worker.env if execution.exec_worker else None
    return [] if env is None else list(env.event_manager._history_event_list)


def _plain(value: Any) -> Any:
    """Its JSON form; what JSON lacks becomes text."""
    if type(value) in SCALARS:
        return value
    if isinstance(value, dict):
        return {name: item if type(item) in SCALARS else _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str.__str__(value) if isinstance(value, str) else str(value)  # the text of moto's enumerations


def _fail_on_runtime_error(execution: Any) -> None:
    """A state that failed with States.Runtime fails the execution on AWS, caught or not."""
    for event in _events_of(execution):
        for key, details in event.items():
            if key.endswith("FailedEventDetails") and details.get("error") == "States.Runtime":
                execution.exec_status = type(execution.exec_status)("FAILED")
                execution.error, execution.cause = "States.Runtime", details.get("cause")
                return


def _epoch(event: Mapping[str, Any]) -> float:
    return dt.datetime.fromisoformat(str(event["timestamp"])).timestamp()


def _visits(events: list[dict[str, Any]]) -> Iterator[StateVisit]:
    exits = _exits(events)
    for event in events:
        entered = event.get("stateEnteredEventDetails")
        if entered is None:
            continue
        left = exits.get(event["id"])
        yield StateVisit(
            name=entered["name"],
            type=str(event["type"]).removesuffix(ENTERED),
            entered_at=_epoch(event),
            exited_at=None if left is None else _epoch(left),
            input=json.loads(entered.get("input") or "null"),
            output=None if left is None else json.loads(left["stateExitedEventDetails"].get("output") or "null"),
        )


def _exits(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The exit event of each entry event's id: the next exit of the same name."""
    open_entries: dict[str, list[int]] = {}
    exits: dict[int, dict[str, Any]] = {}
    for event in events:
        if "stateEnteredEventDetails" in event:
            open_entries.setdefault(event["stateEnteredEventDetails"]["name"], []).append(event["id"])
        elif "stateExitedEventDetails" in event:
            waiting = open_entries.get(event["stateExitedEventDetails"]["name"])
            if waiting:
                exits[waiting.pop(0)] = event
    return exits


def _walked(events: list[dict[str, Any]]) -> Iterator[Edge]:
    by_id = {event["id"]: event for event in events}
    for event in events:
        if "stateEnteredEventDetails" in event:
            origin = _origin(event, by_id)
            if origin is not None:
                yield origin, event["stateEnteredEventDetails"]["name"]


def _origin(event: Mapping[str, Any], by_id: Mapping[int, dict[str, Any]]) -> str | None:
    before = by_id.get(event["previousEventId"])
    while before is not None:
        for key in ("stateExitedEventDetails", "stateEnteredEventDetails"):
            if key in before:
                name: str = before[key]["name"]
                return name
        before = by_id.get(before["previousEventId"])
    return None
