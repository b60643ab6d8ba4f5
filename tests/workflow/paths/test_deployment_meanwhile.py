"""A deployment in the middle of an operation: the run under way goes on with the code that it began with."""

from __future__ import annotations

from typing import Any

from simulator.runner import Execution
from tests.support.workflow_harness import BUSY, IDLE_TICKS_LIMIT, Stage

OLD, NEW = "1", "2"


def deploy(fleet: Stage) -> list[str]:
    """What `cdk deploy` does: new versions of every function, then the state machine names those. Lists who ran."""
    lambdas, machines = fleet.cloud.lambdas, fleet.cloud.client("stepfunctions")
    ran: list[str] = []

    def watched(handler: Any, name: str) -> Any:
        def run(event: Any, context: object) -> Any:
            ran.append(name.rpartition("-")[2])
            return handler(event, context)

        return run

    for name, function in list(lambdas.functions.items()):
        lambdas.register(
            name,
            watched(function.handler, name),
            environment=function.environment,
            timeout_seconds=function.timeout_seconds,
            memory_mib=function.memory_mib,
            role=function.role,
            version=NEW,
        )
    for machine in machines.list_state_machines()["stateMachines"]:
        definition = machines.describe_state_machine(stateMachineArn=machine["stateMachineArn"])["definition"]
        for name in lambdas.functions:
            definition = definition.replace(f":function:{name}:{OLD}", f":function:{name}:{NEW}")
        machines.update_state_machine(stateMachineArn=machine["stateMachineArn"], definition=definition)
    return ran


def under_way(fleet: Stage, state: str) -> Execution:
    """A run that has entered a state and is still there."""
    fleet.stop_schedule()
    for _ in range(IDLE_TICKS_LIMIT):
        run = fleet.start()
        fleet.deployment.run_until(lambda run=run: state in run.path or not run.running, limit_seconds=600)
        if run.running:
            return run
        fleet.deployment.clock.advance(fleet.settings.interval_seconds)
    raise AssertionError(f"no run came to {state}; the last went {' > '.join(run.path)}")


def test_a_scale_up_under_way_joins_with_the_code_that_launched(fleet: Stage) -> None:
    fleet.load(BUSY)
    run = under_way(fleet, "WaitForJoin")
    ran = deploy(fleet)
    fleet.deployment.settle()
    assert (run.status, set(run.path) & set(ran)) == ("SUCCEEDED", set())
    assert {"CheckJoin", "CompleteScaleUp", "Notify", "ReleaseLock"} <= set(run.path)
    ran.clear()
    assert fleet.run().status == "SUCCEEDED"
    assert ran[:3] == ["AcquireLock", "CollectMetrics", "Decide"]


def test_a_drain_under_way_ends_with_the_code_that_began_it(idle: Stage) -> None:
    run = under_way(idle, "WaitForDrain")
    ran = deploy(idle)
    idle.deployment.settle()
    assert (run.status, set(run.path) & set(ran)) == ("SUCCEEDED", set())
    assert {"CheckDrain", "TerminateNodes", "ForgetNodes", "CompleteScaleDown"} <= set(run.path)
    assert (len(idle.workers()), idle.cordoned()) == (3, [])
    ran.clear()
    assert idle.run().status == "SUCCEEDED"
    assert ran[:3] == ["AcquireLock", "CollectMetrics", "Decide"]
