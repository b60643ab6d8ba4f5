"""Replays executions of the simulator in aws-local-stepfunctions and lists every difference between the two.

moto's history gives the input, and the answer of every call of a task. The second interpreter computes all else by
itself: the order of the states, each state's input, retries, caught errors, waits, branches, items and the result.
"""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.runner import Execution
from tests.support import asl_tools

Lane = tuple[int | None, str]
"""An item of a Map, or None outside; and a branch of a Parallel, or "" outside. States of one lane have an order."""

ENDED_BY_ITSELF = ("SUCCEEDED", "FAILED")
SCHEDULED = "lambdaFunctionScheduledEventDetails"
ANSWERED = "lambdaFunctionSucceededEventDetails"
FAILED = ("lambdaFunctionFailedEventDetails", "lambdaFunctionScheduleFailedEventDetails")
TIMED_OUT = "lambdaFunctionTimedOutEventDetails"


class SecondInterpreter:
    """One node process. It lives as long as the tests of one process."""

    def __init__(self, packages: Path) -> None:
        command = [asl_tools.program("node"), str(asl_tools.SOURCE / "replay.cjs"), str(packages)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._known: dict[str, int] = {}

    def close(self) -> None:
        self._process.communicate()

    def differences(self, execution: Execution, definition: Mapping[str, Any]) -> list[str]:
        """What the second interpreter does otherwise than moto did in an execution that ended by itself."""
        found = self._replay(_job(execution), definition)
        return [
            *found["problems"],
            *(f"{state} was called by moto only" for state in found["unused"]),
            *_different_visits(
                _visits_of(execution.events, definition),
                _in_lanes(((v["item"], v["state"], v["input"]) for v in found["visits"]), definition),
            ),
            *_different_ends(execution, found),
        ]

    def _replay(self, job: dict[str, Any], definition: Mapping[str, Any]) -> dict[str, Any]:
        text = json.dumps(definition)
        if text not in self._known:
            self._known[text] = len(self._known)
            job["definition"] = definition
        job["machine"] = self._known[text]
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"node ended with status {self._process.wait()}; its error is in the captured output"
        answer: dict[str, Any] = json.loads(line)
        return answer


def _job(execution: Execution) -> dict[str, Any]:
    started = dt.datetime.fromtimestamp(execution.started_at, dt.UTC)
    return {
        "id": execution.arn,
        "input": execution.input,
        "started_at": execution.started_at,
        "start_time": started.isoformat(),
        "calls": list(_calls(execution.events)),
    }


def _calls(events: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every call of a task: its state, its input, and its output or error."""
    by_id = {event["id"]: event for event in events}
    ends = {}
    for event in events:
        if event.keys() & {ANSWERED, TIMED_OUT, *FAILED}:
            ends[_back_to(event, by_id, SCHEDULED)["id"]] = event
    for event in events:
        if SCHEDULED in event and event["id"] in ends:
            state = _back_to(event, by_id, "stateEnteredEventDetails")["stateEnteredEventDetails"]["name"]
            yield {"state": state, "input": json.loads(event[SCHEDULED]["input"]), **_answer(ends[event["id"]])}


def _answer(end: Mapping[str, Any]) -> dict[str, Any]:
    if ANSWERED in end:
        return {"output": json.loads(end[ANSWERED]["output"])}
    if TIMED_OUT in end:
        return {"timed_out": True}
    (details,) = (end[key] for key in FAILED if key in end)
    return {"error": details["error"], "cause": details.get("cause", "")}


def _back_to(event: Mapping[str, Any], by_id: Mapping[int, Mapping[str, Any]], key: str) -> Mapping[str, Any]:
    while key not in event:
        event = by_id[event["previousEventId"]]
    return event


def _visits_of(events: Sequence[Mapping[str, Any]], definition: Mapping[str, Any]) -> dict[Lane, list[tuple[str, Any]]]:
    by_id = {event["id"]: event for event in events}
    in_items = set(_states_in_items(definition))

    def item(event: Mapping[str, Any]) -> int | None:
        before: Mapping[str, Any] | None = event
        if event["stateEnteredEventDetails"]["name"] not in in_items:
            return None
        while before is not None:
            if "mapIterationStartedEventDetails" in before:
                index: int = before["mapIterationStartedEventDetails"]["index"]
                return index
            before = by_id.get(before["previousEventId"])
        return None

    entered = [(event, event["stateEnteredEventDetails"]) for event in events if "stateEnteredEventDetails" in event]
    return _in_lanes(((item(event), one["name"], json.loads(one["input"])) for event, one in entered), definition)


def _in_lanes(
    visits: Iterator[tuple[int | None, str, Any]], definition: Mapping[str, Any]
) -> dict[Lane, list[tuple[str, Any]]]:
    branches = dict(_branches(definition))
    lanes: dict[Lane, list[tuple[str, Any]]] = {}
    for item, state, given in visits:
        lanes.setdefault((item, branches[state]), []).append((state, given))
    return lanes


def _branches(machine: Mapping[str, Any], branch: str = "") -> Iterator[tuple[str, str]]:
    for name, state in machine["States"].items():
        yield name, branch
        for inner in filter(None, [state.get("ItemProcessor")]):
            yield from _branches(inner, branch)
        for inner in state.get("Branches", ()):
            yield from _branches(inner, inner["StartAt"])


def _states_in_items(machine: Mapping[str, Any]) -> Iterator[str]:
    """The states inside a Map. Those after it follow the events of one of its items."""
    for state in machine["States"].values():
        if processor := state.get("ItemProcessor"):
            yield from dict(_branches(processor))


def _different_visits(
    ours: Mapping[Lane, list[tuple[str, Any]]], theirs: Mapping[Lane, list[tuple[str, Any]]]
) -> Iterator[str]:
    for lane in sorted(ours.keys() | theirs.keys(), key=str):
        here, there = ours.get(lane, []), theirs.get(lane, [])
        if [state for state, _ in here] != [state for state, _ in there]:
            yield f"moto visits {_path(here)}, the second interpreter {_path(there)}"
            continue
        for (state, given), (_, other) in zip(here, there, strict=True):
            if given != other:
                yield f"{state} gets {json.dumps(given)} in moto and {json.dumps(other)} in the second interpreter"


def _different_ends(execution: Execution, found: Mapping[str, Any]) -> Iterator[str]:
    here = (execution.status, execution.output, execution.error, execution.cause)
    there = (found["status"], found.get("output"), found.get("error"), found.get("cause"))
    if here != there:
        yield f"it ends as {here} in moto and as {there} in the second interpreter"


def _path(visits: Sequence[tuple[str, Any]]) -> str:
    return " > ".join(state for state, _ in visits) or "nothing"
