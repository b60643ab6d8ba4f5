"""The history and events tables against DynamoDB's own engine (moto)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.adapters.dynamodb import from_attributes
from node_fleet.adapters.records import Records
from node_fleet.domain.model.errors import StateStoreError
from node_fleet.domain.model.snapshot import CustomReading, Snapshot
from node_fleet.domain.notify.threads import Thread
from node_fleet.payload import to_payload
from node_fleet.settings import Settings
from tests.support.decisions import workers

SETTINGS = Settings()
HOUR = 3600
START = 1_790_000_000 - 1_790_000_000 % HOUR


class Recording:
    """Passes calls on and keeps them; pages of at most `page` items."""

    def __init__(self, client: Any, page: int = 0) -> None:
        self._client = client
        self._page = page
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def put_item(self, **request: Any) -> Any:
        self.calls.append(("put_item", request))
        return self._client.put_item(**request)

    def query(self, **request: Any) -> Any:
        self.calls.append(("query", request))
        return self._client.query(**request, **({"Limit": self._page} if self._page else {}))


def reading(at: int, cpu: float | None = 42.3, **more: Any) -> Snapshot:
    values: dict[str, Any] = {"memory_percent": 30.4, "pending": (), "workers": workers(2), **more}
    return Snapshot(at=at + 3, read_at=at, source="live", cpu_percent=cpu, **values)


def stored(client: Any, table: str) -> dict[str, dict[str, Any]]:
    items = [from_attributes(item) for item in client.scan(TableName=table)["Items"]]
    return {item["sk"]: item for item in items}


def test_a_reading_is_one_small_item_under_its_utc_second_and_expires_after_30_days(dynamo: Any) -> None:
    Records(dynamo, SETTINGS).put_reading(reading(START, custom=(CustomReading(name="queue", value=7.5),)))
    item = stored(dynamo, SETTINGS.history_table)[f"reading#{START:010d}"]
    assert item["cpu_percent"] == 42.3 and item["memory_percent"] == 30.4 and item["custom_queue"] == 7.5
    assert item["pending"] == 0 and item["usable"] == 2
    assert item["expires_at"] == START + 30 * 86400
    assert "workers" not in item and "snapshot" not in item


@pytest.mark.parametrize("cpu", [None, float("nan"), float("inf")])
def test_a_missing_value_is_never_stored(dynamo: Any, cpu: float | None) -> None:
    records = Records(dynamo, SETTINGS)
    records.put_reading(reading(START, None, custom=(CustomReading(name="queue", value=cpu),)))
    item = stored(dynamo, SETTINGS.history_table)[f"reading#{START:010d}"]
    assert "cpu_percent" not in item and "custom_queue" not in item


def record_run(records: Records, at: int, snapshot: Snapshot | None) -> None:
    data = {} if snapshot is None else {"snapshot": to_payload(snapshot)}
    records.put_event("decision", at, data, key=f"run-{at}")


def test_the_latest_snapshot_is_the_last_live_one_with_values_and_comes_back_whole(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    assert records.latest_snapshot(0) is None
    record_run(records, START, reading(START))
    record_run(records, START + 120, reading(START + 121, 55.25))
    record_run(records, START + 240, replace(reading(START + 240), source="cached"))
    record_run(records, START + 360, reading(START + 360, None, memory_percent=None, pending=None))
    record_run(records, START + 480, None)
    records.put_event("interruption", START + 600, {"snapshot": to_payload(reading(START + 600))}, key="i-1")
    client = Recording(dynamo, page=2)
    assert Records(client, SETTINGS).latest_snapshot(START) == reading(START + 121, 55.25)
    assert len(client.calls) == 3


@pytest.mark.parametrize(("since", "found"), [(START + 3600, True), (START + 3601, False)])
def test_the_latest_snapshot_of_a_long_run_is_found_by_the_time_of_its_reading(
    dynamo: Any, since: int, found: bool
) -> None:
    records = Records(dynamo, SETTINGS)
    record_run(records, START, reading(START + 3600))
    assert records.latest_snapshot(since) == (reading(START + 3600) if found else None)


def test_a_snapshot_that_another_version_recorded_counts_as_none(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    of_other_version = {"snapshot": {**to_payload(reading(START + 120)), "clouds": 3}}
    records.put_event("decision", START + 120, of_other_version, key="run-2")
    assert records.latest_snapshot(START) is None
    record_run(records, START, reading(START))
    assert records.latest_snapshot(START) == reading(START)


def test_hours_are_summed_up_from_their_readings_and_the_running_hour_is_left_out(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    for minute, cpu in ((0, 10.0), (2, 20.0), (58, 60.0), (60, 90.0), (62, None)):
        records.put_reading(reading(START + minute * 60, cpu))
    (hour,) = records.hourly_loads(START - 7 * 86400, START + 90 * 60)
    assert (hour.hour_epoch, hour.cpu_percent, hour.readings, hour.workers) == (START, 30.0, 3, 2.0)


def test_an_hour_once_summed_up_is_read_and_not_summed_again(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    for k in range(60):
        records.put_reading(reading(START + k * 120))
    first = records.hourly_loads(START, START + 2 * HOUR)
    client = Recording(dynamo)
    assert Records(client, SETTINGS).hourly_loads(START, START + 2 * HOUR) == first
    assert [name for name, _ in client.calls] == ["query"]


def test_a_gap_of_hours_does_not_stop_the_summing(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    records.put_reading(reading(START))
    records.hourly_loads(START, START + HOUR)
    records.put_reading(reading(START + 5 * HOUR))
    hours = records.hourly_loads(START, START + 6 * HOUR)
    assert [h.hour_epoch for h in hours] == [START, START + 5 * HOUR]


def test_every_page_is_read(dynamo: Any) -> None:
    records = Records(Recording(dynamo, page=2), SETTINGS)
    for k in range(7):
        records.put_event("decision", START + k, {"n": k}, key=f"run-{k}")
    assert [event.data["n"] for event in records.events(START, START + 7)] == list(range(7))


def test_events_come_back_in_order_within_their_bounds_and_by_kind(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    records.put_event("decision", START + 2, {"b": 1.5}, key="run-2")
    records.put_event("decision", START, {"a": True}, key="run-1")
    records.put_event("interruption", START + 1, {"c": None}, key="i-1")
    records.put_event("decision", START + 9, {}, key="run-9")
    assert [e.key for e in records.events(START, START + 9)] == ["run-1", "i-1", "run-2"]
    assert [e.key for e in records.events(START, START + 10, kind="decision")] == ["run-1", "run-2", "run-9"]
    assert records.events(START + 2, START + 3)[0].data == {"b": 1.5}


def test_an_event_stored_twice_is_there_once_and_expires_after_90_days(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    for _ in range(2):
        records.put_event("decision", START, {"x": 1}, key="run-1")
    items = stored(dynamo, SETTINGS.events_table)
    assert list(items) == [f"event#{START:010d}#decision#run-1"]
    assert items[f"event#{START:010d}#decision#run-1"]["expires_at"] == START + 90 * 86400


def test_two_kinds_of_event_with_one_time_and_key_are_two(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    for kind in ("interruption", "interruption_end"):
        records.put_event(kind, START, {}, key="int-i-1#run-1")
    assert [e.kind for e in records.events(START, START + 1)] == ["interruption", "interruption_end"]


def test_other_clusters_are_not_seen(dynamo: Any) -> None:
    Records(dynamo, Settings(cluster_id="other")).put_event("decision", START, {}, key="x")
    assert Records(dynamo, SETTINGS).events(START - 1, START + 1) == ()


def test_a_table_that_is_not_there_is_named(dynamo: Any) -> None:
    dynamo.delete_table(TableName=SETTINGS.events_table)
    with pytest.raises(StateStoreError, match=SETTINGS.events_table):
        Records(dynamo, SETTINGS).put_event("decision", START, {})


def test_an_event_that_dynamodb_cannot_hold_is_refused_before_it_is_sent(dynamo: Any) -> None:
    client = Recording(dynamo)
    with pytest.raises(Exception, match="expected a finite number"):
        Records(client, SETTINGS).put_event("decision", START, {"cpu": float("nan")})
    assert client.calls == []


def test_the_thread_of_an_incident_is_found_by_its_key_is_no_event_and_expires(dynamo: Any) -> None:
    records, key = Records(dynamo, SETTINGS), "drain_failed:i-1"
    assert records.thread(key) is None
    thread = Thread(ts="1.0", severity="warning", seen_at=START, by_run=True, alarms=("DrainFailures",))
    for seen_at in (START, START + 60):
        records.put_thread(key, replace(thread, seen_at=seen_at))
    assert records.thread(key) == replace(thread, seen_at=START + 60)
    assert records.thread("drain_failed:i-2") is None
    assert records.events(0, START + 3600) == ()
    (item,) = stored(dynamo, SETTINGS.events_table).values()
    assert item["expires_at"] == START + 60 + SETTINGS.event_days * 86400


def test_a_thread_that_another_version_stored_is_unknown_and_a_missing_table_is_named(dynamo: Any) -> None:
    records = Records(dynamo, SETTINGS)
    item = {"cluster_id": {"S": SETTINGS.cluster_id}, "sk": {"S": "incident#k"}, "data": {"S": '{"ts": 1}'}}
    dynamo.put_item(TableName=SETTINGS.events_table, Item=item)
    assert records.thread("k") is None
    with pytest.raises(StateStoreError, match="none-events"):
        Records(dynamo, replace(SETTINGS, events_table="none-events")).thread("k")
