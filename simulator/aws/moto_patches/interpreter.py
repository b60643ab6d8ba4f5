"""Every place where the simulator reaches into moto and botocore, and nothing else: an upgrade breaks here, loudly.

Each patch says what it expects of the code it replaces; `SeamError` names the patch when that is no longer so.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from simulator.aws.faults import FaultRule, Faults, connection_error, wire_error
from simulator.aws.lambdas import InvocationKilledError, LambdaReply
from simulator.aws.moto_patches.ec2 import Ec2Side, TokenMismatchError
from simulator.aws.moto_patches.ssm import RunCommand, SsmError, parse_document
from simulator.aws.recorder import AwsCall, Hook, Recorder, current_call, current_function
from simulator.clock import ThreadKilledError, VirtualClock, VirtualEvent, VirtualThread, wait_for_any

PARSER = "moto.stepfunctions.parser."
ASL = PARSER + "asl."
EXECUTION_STATE = ASL + "component.state.exec.execute_state"
RETRIER = ASL + "component.common.retry.retrier_decl"
JITTER = ASL + "component.common.retry.jitter_strategy_decl"
THREADED_MODULES = (
    ASL + "component.program.program",
    ASL + "component.state.exec.state_map.iteration.inline_iteration_component",
    ASL + "component.state.exec.state_map.iteration.job",
    ASL + "component.state.exec.state_task.service.state_task_service_callback",
    ASL + "component.state.exec.state_parallel.branch_worker",
    ASL + "component.state.exec.state_parallel.branches_decl",
    ASL + "eval.environment",
)
CLIENT_MODULES = tuple(
    ASL + "component.state.exec.state_task.service.state_task_service_" + name
    for name in ("aws_sdk", "dynamodb", "events", "sfn", "sns", "sqs", "unsupported")
)
COPYING_MODULES = (
    ASL + "eval.states",
    ASL + "eval.environment",
    ASL + "component.common.string.string_expression",
    ASL + "component.common.path.result_path",
    EXECUTION_STATE,
)
JSONPATH_MODULES = (ASL + "utils.json_path", ASL + "component.common.path.result_path")
MODELS_FORGOTTEN_EVERY = 50  # moto remembers every model that it ever made, for a dashboard
UNCATCHABLE = frozenset({"States.Runtime", "States.DataLimitExceeded"})

Invoke = Callable[[str, bytes, str | None], LambdaReply]


class PatchError(RuntimeError):
    """moto or botocore is not what a patch was written for."""


class StoppedError(ThreadKilledError):
    """Ends the virtual thread of a state whose execution was stopped, timed out or has gone on without it."""


class Listener(Protocol):
    """Hears of every execution of moto's when it starts and when it has ended."""

    def started(self, execution: Any) -> None: ...

    def finished(self, execution: Any) -> None: ...


def expect(owner: Any, name: str, *parameters: str) -> Any:
    """The attribute that a patch replaces, checked against the parameters it was written for."""
    where = f"{getattr(owner, '__name__', owner)}.{name}"
    if not hasattr(owner, name):
        raise PatchError(f"patch {where}: it no longer exists; look for its new place and move the patch")
    found = getattr(owner, name)
    if parameters:
        actual = tuple(inspect.signature(found).parameters)
        if actual != parameters:
            raise PatchError(f"patch {where}: takes {actual}, the patch was written for {parameters}")
    return found


@contextlib.contextmanager
def swapped(owner: Any, name: str, value: Any, *parameters: str) -> Iterator[Any]:
    """Replaces an attribute for as long as the context is open, after checking what stood there."""
    original = expect(owner, name, *parameters)
    with mock.patch.object(owner, name, value):
        yield original


class _TaskDone(VirtualEvent):
    """Set when a task has ended; waiting for it also ends when its execution is stopped or timed out."""

    __slots__ = ("_env", "_of")

    def __init__(self, clock: VirtualClock, env: Any) -> None:
        super().__init__(clock)
        self._of = clock
        self._env = env

    def wait(self, timeout: float | None = None) -> bool:
        limit = None if timeout is None else self._of.now() + timeout
        while not self.is_set():
            left = None if limit is None else limit - self._of.now()
            woken = wait_for_any(self._of, [self, self._env.program_state_event], left)
            if not self._env.is_running():
                raise StoppedError("the execution was stopped")
            if not woken:
                return self.is_set()
        return True


CLOCK_GRAIN_SECONDS = 1e-6
"""Epoch seconds as floats are no finer than 0.24 microseconds: a shorter rest would never pass."""


class Interpreter:
    """moto's Amazon States Language interpreter in virtual time, quick, and strict where moto is lenient."""

    def __init__(self, clock: VirtualClock, invoke: Invoke, listener: Listener, jitter: Callable[..., float]) -> None:
        self._clock = clock
        self._invoke = invoke
        self._listener = listener
        self._jitter = jitter
        self._evaluating: Any = None
        self._state: str | None = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for part in (self._threads, self._waits, self._errors, self._lambda, self._ends, quick_interpreter):
                stack.enter_context(part())
            yield

    def _thread(
        self, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "state", **_: Any
    ) -> VirtualThread:
        return VirtualThread(self._clock, name, lambda: target(*args))

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        events = functools.partial(VirtualEvent, self._clock)
        virtual = SimpleNamespace(Thread=self._thread, Event=events, Lock=threading.Lock, RLock=threading.RLock)
        virtual.Condition = threading.Condition
        execute = importlib.import_module(EXECUTION_STATE)
        worker = importlib.import_module(PARSER + "backend.execution_worker")
        callback = importlib.import_module(ASL + "eval.callback.callback")
        task_done = SimpleNamespace(Event=lambda: _TaskDone(self._clock, self._evaluating))
        with contextlib.ExitStack() as stack:
            for module in map(importlib.import_module, THREADED_MODULES):
                stack.enter_context(swapped(module, "threading", virtual))
            stack.enter_context(swapped(execute, "threading", task_done))
            stack.enter_context(swapped(execute, "Thread", self._thread))
            stack.enter_context(swapped(worker, "Thread", self._thread))
            stack.enter_context(swapped(callback, "Event", events))
            stack.enter_context(self._stoppable_programs())
            yield

    @contextlib.contextmanager
    def _stoppable_programs(self) -> Iterator[None]:
        program = importlib.import_module(ASL + "component.program.program").Program
        state = importlib.import_module(EXECUTION_STATE).ExecutionState
        worker = importlib.import_module(PARSER + "backend.execution_worker").ExecutionWorker
        run_program = expect(program, "_eval_body", "self", "env")
        run_state = expect(state, "_evaluate_with_timeout", "self", "env")
        stop_worker = expect(worker, "stop", "self", "stop_date", "error", "cause")
        stops: dict[str, dict[str, Any]] = {}

        def eval_body(this: Any, env: Any) -> None:
            unheard = stops.pop(_context(env)["Execution"]["Id"], None)
            if unheard is not None:
                env.set_stop(**unheard)
            try:
                run_program(this, env)
            except StoppedError:
                run_program(this, env)

        def evaluate(this: Any, env: Any) -> None:
            self._evaluating = env
            run_state(this, env)

        def stop(this: Any, stop_date: Any, error: str | None, cause: str | None) -> None:
            """moto cannot stop what has not entered a state yet; such a stop is heard when the program begins."""
            if this.env is None or "State" not in _context(this.env):
                arn = this._evaluation_details.execution_details.arn
                stops[arn] = {"stop_date": stop_date, "error": error, "cause": cause}
            else:
                stop_worker(this, stop_date=stop_date, error=error, cause=cause)

        with (
            swapped(program, "_eval_body", eval_body),
            swapped(state, "_evaluate_with_timeout", evaluate),
            swapped(worker, "stop", stop),
        ):
            yield

    @contextlib.contextmanager
    def _waits(self) -> Iterator[None]:
        waits = importlib.import_module(ASL + "component.state.wait.wait_function.wait_function").WaitFunction
        retrier = importlib.import_module(RETRIER)
        jitter = importlib.import_module(JITTER)
        back_off = expect(retrier.RetrierDecl, "_eval_body", "self", "env")
        expect(retrier.time, "sleep")

        def wait_interval(_: Any, env: Any, wait_seconds: float) -> None:
            self._wait(env, wait_seconds)

        def eval_retrier(this: Any, env: Any) -> None:
            self._evaluating = env
            back_off(this, env)

        sleeper = SimpleNamespace(sleep=lambda seconds: self._wait(self._evaluating, seconds))
        with (
            swapped(waits, "_wait_interval", wait_interval, "self", "env", "wait_seconds"),
            swapped(retrier, "time", sleeper),
            swapped(retrier.RetrierDecl, "_eval_body", eval_retrier),
            swapped(jitter, "random", SimpleNamespace(uniform=self._jitter)),
        ):
            yield

    def _wait(self, env: Any, seconds: float) -> None:
        limit = self._clock.now() + seconds
        while env.is_running() and limit - self._clock.now() > CLOCK_GRAIN_SECONDS:
            env.program_state_event.wait(limit - self._clock.now())

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """States.Runtime and States.DataLimitExceeded are neither retried nor caught, as on AWS."""
        state = importlib.import_module(EXECUTION_STATE).ExecutionState
        task = importlib.import_module(ASL + "component.state.exec.state_task.state_task_lambda").StateTaskLambda
        missing = importlib.import_module(ASL + "utils.json_path").NoSuchJsonPathError
        cannot = importlib.import_module(ASL + "component.common.retry.retry_outcome").RetryOutcome.CannotRetry
        retry = expect(state, "_handle_retry", "self", "env", "failure_event")
        catch = expect(state, "_handle_catch", "self", "env", "failure_event")
        classify = expect(task, "_from_error", "self", "env", "ex")

        def handle_retry(this: Any, env: Any, failure_event: Any) -> Any:
            return cannot if _uncatchable(failure_event) else retry(this, env, failure_event)

        def handle_catch(this: Any, env: Any, failure_event: Any) -> None:
            if _uncatchable(failure_event):
                this._handle_uncaught(env=env, failure_event=failure_event)
            catch(this, env, failure_event)

        def from_error(this: Any, env: Any, ex: Exception) -> Any:
            if isinstance(ex, missing):
                raise ex
            return classify(this, env, ex)

        fail = importlib.import_module(ASL + "component.state.fail.state_fail")
        branches = importlib.import_module(ASL + "component.state.exec.state_parallel.branches_decl")
        with (
            swapped(fail, "CustomErrorName", _any_error_name, "error_name"),
            swapped(branches, "CustomErrorName", _any_error_name, "error_name"),
            swapped(state, "_handle_retry", handle_retry),
            swapped(state, "_handle_catch", handle_catch),
            swapped(task, "_from_error", from_error),
        ):
            yield

    @contextlib.contextmanager
    def _lambda(self) -> Iterator[None]:
        module = importlib.import_module(ASL + "component.state.exec.state_task.lambda_eval_utils")
        integrate = expect(
            module, "execute_lambda_function_integration", "env", "parameters", "region", "state_credentials"
        )

        def integration(env: Any, parameters: dict[str, Any], region: str, state_credentials: Any) -> None:
            self._state = _context(env)["State"]["Name"]
            integrate(env=env, parameters=parameters, region=region, state_credentials=state_credentials)
            if not env.is_running():
                raise StoppedError("the state went on without this task")

        def invoke(parameters: dict[str, Any], region: str, state_credentials: Any) -> dict[str, Any]:
            reply = self._invoke(parameters["FunctionName"], parameters["Payload"], self._state)
            answer: dict[str, Any] = {"StatusCode": 200, "Payload": reply.payload}
            if reply.function_error:
                answer["FunctionError"] = reply.function_error
            return answer

        with (
            swapped(module, "execute_lambda_function_integration", integration),
            swapped(module, "_invoke_lambda_function", invoke, "parameters", "region", "state_credentials"),
        ):
            yield

    @contextlib.contextmanager
    def _ends(self) -> Iterator[None]:
        module = importlib.import_module(PARSER + "backend.execution")
        started = importlib.import_module(PARSER + "utils").TMP_THREADS
        forget = expect(importlib.import_module("moto.core.model_instances"), "reset_model_data")
        ends = itertools.count(1)
        terminated = expect(module.BaseExecutionWorkerCommunication, "terminated", "self")
        start = expect(module.Execution, "start", "self")

        def begin(this: Any) -> None:
            self._listener.started(this)
            start(this)

        def ended(this: Any) -> None:
            terminated(this)
            started.clear()
            if next(ends) % MODELS_FORGOTTEN_EVERY == 0:
                forget()
            self._clock.at(self._clock.now(), lambda: self._listener.finished(this.execution))

        with (
            swapped(module.BaseExecutionWorkerCommunication, "terminated", ended),
            swapped(module.Execution, "start", begin),
        ):
            yield


def _uncatchable(failure_event: Any) -> bool:
    return failure_event.error_name is not None and failure_event.error_name.error_name in UNCATCHABLE


def _context(env: Any) -> dict[str, Any]:
    data: dict[str, Any] = env.states.context_object.context_object_data
    return data


def _any_error_name(error_name: str | None) -> Any:
    """The name of an error that a Fail state or a branch hands on; on AWS it may well be one of States.*."""
    base = importlib.import_module(ASL + "component.common.error_name.custom_error_name").CustomErrorName
    name = base(None)
    name.error_name = error_name
    return name


@functools.lru_cache(maxsize=32)
def _cached_program(parse: Callable[[str], Any], definition: str) -> Any:
    return parse(definition)


@functools.lru_cache(maxsize=4096)
def _cached_path(parse: Callable[[str], Any], path: str) -> Any:
    return parse(path)


@functools.lru_cache(maxsize=64)
def _cached_client(make: Callable[..., Any], region: str, service: str) -> Any:
    return make(region=region, service=service)


_SCALARS = frozenset({str, int, float, bool, type(None)})


def json_copy(value: Any) -> Any:
    """A deep copy, several times quicker than copy.deepcopy where the value is JSON."""
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in _SCALARS else json_copy(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in _SCALARS else json_copy(item) for item in value]
    return value if kind in _SCALARS else copy.deepcopy(value)


@contextlib.contextmanager
def quick_interpreter() -> Iterator[None]:
    """A definition is parsed once, a JSONPath once, a client made once, and payloads are copied as JSON."""
    parser = importlib.import_module(ASL + "parse.asl_parser").AmazonStateLanguageParser
    clients = importlib.import_module(ASL + "utils.boto_client")
    parse = expect(parser, "parse", "definition")
    make = expect(clients, "boto_client_for", "region", "service", "state_credentials")

    def client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        return _cached_client(make, region, service)

    with contextlib.ExitStack() as stack:
        cached = staticmethod(functools.partial(_cached_program, parse))
        stack.enter_context(swapped(parser, "parse", cached))
        for module in map(importlib.import_module, CLIENT_MODULES):
            stack.enter_context(swapped(module, "boto_client_for", client_for))
        for module in map(importlib.import_module, JSONPATH_MODULES):
            path = expect(module, "parse")
            stack.enter_context(swapped(module, "parse", functools.partial(_cached_path, path)))
        for module in map(importlib.import_module, COPYING_MODULES):
            expect(module.copy, "deepcopy")
            stack.enter_context(swapped(module, "copy", SimpleNamespace(deepcopy=json_copy)))
        yield


@functools.lru_cache(maxsize=8)
def _private_key(make: Callable[..., Any], *arguments: Any) -> Any:
    return make(*arguments)


@contextlib.contextmanager
def quick_dispatch() -> Iterator[None]:
    """What moto works out anew, worked out once: a service's methods, a reply's fields, the keys of SNS and KMS."""
    responses = importlib.import_module("moto.core.responses")
    picker = importlib.import_module("moto.core.serialize").XFormedAttributePicker
    names = expect(responses, "method_names_from_class", "clazz")
    keys = expect(picker, "get_possible_keys", "self", "context")
    subscription = importlib.import_module("moto.sns.models").Subscription
    new_key = expect(subscription, "private_key", "self").__wrapped__
    kms = importlib.import_module("moto.kms.models")
    disk_key = expect(kms, "generate_private_key", "key_spec")
    found: dict[Any, tuple[str, ...]] = {}

    def possible_keys(this: Any, context: Any) -> tuple[str, ...]:
        shape = context.shape
        asked = (type(context.obj), shape, getattr(shape, "parent", None), context.key)
        if asked not in found:
            found[asked] = tuple(dict.fromkeys(keys(this, context)))
        return found[asked]

    with (
        swapped(responses, "method_names_from_class", functools.lru_cache(maxsize=None)(names)),
        swapped(picker, "get_possible_keys", possible_keys),
        swapped(subscription, "private_key", lambda _: _private_key(new_key, None)),
        swapped(kms, "generate_private_key", functools.partial(_private_key, disk_key)),
    ):
        yield


class WatchedCalls:
    """Every call of every client is recorded; every request may meet a fault; one request is handled at a time."""

    def __init__(self, clock: VirtualClock, recorder: Recorder, faults: Faults, ec2: Ec2Side) -> None:
        self._clock = clock
        self._ec2 = ec2
        self._described: dict[Any, tuple[int, Any, bytes]] = {}
        self._recorder = recorder
        self._faults = faults
        self._lock = threading.RLock()
        self._api_call = expect(BaseClient, "_make_api_call", "self", "operation_name", "api_params")
        self._send = expect(BotocoreStubber, "__call__", "self", "event_name", "request", "kwargs")

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        def make_api_call(this: Any, operation_name: str, api_params: dict[str, Any]) -> Any:
            return self._record(this, operation_name, api_params)

        def handle(this: Any, event_name: str, request: Any, **kwargs: Any) -> Any:
            return self._answer(functools.partial(self._locked, this, event_name, request, kwargs), request.url)

        with swapped(BaseClient, "_make_api_call", make_api_call), swapped(BotocoreStubber, "__call__", handle):
            yield

    def _record(self, client: Any, operation: str, parameters: dict[str, Any]) -> Any:
        model = client.meta.service_model
        call = AwsCall(
            service=model.service_name,
            operation=operation,
            parameters=parameters,
            function=current_function.get(),
            at=self._clock.now(),
            protocol=model.resolved_protocol,
        )
        self._recorder.add(call)
        token = current_call.set(call)
        try:
            result = self._api_call(client, operation, parameters)
        except ClientError as error:
            call.error = error.response["Error"]["Code"]
            raise
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            current_call.reset(token)
        if not call.reads:
            call.result = {name: value for name, value in result.items() if name != "ResponseMetadata"}
        return result

    def _locked(self, this: Any, event_name: str, request: Any, kwargs: dict[str, Any]) -> Any:
        call = current_call.get()
        with self._lock:
            if call is not None and call.operation == "DescribeInstances":
                return self._describe(request, lambda: self._send(this, event_name, request, **kwargs))
            if call is not None and call.service == "ec2" and not call.reads:
                self._ec2.version += 1
            return self._send(this, event_name, request, **kwargs)

    def _describe(self, request: Any, send: Callable[[], Any]) -> Any:
        """The same question gets the same bytes until something in EC2 changes: moto writes them slowly."""
        key = (self._ec2.version, self._ec2.page_size, str(request.body))
        if key not in self._described:
            if self._described and next(iter(self._described))[0] != self._ec2.version:
                self._described.clear()
            response = send()
            self._described[key] = (response.status_code, response.headers, response.raw.getvalue())
        status, headers, body = self._described[key]
        return AWSResponse(request.url, status, headers, MockRawResponse(body))

    def _answer(self, send: Callable[[], Any], url: str) -> Any:
        call = current_call.get()
        if call is None:
            return send()
        call.attempts += 1
        self._run_hooks(self._recorder.before_effect, call)
        rule = self._faults.strike(call)
        if rule is not None and rule.answers:
            return _faulty(call, rule, url)
        if rule is not None and not rule.after_effect:
            raise connection_error(rule, url)
        response = send()
        self._run_hooks(self._recorder.after_effect, call)
        if rule is not None:
            raise connection_error(rule, url)
        return response

    def _run_hooks(self, hooks: list[Hook], call: AwsCall) -> None:
        """A virtual thread that dies in a hook stays dead: what its finally clauses still ask of AWS has no effect."""
        thread = self._clock.current_thread()
        if thread is not None and thread.kill_error is not None:
            raise thread.kill_error
        try:
            for hook in hooks:
                hook(call)
        except InvocationKilledError as error:
            if thread is not None:
                thread.kill_error = error
            raise


def _faulty(call: AwsCall, rule: FaultRule, url: str) -> AWSResponse:
    status, headers, body = wire_error(call, rule.code, rule.message, rule.status)
    wire_headers = HTTPHeaders()
    for name, value in headers.items():
        wire_headers[name] = value
    return AWSResponse(url, status, wire_headers, MockRawResponse(body))


@contextlib.contextmanager
def slow_instances(side: Ec2Side, *, account: str, region: str) -> Iterator[None]:
    """EC2 with client tokens, instances that take their time, and the filters that moto lacks."""
    from moto.ec2 import ec2_backends
    from moto.ec2 import utils as ec2_utils
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.models import EC2Backend
    from moto.ec2.models import instances as models
    from moto.ec2.responses.instances import InstanceResponse

    run = expect(
        EC2Backend, "run_instances", "self", "image_id", "count", "user_data", "security_group_names", "kwargs"
    )
    terminate = expect(models.Instance, "terminate", "self")
    reservations = expect(models.InstanceBackend, "all_reservations", "self", "filters")
    describe = expect(InstanceResponse, "describe_instances", "self")
    expect(ec2_backends[account][region], "reservations")
    side.connect(lambda: ec2_backends[account][region])

    def run_instances(this: Any, *args: Any, **kwargs: Any) -> Any:
        token = kwargs.get("client_token", "")
        fingerprint = repr((args, sorted((key, repr(value)) for key, value in kwargs.items())))
        try:
            return side.launch(lambda: run(this, *args, **kwargs), token, fingerprint)
        except TokenMismatchError:
            text = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            raise EC2ClientError("IdempotentParameterMismatch", text) from None

    def end(this: Any) -> Any:
        if side.is_ending(this):
            return copy.copy(this._state)
        previous = terminate(this)
        side.ended(this)
        return previous

    def all_reservations(this: Any, filters: Any = None) -> list[Any]:
        found: list[Any] = reservations(this, filters)
        for reservation in found:
            reservation.instances = [one for one in reservation.instances if side.is_visible(one.id)]
        return [reservation for reservation in found if reservation.instances]

    def describe_instances(this: Any) -> Any:
        if side.page_size is not None:
            this._get_param = _smaller_pages(this._get_param, side.page_size)
        return describe(this)

    more_filters = {"instance-lifecycle": "lifecycle", "client-token": "client_token"}
    expect(ec2_utils, "passes_filter_dict", "instance", "filter_dict")
    with (
        mock.patch.dict(expect(ec2_utils, "filter_dict_attribute_mapping"), more_filters),
        swapped(models.InstanceBackend, "run_instances", run_instances),
        swapped(models.Instance, "terminate", end),
        swapped(models.InstanceBackend, "all_reservations", all_reservations),
        swapped(InstanceResponse, "describe_instances", describe_instances),
    ):
        yield


def _smaller_pages(ask: Callable[..., Any], size: int) -> Callable[..., Any]:
    def get_param(name: str, if_none: Any = None) -> Any:
        value = ask(name, if_none)
        return min(int(value), size) if name == "MaxResults" else value

    return get_param


@contextlib.contextmanager
def real_commands(commands: RunCommand) -> Iterator[None]:
    """Systems Manager runs commands for real; moto keeps the documents and answers the requests."""
    from moto.core.responses import ActionResult, EmptyResult
    from moto.ssm.exceptions import SSMException
    from moto.ssm.models import SimpleSystemManagerBackend as Backend
    from moto.ssm.responses import SimpleSystemManagerResponse as Response

    send = expect(Backend, "send_command")
    create = expect(Backend, "create_document")
    expect(Backend, "get_command_invocation", "self", "command_id", "instance_id", "plugin_name")

    def send_command(this: Any, **kwargs: Any) -> Any:
        name, ids, parameters = kwargs["document_name"], list(kwargs["instance_ids"]), kwargs["parameters"]
        with _answered(SSMException):
            prepared = commands.prepare(document=name, instance_ids=ids, parameters=parameters)
        command = send(this, **kwargs)
        command.status, command.instance_ids = "Pending", ids
        commands.send(
            command_id=command.command_id,
            document=name,
            instance_ids=ids,
            parameters=parameters,
            timeout_seconds=kwargs["timeout_seconds"] or 3600,
            prepared=prepared,
        )
        return command

    def create_document(this: Any, **kwargs: Any) -> Any:
        documents = create(this, **kwargs)
        commands.add_document(kwargs["name"], parse_document(kwargs["content"]))
        return documents

    def get_command_invocation(this: Any, command_id: str, instance_id: str, plugin_name: str | None) -> Any:
        with _answered(SSMException):
            return commands.response(commands.invocation(command_id, instance_id))

    def list_command_invocations(this: Any) -> Any:
        found = commands.of(this._get_param("CommandId"))
        return ActionResult({"CommandInvocations": [commands.response(run) for run in found]})

    def cancel_command(this: Any) -> Any:
        commands.cancel(this._get_param("CommandId"), this._get_param("InstanceIds", []))
        return EmptyResult()

    def describe_instance_information(this: Any) -> Any:
        asked = [i for f in this._get_param("Filters", []) if f["Key"] == "InstanceIds" for i in f["Values"]]
        known = [{"InstanceId": i, "PingStatus": commands.ping(i)} for i in asked if commands.is_managed(i)]
        return ActionResult({"InstanceInformationList": known})

    for name in ("cancel_command", "list_command_invocations", "describe_instance_information"):
        if hasattr(Response, name):
            raise PatchError(f"patch SSM: moto now has {name}; use its own")
    with (
        swapped(Backend, "send_command", send_command),
        swapped(Backend, "create_document", create_document),
        swapped(Backend, "get_command_invocation", get_command_invocation),
        mock.patch.object(Response, "cancel_command", cancel_command, create=True),
        mock.patch.object(Response, "list_command_invocations", list_command_invocations, create=True),
        mock.patch.object(Response, "describe_instance_information", describe_instance_information, create=True),
    ):
        yield


@contextlib.contextmanager
def _answered(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except SsmError as refused:
        raise error(refused.code, refused.message) from None
