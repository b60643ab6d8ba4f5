"""Compares each call that the simulator answers directly with the same call through botocore, HTTP and moto."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from botocore.client import BaseClient
from botocore.exceptions import ClientError, ParamValidationError
from moto.dynamodb.models import dynamodb_backends

from simulator.aws.moto_patches.direct import DirectAnswers, method_name, owner_of
from simulator.aws.recorder import current_call

BY_WIRE = BaseClient._make_api_call
DIRECTLY = DirectAnswers.call


@contextlib.contextmanager
def compared_calls(*, one_in: int = 1, seed: int = 0) -> Iterator[list[str]]:
    """A list that gets every difference while the block runs. With one_in=10 about every tenth call is compared."""
    differences: list[str] = []
    dice = random.Random(seed)

    def both(this: Any, client: Any, operation: str, parameters: Mapping[str, Any]) -> Any:
        if dice.randrange(one_in):
            return DIRECTLY(this, client, operation, parameters)
        if "Item" not in operation and operation != "Query":
            return _with_one_effect(this, client, operation, parameters, differences)
        table = _table(client, parameters)
        before = copy.deepcopy(table.items) if table else None
        directly, by_wire = _outcome(lambda: DIRECTLY(this, client, operation, parameters)), None
        changed = repr(table.items) if table else ""
        if table:
            table.items = before
        token = current_call.set(None)  # neither recorded nor struck a second time
        try:
            by_wire = _outcome(lambda: BY_WIRE(client, operation, parameters))
        finally:
            current_call.reset(token)
        if _compared(directly) != _compared(by_wire) or (table and changed != repr(table.items)):
            differences.append(f"{operation} {parameters}: directly {directly}, by wire {by_wire}")
        if isinstance(directly, Exception):
            raise directly
        return directly

    with mock.patch.object(DirectAnswers, "call", both):
        yield differences


def _with_one_effect(
    this: Any, client: Any, operation: str, parameters: Mapping[str, Any], differences: list[str]
) -> Any:
    """The direct answer. By the wire moto's method has the same outcome without being run again.

    So all that surrounds the method is compared: what it is given, and what its result or error becomes.
    """
    service, found = client.meta.service_model.service_name, _Method()
    owner, name = owner_of(service), method_name(operation)
    with mock.patch.object(owner, name, found.first(getattr(owner, name))):
        directly = _outcome(lambda: DIRECTLY(this, client, operation, parameters))
    token = current_call.set(None)
    try:
        with mock.patch.object(owner, name, found.again):
            by_wire = _outcome(lambda: BY_WIRE(client, operation, dict(parameters)))
    finally:
        current_call.reset(token)
    model = client.meta.service_model.operation_model(operation)
    made_up = {member for member in model.idempotent_members if member not in parameters}
    given = [{key: value for key, value in one.items() if key not in made_up} for one in found.given]
    if _compared(directly) != _compared(by_wire) or given[1:] != given[:1]:
        differences.append(f"{operation} {parameters}: given {given}, directly {directly}, by wire {by_wire}")
    if isinstance(directly, Exception):
        raise directly
    return directly


class _Method:
    """A method of moto that is run once: what it was given each time, and what came of it."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []
        self._outcome: Any = None

    def first(self, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(handler: Any) -> Any:
            self._note(handler)
            try:
                self._outcome = method(handler)
            except Exception as error:
                self._outcome = error
                raise
            return self._outcome

        return run

    @property
    def again(self) -> Callable[[Any], Any]:
        def answer(handler: Any) -> Any:
            self._note(handler)
            if isinstance(self._outcome, Exception):
                raise self._outcome
            return self._outcome

        return answer

    def _note(self, handler: Any) -> None:
        parsed = handler.params if handler.automated_parameter_parsing else json.loads(handler.body)
        self.given.append(copy.deepcopy(dict(parsed)))


def _table(client: Any, parameters: Mapping[str, Any]) -> Any:
    backend = dynamodb_backends["123456789012"][client.meta.region_name]
    return backend.tables.get(parameters["TableName"]) if "TableName" in parameters else None


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (ClientError, ParamValidationError) as error:
        return error


def _compared(outcome: Any) -> Any:
    """Without the headers, which nothing reads."""
    found = getattr(outcome, "response", outcome if isinstance(outcome, dict) else str(outcome))
    status = found["ResponseMetadata"]["HTTPStatusCode"] if isinstance(found, dict) else None
    rest = {k: v for k, v in found.items() if k != "ResponseMetadata"} if isinstance(found, dict) else found
    return type(outcome).__name__, status, rest
