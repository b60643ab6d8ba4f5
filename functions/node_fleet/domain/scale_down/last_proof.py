"""The last proof before a drained worker is terminated or rebooted: the others must be able to do without it."""

from __future__ import annotations

from node_fleet.domain.model.memory import Replacement
from node_fleet.domain.model.operation import Operation, Target
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.scale_down.eligibility import Eligibility
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.domain.scale_down.selection import missing_headroom, stays_above


def last_refusal(
    operation: Operation,
    target: Target,
    judged: Eligibility,
    inspection: Inspection,
    policy: Policy,
    *,
    minimum: int,
    current: Replacement | None,
) -> str:
    """Why the worker must stay; empty when it can be terminated. From fresh data, for the whole set of targets.

    minimum: usable workers that must remain. current: the replacement in progress. The drained Node must be the only
    one that claims the instance: else another machine may hold its pods.
    """
    if dispute := judged.disputed.get(target.instance_id):
        return f"{kept_text(operation, target)}: {dispute.sentence}"
    if operation.hibernate:
        return ""  # no worker is to remain
    leaving = [t.instance_id for t in operation.targets if t.phase not in ("undone", "skipped")]
    serves = not operation.reboot or not (target.not_ready or _accepts_no_pods(inspection, target))
    if serves and not stays_above(minimum, judged.usable, leaving):
        left = len(set(judged.usable) - set(leaving))
        return f"at_min: only {left} usable workers would remain, the minimum is {minimum}"
    launched = current.replacement if operation.replaces and current and current.worker == target.instance_id else ""
    if launched and launched not in judged.usable:
        return f"{kept_text(operation, target)}: its replacement {launched} is not usable any more"
    is_surplus = operation.for_standby or operation.budget_reason != "idle"
    if target.not_ready or not serves or (is_surplus and not operation.reboot):
        return ""  # a replaced worker, a new standby worker and one that does not serve take no capacity away
    text = missing_headroom(policy, inspection, frozenset(judged.usable) - frozenset(leaving))
    return f"{kept_text(operation, target)}: {text}" if text else ""


def kept_text(operation: Operation, target: Target) -> str:
    """The begin of every reason."""
    return f"worker {target.instance_id} was not {'rebooted' if operation.reboot else 'terminated'}"


def _accepts_no_pods(inspection: Inspection, target: Target) -> bool:
    """Whether no pod could start on the worker even without the cordon of its own drain."""
    node = next((n for n in inspection.nodes if n.instance_id == target.instance_id), None)
    return node is not None and (node.tainted or not node.ready)
