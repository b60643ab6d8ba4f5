"""Every place where the simulator reaches into moto and botocore, and nothing else: an upgrade breaks here, loudly.

Each patch says what it expects of the code it replaces; `PatchError` names the patch when that is no longer so.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import importlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Protocol

from simulator.aws.lambdas import LambdaReply
from simulator.aws.moto_patches import expect, swapped
from simulator.aws.moto_patches.speed import keep_text
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
MODELS_FORGOTTEN_EVERY = 50  # moto remembers every model that it ever made, for a dashboard
UNCATCHABLE = frozenset({"States.Runtime", "States.DataLimitExceeded"})

Invoke = Callable[[str, bytes, str | None], LambdaReply]


class StoppedError(ThreadKilledError):
    """Ends the virtual thread of a state whose execution was stopped, timed out or continued without it."""


class Listener(Protocol):
    """Is called with every execution of moto when it starts and when it has ended."""

    def started(self, execution: Any) -> None: ...

    def finished(self, execution: Any) -> None: ...


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


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Leave out the log of failed states, which names classes of moto: the history has the same failures."""
    logger = logging.getLogger("moto.stepfunctions")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


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
            stack.enter_context(_without_log())
            for part in (self._threads, self._waits, self._errors, self._lambda, self._times, self._ends):
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
            keep_text(reply.payload, reply.text)
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
    def _times(self) -> Iterator[None]:
        """Each event has the clock's time, by isoformat: strftime takes many times longer."""
        events = importlib.import_module(ASL + "eval.event.event_manager")

        def now() -> dt.datetime:
            return _time_at(self._clock.now())

        with (
            swapped(events.EventManager, "_get_current_timestamp", staticmethod(now)),
            swapped(events, "iso_8601_datetime_with_milliseconds", text_of_time, "value"),
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


@functools.lru_cache(maxsize=1)
def _time_at(epoch: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(epoch, tz=dt.UTC)


@functools.lru_cache(maxsize=1)
def text_of_time(value: dt.datetime) -> str:
    """As moto's iso_8601_datetime_with_milliseconds."""
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


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
