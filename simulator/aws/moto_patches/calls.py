"""Patches of botocore and of moto's request handler: every call is recorded, and a fault may answer it."""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.client import BaseClient
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

from simulator.aws.faults import FaultRule, Faults, connection_error, wire_error
from simulator.aws.lambdas import InvocationKilledError
from simulator.aws.moto_patches import expect, swapped
from simulator.aws.moto_patches.direct import DirectAnswers, has_method
from simulator.aws.moto_patches.ec2 import Ec2Side
from simulator.aws.recorder import FREQUENT, AwsCall, Hook, Recorder, current_call, current_function
from simulator.clock import VirtualClock


class WatchedCalls:
    """Records every call of every client, can inject a fault into every request, and handles one request at a time."""

    def __init__(self, clock: VirtualClock, recorder: Recorder, faults: Faults, ec2: Ec2Side, account: str) -> None:
        self._clock = clock
        self._ec2 = ec2
        self._described: dict[Any, bytes] = {}
        self._recorder = recorder
        self._faults = faults
        self._lock = threading.RLock()
        self._direct = DirectAnswers(account)
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
            result = self._send_or_answer(client, call)
        except ClientError as error:
            call.error = error.response["Error"]["Code"]
            raise
        except BaseException as error:
            call.error = type(error).__name__
            raise
        finally:
            current_call.reset(token)
        if not (call.reads or call.service in FREQUENT):
            call.result = {name: value for name, value in result.items() if name != "ResponseMetadata"}
        return result

    def _send_or_answer(self, client: Any, call: AwsCall) -> Any:
        """Calls of most services have no wire, unless a fault must arrive by it or moto has no method for them."""
        if self._faults.may_strike(call) or not has_method(call.service, call.operation):
            return self._api_call(client, call.operation, call.parameters)
        send = functools.partial(self._answer, functools.partial(self._answer_directly, client, call), "")
        return self._describe(call, send) if call.operation == "DescribeInstances" else send()

    def _answer_directly(self, client: Any, call: AwsCall) -> Any:
        with self._lock:
            self._note_change(call)
            return self._direct.call(client, call.operation, call.parameters)

    def _note_change(self, call: AwsCall) -> None:
        if call.service == "ec2" and not call.reads:
            self._ec2.version += 1

    def _locked(self, this: Any, event_name: str, request: Any, kwargs: dict[str, Any]) -> Any:
        call = current_call.get()
        with self._lock:
            if call is not None:
                self._note_change(call)
            return self._send(this, event_name, request, **kwargs)

    def _describe(self, call: AwsCall, send: Callable[[], Any]) -> Any:
        """The same question gets the same answer until something in EC2 changes: moto and botocore take long for it."""
        key = (self._ec2.version, self._ec2.page_size, repr(call.parameters))
        if key in self._described:
            return self._answer(lambda: pickle.loads(self._described[key]), "")
        if self._described and next(iter(self._described))[0] != self._ec2.version:
            self._described.clear()
        answer = send()
        self._described[key] = pickle.dumps(answer)
        return answer

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
        """A virtual thread that ended in a hook stays ended: later AWS calls of its finally clauses have no effect."""
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
