"""Prints how quick and small the interpreter is. Not a test: `python tests/performance/bench_runner.py`."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "functions")]

from simulator.aws import Cloud  # noqa: E402
from simulator.clock import VirtualClock  # noqa: E402

TASK = "arn:aws:lambda:ap-southeast-1:123456789012:function:Task:1"


def task(name: str, following: str) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": TASK,
        "TimeoutSeconds": 60,
        "ResultPath": f"$.{name}",
        "Retry": [{"ErrorEquals": ["Lambda.ServiceException"], "IntervalSeconds": 1, "MaxAttempts": 3}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.fault", "Next": "Failed"}],
        "Next": following,
    }


QUIET: dict[str, Any] = {
    "StartAt": "AcquireLock",
    "States": {
        "AcquireLock": task("lock", "Unfinished"),
        "Unfinished": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.lock.resume", "BooleanEquals": True, "Next": "Failed"}],
            "Default": "CollectMetrics",
        },
        "CollectMetrics": task("reading", "Decide"),
        "Decide": task("decision", "Route"),
        "Route": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.decision.action", "StringEquals": "up", "Next": "Failed"}],
            "Default": "ReleaseLock",
        },
        "ReleaseLock": {**task("end", ""), "End": True, "Next": None},
        "Failed": {"Type": "Fail", "Error": "Fault"},
    },
}
LOOP: dict[str, Any] = {
    "StartAt": "Look",
    "States": {
        "Look": task("look", "More"),
        "More": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.look.count", "NumericLessThan": 8, "Next": "Pause"}],
            "Default": "Done",
        },
        "Pause": {"Type": "Wait", "Seconds": 10, "Next": "Look"},
        "Done": {"Type": "Succeed"},
        "Failed": {"Type": "Fail", "Error": "Fault"},
    },
}


def median_ms(run: Callable[[], object], times: int) -> str:
    """Median by the wall clock and by the processor, which tells them apart on a busy machine."""
    wall, processor = [], []
    for _ in range(times):
        before, worked = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - before)
        processor.append(time.process_time() - worked)
    return f"{statistics.median(wall) * 1000:.2f} ms, processor {statistics.median(processor) * 1000:.2f} ms"


def memory_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    QUIET["States"]["ReleaseLock"].pop("Next")
    with Cloud(VirtualClock()) as cloud:
        counts = iter(range(10**9))
        reading = {"resume": False, "action": "none", "text": "x" * 2000}
        cloud.lambdas.register("Task", lambda event, context: reading)
        quiet = cloud.create_state_machine("quiet", QUIET)
        taken = median_ms(lambda: cloud.runner.run(machine=quiet), 300)
        print(f"quiet execution, 6 states and 4 invocations: {taken}")
        cloud.lambdas.register("Task", lambda event, context: {"count": next(counts) % 9})
        loop = cloud.create_state_machine("loop", LOOP)
        taken = median_ms(lambda: cloud.runner.run(machine=loop), 100)
        print(f"execution of a loop with up to 8 waits:      {taken}")
        before = memory_mib()
        cloud.lambdas.register("Task", lambda event, context: reading)
        for _ in range(5000):
            cloud.runner.run({"trigger": "schedule"}, machine=quiet)
        print(f"memory after 5,000 executions:               {memory_mib():.0f} MiB (before: {before:.0f} MiB)")


if __name__ == "__main__":
    main()
