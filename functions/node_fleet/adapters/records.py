"""The history and events tables: readings and decisions by time, which expire by themselves.

Keys are made of times, so a repeated write changes nothing. These tables take no part in locking.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from node_fleet.adapters.dynamodb import from_attributes, table_errors, to_attributes
from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.snapshot import HourlyLoad, Snapshot
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.threads import Thread
from node_fleet.payload import from_payload, known, to_payload
from node_fleet.settings import Settings

_DAY, _HOUR = 86400, 3600
LONGEST_RUN_SECONDS = _HOUR


@value_class
class Event:
    """An event at `at` (epoch seconds): a decision with its inputs, an outcome, an interruption."""

    kind: str
    at: int
    key: str
    data: dict[str, Any]


class Records:
    """One cluster's history (30 days) and events (90 days). `client` is a low-level DynamoDB client.

    Every method raises StateStoreError, naming the table, when DynamoDB refuses or cannot be reached.
    """

    def __init__(self, client: Any, settings: Settings) -> None:
        self._client = client
        self._settings = settings

    def put_reading(self, snapshot: Snapshot) -> None:
        """Store the metrics of a live reading. Missing values are not stored."""
        figures = {
            "at": snapshot.read_at or snapshot.at,
            "cpu_percent": snapshot.cpu_percent,
            "cpu_max_percent": snapshot.cpu_max_percent,
            "memory_percent": snapshot.memory_percent,
            "memory_max_percent": snapshot.memory_max_percent,
            "pending": snapshot.pending_count,
            "usable": len(snapshot.usable),
            **{f"custom_{c.name}": c.value for c in snapshot.custom},
        }
        stored = {name: to_payload(value) for name, value in figures.items() if _is_known(value)}
        at = int(stored["at"])
        self._put(self._settings.history_table, _key("reading", at), at, self._settings.history_days, stored)

    def latest_snapshot(self, since: int) -> Snapshot | None:
        """The last live snapshot with values that an ended run has recorded and that was read at `since` or later.

        A run is recorded under its start, at most an hour before its last reading. A snapshot that another version
        recorded and that this one cannot read counts as none.
        """
        table, first = self._settings.events_table, _key("event", since - LONGEST_RUN_SECONDS)
        for item in self._query(table, first, "event$", newest_first=True):
            data = json.loads(item["data"]) if item["kind"] == "decision" else {}
            snapshot: Snapshot | None = known(data, "snapshot", Snapshot)
            if snapshot and snapshot.source == "live" and snapshot.has_values:
                return snapshot if snapshot.read_at >= since else None
        return None

    def readings(self, since: int, until: int) -> tuple[dict[str, Any], ...]:
        """Every stored reading in [since, until), oldest first; without the values that were missing."""
        table = self._settings.history_table
        return tuple(self._query(table, _key("reading", since), _key("reading", until - 1)))

    def hourly_loads(self, since: int, until: int) -> tuple[HourlyLoad, ...]:
        """Mean CPU and workers of every whole hour in [since, until) that has readings, oldest first.

        Hours that ended since the last call are averaged from their readings and stored, so that a month needs only a
        few hundred small items.
        """
        table = self._settings.history_table
        first, past = since - since % _HOUR, until - until % _HOUR
        stored = [_hour(item) for item in self._query(table, _key("hour", first), _key("hour", past - 1))]
        begin = stored[-1].hour_epoch + _HOUR if stored else first
        new = self._hourly_means(begin, past)
        for hour in new:
            fields = {**to_payload(hour), "at": hour.hour_epoch}
            self._put(table, _key("hour", hour.hour_epoch), hour.hour_epoch, self._settings.history_days, fields)
        return (*stored, *new)

    def put_event(self, kind: str, at: int, data: Mapping[str, Any], *, key: str = "") -> None:
        """Store one event; the same time, kind and key overwrite: a retry leaves one. `data` is in payload form.

        The key must differ between executions: two that end in the same second must leave two events.
        """
        name = f"{_key('event', at)}#{kind}#{key}"
        fields = {"kind": kind, "at": at, "key": key, "data": _text(data)}
        self._put(self._settings.events_table, name, at, self._settings.event_days, fields)

    def events(self, since: int, until: int, *, kind: str = "") -> tuple[Event, ...]:
        """Events in [since, until), oldest first; only those of one kind when it is given."""
        items = self._query(self._settings.events_table, _key("event", since), _key("event", until - 1) + "$")
        found = (Event(kind=i["kind"], at=i["at"], key=i.get("key", ""), data=json.loads(i["data"])) for i in items)
        return tuple(event for event in found if not kind or event.kind == kind)

    def thread(self, incident: str) -> Thread | None:
        """What Slack shows of an incident; None when nothing is known, or what is stored cannot be read."""
        table, name = self._settings.events_table, _thread_key(incident)
        with table_errors(table, f"read {name}"):
            key = to_attributes({"cluster_id": self._settings.cluster_id, "sk": name})
            item = self._client.get_item(TableName=table, Key=key).get("Item")
        try:
            return from_payload(Thread, json.loads(from_attributes(item)["data"])) if item else None
        except InvalidInputError:
            return None

    def put_thread(self, incident: str, thread: Thread) -> None:
        """Store what Slack shows of an incident; it expires with the events."""
        fields = {"data": _text(to_payload(thread))}
        self._put(self._settings.events_table, _thread_key(incident), thread.seen_at, self._settings.event_days, fields)

    def _hourly_means(self, begin: int, past: int) -> tuple[HourlyLoad, ...]:
        if begin >= past:
            return ()
        table = self._settings.history_table
        return hourly_means(self._query(table, _key("reading", begin), _key("reading", past - 1)))

    def _put(self, table: str, sort_key: str, at: int, days: int, fields: Mapping[str, Any]) -> None:
        item = {
            **fields,
            "cluster_id": self._settings.cluster_id,
            "sk": sort_key,
            "expires_at": at + days * _DAY,
        }
        with table_errors(table, f"store {sort_key}"):
            self._client.put_item(TableName=table, Item=to_attributes(item))

    def _query(self, table: str, low: str, high: str, *, newest_first: bool = False) -> Iterator[dict[str, Any]]:
        """All items with a sort key from low to high, both included, over every page."""
        request: dict[str, Any] = {
            "TableName": table,
            "KeyConditionExpression": "cluster_id = :cluster AND sk BETWEEN :low AND :high",
            "ExpressionAttributeValues": to_attributes(
                {":cluster": self._settings.cluster_id, ":low": low, ":high": high}
            ),
            "ScanIndexForward": not newest_first,
        }
        while True:
            with table_errors(table, f"read {low} to {high}"):
                page = self._client.query(**request)
            yield from (from_attributes(item) for item in page["Items"])
            if not (last := page.get("LastEvaluatedKey")):
                return
            request["ExclusiveStartKey"] = last


def hourly_means(readings: Iterable[Mapping[str, Any]]) -> tuple[HourlyLoad, ...]:
    """Readings in order of time as hourly means; readings without CPU do not count."""
    hours: dict[int, list[tuple[float, int]]] = {}
    for reading in readings:
        if (cpu := reading.get("cpu_percent")) is not None:
            hours.setdefault(reading["at"] - reading["at"] % _HOUR, []).append((cpu, reading.get("usable", 0)))
    return tuple(
        HourlyLoad(
            hour_epoch=hour,
            cpu_percent=round(sum(cpu for cpu, _ in points) / len(points), 2),
            readings=len(points),
            workers=round(sum(workers for _, workers in points) / len(points), 2),
        )
        for hour, points in hours.items()
    )


def _thread_key(incident: str) -> str:
    return f"incident#{incident}"


def _key(kind: str, at: int) -> str:
    return f"{kind}#{at:010d}"


def _hour(item: Mapping[str, Any]) -> HourlyLoad:
    hour: HourlyLoad = from_payload(HourlyLoad, {field.name: item[field.name] for field in fields(HourlyLoad)})
    return hour


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _text(value: Any) -> str:
    """JSON text of a value in payload form: no query reads inside it, and it is half the size of an attribute map."""
    try:
        return json.dumps(value, allow_nan=False, check_circular=False)
    except ValueError:
        raise InvalidInputError("a record holds a number that is not finite, expected a finite number") from None
