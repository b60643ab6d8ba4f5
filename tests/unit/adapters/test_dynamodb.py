"""The converter between plain values and DynamoDB attributes."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.adapters.dynamodb import (
    ConditionFailed,
    from_attribute,
    from_attributes,
    table_errors,
    to_attribute,
    to_attributes,
)
from node_fleet.domain.model.errors import InvalidInputError, StateStoreError

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.integers(min_value=-(10**37), max_value=10**37)
    | st.floats(allow_nan=False, allow_infinity=False, min_value=-(2.0**53), max_value=2.0**53).filter(
        lambda x: x == 0 or abs(x) > 1e-120
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


class TestClient:
    @pytest.mark.parametrize("value", [30.4, 0.1, 1e-9, 42.3, 1.5, -0.25, 1 / 3, 123456789.123456, 4.94e-114])
    def test_a_float_comes_back_as_the_same_float(self, value: float) -> None:
        back = from_attributes(to_attributes({"x": value}))["x"]
        assert back == value and type(back) is float

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("Infinity")])
    def test_a_number_that_is_not_finite_is_refused_by_name(self, value: Any) -> None:
        with pytest.raises(InvalidInputError, match=r"cpu_percent is .*, expected a finite number"):
            to_attributes({"cpu_percent": value})

    def test_a_refusal_names_the_place_inside_lists_and_maps(self) -> None:
        with pytest.raises(InvalidInputError, match=r"readings\[1\]\.cpu is nan"):
            to_attributes({"readings": [{"cpu": 1.0}, {"cpu": float("nan")}]})

    def test_what_is_read_back_serves_json_and_timedelta(self) -> None:
        back = from_attributes({"age": {"N": "30.4"}, "at": {"N": "1700000000"}})
        assert json.dumps(back) == '{"age": 30.4, "at": 1700000000}'
        assert timedelta(seconds=back["age"]) == timedelta(seconds=30.4)


@given(plain)
def test_any_plain_value_survives_the_round_trip(value: Any) -> None:
    assert from_attribute(to_attribute(value)) == value


@given(st.integers(min_value=-(10**37), max_value=10**37))
def test_a_whole_number_comes_back_as_int(value: int) -> None:
    back = from_attribute(to_attribute(value))
    assert back == value and type(back) is int


@pytest.mark.parametrize("value", [70.0, 1e22, 0.0, -0.0, -3.0])
def test_a_whole_float_comes_back_as_an_equal_int_as_dynamodb_drops_the_point(value: float) -> None:
    back = from_attribute(to_attribute(value))
    assert back == value and type(back) is int


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (10**38 - 1, True),
        (10**38 + 1, False),
        (Decimal("1e-130"), True),
        (Decimal("9e-131"), False),
        (Decimal("9." + "9" * 37 + "e125"), True),
        (Decimal("1e126"), False),
    ],
    ids=str,
)
def test_a_number_is_stored_within_the_digits_and_the_range_of_dynamodb(value: Any, fits: bool) -> None:
    """Amazon DynamoDB Developer Guide, "Supported data types": 38 digits, 1E-130 to 9.99...E+125."""
    if fits:
        assert Decimal(to_attribute(value)["N"]) == value
    else:
        with pytest.raises(InvalidInputError, match="x "):
            to_attributes({"x": value})


def test_a_bool_is_not_written_as_a_number() -> None:
    assert to_attribute(True) == {"BOOL": True}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 10**39 + 1, 1e-200, Decimal("1e126")])
def test_what_dynamodb_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="x "):
        to_attributes({"x": value})


@pytest.mark.parametrize("attribute", [{}, {"S": "a", "N": "1"}, {"Q": 1}])
def test_an_attribute_of_no_known_type_is_one_clear_error(attribute: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        from_attributes({"x": attribute})


def test_sets_are_read_as_lists() -> None:
    assert from_attributes({"a": {"SS": ["x"]}, "b": {"NS": ["1", "2.5"]}}) == {"a": ["x"], "b": [1, 2.5]}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "ResourceNotFoundException",
            "does not exist: cannot read the state; deploy the stack or set the table's name",
        ),
        ("ThrottlingException", "cannot read the state: ThrottlingException: slow down"),
    ],
)
def test_an_error_of_a_table_says_what_could_not_be_done_and_why(code: str, words: str) -> None:
    refused = ClientError({"Error": {"Code": code, "Message": "slow down"}}, "GetItem")
    with pytest.raises(StateStoreError) as raised, table_errors("fleet", "read the state"):
        raise refused
    assert str(raised.value).startswith("DynamoDB table fleet") and words in str(raised.value)


def test_a_failed_condition_carries_the_item_and_a_lost_connection_is_an_error_of_the_table() -> None:
    item = {"lock_owner": {"S": "b"}}
    failed: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": item}
    with pytest.raises(ConditionFailed) as raised, table_errors("fleet", "renew"):
        raise ClientError(failed, "UpdateItem")
    assert raised.value.item == item
    with pytest.raises(StateStoreError, match="DynamoDB table fleet: cannot renew: "), table_errors("fleet", "renew"):
        raise EndpointConnectionError(endpoint_url="https://dynamodb")
