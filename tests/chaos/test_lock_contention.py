"""Many runs ask for the lock at once: one wins each round. A store that reads first and writes then is caught at it.

The simulated DynamoDB handles one request at a time, as the real one handles one item; between two requests of one
contender any other may come. The order is drawn, so that a losing mutant loses in every run of this test.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models import dynamodb_backends

from node_fleet.adapters.dynamodb import from_attributes, to_attributes
from node_fleet.adapters.state_store import Acquired, StateStore
from node_fleet.domain.model.fleet_state import FleetState, Lease
from node_fleet.domain.model.run import Run
from node_fleet.settings import Settings
from tests.support.simulated_aws import create_table
from tests.support.tiers import Tier

SETTINGS = Settings()
START = 1_790_000_000
CONTENDERS, ROUNDS, QUICK_ROUNDS = 64, 300, 10


class Clock:
    def now(self) -> int:
        return START


class OneAtATime:
    """DynamoDB's table behind the calls of the low-level client, without the wire; one request is handled at a time."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self._lock = threading.Lock()

    def get_item(self, *, TableName: str, Key: Any, **_: Any) -> dict[str, Any]:
        with self._lock:  # moto changes an item in place: what is read must not change while it is read
            item = self._backend.get_item(TableName, Key)
            return {} if item is None else {"Item": copy.deepcopy(item.to_json()["Attributes"])}

    def update_item(self, **request: Any) -> dict[str, Any]:
        old = self.get_item(TableName=request["TableName"], Key=request["Key"])
        with self._lock:
            try:
                self._backend.update_item(
                    table_name=request["TableName"],
                    key=request["Key"],
                    update_expression=request["UpdateExpression"],
                    expression_attribute_names=request.get("ExpressionAttributeNames", {}),
                    expression_attribute_values=request.get("ExpressionAttributeValues", {}),
                    condition_expression=request.get("ConditionExpression"),
                )
            except ConditionalCheckFailed:
                response: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": old.get("Item", {})}
                raise ClientError(response, "UpdateItem") from None
        return {"Attributes": old.get("Item", {})}


class ReadThenWrite(StateStore):
    """The mutant: looks whether the lock is free and takes it by an unconditional write."""

    def acquire(self, run: Run) -> Acquired:
        item = from_attributes(self._client.get_item(TableName=self._table, Key=self._key).get("Item", {}))
        BARRIER.wait()
        if "lock_owner" in item:
            return Acquired(status="held", state=FleetState(cluster_id=SETTINGS.cluster_id))
        fence = int(item.get("lock_fence", 0)) + 1
        values = {":me": run.execution_id, ":fence": fence, ":then": START + 360}
        self._client.update_item(
            TableName=self._table,
            Key=self._key,
            UpdateExpression="SET lock_owner = :me, lock_fence = :fence, lock_expires_at = :then",
            ExpressionAttributeValues=to_attributes(values),
        )
        lease = Lease(owner=run.execution_id, fence=fence, acquired_at=START, expires_at=START + 360)
        return Acquired(status="acquired", state=FleetState(cluster_id=SETTINGS.cluster_id, fence=fence, lease=lease))


BARRIER = threading.Barrier(8)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with mock_aws():
        made = boto3.client("dynamodb", region_name="ap-southeast-1")
        create_table(made, SETTINGS.state_table, "cluster_id")
        yield OneAtATime(dynamodb_backends[DEFAULT_ACCOUNT_ID]["ap-southeast-1"])


def contender(number: int) -> Run:
    return Run(execution_id=f"run-{number}", trigger="manual", scheduled_at=0, started_at=START)


def contend(store: StateStore, runs: list[Run]) -> list[tuple[Run, Acquired]]:
    """All at once, each on a thread of its own."""
    answers: list[tuple[Run, Acquired]] = []
    threads = [threading.Thread(target=lambda r=run: answers.append((r, store.acquire(r)))) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [(run, answer) for run, answer in answers if answer.status == "acquired"]


def test_of_64_contenders_one_wins_in_each_round(
    client: Any, tier: Tier, record_property: pytest.RecordProperty
) -> None:
    """Threads in one round of ten; in the others the same requests in a drawn order, which threads amount to."""
    store, order, fences = StateStore(client, SETTINGS, Clock()), random.Random(6 + tier.seed), []
    rounds = ROUNDS if tier.whole else QUICK_ROUNDS
    for number in range(rounds):
        runs = [contender(n) for n in range(CONTENDERS)]
        order.shuffle(runs)
        if number % 10 == 0:
            won = contend(store, runs)
        else:
            won = [(run, answer) for run in runs if (answer := store.acquire(run)).status == "acquired"]
        assert len(won) == 1, f"round {number}: {[run.execution_id for run, _ in won]}"
        run, answer = won[0]
        fences.append(answer.state.fence)
        assert store.release(replace(run, fence=answer.state.fence))
    assert fences == sorted(set(fences)), "no fence comes twice"
    record_property("figures", f"lock: {CONTENDERS} contenders x {rounds} rounds, one winner each")


def test_a_store_that_reads_first_and_writes_then_lets_several_win(client: Any) -> None:
    winners = contend(ReadThenWrite(client, SETTINGS, Clock()), [contender(n) for n in range(BARRIER.parties)])
    assert len(winners) == BARRIER.parties
    StateStore(client, SETTINGS, Clock()).force_unlock(winners[-1][1].state.lease)  # type: ignore[arg-type]
