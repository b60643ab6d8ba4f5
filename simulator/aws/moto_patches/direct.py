"""Answers calls by moto's own methods, without HTTP, signature, retries and parsing.

A parameter goes to moto as botocore would have sent it, and the answer has the shape that botocore would have parsed.
A test compares both ways on the calls of whole runs. Faults need the wire, so a call that one can strike goes by it.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ParamValidationError
from botocore.model import OperationModel, Shape
from botocore.utils import parse_timestamp
from botocore.validate import ParamValidator
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionContext, ActionResult
from moto.core.serialize import AttributePickerContext, ResponseSerializer, TimestampSerializer, get_serializer_class
from moto.core.utils import MISSING, camelcase_to_underscores, get_service_model, get_value
from moto.utilities.utils import get_partition
from werkzeug.exceptions import HTTPException

from simulator.aws.moto_patches import expect
from simulator.aws.moto_patches.speed import copy_by_parts, json_copy
from simulator.aws.moto_patches.updates import planned_update

OWNERS = {
    "dynamodb": "DynamoHandler",
    "ec2": "EC2Response",
    "secretsmanager": "SecretsManagerResponse",
    "sns": "SNSResponse",
    "ssm": "SimpleSystemManagerResponse",
    "stepfunctions": "StepFunctionResponse",
}
"""The services whose calls have no wire, with moto's class of their methods."""
PLAIN = frozenset({"GetItem", "PutItem", "Query", "UpdateItem", "GetCommandInvocation", "StartExecution"})
"""Frequent operations to whose parameters botocore adds nothing, and for which moto returns what botocore parses."""
ATTRIBUTE_MAPS = {
    "GetItem": ("Key",),
    "PutItem": ("Item",),
    "UpdateItem": ("Key", "ExpressionAttributeValues"),
}
"""The parameters that hold attributes of DynamoDB, by operation."""
ATTRIBUTE_TYPES = {"S": str, "N": str, "BOOL": bool, "NULL": bool}
METADATA = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
VALIDATOR = ParamValidator()


class DirectAnswers:
    """moto without the wire, for one account."""

    def __init__(self, account: str) -> None:
        self._account = account

    def call(self, client: Any, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What the client's method answers or raises."""
        model = client.meta.service_model.operation_model(operation)
        service = client.meta.service_model.service_name
        given = parameters if operation in PLAIN else _completed(client, model, parameters)
        if (report := VALIDATOR.validate(_unproven(given, operation), model.input_shape)).has_errors():
            raise ParamValidationError(report=report.generate_report())
        handler = owner_of(service)()
        handler.region, handler.current_account = client.meta.region_name, self._account
        handler.params = handler.body = _as_sent(dict(given), service)
        handler.partition, handler.automated_parameter_parsing = get_partition(client.meta.region_name), True
        handler.uri_match, handler.querystring, handler.data, handler.headers = {}, {}, {}, {}
        method = getattr(handler, method_name(operation))
        try:
            if operation == "UpdateItem":
                table = handler.dynamodb_backend.tables.get(parameters["TableName"])
                found = _shaped(planned_update(table, parameters, lambda: method().result), model.output_shape)
            else:
                found = _parsed(client, model, handler, method())
        except HTTPException as error:
            raise _as_client_error(client, model, int(error.code or 500), str(error.description)) from None
        except ServiceException as error:
            kind = get_serializer_class(service, model.service_model.resolved_protocol)
            sent = kind(_motos(service).operation_model(operation)).serialize(error)
            raise _as_client_error(client, model, sent["status_code"], sent["body"]) from None
        answer = {**found, "ResponseMetadata": dict(METADATA)}
        if operation not in PLAIN:
            event = f"after-call.{client.meta.service_model.service_id.hyphenize()}.{operation}"
            client.meta.events.emit(event, http_response=None, parsed=answer, model=model, context={})  # may decode it
        return answer


@functools.cache
def owner_of(service: str) -> type[Any]:
    """moto's class with the methods of a service."""
    found: type[Any] = expect(importlib.import_module(f"moto.{service}.responses"), OWNERS[service])
    return found


@functools.cache
def has_method(service: str, operation: str) -> bool:
    """False for other services, and for an operation that moto lacks."""
    return service in OWNERS and hasattr(owner_of(service), method_name(operation))


@functools.cache
def method_name(operation: str) -> str:
    """The method of an operation."""
    return str(camelcase_to_underscores(operation))


@functools.cache
def _motos(service: str) -> Any:
    return get_service_model(service)


def _unproven(parameters: Mapping[str, Any], operation: str) -> Mapping[str, Any]:
    """What botocore has to validate: not the attributes that are plainly valid, each of which takes it long."""
    maps = {name: parameters[name] for name in ATTRIBUTE_MAPS.get(operation, ()) if type(parameters.get(name)) is dict}
    left = {name: {k: v for k, v in held.items() if not _is_plain_attribute(k, v)} for name, held in maps.items()}
    return {**parameters, **left}


def _is_plain_attribute(name: Any, attribute: Any) -> bool:
    if type(name) is not str or type(attribute) is not dict or len(attribute) != 1:
        return False
    ((kind, value),) = attribute.items()
    return type(value) is ATTRIBUTE_TYPES.get(kind)


def _completed(client: Any, model: OperationModel, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """With what botocore adds: tokens of calls that can be repeated, texts in base64."""
    context = {"client_region": client.meta.region_name, "client_config": client.meta.config}
    found: Mapping[str, Any] = client._emit_api_params(
        api_params=dict(parameters), operation_model=model, context=context
    )
    return found


def _as_sent(parameters: dict[str, Any], service: str) -> dict[str, Any]:
    """A copy that shares the texts. An empty list has no place in a request to EC2."""
    copied: dict[str, Any] = copy_by_parts(parameters)
    return _without_empty_lists(copied) if service == "ec2" else copied


def _without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empty_lists(item) for name, item in value.items() if item != []}
    return [_without_empty_lists(item) for item in value] if isinstance(value, list) else value


def _parsed(client: Any, model: OperationModel, handler: Any, answer: Any) -> Any:
    """The members of the answer, from what moto's method returned: a result, or the text of the body."""
    service = client.meta.service_model.service_name
    if not isinstance(answer, ActionResult):
        text = answer if isinstance(answer, str) else answer[-1]
        wire: dict[str, Any] = {"status_code": 200, "headers": {}, "body": text.encode()}
        found = client._response_parser.parse(wire, model.output_shape)
        del found["ResponseMetadata"]
        return found
    if model.name in PLAIN:
        return _shaped(answer.result, model.output_shape)
    known = _motos(service)
    context = ActionContext(known, known.operation_model(model.name), ParsedAnswers, handler)
    return answer.execute_result(context)[2]


class ParsedAnswers(ResponseSerializer):  # type: ignore[misc]
    """Gives moto's results the form that botocore's parser gives to their text."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        protocol = self.service_model.resolved_protocol
        self._is_xml = protocol in ("ec2", "query")
        kind = get_serializer_class(self.service_model.service_name, protocol)
        self._timestamp_serializer = TimestampSerializer(kind.DEFAULT_TIMESTAMP_FORMAT)
        self._transforms: dict[str, Any] = self._value_picker.response_transformers

    def get_value(self, value: Any, key: str, shape: Any) -> Any:
        """As moto's picker, which looks up the names of the attribute and the transformation for each value."""
        where = (type(value), shape, shape.parent, key)
        if where not in _NAMES:
            context = AttributePickerContext(value, key, shape, self.operation_model, self.service_model)
            _NAMES[where] = tuple(dict.fromkeys(self._value_picker.get_possible_keys(context)))
            _READERS[where] = _reader(type(value), _NAMES[where])
        found, read = None, _READERS[where]
        for name in _NAMES[where]:
            if (part := read(value, name, MISSING)) is not MISSING:
                found = part
                break
        if self._transforms:
            path = f"{'.'.join(self.path)}.{key}"
            if path not in _ENDS:
                _ENDS[path] = next((end for end in self._transforms if path.endswith(end)), "")
            return self._transforms[_ENDS[path]](found) if _ENDS[path] else found
        return found

    def get_serialized_name(self, shape: Any, default_name: str) -> str:
        return default_name

    def _serialized_result_to_response(self, resp: Any, result: Any, shape: Any, serialized_result: Any) -> Any:
        resp["body"] = serialized_result
        return resp

    def _serialize_type_boolean(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        serialized[key] = value is True or str(value).lower() == "true"

    def _serialize_type_string(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        serialized[key] = str(value) if self._is_xml else value

    def _serialize_type_blob(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        serialized[key] = value.encode() if isinstance(value, str) else value

    def _serialize_type_timestamp(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        sent: dict[str, Any] = {}
        self._timestamp_serializer.serialize(sent, value, shape, key)
        serialized[key] = _timestamp(sent[key])

    def _serialize_type_list(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        found = []
        for item in value:
            wrapper: dict[str, Any] = {}
            self._serialize(wrapper, item, shape.member, shape.member.name)
            if wrapper and not (self._is_xml and wrapper[shape.member.name] == {}):
                found.append(wrapper[shape.member.name])
        if found or not (self._is_xml and shape.is_flattened):
            serialized[key] = found

    def _serialize_type_map(self, serialized: Any, value: Any, shape: Any, key: str) -> None:
        found: dict[Any, Any] = {}
        for name, item in value.items():
            pair: dict[str, Any] = {}
            self._serialize(pair, name, shape.key, "key")
            self._serialize(pair, item, shape.value, "value")
            found[pair["key"]] = pair["value"]
        serialized[key] = found


def _reader(kind: type, names: tuple[str, ...]) -> Any:
    """What moto's get_value comes to for objects of this kind, which it finds out again for each value."""
    if any("." in name for name in names):
        return get_value
    if kind is dict:
        return dict.get
    return get_value if hasattr(kind, "__getitem__") else getattr


_NAMES: dict[Any, tuple[str, ...]] = {}
_READERS: dict[Any, Callable[..., Any]] = {}
_ENDS: dict[str, str] = {}
"""By the path of a value: the end of it for which its service has a transformation."""


@functools.lru_cache(maxsize=4096)
def _timestamp(sent: Any) -> dt.datetime:
    found: dt.datetime = parse_timestamp(sent)
    return found


def _shaped(value: Any, shape: Shape | None) -> Any:
    """The value with the members that the shape has, none of them shared with moto."""
    if shape is not None and shape.type_name == "structure":
        members = shape.members.items()  # type: ignore[attr-defined]
        return {name: _shaped(value[name], member) for name, member in members if value.get(name) is not None}
    return json_copy(value)


def _as_client_error(client: Any, model: OperationModel, status: int, body: str) -> Exception:
    """As botocore parses moto's answer: the code, the message and the members of the error's own shape."""
    wire = {"status_code": status, "headers": {}, "body": body.encode()}
    parser = client._response_parser
    parsed = parser.parse(wire, model.output_shape)
    code = parsed["Error"]["Code"]
    if shape := client.meta.service_model.shape_for_error_code(code):
        parsed.update(parser.parse(wire, shape))
    failure: Exception = client.exceptions.from_code(code)(parsed, model.name)
    return failure
