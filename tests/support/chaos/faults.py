"""The faults: each is aimed at one task state, strikes when that state's function runs, and says when it did.

A fault changes the simulated AWS or cluster, and never the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulator.aws.faults import FaultRule
from simulator.aws.lambdas import ServiceFault
from simulator.aws.recorder import AwsCall, current_function
from tests.support.chaos.fleet import Fleet, Handler, by_hand, execution_of
from tests.support.chaos.task_states import AUTOSCALER, TASKS

LATE_SECONDS = 5.0
RETRIES_OF_LAMBDA_ERRORS = 4
"""Of most states: five refusals end them. Those that settle a notice have time and try longer."""


class ChaosError(Exception):
    """What a broken handler raises; no Retry and no Catch names it."""


@dataclass(slots=True)
class Injection:
    """One fault aimed at one state. `struck` holds (state, virtual time) of each hit; `over` tells when it ended."""

    state: str
    struck: list[tuple[str, float]] = field(default_factory=list)
    lasts_until: float = 0.0
    lift: Callable[[], object] = lambda: None

    def over(self, now: float) -> bool:
        return bool(self.struck) and now >= self.lasts_until


@dataclass(frozen=True, slots=True)
class Uses:
    """What a state's function asks of the world in a run without faults."""

    calls: tuple[AwsCall, ...] = ()
    asks_prometheus: bool = False

    def of(self, service: str) -> bool:
        return any(call.service == service for call in self.calls)

    @property
    def writes_on_condition(self) -> bool:
        return any("ConditionExpression" in call.parameters for call in self.calls)


Aim = Callable[[Fleet, str], Injection]
Why = Callable[[str, Uses], str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault: how it is aimed, and why it cannot happen at a state (empty when it can)."""

    name: str
    aim: Aim
    not_applicable: Why = lambda state, uses: ""


def _around(fleet: Fleet, state: str, act: Callable[[Handler, Any, Any], Any]) -> Injection:
    """Strikes the first time that the state's function runs."""
    injection = Injection(state)

    def around(handler: Handler, event: Any, context: Any) -> Any:
        if injection.struck:
            return handler(event, context)
        injection.struck.append((state, fleet.deployment.clock.now()))
        return act(handler, event, context)

    fleet.surround(state, around)
    return injection


def raises_before(fleet: Fleet, state: str) -> Injection:
    def act(handler: Handler, event: Any, context: Any) -> Any:
        raise ChaosError("before its effect")

    return _around(fleet, state, act)


def raises_after(fleet: Fleet, state: str) -> Injection:
    def act(handler: Handler, event: Any, context: Any) -> Any:
        handler(event, context)
        raise ChaosError("after its effect")

    return _around(fleet, state, act)


def times_out(fleet: Fleet, state: str) -> Injection:
    """Its work is done, its answer never comes."""

    def act(handler: Handler, event: Any, context: Any) -> Any:
        handler(event, context)
        fleet.deployment.clock.wait(3600)

    return _around(fleet, state, act)


def returns_garbage(fleet: Fleet, state: str) -> Injection:
    def act(handler: Handler, event: Any, context: Any) -> Any:
        handler(event, context)
        return {"garbage": [1, None, "\u2603"]}

    return _around(fleet, state, act)


def throttled(times: int) -> Aim:
    """The Lambda service refuses the invocation before the code runs."""

    def aim(fleet: Fleet, state: str) -> Injection:
        injection, name = Injection(state), fleet.function(state).name
        fleet.cloud.lambdas.faults.append(
            _Throttle(
                error="Lambda.TooManyRequestsException", function=name, count=times, fleet=fleet, injection=injection
            )
        )
        return injection

    return aim


@dataclass(slots=True, kw_only=True)
class _Throttle(ServiceFault):
    fleet: Fleet
    injection: Injection

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "count" and value < getattr(self, "count", value):
            self.injection.struck.append((self.injection.state, self.fleet.deployment.clock.now()))
        object.__setattr__(self, name, value)


def loses_lease(fleet: Fleet, state: str) -> Injection:
    """A person frees the lock and starts a run by hand, which takes it; the deposed owner goes on late."""

    def act(handler: Handler, event: Any, context: Any) -> Any:
        with by_hand():
            lease = fleet.store.load().lease
            if lease is not None:
                assert fleet.store.force_unlock(lease)
            fleet.deployment.start_workflow({"trigger": "manual"})
            fleet.deployment.clock.wait(LATE_SECONDS)
        return handler(event, context)

    return _around(fleet, state, act)


def stopped(fleet: Fleet, state: str) -> Injection:
    """The execution is stopped while the function runs; Lambda lets the function go on, and it does its work late."""

    def act(handler: Handler, event: Any, context: Any) -> Any:
        fleet.stop(execution_of(event))
        fleet.deployment.clock.wait(LATE_SECONDS)
        return handler(event, context)

    return _around(fleet, state, act)


def machine_times_out(fleet: Fleet, state: str) -> Injection:
    """The machine's own limit is over while the function runs, right after its effect."""

    def act(handler: Handler, event: Any, context: Any) -> Any:
        answer = handler(event, context)
        fleet.time_out(execution_of(event))
        fleet.deployment.clock.wait(LATE_SECONDS)
        return answer

    return _around(fleet, state, act)


def condition_fails(fleet: Fleet, state: str) -> Injection:
    name, injection = fleet.function(state).name, Injection(state)

    def mine(parameters: Any) -> bool:
        found = current_function.get() == name and "ConditionExpression" in parameters
        if found:
            injection.struck.append((state, fleet.deployment.clock.now()))
        return found

    fleet.cloud.faults.inject(
        FaultRule(
            service="dynamodb",
            operation="UpdateItem",
            code="ConditionalCheckFailedException",
            message="The conditional request failed",
            when=mine,
            count=1,
        )
    )
    return injection


def _outage(seconds: float, begin: Callable[[Fleet, Injection], Callable[[], object]]) -> Aim:
    """Something is away from the moment when the state's function begins, for everybody."""

    def aim(fleet: Fleet, state: str) -> Injection:
        def act(handler: Handler, event: Any, context: Any) -> Any:
            now = fleet.deployment.clock.now()
            end = begin(fleet, injection)
            injection.lasts_until = now + seconds
            fleet.deployment.clock.at(now + seconds, end)
            return handler(event, context)

        injection = _around(fleet, state, act)
        return injection

    return aim


def _no_dynamodb(fleet: Fleet, injection: Injection) -> Callable[[], object]:
    rule = FaultRule(service="dynamodb", operation="*", code="InternalServerError", status=500)
    fleet.cloud.faults.inject(rule)
    return lambda: fleet.cloud.faults.remove(rule)


def _busy_ec2(fleet: Fleet, injection: Injection) -> Callable[[], object]:
    rule = FaultRule(service="ec2", operation="*", code="RequestLimitExceeded", status=503)
    fleet.cloud.faults.inject(rule)
    return lambda: fleet.cloud.faults.remove(rule)


def _no_ssm(fleet: Fleet, injection: Injection) -> Callable[[], object]:
    """The agent is gone: commands are accepted and never arrive, until AWS notices after a minute."""
    commands, server = fleet.cloud.commands, fleet.deployment.server_id
    commands.offline.add(server)
    noticed = fleet.deployment.clock.at(fleet.deployment.clock.now() + 60, lambda: commands.lost.add(server))

    def back() -> None:
        fleet.deployment.clock.cancel(noticed)
        commands.offline.discard(server)
        commands.lost.discard(server)

    return back


def _no_prometheus(fleet: Fleet, injection: Injection) -> Callable[[], object]:
    fleet.deployment.transport.fault = "down"
    return lambda: setattr(fleet.deployment.transport, "fault", "")


def _no_slack(fleet: Fleet, injection: Injection) -> Callable[[], object]:
    fleet.deployment.transport.slack_answers.extend([(500, {})] * 200)
    return fleet.deployment.transport.slack_answers.clear


def _unless(service: str, words: str) -> Why:
    return lambda state, uses: "" if uses.of(service) else f"it never asks {words}"


FAULTS = (
    Fault("raises before its effect", raises_before),
    Fault("raises after its effect", raises_after),
    Fault("times out", times_out),
    Fault("returns garbage", returns_garbage),
    Fault("is throttled twice", throttled(2)),
    Fault("is throttled five times", throttled(RETRIES_OF_LAMBDA_ERRORS + 1)),
    Fault(
        "loses its lease",
        loses_lease,
        lambda state, uses: (
            "it holds no lease yet"
            if state == "AcquireLock"
            else ""
            if TASKS[state] == AUTOSCALER
            else "the interruption workflow holds no lease"
        ),
    ),
    Fault("the execution is stopped", stopped),
    Fault("the machine times out", machine_times_out),
    Fault(
        "a DynamoDB condition fails",
        condition_fails,
        lambda state, uses: "" if uses.writes_on_condition else "it writes nothing on a condition",
    ),
    Fault("DynamoDB is unavailable", _outage(180, _no_dynamodb), _unless("dynamodb", "DynamoDB")),
    Fault("EC2 is throttled", _outage(60, _busy_ec2), _unless("ec2", "EC2")),
    Fault("SSM is lost", _outage(300, _no_ssm), _unless("ssm", "SSM")),
    Fault(
        "Prometheus is lost",
        _outage(360, _no_prometheus),
        lambda state, uses: "" if uses.asks_prometheus else "it never asks Prometheus",
    ),
    Fault("Slack is down", _outage(300, _no_slack), _unless("sns", "SNS, which Slack hangs on")),
)
