"""Answers UpdateItem by the plan of its kind: what moto parses and validates for each call is done once for a kind.

A kind is everything in a call but its key and the values. moto answers the first call of a kind, which validates it,
and each call that a plan does not cover: a condition that does not hold, a missing operand, a large item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moto.dynamodb import comparisons
from moto.dynamodb.comparisons import ConditionExpressionParser
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.parsing import ast_nodes as nodes
from moto.dynamodb.parsing.expressions import UpdateExpressionParser

from simulator.aws.moto_patches import expect, swapped

Attributes = Mapping[str, Any]
Kind = tuple[tuple[Any, ...], ...]
Operand = Callable[[Attributes, Attributes], Any]

COVERED = frozenset(
    {
        "TableName",
        "Key",
        "UpdateExpression",
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)
RETURNED = ("NONE", "ALL_OLD", "ALL_NEW")
LARGE_BYTES = 150_000  # far below the limit of an item, twice
KINDS_KEPT = 256
ACTIONS = [
    nodes.UpdateExpressionSetAction,
    nodes.UpdateExpressionRemoveAction,
    nodes.UpdateExpressionAddAction,
    nodes.UpdateExpressionDeleteAction,
]


class _NotCoveredError(Exception):
    """The expression has a form that no plan covers."""


class _LateValue:
    """An operand of a condition that reads its value when the condition is evaluated."""

    def __init__(self, values: dict[str, Any], name: str) -> None:
        self._values = values
        self._name = name

    def expr(self, item: Any) -> Any:
        return comparisons.AttributeValue(self._values[self._name]).expr(item)

    def get_type(self, item: Any) -> str:
        return str(next(iter(self._values[self._name])))


@dataclass(frozen=True, slots=True)
class _Plan:
    """A condition, the values that it reads, and for each attribute its new value; None removes the attribute."""

    condition: Any
    values: dict[str, Any]
    steps: tuple[tuple[str, Operand | None], ...]


_plans: dict[Kind, _Plan | None] = {}


def planned_update(table: Any, parameters: Mapping[str, Any], by_moto: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The members of the answer to UpdateItem. `by_moto` answers as moto does, or raises its error."""
    kind = _kind(table, parameters)
    if kind is None:
        return by_moto()
    if kind not in _plans:
        answer = by_moto()  # raises for an invalid kind, which is not remembered
        if len(_plans) >= KINDS_KEPT:
            _plans.clear()
        _plans[kind] = _made(parameters)
        return answer
    plan = _plans[kind]
    answered = None if plan is None else _carried_out(plan, table, parameters)
    return by_moto() if answered is None else answered


def _kind(table: Any, parameters: Mapping[str, Any]) -> Kind | None:
    if not parameters.keys() <= COVERED or table is None or table.stream_shard is not None:
        return None
    if parameters.get("ReturnValues", "NONE") not in RETURNED or "UpdateExpression" not in parameters:
        return None
    texts = tuple((name, value) for name, value in parameters.items() if isinstance(value, str))
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    return texts, tuple(names.items()), tuple(values), tuple(table.attribute_keys)


def _made(parameters: Mapping[str, Any]) -> _Plan | None:
    names = parameters.get("ExpressionAttributeNames", {})
    values = dict(parameters.get("ExpressionAttributeValues", {}))

    def late(name: str) -> _LateValue:
        return _LateValue(values, name)

    expect(comparisons, "AttributeValue")
    with swapped(comparisons, "AttributeValue", late):
        named = {name: name for name in values}
        condition = ConditionExpressionParser(parameters.get("ConditionExpression"), names, named).parse()
    try:
        return _Plan(condition, values, tuple(_steps(parameters["UpdateExpression"], names)))
    except _NotCoveredError:
        return None


def _steps(expression: str, names: Mapping[str, str]) -> Iterator[tuple[str, Operand | None]]:
    for action in UpdateExpressionParser.make(expression.strip()).find_clauses(ACTIONS):
        if isinstance(action, nodes.UpdateExpressionSetAction):
            yield _attribute(action.children[0], names), _operand(action.children[1], names)
        elif isinstance(action, nodes.UpdateExpressionRemoveAction):
            yield _attribute(action.children[0], names), None
        else:
            raise _NotCoveredError


def _attribute(path: Any, names: Mapping[str, str]) -> str:
    if len(path.children) != 1:
        raise _NotCoveredError
    text = str(path.children[0].to_str())
    return names.get(text, text)


def _operand(node: Any, names: Mapping[str, str]) -> Operand:
    """The value of a part of SET; None where moto has to answer."""
    if isinstance(node, nodes.ExpressionAttributeValue):
        return lambda attributes, values: DynamoType(values[node.get_value_name()])
    if isinstance(node, nodes.UpdateExpressionPath):
        name = _attribute(node, names)
        return lambda attributes, values: attributes.get(name)
    if isinstance(node, nodes.UpdateExpressionFunction) and node.get_function_name() == "if_not_exists":
        known, otherwise = (_operand(node.get_nth_argument(number), names) for number in (1, 2))
        return lambda attributes, values: known(attributes, values) or otherwise(attributes, values)
    if isinstance(node, nodes.UpdateExpressionValue) and len(node.children) == 1:
        return _operand(node.children[0], names)
    if isinstance(node, nodes.UpdateExpressionValue) and node.children[1].get_operator() == "+":
        left, right = _operand(node.children[0], names), _operand(node.children[2], names)
        return lambda attributes, values: _sum(left(attributes, values), right(attributes, values))
    raise _NotCoveredError


def _sum(left: Any, right: Any) -> Any:
    return left + right if left and right and left.is_number() and right.is_number() else None


def _carried_out(plan: _Plan, table: Any, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    """None, and nothing is changed, when moto has to answer."""
    values, key = parameters.get("ExpressionAttributeValues", {}), parameters["Key"]
    if key.keys() != set(table.attribute_keys):
        return None
    place = [DynamoType(key[name]) for name in table.attribute_keys]
    item = table.get_item(*place)
    plan.values.update(values)
    if not plan.condition.expr(item) or (item is not None and item.size() > LARGE_BYTES):
        return None
    old = {} if item is None else dict(item.attrs)
    new = {name: make(old, values) for name, make in plan.steps if make}
    if any(value is None for value in new.values()) or sum(value.size() for value in new.values()) > LARGE_BYTES:
        return None
    if item is None:
        table.put_item(key)
        item = table.get_item(*place)
    for name, make in plan.steps:
        if make:
            dict.__setitem__(item.attrs, name, new[name])  # without moto's check of the size
        else:
            item.attrs.pop(name, None)
    answer: dict[str, Any] = {"ConsumedCapacity": {"TableName": parameters["TableName"], "CapacityUnits": 0.5}}
    if shown := {"NONE": {}, "ALL_OLD": old, "ALL_NEW": item.attrs}[parameters.get("ReturnValues", "NONE")]:
        answer["Attributes"] = _plain(shown)
    return answer


def _plain(attributes: Attributes) -> dict[str, Any]:
    return {name: {value.type: _plain_value(value)} for name, value in attributes.items()}


def _plain_value(attribute: Any) -> Any:
    if attribute.type == "M":
        return _plain(attribute.value)
    if attribute.type == "L":
        return [{value.type: _plain_value(value)} for value in attribute.value]
    return list(attribute.value) if isinstance(attribute.value, list) else attribute.value
