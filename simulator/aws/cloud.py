"""The simulated AWS: moto in process with every patch in place, on one virtual clock.

It composes the parts and owns their life; what a part does stands in its own module.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any, Self
from unittest import mock

import boto3
from moto import mock_aws

from simulator.aws.faults import Faults
from simulator.aws.lambdas import LambdaReply, LambdaRuntime
from simulator.aws.moto_patches.calls import WatchedCalls
from simulator.aws.moto_patches.ec2 import Ec2Side, slow_instances, slow_stops, status_checks
from simulator.aws.moto_patches.fleet import InstantFleets, instant_fleets
from simulator.aws.moto_patches.interpreter import Interpreter
from simulator.aws.moto_patches.speed import forget_ec2, quick_dispatch, quick_interpreter, quick_start, shared_models
from simulator.aws.moto_patches.ssm import RunCommand, real_commands
from simulator.aws.recorder import Recorder
from simulator.clock import VirtualClock
from simulator.runner import Runner

MOTO_CONFIG: dict[str, Any] = {
    "lambda": {"use_docker": False},
    "stepfunctions": {"execute_state_machine": True},
    "core": {"mock_credentials": False, "reset_boto3_session": False},
}
REGION = "ap-southeast-1"
ACCOUNT = "123456789012"


@functools.lru_cache(maxsize=64)
def _client(service: str, region: str) -> Any:
    return boto3.client(service, region_name=region)  # type: ignore[call-overload]


class Cloud:
    """A context manager: inside it, every boto3 client talks to this cloud and time is the clock's."""

    def __init__(self, clock: VirtualClock, *, region: str = REGION, account: str = ACCOUNT, seed: int = 0) -> None:
        self.clock = clock
        self.region = region
        self.account = account
        self.recorder = Recorder()
        self.faults = Faults(now=clock.now)
        self.lambdas = LambdaRuntime(clock, region=region, account=account, seed=seed)
        self.runner = Runner(clock, lambda: self.client("stepfunctions"))
        self.ec2 = Ec2Side(clock, self.faults, region=region, account=account)
        self.fleets = InstantFleets(clock, self.faults, region=region)
        self.commands = RunCommand(clock)
        self._random = random.Random(seed)
        self._seed = seed
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        calls = WatchedCalls(self.clock, self.recorder, self.faults, self.ec2, self.account)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.clock.driving_time())
            stack.enter_context(mock.patch.dict(os.environ, self._environment()))
            stack.enter_context(shared_models())
            stack.callback(forget_ec2)
            with quick_start():
                stack.enter_context(mock_aws(config=MOTO_CONFIG))
            stack.callback(forget_ec2)
            stack.enter_context(self._seeded())
            stack.enter_context(calls.installed())
            interpreter = Interpreter(self.clock, self._invoke, self.runner, self._random.uniform)
            stack.enter_context(interpreter.installed())
            stack.enter_context(quick_interpreter())
            stack.enter_context(slow_instances(self.ec2, account=self.account, region=self.region))
            stack.enter_context(slow_stops(self.ec2))
            stack.enter_context(status_checks(self.ec2))
            stack.enter_context(instant_fleets(self.fleets))
            stack.enter_context(real_commands(self.commands))
            stack.enter_context(quick_dispatch())
            self.commands.is_managed = lambda instance_id: instance_id in self.ec2.live_ids()
            stack.callback(self.clock.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def client(self, service: str) -> Any:
        """A client for tests and for the simulator itself; functions make their own."""
        return _client(service, self.region)

    def create_state_machine(self, name: str, definition: str | Mapping[str, Any]) -> str:
        """Creates a state machine and makes it the runner's default if it is the first. Returns its ARN."""
        text = definition if isinstance(definition, str) else json.dumps(definition)
        reply = self.client("stepfunctions").create_state_machine(
            name=name, definition=text, roleArn=f"arn:aws:iam::{self.account}:role/{name}"
        )
        arn: str = reply["stateMachineArn"]
        self.runner.default_machine = self.runner.default_machine or arn
        return arn

    def _invoke(self, reference: str, payload: bytes, state: str | None) -> LambdaReply:
        return self.lambdas.invoke(reference, payload, state=state)

    def _environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": "simulator",
            "AWS_SECRET_ACCESS_KEY": "simulator",
            "AWS_SESSION_TOKEN": "simulator",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "MOTO_ACCOUNT_ID": self.account,
            "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
        }

    @contextlib.contextmanager
    def _seeded(self) -> Iterator[None]:
        """moto's ids and botocore's jitter are the same in every run."""
        from moto.moto_api._internal import mock_random

        mock_random.seed(self._seed)
        before = random.getstate()
        random.seed(self._seed)
        try:
            yield
        finally:
            random.setstate(before)
