"""Decide: the scaling decision for the snapshot, and its reasons. It calls no service and imports no AWS client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.notify.incident_state import EndedIncident, complete_since, ended_incidents
from node_fleet.domain.scaling.decision import decide
from node_fleet.logs import logger
from node_fleet.payload import add_alerts, from_payload, packed, take, to_payload
from node_fleet.services import load_services

LOGGED = ("action", "count", "rule", "sentence", "reasons", "blocked_by")


def handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Add `decision`, `notify` and `has_leftovers`, and replace `memory`.

    The time is the snapshot's, so a retry decides the same.

    `memory_before` keeps the old memory, packed and without its counts, in the record: with it the decision can be
    repeated. `ended`: the incidents that are over. notify: also true when an earlier round or the lock left notes, so
    that no note is lost. The alerts of an earlier round move to `alerts`.
    """
    snapshot: Snapshot = from_payload(Snapshot, event["snapshot"], path="snapshot")
    memory: Memory = from_payload(Memory, event["memory"], path="memory")
    settings = load_services().settings
    policy = settings.policy()
    if earlier_alerts := take(event.get("decision", {}), "alerts", tuple[Alert, ...], default=()):
        event = add_alerts(event, alerts=earlier_alerts)
    decision = decide(snapshot, memory, policy, snapshot.at)
    shown = to_payload(replace(decision, settings=settings.policy_env))
    shown_memory = shown.pop("memory")
    logger.info(
        "decision",
        **{name: shown[name] for name in LOGGED},
        execution_id=event.get("run", {}).get("execution_id", ""),
    )
    after = decision.memory
    ended, alerted = ended_incidents(
        memory.alerted,
        after.alerted,
        snapshot,
        policy.alert_quiet_seconds,
        back_offs=after.back_offs,
        complete_since=complete_since(after.readings, policy),
    )
    notify = decision.notify or bool(event.get("notes")) or bool(ended)
    answer = {**event, "decision": shown, "notify": notify, "has_leftovers": snapshot.has_leftovers}
    if ended:
        earlier = take(event, "ended", tuple[EndedIncident, ...], default=())
        answer["ended"] = to_payload((*earlier, *ended))
    before = packed({**event["memory"], "totals": ""})
    return {**answer, "memory": {**shown_memory, "alerted": alerted}, "memory_before": before}
