"""The snapshot that a run would decide on, for a command outside the cluster's network, where Prometheus has no route.

The function CollectMetrics reads it, as in every run, and takes no lock and sends no message. When it cannot be
invoked, the last recorded reading is used, with its age.
"""

from __future__ import annotations

from dataclasses import replace

from cli.output import CommandError
from cli.target import InvocationError, Target
from cli.times import DAY_SECONDS, ago
from node_fleet.domain.model.assembly import refresh, with_set_aside
from node_fleet.domain.model.snapshot import Snapshot
from node_fleet.domain.model.timed_minimum import minimum_in_force
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.launch import fleet_weight
from node_fleet.payload import from_payload

READER = "CollectMetrics"


@value_class
class Observation:
    """A snapshot. `recorded` is empty when the snapshot was read for this command, else it says why it was not."""

    snapshot: Snapshot
    recorded: str = ""
    age_seconds: int = 0


def observe(target: Target) -> Observation:
    """The snapshot of this moment, else the last recorded one.

    Raises:
        CommandError: the function cannot be invoked, and no reading is recorded.
    """
    try:
        payload = target.invoke(READER, {})
    except InvocationError as error:
        return _recorded(target, error)
    return Observation(snapshot=from_payload(Snapshot, payload["snapshot"], path="snapshot"))


def _recorded(target: Target, error: InvocationError) -> Observation:
    services = target.services
    now = services.clock.now()
    last = services.records.latest_snapshot(now - DAY_SECONDS)
    if last is None:
        text = f"the cluster cannot be read: {error.text}; no run of the last 24 hours has recorded a reading"
        raise CommandError(text, hint=error.hint) from error
    state, policy = services.state.load(), services.settings.policy()
    snapshot = refresh(last, services.ec2.instances(), state.due_notices, policy, now, problem=error.text)
    timed = minimum_in_force(state.timed_minimums, now)
    snapshot = replace(with_set_aside(snapshot, state.set_aside), timed_minimum=timed)
    if limits := services.settings.limits():
        snapshot = replace(snapshot, limits=limits.uses(fleet_weight(services.ec2.instances(), state, limits, now)))
    age = now - last.read_at
    text = f"{error.text}; used instead: the reading that a run recorded {ago(age)}; {error.hint}"
    return Observation(snapshot=snapshot, recorded=text, age_seconds=age)
