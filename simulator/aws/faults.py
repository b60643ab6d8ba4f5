"""Faults that the simulated AWS answers with, by rule, in the wire format that botocore really parses.

A rule stands in for the service only: retries, error classes and messages are botocore's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from simulator.aws.recorder import AwsCall

Parameters = Mapping[str, Any]
WireReply = tuple[int, dict[str, str], bytes]

CONNECTION_REFUSED = "ConnectionRefused"
REPLY_LOST = "ReplyLost"


def _always(_: Parameters) -> bool:
    return True


@dataclass(slots=True, kw_only=True)
class FaultRule:
    """One fault: which operation, what it answers, and for how long.

    code ConnectionRefused raises before the effect; ReplyLost lets the effect happen and loses the answer.
    """

    operation: str
    code: str
    status: int = 400
    message: str = ""
    service: str | None = None
    when: Callable[[Parameters], bool] = _always
    count: int | None = None
    until: float | None = None
    hits: int = 0

    @property
    def answers(self) -> bool:
        return self.code not in (CONNECTION_REFUSED, REPLY_LOST)

    @property
    def after_effect(self) -> bool:
        return self.code == REPLY_LOST

    def may_apply(self, call: AwsCall, now: float) -> bool:
        """Whether it is in force for the operation, whatever the parameters."""
        return (
            self.operation in (call.operation, "*")
            and self.service in (None, call.service)
            and (self.count is None or self.hits < self.count)
            and (self.until is None or now < self.until)
        )


@dataclass(slots=True, kw_only=True)
class Faults:
    """The rules in force; the first that applies wins."""

    now: Callable[[], float]
    rules: list[FaultRule] = field(default_factory=list)

    def inject(self, rule: FaultRule) -> FaultRule:
        self.rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Ends a fault; harmless when it has ended."""
        if rule in self.rules:
            self.rules.remove(rule)

    def may_strike(self, call: AwsCall) -> bool:
        """Whether a rule in force names the operation."""
        return any(rule.may_apply(call, self.now()) for rule in self.rules)

    def strike(self, call: AwsCall) -> FaultRule | None:
        """The rule that hits this attempt, counted, or None."""
        for rule in self.rules:
            if rule.may_apply(call, self.now()) and rule.when(call.parameters):
                rule.hits += 1
                return rule
        return None

    def refuse(self, call: AwsCall) -> FaultRule | None:
        """The rule that hits a call that a service makes itself, counted, or None: such a connection does not break."""
        for rule in self.rules:
            named = rule.operation == call.operation and rule.answers
            if named and rule.may_apply(call, self.now()) and rule.when(call.parameters):
                rule.hits += 1
                return rule
        return None


def connection_error(rule: FaultRule, url: str) -> Exception:
    """The exception of a rule that breaks the connection rather than answers."""
    if rule.after_effect:
        return ReadTimeoutError(endpoint_url=url)
    return EndpointConnectionError(endpoint_url=url)


def wire_error(call: AwsCall, code: str, message: str, status: int) -> WireReply:
    """The error as the service of this call would send it."""
    text = message or f"injected fault: {code}"
    if call.protocol == "ec2":
        body = (
            f"<Response><Errors><Error><Code>{escape(code)}</Code><Message>{escape(text)}</Message></Error>"
            "</Errors><RequestID>7a62c49f-347e-4fc4-9331-6e8eEXAMPLE</RequestID></Response>"
        )
        return status, {"content-type": "text/xml"}, body.encode()
    if call.protocol == "query":
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{escape(code)}</Code>"
            f"<Message>{escape(text)}</Message></Error><RequestId>7a62c49f-347e-4fc4</RequestId></ErrorResponse>"
        )
        return status, {"content-type": "text/xml"}, body.encode()
    if call.protocol == "smithy-rpc-v2-cbor":
        headers = {"content-type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}
        return status, headers, _cbor_map({"__type": f"com.amazonaws#{code}", "message": text})
    error = {"__type": f"com.amazonaws#{code}", "message": text, "Message": text}
    headers = {"content-type": "application/x-amz-json-1.1", "x-amzn-errortype": code}
    return status, headers, json.dumps(error).encode()


def _cbor_map(fields: dict[str, str]) -> bytes:
    return bytes([0xA0 | len(fields)]) + b"".join(_cbor_text(text) for item in fields.items() for text in item)


def _cbor_text(text: str) -> bytes:
    data = text.encode()
    return b"\x79" + len(data).to_bytes(2, "big") + data
