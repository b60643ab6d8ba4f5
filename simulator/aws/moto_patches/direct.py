"""Answers the most frequent calls by moto's own methods, without HTTP, signature, retries and parsing.

A parameter goes to moto as botocore would have sent it, and the answer has the shape that botocore would have parsed.
A test compares both ways on the calls of whole runs. Faults need the wire, so a call that one can strike goes by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ParamValidationError
from botocore.model import OperationModel, Shape
from botocore.validate import ParamValidator
from moto.core.exceptions import JsonRESTError, ServiceException
from moto.dynamodb.responses import DynamoHandler
from moto.ssm.responses import SimpleSystemManagerResponse
from moto.stepfunctions.responses import StepFunctionResponse

from simulator.aws.moto_patches import expect
from simulator.aws.moto_patches.speed import copy_by_parts, json_copy
from simulator.aws.moto_patches.updates import planned_update

METHODS: dict[tuple[str, str], tuple[type[Any], str]] = {
    ("dynamodb", "GetItem"): (DynamoHandler, "get_item"),
    ("dynamodb", "PutItem"): (DynamoHandler, "put_item"),
    ("dynamodb", "Query"): (DynamoHandler, "query"),
    ("dynamodb", "UpdateItem"): (DynamoHandler, "update_item"),
    ("ssm", "GetCommandInvocation"): (SimpleSystemManagerResponse, "get_command_invocation"),
    ("stepfunctions", "StartExecution"): (StepFunctionResponse, "start_execution"),
}
METADATA = {"HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}
VALIDATOR = ParamValidator()


class DirectAnswers:
    """moto without the wire, for one account."""

    def __init__(self, account: str) -> None:
        self._account = account
        for owner, method in METHODS.values():
            expect(owner, method, "self")

    def call(self, client: Any, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What the client's method answers or raises."""
        model = client.meta.service_model.operation_model(operation)
        if (report := VALIDATOR.validate(parameters, model.input_shape)).has_errors():
            raise ParamValidationError(report=report.generate_report())
        owner, method = METHODS[client.meta.service_model.service_name, operation]
        handler = owner()
        handler.region, handler.current_account = client.meta.region_name, self._account
        handler.params = handler.body = copy_by_parts(dict(parameters))  # the texts are shared
        handler.automated_parameter_parsing, handler.uri_match = True, {}

        def by_moto() -> dict[str, Any]:
            found: dict[str, Any] = getattr(handler, method)().result
            return found

        try:
            if operation == "UpdateItem":
                table = handler.dynamodb_backend.tables.get(parameters["TableName"])
                found = planned_update(table, parameters, by_moto)
            else:
                found = by_moto()
        except JsonRESTError as error:
            raise _as_client_error(client, model, str(error.description)) from None
        except ServiceException as error:
            body = json.dumps({"__type": error.code, "message": error.message})
            raise _as_client_error(client, model, body) from None
        return {**_shaped(found, model.output_shape), "ResponseMetadata": dict(METADATA)}


def _shaped(value: Any, shape: Shape) -> Any:
    """The value with the members that the shape has, none of them shared with moto."""
    if shape.type_name == "structure":
        members = shape.members.items()  # type: ignore[attr-defined]
        return {name: _shaped(value[name], member) for name, member in members if value.get(name) is not None}
    return json_copy(value)


def _as_client_error(client: Any, model: OperationModel, body: str) -> Exception:
    """As botocore parses moto's answer: the code, the message and the members of the error's own shape."""
    code = json.loads(body)["__type"].rpartition("#")[2]
    wire = {"status_code": 400, "headers": {}, "body": body.encode()}
    parser = client._response_parser
    parsed = parser.parse(wire, model.output_shape)
    if shape := client.meta.service_model.shape_for_error_code(code):
        parsed.update(parser.parse(wire, shape))
    failure: Exception = client.exceptions.from_code(code)(parsed, model.name)
    return failure
