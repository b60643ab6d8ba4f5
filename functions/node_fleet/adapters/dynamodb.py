"""DynamoDB for every table: plain values to attributes and back, and its errors as ours.

Keys, tables and conditions belong to the stores. NaN and infinity are never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import InvalidInputError, StateStoreError

Attribute = dict[str, Any]

_DIGITS = 38
_SMALLEST, _LARGEST = Decimal("1e-130"), Decimal("9." + "9" * 37 + "e125")


class ConditionFailed(Exception):
    """The condition of a write did not hold. `item`: what the table holds, in attribute form; empty when unknown."""

    def __init__(self, item: dict[str, Any]) -> None:
        super().__init__("condition failed")
        self.item = item


@contextmanager
def table_errors(table: str, action: str) -> Iterator[None]:
    """Turn botocore's errors into ConditionFailed or StateStoreError.

    Raises:
        ConditionFailed: the condition of the write did not hold.
        StateStoreError: anything else; names the table, what was attempted and the cause.
    """
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "ConditionalCheckFailedException":
            response: dict[str, Any] = dict(error.response)
            raise ConditionFailed(response.get("Item", {})) from None
        raise StateStoreError(_sentence(table, action, code, error.response["Error"].get("Message", ""))) from error
    except BotoCoreError as error:
        raise StateStoreError(f"DynamoDB table {table}: cannot {action}: {error}") from error


def _sentence(table: str, action: str, code: str, message: str) -> str:
    if code == "ResourceNotFoundException":
        return f"DynamoDB table {table} does not exist: cannot {action}; deploy the stack or set the table's name"
    return f"DynamoDB table {table}: cannot {action}: {code}: {message}"


def to_attributes(values: Mapping[str, Any]) -> dict[str, Attribute]:
    """The item in the form of the low-level client. A float keeps its shortest decimal text, so 30.4 stays 30.4.

    Raises:
        InvalidInputError: names the attribute whose value DynamoDB cannot hold.
    """
    return {str(key): to_attribute(value, path=str(key)) for key, value in values.items()}


def from_attributes(item: Mapping[str, Attribute]) -> dict[str, Any]:
    """Plain Python values of an item: whole numbers as int, other numbers as float, never Decimal.

    DynamoDB stores 70.0 as 70, so a whole float comes back as int; the payload codec takes it as a float again.
    """
    return {key: from_attribute(value, path=key) for key, value in item.items()}


def to_attribute(value: Any, *, path: str = "value") -> Attribute:
    """One value in attribute form; `path` names it in an error."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int | float | Decimal):
        return {"N": _number_text(value, path)}
    if isinstance(value, Mapping):
        return {"M": {str(k): to_attribute(v, path=f"{path}.{k}") for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return {"L": [to_attribute(v, path=f"{path}[{i}]") for i, v in enumerate(value)]}
    raise InvalidInputError(f"{path} is a {type(value).__name__}, expected text, number, true/false, null, list or map")


def from_attribute(attribute: Attribute, *, path: str = "value") -> Any:
    """The plain Python value of one attribute."""
    if len(attribute) != 1:
        raise InvalidInputError(f"{path} is {attribute!r:.80}, expected one DynamoDB type and its value")
    ((kind, value),) = attribute.items()
    if kind == "N":
        return _plain_number(value)
    if kind == "NULL":
        return None
    if kind in ("S", "BOOL", "B"):
        return value
    if kind == "M":
        return {k: from_attribute(v, path=f"{path}.{k}") for k, v in value.items()}
    if kind == "L":
        return [from_attribute(v, path=f"{path}[{i}]") for i, v in enumerate(value)]
    if kind == "NS":
        return [_plain_number(v) for v in value]
    if kind == "SS":
        return list(value)
    raise InvalidInputError(f"{path} has the DynamoDB type {kind!r}, expected S, N, BOOL, NULL, M, L, B, SS or NS")


def _number_text(value: float | Decimal, path: str) -> str:
    number = Decimal(str(value))
    if not number.is_finite():
        raise InvalidInputError(f"{path} is {value}, expected a finite number")
    if len(number.as_tuple().digits) > _DIGITS:
        raise InvalidInputError(f"{path} has more than {_DIGITS} digits, expected a number that DynamoDB can hold")
    if number != 0 and not _SMALLEST <= number.copy_abs() <= _LARGEST:
        raise InvalidInputError(f"{path} is {value}, expected a size from 1e-130 to 9.9e125")
    return str(number)


def _plain_number(text: str) -> int | float:
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)
