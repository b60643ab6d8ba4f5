"""DynamoDB errors as ours, once for every table: what was refused, by which table, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from node_fleet.domain.model.errors import StateStoreError


class ConditionFailed(Exception):
    """The conditional write was refused. `item` is what the table holds, in attribute form; empty when unknown."""

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
