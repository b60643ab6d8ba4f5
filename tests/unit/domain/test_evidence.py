"""Every rule that leads to a decision, or forbids one, is in its evidence: what explain and the message show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.memory import BackOff, Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.scaling.decision import decide
from tests.support.decisions import START, TICK, idle, pods, snapshot, worker, workers

POLICY = Policy(max_workers=5, min_workers=2, pending_readings=1)
IDLE = Memory(since={"idle": Streak(since=START - 1200, last=START - TICK, readings=10)})
WAITING = {"pending": pods(9), "workers": workers(4, cpu_requested_milli=2000)}
LOST = (*workers(4), worker(8, "not_ready", not_ready_seconds=9000, node_name="n8"))


def backing_off(*keys: str, **memory: Any) -> Memory:
    return Memory(back_offs=tuple(BackOff(key=key, failures=3, until=START + 60) for key in keys), **memory)


JUST_NOW = {"last_action": "scale_up", "last_action_at": START - 10}

CASES: dict[str, tuple[Snapshot, Memory, dict[str, Any], dict[str, str]]] = {
    "pods wait": (snapshot(**WAITING), Memory(), {}, {"pending": "up", "cooldown": "ok"}),
    "at the maximum": (snapshot(**WAITING), Memory(), {"max_workers": 4}, {"pending": "up", "maximum": "blocked"}),
    "the circuit breaker is open": (
        snapshot(**WAITING), backing_off("join"), {}, {"pending": "up", "circuit_breaker": "blocked"},
    ),
    "a scale-up has failed": (
        snapshot(**WAITING), backing_off("scale_up"), {}, {"pending": "up", "back_off": "blocked"},
    ),
    "the cooldown holds": (
        snapshot(**WAITING), Memory(**JUST_NOW), {"pending_bypasses_cooldown": False},
        {"pending": "up", "cooldown": "blocked"},
    ),
    "under the minimum": (snapshot(workers=workers(1)), Memory(), {}, {"minimum": "up", "cooldown": "ok"}),
    "idle": (idle(), IDLE, {}, {"idle": "down", "projection": "down", "cooldown": "ok"}),
    "idle, and EC2 refuses": (idle(), replace(IDLE, back_offs=backing_off("removal").back_offs), {}, {
        "idle": "down", "removal_back_off": "blocked",
    }),
    "idle, and the cooldown holds": (idle(), replace(IDLE, **JUST_NOW), {}, {"idle": "down", "cooldown": "blocked"}),
    "not ready for long": (snapshot(workers=LOST), Memory(), {}, {"not_ready": "down", "cooldown": "ok"}),
    "many not ready in one reading": (
        snapshot(workers=(*workers(2), *(worker(n, "not_ready", not_ready_seconds=60) for n in (7, 8)))),
        Memory(), {}, {"many_not_ready": "blocked"},
    ),
    "drifted": (
        snapshot(workers=(worker(1, drift="image"), *workers(4)[2:])), Memory(), {}, {"drifted": "ok"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_evidence_has_the_check_of_each_rule(case: str) -> None:
    seen, memory, settings, expected = CASES[case]
    decision = decide(seen, memory, replace(POLICY, **settings), START)
    found = {check.name: str(check.verdict) for check in decision.evidence}
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("case", "kinds"),
    [
        ("at the maximum", ["at_maximum"]),
        ("the circuit breaker is open", ["circuit_breaker"]),
        ("a scale-up has failed", []),
        ("pods wait", []),
        ("not ready for long", ["not_ready"]),
    ],
)
def test_what_an_operator_must_know_is_an_alert(case: str, kinds: list[str]) -> None:
    seen, memory, settings, _ = CASES[case]
    found = decide(seen, memory, replace(POLICY, **settings), START).alerts
    assert [alert.kind.partition(":")[0] for alert in found] == kinds
