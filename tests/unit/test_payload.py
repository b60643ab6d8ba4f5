"""The codec: what goes in comes out, and what is malformed is named."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.operation import LaunchSlot, Operation, Target
from node_fleet.domain.model.run import Alert, Run
from node_fleet.domain.model.snapshot import PodShape, Snapshot, Worker
from node_fleet.payload import LONG_TABLE_ROWS, PACKED_TABLE_ROWS, from_payload, put, take, to_payload

FLOATS = st.none() | st.floats(min_value=0, max_value=100).map(lambda x: round(x, 4))
WHOLE = st.none() | st.integers(min_value=0, max_value=10**6)
NAMES = st.text(alphabet="abcdef0123456789-", min_size=1, max_size=12)

WORKERS = st.builds(
    Worker,
    instance_id=NAMES,
    zone=NAMES,
    market=st.sampled_from(["spot", "on-demand"]),
    instance_type=NAMES,
    phase=st.sampled_from(["usable", "joining", "cordoned", "not_ready", "unjoined", "unknown"]),
    launched_at=st.integers(min_value=0, max_value=2**40),
    under_notice=st.booleans(),
    cpu_percent=FLOATS,
    memory_used_mib=WHOLE,
    taints=st.lists(NAMES, max_size=2).map(tuple),
)
SNAPSHOTS = st.builds(
    Snapshot,
    at=st.integers(min_value=0, max_value=2**40),
    source=st.sampled_from(["live", "cached", "none"]),
    cpu_percent=FLOATS,
    pending=st.none()
    | st.lists(
        st.builds(PodShape, cpu_milli=st.integers(0, 8000), memory_mib=st.integers(0, 8000), count=st.integers(1, 9)),
        max_size=3,
    ).map(tuple),
    workers=st.lists(WORKERS, max_size=4).map(tuple),
)


@given(SNAPSHOTS)
def test_a_snapshot_survives_the_way_through_json(snapshot: Snapshot) -> None:
    assert from_payload(Snapshot, to_payload(snapshot)) == snapshot


def test_records_in_a_list_are_written_as_one_table_that_names_its_columns_once() -> None:
    alerts = (Alert(kind="a", text="x"), Alert(kind="b", text="y"))
    rows = [["a", "x", False], ["b", "y", False]]
    assert to_payload(alerts) == {"columns": ["kind", "text", "is_critical"], "rows": rows}


@pytest.mark.parametrize("rows", [LONG_TABLE_ROWS - 1, LONG_TABLE_ROWS, PACKED_TABLE_ROWS - 1, PACKED_TABLE_ROWS, 400])
def test_a_long_table_says_once_what_all_rows_share_and_a_very_long_one_is_packed(rows: int) -> None:
    alerts = tuple(Alert(kind="same", text=f"text {n}") for n in range(rows))
    written = json.loads(json.dumps(to_payload(alerts)))
    assert ("same" in written, "packed" in written) == (rows >= LONG_TABLE_ROWS, rows >= PACKED_TABLE_ROWS)
    assert from_payload(tuple[Alert, ...], written) == alerts


@pytest.mark.parametrize("packed", ["", "no base64!", "eJwDAAAAAAE=", 5, None])
def test_a_packed_table_that_cannot_be_read_is_one_clear_error(packed: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected a table"):
        from_payload(tuple[Alert, ...], {"columns": ["text"], "same": {"kind": "a"}, "packed": packed})


def test_dictionaries_of_records_survive() -> None:
    memory = Memory(since={"cpu": Streak(since=1, last=2, readings=2)}, not_helped={"shop/web": 5})
    assert from_payload(Memory, to_payload(memory)) == memory


RUN = Run(execution_id="x", trigger="schedule", scheduled_at=1, started_at=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"started_at": True}, r"Run.started_at is True, expected a whole number"),
        ({"started_at": 1.5}, r"Run.started_at is 1.5, expected a whole number"),
        ({"started_at": "1"}, r"Run.started_at is '1', expected a whole number"),
        ({"dry_run": 0}, r"Run.dry_run is 0, expected bool"),
        ({"trigger": "cron"}, r"Run.trigger is 'cron', expected one of schedule, alert, manual"),
        ({"colour": "red"}, r"Run has unknown field 'colour'"),
        ({"execution_id": None}, r"Run.execution_id is None, expected text"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_what_would_be_right(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        from_payload(Run, to_payload(RUN) | change)


def test_a_missing_field_is_named() -> None:
    data = to_payload(RUN)
    del data["started_at"]
    with pytest.raises(InvalidInputError, match="Run lacks field 'started_at'"):
        from_payload(Run, data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), pytest.param(10**309, id="309 digits")])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    data = to_payload(Snapshot(at=1, source="live")) | {"cpu_percent": value}
    with pytest.raises(InvalidInputError, match=r"Snapshot.cpu_percent is .*, expected a finite number"):
        from_payload(Snapshot, data)


ENTRIES = st.lists(
    st.sampled_from([0.5, 1.0, 0.123456, float("inf"), float("nan")])
    | st.sampled_from([0, 7, 10**309, True, "a", None]),
    max_size=4,
)


@given(st.sampled_from([float, int, str, bool]), ENTRIES)
def test_a_list_is_read_as_its_entries_are_one_by_one(kind: type, entries: list[Any]) -> None:
    expected: list[Any] = []
    for number, entry in enumerate(entries):
        try:
            expected.append(from_payload(kind, entry))
        except InvalidInputError:
            with pytest.raises(InvalidInputError, match=rf"^list\[{number}\] is "):
                from_payload(tuple[kind, ...], entries, path="list")  # type: ignore[valid-type]
            return
    read = from_payload(tuple[kind, ...], entries)  # type: ignore[valid-type]
    assert [(type(one), one) for one in read] == [(type(one), one) for one in expected]


@given(ENTRIES)
def test_a_list_is_written_as_its_entries_are_one_by_one(entries: list[Any]) -> None:
    assert repr(to_payload(tuple(entries))) == repr([to_payload(entry) for entry in entries])  # nan is not equal to nan


@pytest.mark.parametrize("data", ["text", 5, {"rows": []}, None])
def test_a_list_must_be_a_list_or_a_table(data: Any) -> None:
    with pytest.raises(InvalidInputError, match="expected a list"):
        from_payload(tuple[Alert, ...], data)


def test_a_wrong_row_is_named_by_its_number() -> None:
    with pytest.raises(InvalidInputError, match=r"alerts\[1\].text is 7"):
        from_payload(tuple[Alert, ...], [{"kind": "a", "text": "b"}, {"kind": "a", "text": 7}], path="alerts")


def test_a_key_that_a_state_needs_is_named_when_it_is_missing() -> None:
    with pytest.raises(InvalidInputError, match="the payload lacks 'run'"):
        take({}, "run", Run)


def test_setting_a_key_leaves_the_others_and_the_original_alone() -> None:
    event = {"notes": []}
    assert put(event, run=RUN) == {"notes": [], "run": to_payload(RUN)}
    assert event == {"notes": []}


def test_every_field_of_an_operation_survives() -> None:
    operation = Operation(
        operation_id="op",
        kind="scale_down",
        phase="draining",
        started_at=1,
        requested=1,
        reason="idle",
        execution_id="e",
        slots=(LaunchSlot(number=0, zone="a", subnet_id="s", instance_type="t", market="spot"),),
        targets=(Target(instance_id="i-1", node_name="i-1"), Target(instance_id="i-2", node_name="i-2")),
    )
    assert from_payload(Operation, to_payload(operation)) == operation
    assert set(to_payload(operation)) == {f.name for f in dataclasses.fields(Operation)}
