"""ReleaseLock: records the run, releases the lock, and only then fails the execution of a failed run."""

from __future__ import annotations

from typing import Any

from node_fleet.domain.cost.run_cost import hourly_cost_after
from node_fleet.domain.model.errors import LeaseLostError, RunFailedError, StateStoreError
from node_fleet.domain.model.memory import Memory, newest_memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Run
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.exposition import change_of, exposition, stored
from node_fleet.domain.notify.message import plain_failure
from node_fleet.domain.notify.run_metrics import run_metrics
from node_fleet.domain.notify.totals import count_run
from node_fleet.logs import write_metrics
from node_fleet.payload import known, take, to_payload
from node_fleet.services import Services, load_services

RECORDED = (
    *("run", "snapshot", "decision", "memory_before", "selection", "operation", "rounds", "hibernate"),
    *("outcome", "failure", "notes", "fleet_before"),
)


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Record, release, and answer whether this run still held the lock. Safe to run twice."""
    services = load_services()
    run = take(event, "run", Run)
    unrecorded = _record(services, run, event)
    snapshot, operation = known(event, "snapshot", Snapshot), known(event, "operation", Operation)
    cost = hourly_cost_after(snapshot, operation, services.settings.tariff())
    released = _release(services, run, event, snapshot, cost.known_usd if cost else None)
    write_metrics(services.settings.cluster_id, run_metrics(event, snapshot, cost.known_usd if cost else None))
    if "failure" in event:
        failure = plain_failure(event["failure"])
        raise RunFailedError(f"{failure['Error']}: {failure['Cause']}")
    if unrecorded:
        raise unrecorded
    return {"run": to_payload(run), "released": released, **_summary(event)}


def _release(
    services: Services, run: Run, event: dict[str, Any], snapshot: Snapshot | None, usd_per_hour: float | None
) -> bool:
    """False when another run holds the lock. After a fault the payload may be older than what a step stored."""
    memory = take(event, "memory", Memory) if "memory" in event and not run.dry_run else None
    if memory is not None and {"failure", "later_failure"} & event.keys():
        try:
            memory = newest_memory(services.state.renew(run, even_paused=True).memory, memory)
        except LeaseLostError:
            return False
    node_count = event.get("node_count")
    if memory is None:
        return services.state.release(run, node_count=node_count)
    decision, now = event.get("decision", {}), services.clock.now()
    actions = ("scale_up",) * len(event.get("rounds", ())) + ((decision["action"],) if decision else ())
    memory = count_run(memory, actions, now, is_failed="failure" in event)
    text = exposition(
        memory,
        snapshot,
        services.settings.policy(),
        now=now,
        change=change_of(decision["action"], decision["count"]) if decision else None,
        usd_per_hour=usd_per_hour,
        node_count=node_count,
    )
    return services.state.release(run, memory, node_count=node_count, exposition=stored(text))


def _record(services: Services, run: Run, event: dict[str, Any]) -> StateStoreError | None:
    """Store the decision. An error of the table is returned, so that it is raised only after the lock is released."""
    data = {name: event[name] for name in RECORDED if event.get(name) is not None}
    try:
        services.records.put_event("decision", run.started_at, data, key=run.execution_id)
    except StateStoreError as error:
        return error
    return None


def _summary(event: dict[str, Any]) -> dict[str, Any]:
    sentence = event.get("outcome", {}).get("text") or event.get("decision", {}).get("sentence", "")
    sentence = sentence or event.get("hibernate", {}).get("detail", "")
    return {"sentence": sentence, "notes": event.get("notes", [])}
