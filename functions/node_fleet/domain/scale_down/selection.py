"""Which eligible workers are removed: their order, the Spot share, and the minimum for the whole set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.operation import Operation, ReplaceReason, Target
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.text import count_of
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility
from node_fleet.domain.scale_down.inspection import Inspection

_INSTANCE_ID = re.compile(r"^i-[0-9a-f]{8,17}$")


@value_class
class Plan:
    """The workers to remove, in order; sentence: why these, or why none. reboot: they are rebooted instead."""

    targets: tuple[Candidate, ...]
    sentence: str
    not_ready: bool = False
    replaces: str = ""
    reason: ReplaceReason = ""
    reboot: bool = False


def choose(
    eligibility: Eligibility,
    *,
    count: int,
    minimum: int,
    order: str,
    spot_percent: int,
    on_demand_minimum: int = 0,
    not_ready: str = "",
    outdated: Sequence[str] = (),
    unproven: str = "",
) -> Plan:
    """At most `count` workers, one after the other, so that at least `minimum` usable ones remain.

    Zones and markets are counted again after each choice. Several are chosen only among those whose pods fit elsewhere
    together. not_ready names the only worker to remove; it accepts no pods, so its removal cannot break the minimum.
    outdated: workers that are to be replaced; these are removed first. On-Demand workers of the on_demand_minimum are
    removed when no Spot worker is eligible. unproven: the replacement of one of them, which
    stays until it has proved itself.
    """
    named = (c for c in eligibility.candidates if not not_ready or c.instance.instance_id == not_ready)
    pool = [c for c in named if c.instance.instance_id != unproven]
    if not_ready:
        return _replacement(pool, not_ready, eligibility)
    removable = max(0, len(eligibility.usable) - minimum)
    if not removable:
        return Plan(targets=(), sentence=f"at_min: {len(eligibility.usable)} usable workers, minimum {minimum}")
    if not pool:
        return Plan(targets=(), sentence=f"no worker is eligible: {_first_reason(eligibility)}")
    fleet = _zones_and_markets(eligibility)
    chosen: list[Candidate] = []
    while pool and len(chosen) < min(count, removable):
        first = "spot" if fleet[("market", "on-demand")] <= on_demand_minimum else ""
        ranks = [
            (_turn(c, outdated), first not in ("", c.instance.market), _rank(c, order, fleet, spot_percent))
            for c in pool
        ]
        best = pool[ranks.index(min(ranks))]
        pool.remove(best)
        fleet.subtract([("zone", best.instance.zone), ("market", best.instance.market)])
        chosen.append(best)
        pool = [c for c in pool if c.node.fits_together and best.node.fits_together]
    names = ", ".join(c.instance.instance_id for c in chosen)
    others = count_of(len(eligibility.kept), "other")
    why = "outdated" if any(c.instance.instance_id in outdated for c in chosen) else _why(order)
    return Plan(targets=tuple(chosen), sentence=f"{names}: {why}; {others} kept")


def choose_replaced(
    eligibility: Eligibility, workers: Sequence[tuple[str, ReplaceReason]], *, minimum: int, removed: str = ""
) -> Plan:
    """The outdated worker that is removed now, or "replaces" the one for which a worker can be launched.

    workers: id and reason of each outdated worker, the first first. removed: the one whose replacement has proved
    itself; empty before a launch. A removal keeps the minimum.
    """
    eligible = {c.instance.instance_id: c for c in eligibility.candidates}
    for instance_id, reason in workers:
        if (removed and instance_id != removed) or instance_id not in eligible:
            continue
        if removed and not stays_above(minimum, eligibility.usable, (instance_id,)):
            text = f"at_min: {len(eligibility.usable)} usable workers, minimum {minimum}"
            return Plan(targets=(), sentence=text)
        targets = (eligible[instance_id],) if removed else ()
        return Plan(targets=targets, sentence=f"{instance_id}: {reason}", replaces=instance_id, reason=reason)
    wanted = {removed} if removed else {instance_id for instance_id, _ in workers}
    kept = next((k.sentence for k in eligibility.kept if k.instance_id in wanted), "it does not exist")
    return Plan(targets=(), sentence=f"no outdated worker can be replaced now: {kept}")


def choose_stopped(eligibility: Eligibility, worker: str, *, minimum: int) -> Plan:
    """The worker that was launched to become a standby worker; the minimum remains without it."""
    if not stays_above(minimum, eligibility.usable, (worker,)):
        return Plan(targets=(), sentence=f"at_min: {len(eligibility.usable)} usable workers, minimum {minimum}")
    found = tuple(c for c in eligibility.candidates if c.instance.instance_id == worker)
    kept = next((k.sentence for k in eligibility.kept if k.instance_id == worker), f"{worker} does not exist")
    return Plan(targets=found, sentence=f"{worker}: becomes a standby worker" if found else kept)


def to_standby(plan: Plan, *, places: int, outdated: Collection[str]) -> frozenset[str]:
    """The targets that are stopped instead of terminated, while places for standby workers are free.

    They are On-Demand and neither differ from a worker that would be launched nor are at their age limit or unhealthy.
    A worker that is removed because of its condition is terminated, and one that a Spot worker replaces is not.
    """
    if plan.not_ready or plan.reboot or (plan.replaces and plan.reason != "on-demand"):
        return frozenset()
    fit = (c.instance for c in plan.targets if c.instance.market == "on-demand")
    return frozenset([i.instance_id for i in fit if i.instance_id not in outdated][: max(0, places)])


def as_reboot(plan: Plan) -> Plan:
    """The plan that drains and reboots the same worker instead of removing it; unchanged without one."""
    if not plan.targets:
        return plan
    return replace(plan, sentence=f"{plan.sentence}, rebooted before it is replaced", replaces="", reboot=True)


def _turn(candidate: Candidate, outdated: Sequence[str]) -> int:
    """Outdated workers in their order come before all others."""
    own = candidate.instance.instance_id
    return outdated.index(own) if own in outdated else len(outdated)


def begin_removal(
    plan: Plan,
    *,
    operation_id: str,
    execution_id: str,
    reason: str,
    now: int,
    workers_before: int,
    standby: Collection[str] = (),
) -> Operation:
    """The operation's record, which is stored before anything is changed. standby: targets that are only stopped."""
    return Operation(
        operation_id=operation_id,
        kind="scale_down",
        phase="draining",
        started_at=now,
        requested=len(plan.targets),
        reason=reason,
        execution_id=execution_id,
        targets=tuple(_target(c, plan.not_ready, standby) for c in plan.targets),
        workers_before=workers_before,
        phase_at=now,
        replaces=plan.replaces,
        replace_reason=plan.reason,
        reboot=plan.reboot,
    )


def stays_above(minimum: int, usable: Iterable[str], leaving: Iterable[str]) -> bool:
    """True when the minimum holds for the whole set once all of `leaving` are removed."""
    return len(set(usable) - set(leaving)) >= minimum


def missing_headroom(policy: Policy, inspection: Inspection, staying: frozenset[str]) -> str:
    """Why the chosen headroom is missing on the workers that stay, by the requests; empty when it is there."""
    nodes = [n for n in inspection.nodes if n.instance_id in staying]
    free = [n.free for n in nodes]
    if pods := policy.headroom_pods:
        fitting = sum(_fitting(pods, *each) for each in free)
        return "" if fitting >= pods.count else f"headroom would be {fitting} of {pods.text}"
    share = 1 - policy.projection_margin_percent / 100
    largest = [
        max((n.cpu_allocatable_milli for n in nodes), default=0),
        max((n.memory_allocatable_mib for n in nodes), default=0),
    ]
    workers = min(sum(each[n] for each in free) / (most * share) if most else 0.0 for n, most in enumerate(largest))
    if workers >= policy.headroom_workers:
        return ""
    return f"headroom would be {workers:.1f} workers, under {policy.headroom_workers}"


def _fitting(pods: HeadroomPods, milli: int, mib: int, places: int) -> int:
    return min(milli // pods.cpu_milli, mib // pods.memory_mib, places)


def leftovers(inspection: Inspection, alive: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """(node name, instance id) of dead nodes, then of password secrets; EC2 must confirm that the instance has ended.

    Only those of the fleet's workers: nodes with its role label, and secrets whose node was named like an instance.
    """
    nodes = [
        (n.node_name, n.instance_id)
        for n in inspection.nodes
        if n.worker and n.instance_id and not n.server and not n.ready and n.instance_id not in alive
    ]
    secrets = [(o, o) for o in inspection.orphans if _INSTANCE_ID.match(o) and o not in alive]
    return tuple(nodes + secrets)


def stray_cordons(inspection: Inspection, others: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """(node name, operation id) of cordons that an ended operation left; called while no operation is open.

    others: workers under notice, which the interruption workflow cordons without the lock, and workers whose removal is
    set aside.
    """
    return tuple(
        (n.node_name, n.cordoned_by)
        for n in inspection.nodes
        if n.cordoned and n.cordoned_by not in ("", "?") and n.instance_id not in others
    )


def _target(candidate: Candidate, not_ready: bool, standby: Collection[str]) -> Target:
    return Target(
        instance_id=candidate.instance.instance_id,
        node_name=candidate.node.node_name,
        zone=candidate.instance.zone,
        market=candidate.instance.market,
        not_ready=not_ready,
        standby=candidate.instance.instance_id in standby,
    )


def _replacement(pool: Sequence[Candidate], not_ready: str, eligibility: Eligibility) -> Plan:
    if pool:
        return Plan(targets=(pool[0],), sentence=f"{not_ready}: NotReady for long", not_ready=True)
    why = next((k.reason for k in eligibility.kept if k.instance_id == not_ready), "it does not exist")
    return Plan(targets=(), sentence=f"{not_ready} cannot be replaced: {why}")


def _zones_and_markets(eligibility: Eligibility) -> Counter[tuple[str, str]]:
    """How many workers each zone and market has, kept ones included."""
    counts: Counter[tuple[str, str]] = Counter()
    for candidate in eligibility.candidates:
        counts[("zone", candidate.instance.zone)] += 1
        counts[("market", candidate.instance.market)] += 1
    for zone, market in eligibility.kept_places:
        counts[("zone", zone)] += 1
        counts[("market", market)] += 1
    return counts


def _rank(candidate: Candidate, order: str, fleet: Counter[tuple[str, str]], spot_percent: int) -> Any:
    """The smallest rank is removed first. Ties end at the instance id, so that equal fleets give equal answers.

    balance: zone with most workers, most idle, fewest pods, oldest. fewest-pods: fewest pods, most idle, zone with most
    workers. oldest: by launch time alone.
    """
    zone = -fleet[("zone", candidate.instance.zone)]
    idle = -round(candidate.idle_percent)
    pods, age = candidate.node.pods_to_move, candidate.instance.launched_at
    share = _distance_after(candidate, fleet, spot_percent)
    name = candidate.instance.instance_id
    if order == "oldest":
        return (age, name)
    if order == "fewest-pods":
        return (pods, idle, zone, share, name)
    return (zone, idle, pods, age, share, name)


def _distance_after(candidate: Candidate, fleet: Counter[tuple[str, str]], spot_percent: int) -> float:
    """Distance of the fleet's Spot share from the wanted share without this worker, in percentage points."""
    spot = fleet[("market", "spot")] - (candidate.instance.market == "spot")
    total = fleet[("market", "spot")] + fleet[("market", "on-demand")] - 1
    return abs(100.0 * spot / total - spot_percent) if total > 0 else 0.0


def _why(order: str) -> str:
    return {
        "oldest": "the oldest",
        "fewest-pods": "the worker with fewest pods",
    }.get(order, "from the zone with most workers, the most idle")


def _first_reason(eligibility: Eligibility) -> str:
    workers = [k for k in eligibility.kept if k.reason != "it is the server"]
    return workers[0].sentence if workers else "there is no worker"
