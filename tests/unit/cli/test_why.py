"""Why a worker is still here, and why there is no worker for a pod."""

from __future__ import annotations

from typing import Any

import pytest

from cli.why import why_pod, why_worker
from node_fleet.domain.model.memory import Memory, ShapeLaunch
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scaling.decision import decide
from tests.support.decisions import START, Fleet, idle, pods, snapshot, worker, workers

A, B = "i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"
JUDGED = [(A, "no", "shop/orders-db-0 is a StatefulSet pod"), (B, "yes", "93 % idle")]


@pytest.mark.parametrize(
    ("instance_id", "minutes", "answer"),
    [
        (A, 0, f"{A} is still here because it is kept: shop/orders-db-0 is a StatefulSet pod"),
        (B, 0, f"{B} is eligible for removal (93 % idle), but no worker is removed: idle "),
        (B, 60, f"{B} is eligible for removal (93 % idle), and this decision removes 1 w"),
        ("i-0cccccccccccccccc", 0, f"is not a worker of this fleet; workers: {A}, {B}"),
    ],
)
def test_a_worker_is_kept_or_eligible_or_unknown(instance_id: str, minutes: int, answer: str) -> None:
    fleet = Fleet()
    for minute in range(0, minutes + 1, 2):
        fleet.tick(idle(START + minute * 60))
        if fleet.decisions[-1].action != "none":
            break
    assert answer in why_worker(instance_id, JUDGED, fleet.decisions[-1])


def asked(pod: str, *, policy: dict[str, Any] | None = None, memory: Memory | None = None, **reading: Any) -> str:
    found, rules, known = snapshot(**reading), Policy(**(policy or {})), memory or Memory()
    return why_pod(pod, found, known, rules, decide(found, known, rules, START))


@pytest.mark.parametrize(
    ("case", "answer"),
    [
        (
            {"pending": pods(1), "policy": {"pending_readings": 3}},
            "shop/web-1 is counted, but no worker is launched: pending 1",
        ),
        (
            {"pending": pods(1), "policy": {"pending_readings": 1}},
            "shop/web-1 is counted, and this decision launches 1",
        ),
        (
            {"pending": pods(1), "policy": {"pending_readings": 1, "max_workers": 4}},
            "shop/web-1 is counted, but no worker is launched: ",
        ),
        ({"pending": pods(1, cpu_milli=64_000)}, "shop/web-1 gets no new worker: requests 64000m CPU, the largest"),
        (
            {"pending": pods(1, problem="its claim is not bound", lasting=True)},
            "shop/web-1 gets no new worker: no new worker helps: its claim is not bound",
        ),
        (
            {"pending": pods(1), "workers": (*workers(4), worker(9, "joining"))},
            "shop/web-1 fits on a worker that is joining or has just joined; it waits for the scheduler",
        ),
        ({"pending": ()}, "shop/web-1 is not among the pods that the scheduler found no worker for; no pod is unsch"),
        ({"pending": pods(1, example="shop/api-7")}, "found no worker for; unschedulable pods: shop/api-7"),
        ({"pending": None, "problem": "Prometheus does not answer"}, "are not known: Prometheus does not answer"),
    ],
)
def test_a_pod_is_answered_with_what_the_decision_makes_of_it(case: dict[str, Any], answer: str) -> None:
    assert answer in asked("shop/web-1", **case)


def test_another_pod_of_the_same_owner_gets_the_same_answer() -> None:
    both = pods(2, example="shop/web-7d9f-abcde", cpu_milli=64_000)
    assert asked("shop/web-7d9f-xyz12", pending=both).startswith("shop/web-7d9f-xyz12 gets no new worker: ")


def test_a_pod_that_launches_did_not_help_is_answered_with_the_time_until_which_it_is_not_counted() -> None:
    launch = ShapeLaunch(shape="500m/256Mi", at=0, count=1, unhelped=3)
    memory = Memory(not_helped={"500m/256Mi": START + 600}, launched_for=(launch,))
    answer = asked("shop/web-1", pending=pods(1), memory=memory)
    assert answer == "shop/web-1 stayed unschedulable after launches for it, so it is not counted until 14:24 UTC"
