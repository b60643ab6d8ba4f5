"""AWS Lambda in process: the environment, the time limit, the JSON borders and the error shapes of the real one.

A handler runs as a virtual thread of its own, so it may wait virtually, outlive its state's timeout, and be killed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import marshal
import os
import random
import sys
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from node_fleet.domain.model.value_class import value_class
from simulator.aws.recorder import current_function
from simulator.clock import ThreadKilledError, VirtualClock, VirtualThread

Handler = Callable[[Any, Any], Any]
INVOKE_LIMIT_BYTES = 6 * 1024 * 1024
LOG_LINES = 20_000


class InvocationKilledError(ThreadKilledError):
    """The sandbox of an invocation died; nothing that it still tries has an effect."""


class UnknownFunctionError(LookupError):
    """No function has this ARN or name."""


SIMULATOR_ENVIRONMENT = {"AWS_USE_DUALSTACK_ENDPOINT": "false"}
"""moto answers for amazonaws.com only, so here the dual-stack names of a function in the network are not used."""


@value_class
class LambdaFunction:
    """A published function; its ARN carries the version."""

    name: str
    arn: str
    handler: Handler
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 30.0
    memory_mib: int = 128
    role: str = ""


@value_class
class LambdaReply:
    """What Invoke answers: the payload after its trip through JSON, its text, and FunctionError when it failed."""

    payload: Any
    text: str
    function_error: str | None = None


@value_class
class Invocation:
    """One invocation as it was billed: function, state, time, memory and result."""

    function: str
    state: str | None
    started_at: float
    ended_at: float
    error: str | None


@value_class
class LogLine:
    """One line that a function wrote."""

    at: float
    function: str
    text: str


@dataclass(slots=True, kw_only=True)
class LambdaContext:
    """The context object of one invocation, in virtual time."""

    function_name: str
    invoked_function_arn: str
    memory_limit_in_mb: int
    aws_request_id: str
    log_group_name: str
    log_stream_name: str
    deadline: float
    now: Callable[[], float]
    function_version: str = "1"
    identity: None = None
    client_context: None = None

    def get_remaining_time_in_millis(self) -> int:
        return max(0, round((self.deadline - self.now()) * 1000))


@dataclass(slots=True, kw_only=True)
class ServiceFault:
    """An error of the Lambda service itself (Lambda.TooManyRequestsException and its like), before the code runs."""

    error: str
    function: str | None = None
    count: int = 1


class LambdaRuntime:
    """The functions and their invocations. `contexts` are further context managers around each handler call."""

    def __init__(self, clock: VirtualClock, *, region: str, account: str, seed: int = 0) -> None:
        self.functions: dict[str, LambdaFunction] = {}
        self.invocations: deque[Invocation] = deque(maxlen=50_000)
        self.logs: deque[LogLine] = deque(maxlen=LOG_LINES)
        self.faults: list[ServiceFault] = []
        self.payload_bytes: dict[str, int] = {}
        self.contexts: list[Callable[[LambdaFunction], contextlib.AbstractContextManager[object]]] = []
        self._clock = clock
        self._region = region
        self._account = account
        self._random = random.Random(seed)
        self._managed: set[str] = set()
        self._published: dict[str, LambdaFunction] = {}
        self._answered: tuple[bytes, Any] = b"", None
        self._environments: dict[str, tuple[dict[Any, Any], LambdaFunction, dict[str, str]]] = {}

    def register(
        self,
        name: str,
        handler: Handler | str,
        *,
        environment: Mapping[str, str] | None = None,
        timeout_seconds: float = 30.0,
        memory_mib: int = 128,
        role: str = "",
        version: str = "1",
    ) -> LambdaFunction:
        """Publishes a version; a string names its module and attribute as Lambda's Handler setting does.

        What was published before under another version stays, and is found by its ARN.
        """
        function = LambdaFunction(
            name=name,
            arn=f"arn:aws:lambda:{self._region}:{self._account}:function:{name}:{version}",
            handler=_load(handler) if isinstance(handler, str) else handler,
            environment=dict(environment or {}),
            timeout_seconds=timeout_seconds,
            memory_mib=memory_mib,
            role=role,
        )
        self.functions[name] = self._published[function.arn] = function
        self._managed |= set(function.environment)
        self._environments.clear()
        return function

    def find(self, reference: str) -> LambdaFunction:
        """By name or ARN the newest; by an ARN with a version that one."""
        name = reference.split(":")[6] if reference.startswith("arn:") else reference.split(":", maxsplit=1)[0]
        if name not in self.functions:
            known = ", ".join(sorted(self.functions)) or "none"
            raise UnknownFunctionError(f"no function {reference!r}; known: {known}")
        newest = self.functions[name]
        if reference.startswith(f"{newest.arn.rpartition(':')[0]}:") and reference != newest.arn:
            if reference not in self._published:
                raise UnknownFunctionError(f"no function {reference!r}; the newest is {newest.arn}")
            return self._published[reference]
        return newest

    def invoke(self, reference: str, payload: bytes, *, state: str | None = None) -> LambdaReply:
        """Runs a function to its end in virtual time, at most for its Timeout, and answers as Invoke does."""
        function = self.find(reference)
        if fault := self._struck(function.name):
            return _failed(fault.error, f"injected fault: {fault.error}")
        started_at = self._clock.now()
        reply = self._run(function, payload)
        if state is not None:
            self.payload_bytes[state] = max(self.payload_bytes.get(state, 0), len(payload), len(reply.text))
        self.invocations.append(
            Invocation(
                function=function.name,
                state=state,
                started_at=started_at,
                ended_at=self._clock.now(),
                error=reply.payload["errorType"] if reply.function_error else None,
            )
        )
        return reply

    def lines(self, function: str | None = None) -> Iterable[str]:
        """The log lines, of one function if it is named."""
        return (line.text for line in self.logs if function in (None, line.function))

    def _struck(self, name: str) -> ServiceFault | None:
        for fault in self.faults:
            if fault.count > 0 and fault.function in (None, name):
                fault.count -= 1
                return fault
        return None

    def _run(self, function: LambdaFunction, payload: bytes) -> LambdaReply:
        outcome: list[LambdaReply] = []
        request_id = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        thread = self._clock.spawn(
            lambda: outcome.append(self._call(function, payload, request_id)), name=f"lambda {function.name}"
        )
        thread.join(function.timeout_seconds)
        if outcome:
            return outcome[0]
        if thread.is_alive():
            return self._time_out(thread, function, request_id)
        return _failed("Runtime.ExitError", f"RequestId: {request_id} Error: Runtime exited with error: signal: killed")

    @staticmethod
    def _time_out(thread: VirtualThread, function: LambdaFunction, request_id: str) -> LambdaReply:
        text = f"RequestId: {request_id} Error: Task timed out after {function.timeout_seconds:.2f} seconds"
        thread.kill(InvocationKilledError(text))
        return _failed("Sandbox.Timedout", text)

    def _call(self, function: LambdaFunction, payload: bytes, request_id: str) -> LambdaReply:
        token = current_function.set(function.name)
        context = self._context(function, request_id)
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self._clock.scope(_Sandbox(self, function)))
                for extra in self.contexts:
                    stack.enter_context(extra(function))
                reply = _succeeded(function.handler(self._event(payload), context))
            self._answered = reply.text.encode(), reply.payload
            return reply
        except Exception as error:
            return _raised(error, request_id)
        finally:
            current_function.reset(token)

    def _event(self, payload: bytes) -> Any:
        """What the payload holds. It is often the last answer, and to copy that is quicker than to read its text."""
        text, value = self._answered
        return marshal.loads(marshal.dumps(value)) if payload == text else json.loads(payload)

    def _context(self, function: LambdaFunction, request_id: str) -> LambdaContext:
        return LambdaContext(
            function_name=function.name,
            invoked_function_arn=function.arn,
            memory_limit_in_mb=function.memory_mib,
            aws_request_id=request_id,
            log_group_name=f"/aws/lambda/{function.name}",
            log_stream_name=f"[1]{request_id}",
            deadline=self._clock.now() + function.timeout_seconds,
            now=self._clock.now,
        )

    def environment_of(self, function: LambdaFunction) -> dict[str, str]:
        """The variables of the function and those that the Lambda runtime sets."""
        return {
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mib),
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            **function.environment,
            **SIMULATOR_ENVIRONMENT,
        }

    def sandbox_environment(self, function: LambdaFunction) -> dict[str, str]:
        """All that the function sees: also the outer variables that no other function has."""
        outer: Any = getattr(os.environ, "_data", os.environ)  # to decode it takes longer than many a function
        known = self._environments.get(function.arn)
        if known is None or known[0] != outer or known[1] is not function:
            absent = self.foreign_names(function)
            seen = {name: value for name, value in os.environ.items() if name not in absent}
            known = dict(outer), function, {**seen, **self.environment_of(function)}
            self._environments[function.arn] = known
        return dict(known[2])

    def foreign_names(self, function: LambdaFunction) -> set[str]:
        """Variables that some other function has and this one must not see."""
        return self._managed - set(function.environment)


class _Sandbox:
    """os.environ and sys.stdout of one invocation, for as long as its virtual thread runs.

    The environment is another object: to write a hundred variables into the real one and take them back costs more than
    many a function. No function starts a program, which alone would see the difference.
    """

    __slots__ = ("_environ", "_outer", "_stdout", "_tap")

    def __init__(self, runtime: LambdaRuntime, function: LambdaFunction) -> None:
        self._environ: Any = runtime.sandbox_environment(function)
        self._tap = _LogTap(runtime, function.name)
        self._outer: Any = None
        self._stdout: Any = None

    def enter(self) -> None:
        self._outer, os.environ = os.environ, self._environ
        self._stdout, sys.stdout = sys.stdout, self._tap

    def leave(self) -> None:
        sys.stdout, os.environ = self._stdout, self._outer


class _LogTap(io.TextIOBase):
    """Collects what a function prints, line by line."""

    def __init__(self, runtime: LambdaRuntime, function: str) -> None:
        self._runtime = runtime
        self._function = function
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        now = self._runtime._clock.now()
        self._runtime.logs.extend(LogLine(at=now, function=self._function, text=line) for line in lines if line)
        return len(text)


def _load(path: str) -> Handler:
    module, _, attribute = path.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), attribute)
    return handler


def _succeeded(answer: Any) -> LambdaReply:
    try:
        text = json.dumps(answer, check_circular=False)
    except TypeError as error:
        return _failed("Runtime.MarshalError", f"Unable to marshal response: {error}")
    if len(text) > INVOKE_LIMIT_BYTES:  # it is ASCII
        return _failed("Function.ResponseSizeTooLarge", "Response payload size exceeded maximum allowed payload size")
    return LambdaReply(payload=json.loads(text), text=text)


def _raised(error: Exception, request_id: str) -> LambdaReply:
    frames = traceback.format_tb(error.__traceback__)[-8:]
    return _failed(type(error).__name__, str(error), requestId=request_id, stackTrace=frames)


def _failed(error: str, message: str, **more: Any) -> LambdaReply:
    payload = {"errorType": error, "errorMessage": message, **more}
    return LambdaReply(payload=payload, text=json.dumps(payload), function_error="Unhandled")
