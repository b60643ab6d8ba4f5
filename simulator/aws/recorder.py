"""Records every call to AWS: the caller, the virtual time, the parameters and the result.

The recorder only watches. Hooks around the effect of a call may raise, to stand for a Lambda that dies there.
"""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

READ_PREFIXES = ("Describe", "Get", "List", "Query", "Scan", "BatchGet")
FREQUENT = ("dynamodb", "stepfunctions")

current_call: contextvars.ContextVar[AwsCall | None] = contextvars.ContextVar("current_call", default=None)
current_function: contextvars.ContextVar[str | None] = contextvars.ContextVar("current_function", default=None)


@dataclass(slots=True, kw_only=True)
class AwsCall:
    """One call of a client's method, however often its request was sent."""

    service: str
    operation: str
    parameters: Mapping[str, Any]
    function: str | None
    at: float
    protocol: str
    attempts: int = 0
    error: str | None = None
    result: Mapping[str, Any] | None = None

    @property
    def reads(self) -> bool:
        return self.operation.startswith(READ_PREFIXES)


Hook = Callable[[AwsCall], object]


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The calls in order, the oldest forgotten beyond the limit. Replies of the frequent calls are not kept.

    Reads and all calls of the services in FREQUENT come in every execution and are kept for about a day of them; the
    others are few.
    """

    limit: int = 50_000
    frequent_limit: int = 7_000
    _calls: dict[int, AwsCall] = field(default_factory=dict)
    _frequent: deque[int] = field(default_factory=deque)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    before_effect: list[Hook] = field(default_factory=list)
    after_effect: list[Hook] = field(default_factory=list)

    @property
    def calls(self) -> list[AwsCall]:
        """The calls that are kept, in order."""
        return list(self._calls.values())

    def add(self, call: AwsCall) -> None:
        number = next(self._numbers)
        self._calls[number] = call
        if call.reads or call.service in FREQUENT:
            self._frequent.append(number)
            if len(self._frequent) > self.frequent_limit:
                self._calls.pop(self._frequent.popleft(), None)
        if len(self._calls) > self.limit:
            del self._calls[next(iter(self._calls))]

    def forget(self) -> None:
        """Begin with no call."""
        self._calls.clear()
        self._frequent.clear()

    def of(self, operation: str, *, function: str | None = None) -> list[AwsCall]:
        """The recorded calls of one operation, of one function if it is named."""
        return [
            call
            for call in self._calls.values()
            if call.operation == operation and (function is None or call.function == function)
        ]

    def changes(self) -> list[AwsCall]:
        """The calls that may have changed something, which is where a run can die half-way."""
        return [call for call in self._calls.values() if not call.reads]
