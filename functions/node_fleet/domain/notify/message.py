"""The message about one run, as data, made from what its states left in the payload.

slack_blocks.py and the command line decide how it is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from node_fleet.domain.cost.tariff import Cost
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.notify.incident_state import EndedIncident, incident_keys
from node_fleet.domain.notify.incidents import Severity, incidents_of, most_severe

Level = Literal["info", "success", "warning", "error"]
UNCOUNTED = ("interruption", "weekly", "incident")
"""Triggers whose messages are not about the fleet's size."""


@value_class
class Message:
    """What happened, why, and to how many workers.

    details: for each alert and for the failure its severity, consequence, next step and link; then further sentences.
    incidents: the keys of the incidents it belongs to, the most severe first. is_end: it reports the end of the first.
    """

    cluster_id: str
    level: Level
    what: str
    why: str
    execution_id: str
    trigger: str
    workers_before: int = 0
    workers_after: int = 0
    placements: tuple[str, ...] = ()
    alerts: tuple[Alert, ...] = ()
    details: tuple[str, ...] = ()
    hourly_cost_before: Cost | None = None
    hourly_cost_after: Cost | None = None
    incidents: tuple[str, ...] = ()
    is_end: bool = False

    @property
    def subject(self) -> str:
        """The same for every message about one incident, so that mail programs show them as one conversation."""
        if self.incidents:
            return self.incidents[0]
        return self.why if self.trigger in UNCOUNTED else self.what

    @property
    def severity(self) -> Severity:
        """That of its most severe incident."""
        return "critical" if any(a.is_critical for a in self.alerts) else most_severe(self.incidents)


@value_class
class Outcome:
    """How a run ended. kind: "scaled_up", "scaled_down", "rebooted", "none", "dry_run" or "failed".

    text: one sentence.
    """

    kind: str
    text: str
    workers_after: int = 0


def plain_failure(failure: Mapping[str, Any]) -> dict[str, str]:
    """A Catch result whose Cause is the error message instead of Lambda's error document."""
    cause = str(failure.get("Cause", ""))
    try:
        document = json.loads(cause)
        cause = document.get("errorMessage", cause) if isinstance(document, dict) else cause
    except ValueError:
        pass
    return {"Error": str(failure.get("Error", "Unknown")), "Cause": cause}


def compose(
    base: Message,
    *,
    snapshot: Snapshot | None,
    operation: Operation | None,
    outcome: Outcome | None,
    failure: Mapping[str, str] | None,
    workers_at_start: int | None = None,
) -> Message:
    """The run's one message from `base`, which says what was decided.

    A failure comes first, then the outcome, then the first alert, then the decision. workers_at_start: before the first
    of several rounds; the operation knows only the last round.
    """
    before = operation.workers_before if operation else len(snapshot.counted) if snapshot else 0
    before = before if workers_at_start is None else workers_at_start
    after = outcome.workers_after if outcome and outcome.workers_after else before
    known = incidents_of([alert.kind for alert in base.alerts] + ([failure["Error"]] if failure else []))
    details = (*(one.sentence for one in known), *base.details)
    message = replace(
        base,
        workers_before=before,
        workers_after=after,
        placements=_placements(operation),
        details=details,
        incidents=incident_keys(base.alerts, failure["Error"] if failure else ""),
    )
    if failure:
        return replace(message, level="error", what=f"{failure['Cause']} [{failure['Error']}]")
    if outcome:
        level: Level = "success" if outcome.kind.startswith("scaled") else "info"
        return replace(message, level=level_of(base.alerts, level), what=outcome.text)
    if base.alerts:
        return replace(message, level=level_of(base.alerts, "warning"), what=base.alerts[0].text)
    return message


def end_message(ended: EndedIncident, cluster_id: str, execution_id: str) -> Message:
    """The message about the end of an incident."""
    return Message(
        cluster_id=cluster_id,
        level="success",
        what=ended.sentence,
        why=ended.sentence,
        execution_id=execution_id,
        trigger="incident",
        incidents=(ended.key,),
        is_end=True,
    )


def level_of(alerts: Iterable[Alert], otherwise: Level) -> Level:
    """The level of a message with these alerts: a critical one makes it an error."""
    return "error" if any(alert.is_critical for alert in alerts) else otherwise


def _placements(operation: Operation | None) -> tuple[str, ...]:
    if operation is None:
        return ()
    launched = [f"{s.instance_id} {s.instance_type} {s.market} {s.zone}" for s in operation.slots if s.instance_id]
    removed = [f"{t.instance_id} {t.market} {t.zone}" for t in operation.targets]
    return tuple(launched + removed)
