"""Which workers are eligible for removal, and the reason why each other worker is kept.

Every rule that keeps a worker is here; the rules about pods arrive as the letters that rules.py gives on the server.
selection.py orders the eligible workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from node_fleet.domain.model.fleet_state import Protection
from node_fleet.domain.model.identity import identify
from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.snapshot import Dispute, Instance
from node_fleet.domain.model.text import span
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.blocker_reasons import reason_of
from node_fleet.domain.scale_down.inspection import Blocker, InspectedNode, Inspection

MISFITS: dict[str, str] = {
    "affinity": "is accepted by no other worker: its node selector or required node affinity",
    "taints": "is accepted by no other worker: it does not tolerate their taints",
    "market": "finds no place on another On-Demand worker, and accepts no Spot worker",
    "volume": "uses a volume that no other worker can attach",
    "ports": "needs a host port that is taken on every other worker",
    "pod-affinity": "is accepted by no other worker: its required pod affinity",
    "anti-affinity": "is accepted by no other worker: a required pod anti-affinity",
    "spread": "is accepted by no other worker: its topology spread constraint",
    "nodes": "has no other worker to run on",
    "pods": "finds no other worker below its maximum number of pods",
}
"""Why a pod fits on no other worker, by the predicate of the scheduler; every other predicate is a resource."""

CHOSEN_BY_LABEL = frozenset(["affinity", "taints", "market"])
"""Misfits that a new worker of another market need not end: the pod selects On-Demand, or may do so."""
_RESOURCES = {"cpu": "CPU", "memory": "memory"}

KEPT_WHEN_NOT_READY = frozenset("bvnxu")
"""Blockers that count even for a worker that has been NotReady for long; its other pods are already lost."""


@value_class
class Kept:
    """One worker that is not eligible, and the reason."""

    instance_id: str
    reason: str

    @property
    def sentence(self) -> str:
        """For example: worker i-0ab: kept, shop/orders-db-0 is a StatefulSet pod."""
        return f"worker {self.instance_id}: kept, {self.reason}"


@value_class
class Candidate:
    """One worker that is eligible: its instance, its node, and its measured CPU if metrics show it."""

    instance: Instance
    node: InspectedNode
    cpu_percent: float | None = None

    @property
    def idle_percent(self) -> float:
        """Idle CPU as measured; from the requests when it is not measured."""
        return 100.0 - self.cpu_percent if self.cpu_percent is not None else self.node.idle_cpu_percent


@value_class
class Eligibility:
    """The verdict for every worker. usable: workers that accept pods and are not under notice; the minimum counts them.

    kept_places: zone and market of each worker that is kept and not under notice, for the balance. disputed: by
    instance id.
    """

    candidates: tuple[Candidate, ...]
    kept: tuple[Kept, ...]
    usable: tuple[str, ...]
    kept_places: tuple[tuple[str, str], ...] = ()
    disputed: Mapping[str, Dispute] = field(default_factory=dict)


def judge_workers(
    inspection: Inspection,
    instances: Iterable[Instance],
    *,
    under_notice: frozenset[str],
    back_offs: Iterable[BackOff],
    now: int,
    cpu_percent: Mapping[str, float | None] | None = None,
    not_ready: str = "",
    set_aside: frozenset[str] = frozenset(),
    protections: Mapping[str, Protection] = MappingProxyType({}),
    before_launch: bool = False,
    to_spot: bool = False,
    unhealthy: frozenset[str] = frozenset(),
) -> Eligibility:
    """Judge every node of the inspection and every instance of the fleet.

    not_ready names the one worker that the NotReady path must remove: for that worker only, readiness, pods that are
    already lost and a protection do not count. protections: by instance id. before_launch: a worker will be launched
    first, so pods that fit on no other worker keep none. to_spot: that will be a Spot worker, so pods that no other
    worker accepts by its labels or taints keep theirs. unhealthy: workers to repair; they may accept no pods.
    """
    ours = {i.instance_id: i for i in instances}
    identities = identify(ours.values(), inspection.nodes)
    backing_off = {b.key: b for b in back_offs if b.until > now}
    seen = {i: n for i, n in identities.confirmed.items() if not n.server}
    candidates: list[Candidate] = []
    kept: list[Kept] = []
    for node in inspection.nodes:
        dead = node.instance_id == not_ready and bool(not_ready)
        if node.instance_id in identities.disputed:
            continue
        instance = ours.get(node.instance_id)
        judged = node if not before_launch else replace(node, blockers=_without_misfits(node.blockers, to_spot))
        judged = replace(judged, tainted=False) if node.instance_id in unhealthy else judged
        reason = _reason(
            judged,
            instance,
            under_notice=under_notice,
            backing_off=backing_off,
            protection=None if dead else protections.get(node.instance_id),
            now=now,
            dead=dead,
        )
        reason = "its removal is set aside" if node.instance_id in set_aside else reason
        if reason or instance is None:
            kept.append(Kept(instance_id=node.instance_id or node.node_name, reason=reason))
        else:
            load = (cpu_percent or {}).get(node.instance_id)
            candidates.append(Candidate(instance=instance, node=node, cpu_percent=load))
    kept += [Kept(instance_id=i, reason=d.sentence) for i, d in identities.disputed.items()]
    kept += [_unseen(i, inspection) for i in sorted(ours) if i not in seen and i not in identities.disputed]
    leaving = under_notice | {i for i, instance in ours.items() if instance.under_notice}
    usable = tuple(sorted(i for i in ours if i in seen and _usable(seen[i]) and i not in leaving))
    eligible = {c.instance.instance_id for c in candidates}
    places = tuple((i.zone, i.market) for i in ours.values() if i.instance_id not in leaving | eligible)
    return Eligibility(
        candidates=tuple(candidates),
        kept=tuple(kept),
        usable=usable,
        kept_places=places,
        disputed=identities.disputed,
    )


def _without_misfits(blockers: tuple[Blocker, ...], to_spot: bool) -> tuple[Blocker, ...]:
    kept = CHOSEN_BY_LABEL if to_spot else frozenset[str]()
    return tuple(b for b in blockers if b.letter != "f" or b.detail.rpartition("/")[2] in kept)


def _usable(node: InspectedNode) -> bool:
    return node.ready and not node.cordoned and not node.tainted


def _unseen(instance_id: str, inspection: Inspection) -> Kept:
    if inspection.left_out:
        return Kept(instance_id=instance_id, reason="it did not fit into the answer of the server")
    return Kept(instance_id=instance_id, reason="it has not joined the cluster yet")


def _reason(
    node: InspectedNode,
    instance: Instance | None,
    *,
    under_notice: frozenset[str],
    backing_off: Mapping[str, BackOff],
    protection: Protection | None,
    now: int,
    dead: bool,
) -> str:
    """Why this worker is kept, the strongest reason first; empty when it is eligible."""
    if node.server:
        return "it is the server"
    if instance is None:
        return "it is not managed by node-fleet"
    if instance.under_notice or instance.instance_id in under_notice:
        return "it is under interruption notice"
    if node.cordoned:
        return _cordon_reason(node)
    if protection:
        return protection.sentence
    if node.protected_by:
        return f"it is annotated {node.protected_by}"
    if unfit := _readiness_reason(node, dead):
        return unfit
    if instance.state != "running":
        return f"its instance is {instance.state}"
    if back_off := backing_off.get(f"node:{instance.instance_id}"):
        return f"its last drain failed; it is in back-off for another {span(back_off.until - now)}"
    return _pods_reason(node, dead)


def _readiness_reason(node: InspectedNode, dead: bool) -> str:
    """A worker to be replaced must still be NotReady; any other must be Ready."""
    if dead:
        return "it is ready again" if node.ready else ""
    if not node.ready:
        return "it is not ready"
    return "it does not accept pods yet" if node.tainted else ""


def _cordon_reason(node: InspectedNode) -> str:
    if node.cordoned_by and node.cordoned_by != "?":
        return f"it is still cordoned by operation {node.cordoned_by}"
    return "another user cordoned it"


def _pods_reason(node: InspectedNode, dead: bool) -> str:
    shown = [b for b in node.blockers if not dead or b.letter in KEPT_WHEN_NOT_READY]
    hidden = node.more_lasting if dead else node.more_blockers
    if not shown and not hidden:
        return ""
    if not shown:
        return f"{hidden} of its pods and claims keep it"
    others = len(shown) - 1 + hidden
    more = f", and {others} more" if others else ""
    return f"{_pod_reason(shown[0])}{more}"


def _pod_reason(blocker: Blocker) -> str:
    if blocker.letter == "f":
        return misfit_reason(blocker)
    text = f"{blocker.pod} {reason_of(blocker.letter, blocker.detail)}"
    if blocker.letter == "b":
        return f"claim {text}: {blocker.detail}"
    if blocker.letter == "e":
        return f"{blocker.pod} has been terminating for {blocker.detail} min"
    return text


def misfit_reason(blocker: Blocker) -> str:
    """For example: shop/big-1 requests 1000m CPU, most free elsewhere is 900m."""
    requested, free, when, predicate = blocker.detail.split("/", 3)
    if predicate == "time":
        return "the inspection reached its time limit before it judged whether its pods fit on other workers"
    amounts = f"requests {requested} {_RESOURCES.get(predicate, predicate)}, most free elsewhere is {free}"
    reason = MISFITS.get(predicate, amounts)
    return f"{blocker.pod} {reason}" + (" once the other pods of this worker run there" if when == "together" else "")
