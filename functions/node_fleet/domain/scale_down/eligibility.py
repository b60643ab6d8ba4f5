"""Which workers may be removed, and why each other one stays, in words for the operator.

Every rule that keeps a worker is here, the rules over pods as the letters that rules.py gave on the server. The
order among those that may go is selection.py's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.inspection import Blocker, InspectedNode, Inspection

REASONS: dict[str, str] = {
    "k": "is a kube-system pod of no DaemonSet",
    "s": "is a StatefulSet pod",
    "d": "is the only replica of its Deployment",
    "c": "has no controller that would start it again",
    "g": "belongs to a controller that no longer exists",
    "v": "uses a volume that exists on this node only",
    "n": 'is annotated safe-to-evict "false"',
    "x": "is annotated karpenter.sh/do-not-disrupt",
    "p": "may not be disrupted now",
    "t": "is under two disruption budgets, which no eviction passes",
    "u": "cannot be judged",
}
"""What each letter of cluster/commands/rules.py says to a person."""

KEPT_WHEN_NOT_READY = frozenset("vnxu")
"""Blockers that hold even for a worker that has been NotReady for long; its other pods are lost already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One worker that may not go, and the operator's sentence."""

    instance_id: str
    reason: str

    @property
    def sentence(self) -> str:
        """For example: worker i-0ab: kept, shop/orders-db-0 is a StatefulSet pod."""
        return f"worker {self.instance_id}: kept, {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One worker that may go: its machine, its node, and its live CPU if metrics show it."""

    instance: Instance
    node: InspectedNode
    cpu_percent: float | None = None

    @property
    def idle_percent(self) -> float:
        """Idle CPU as measured; by requests when it is not measured."""
        return 100.0 - self.cpu_percent if self.cpu_percent is not None else self.node.idle_cpu_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Eligibility:
    """Everybody's verdict. usable: workers that take pods now and stay (the minimum is held against them).

    kept_places: zone and market of each worker of the fleet that is kept and stays, for the balance.
    """

    candidates: tuple[Candidate, ...]
    kept: tuple[Kept, ...]
    usable: tuple[str, ...]
    kept_places: tuple[tuple[str, str], ...] = ()


def judge_workers(
    inspection: Inspection,
    instances: Iterable[Instance],
    *,
    under_notice: frozenset[str],
    back_offs: Iterable[BackOff],
    now: int,
    cpu_percent: Mapping[str, float | None] | None = None,
    not_ready: str = "",
) -> Eligibility:
    """Judge every node of the inspection and every instance of the fleet.

    not_ready names the one worker that the NotReady path must remove: for it, and only for it, readiness and pods
    that are lost anyway do not count.
    """
    ours = {i.instance_id: i for i in instances}
    resting = {b.key: b for b in back_offs if b.until > now}
    seen = {n.instance_id: n for n in inspection.nodes if n.instance_id and not n.server}
    candidates: list[Candidate] = []
    kept: list[Kept] = []
    for node in inspection.nodes:
        dead = node.instance_id == not_ready and bool(not_ready)
        instance = ours.get(node.instance_id)
        reason = _reason(node, instance, under_notice=under_notice, resting=resting, now=now, dead=dead)
        if reason or instance is None:
            kept.append(Kept(instance_id=node.instance_id or node.node_name, reason=reason))
        else:
            load = (cpu_percent or {}).get(node.instance_id)
            candidates.append(Candidate(instance=instance, node=node, cpu_percent=load))
    kept += [_unseen(i, inspection) for i in sorted(ours) if i not in seen]
    leaving = under_notice | {i for i, instance in ours.items() if instance.under_notice}
    usable = tuple(sorted(i for i in ours if i in seen and _usable(seen[i]) and i not in leaving))
    going = {c.instance.instance_id for c in candidates}
    places = tuple((i.zone, i.market) for i in ours.values() if i.instance_id not in leaving | going)
    return Eligibility(candidates=tuple(candidates), kept=tuple(kept), usable=usable, kept_places=places)


def _usable(node: InspectedNode) -> bool:
    return node.ready and not node.cordoned and not node.tainted


def _unseen(instance_id: str, inspection: Inspection) -> Kept:
    if inspection.left_out:
        return Kept(instance_id=instance_id, reason="the answer of the server had no room for it")
    return Kept(instance_id=instance_id, reason="it has not joined the cluster yet")


def _reason(
    node: InspectedNode,
    instance: Instance | None,
    *,
    under_notice: frozenset[str],
    resting: Mapping[str, BackOff],
    now: int,
    dead: bool,
) -> str:
    """Why this worker stays, the strongest reason first; empty when it may go."""
    if node.server:
        return "it is the server"
    if instance is None:
        return "it is not managed by node-fleet"
    if instance.under_notice or instance.instance_id in under_notice:
        return "AWS has announced to take it"
    if node.cordoned:
        return _cordon_reason(node)
    if node.protected_by:
        return f"it is annotated {node.protected_by}"
    if unfit := _readiness_reason(node, dead):
        return unfit
    if instance.state != "running":
        return f"its instance is {instance.state}"
    if rest := resting.get(f"node:{instance.instance_id}"):
        return f"its last drain failed; it is left alone for another {rest.until - now} s"
    return _pods_reason(node, dead)


def _readiness_reason(node: InspectedNode, dead: bool) -> str:
    """A dead worker must still be dead, any other must be alive."""
    if dead:
        return "it is ready again" if node.ready else ""
    if not node.ready:
        return "it is not ready"
    return "it does not take pods yet" if node.tainted else ""


def _cordon_reason(node: InspectedNode) -> str:
    if node.cordoned_by and node.cordoned_by != "?":
        return f"it is still cordoned by operation {node.cordoned_by}"
    return "somebody cordoned it"


def _pods_reason(node: InspectedNode, dead: bool) -> str:
    told = [b for b in node.blockers if not dead or b.letter in KEPT_WHEN_NOT_READY]
    hidden = node.more_blockers
    if dead and hidden:
        return f"{hidden} more pods could not be told apart"
    if not told and not hidden:
        return ""
    if not told:
        return f"{hidden} of its pods may not be moved"
    others = len(told) - 1 + hidden
    more = f", and {others} more" if others else ""
    return f"{_pod_reason(told[0])}{more}"


def _pod_reason(blocker: Blocker) -> str:
    text = f"{blocker.pod} {REASONS.get(blocker.letter, 'cannot be judged')}"
    return f"{text} (budget {blocker.budget})" if blocker.budget else text
