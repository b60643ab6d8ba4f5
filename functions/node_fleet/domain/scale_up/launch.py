"""What a refused launch means and what is tried next. Asks EC2 nothing; the launcher does.

Each class of refusal exists because something else follows: another pool, another market, patience, or a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from node_fleet.domain.model.back_off import JOIN, active
from node_fleet.domain.model.errors import (
    LaunchConfigurationError,
    LaunchError,
    NoCapacityError,
    NodeFleetError,
    QuotaExceededError,
)
from node_fleet.domain.model.fleet_state import FleetState, Notice
from node_fleet.domain.model.memory import Memory, PoolBackOff
from node_fleet.domain.model.operation import LaunchSlot, Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_up.placement import Placement, Pool, pools_in_back_off, pools_in_order

FRESH_SECONDS = 120
"""For so long EC2 may not know an id that it has just given out; absence then means nothing."""

Kind = Literal["capacity", "addresses", "spot_quota", "quota", "throttled", "mismatch", "configuration", "other"]

CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",
    }
)
QUOTA = frozenset({"VcpuLimitExceeded", "InstanceLimitExceeded", "VolumeLimitExceeded", "ResourceLimitExceeded"})
THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "RequestThrottledException",
        "EC2ThrottledException",
        "SlowDown",
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
        "ConnectionError",
    }
)
NO_SPOT_YET = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
"""The account has never used Spot: its service-linked role is missing. On-demand works all the same."""
MISMATCH = frozenset({"IdempotentParameterMismatch", "IdempotentInstanceTerminated"})
CONFIGURATION = frozenset(
    {
        "UnauthorizedOperation",
        "AccessDenied",
        "AuthFailure",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidAMIID.Malformed",
        "InvalidKeyPair.NotFound",
        "InvalidGroup.NotFound",
        "InvalidSecurityGroupID.NotFound",
        "InvalidSubnetID.NotFound",
        "InvalidSubnet",
        "MissingParameter",
        "UnknownParameter",
        "UnsupportedOperation",
        "InstanceTypeNotSupported",
    }
)
CONFIGURATION_STARTS = ("InvalidLaunchTemplate", "InvalidParameter", "InvalidBlockDevice", "InvalidIamInstanceProfile")
QUOTA_NAMES = {
    "VcpuLimitExceeded": "Running On-Demand instances (vCPU; for t, m and c types Standard, L-1216C47A)",
    "InstanceLimitExceeded": "Running On-Demand instances (L-1216C47A)",
    "MaxSpotInstanceCountExceeded": "All Standard Spot Instance Requests (L-34B43A08)",
    "VolumeLimitExceeded": "Storage for gp3 volumes (L-7A658B76)",
    "ResourceLimitExceeded": "the resource that EC2 names",
}
FINAL: dict[Kind, type[NodeFleetError]] = {
    "quota": QuotaExceededError,
    "configuration": LaunchConfigurationError,
    "mismatch": LaunchError,
    "throttled": LaunchError,
    "other": LaunchError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One refused RunInstances: which pool, EC2's code and words, and what that means."""

    pool: Pool
    code: str
    message: str
    kind: Kind

    @property
    def sentence(self) -> str:
        """What an operator reads."""
        pool = f"{self.pool.instance_type} {self.pool.market} in {self.pool.zone}"
        if self.code == NO_SPOT_YET:
            return f"{pool}: this account never used Spot; create the role AWSServiceRoleForEC2Spot once ({self.code})"
        if self.kind in ("quota", "spot_quota"):
            return f"{pool}: the quota {QUOTA_NAMES.get(self.code, self.code)} is used up ({self.code})"
        meaning = {
            "capacity": "no capacity",
            "addresses": "the subnet has no free address",
            "throttled": "EC2 throttles or cannot answer",
            "mismatch": "an earlier request used the same token",
            "configuration": "the request can never succeed as configured",
            "other": "refused",
        }[self.kind]
        return f"{pool}: {meaning} ({self.code}: {self.message[:160]})"


def client_token(operation_id: str, slot: LaunchSlot) -> str:
    """Same slot in the same pool: same token, so that a repeated request launches nothing twice. 64 characters."""
    parts = (operation_id, str(slot.number), slot.zone, slot.instance_type, slot.market)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def slot_key(operation_id: str, number: int) -> str:
    """Name of the slot's capacity reservation."""
    return f"{operation_id}:{number}"


def operation_id_of(execution_id: str, round_number: int) -> str:
    """Name of the scale-up that this round of this execution makes: the same however often the step is repeated."""
    return "up-" + hashlib.sha256(f"{execution_id}\n{round_number}".encode()).hexdigest()[:12]


def mark_under_notice(instances: Iterable[Instance], notices: Iterable[Notice]) -> tuple[Instance, ...]:
    """The instances, with those marked that AWS has announced to take."""
    noticed = {notice.instance_id for notice in notices}
    return tuple(replace(i, under_notice=True) if i.instance_id in noticed else i for i in instances)


def count_workers(instances: Sequence[Instance], state: FleetState, now: int) -> int:
    """How many workers stand against the maximum: those that EC2 shows and those promised that it does not show yet.

    A promise that has no instance yet counts, one whose instance is listed (known by id, or by the tags Operation and
    Slot before it is confirmed) does not count twice, and what is under notice does not count at all.
    """
    noticed = {notice.instance_id for notice in state.notices}
    shown = {i.instance_id for i in instances}
    kept = shown | noticed | {f"{i.operation_id}:{i.slot}" for i in instances}
    promised = [r for r in state.reservations if r.until > now and not {r.instance_id, r.key} & kept]
    return len(shown - noticed) + len(promised)


def record_launched(operation: Operation, found: Mapping[int, tuple[str, int, bool]]) -> Operation:
    """The operation with what a step launched before it died. found: slot number -> (id, launched at, lives)."""
    for number, (instance_id, launched_at, lives) in sorted(found.items()):
        slot = next((s for s in operation.slots if s.number == number and s.outcome == "planned"), None)
        if slot is None:
            continue
        launched = replace(slot, outcome="launched", instance_id=instance_id, launched_at=launched_at)
        gone = replace(launched, outcome="failed", detail="the instance was terminated before it joined")
        operation = operation.with_slot(launched if lives else gone)
    return operation


def classify(code: str) -> Kind:
    """The class of an EC2 error code; an unknown one is final, since repeating it blindly helps nobody."""
    if code in CAPACITY:
        return "capacity"
    if code == "InsufficientFreeAddressesInSubnet":
        return "addresses"
    if code in ("MaxSpotInstanceCountExceeded", NO_SPOT_YET):
        return "spot_quota"
    if code in QUOTA:
        return "quota"
    if code in THROTTLED:
        return "throttled"
    if code in MISMATCH:
        return "mismatch"
    if code in CONFIGURATION or code.startswith((*CONFIGURATION_STARTS, "AuthFailure.")):
        return "configuration"
    return "other"


def pool_of(slot: LaunchSlot) -> Pool:
    """The pool that the slot asks now."""
    return Pool(slot.zone, slot.instance_type, slot.market)


def pools_closed_by(refusal: Refusal, placement: Placement, until: int) -> tuple[PoolBackOff, ...]:
    """The pools that this refusal closes until then; empty when it says nothing about a pool."""
    zone, types = refusal.pool.zone, placement.instance_types
    closed = {refusal.pool}
    if refusal.kind == "addresses":
        closed |= {Pool(zone, kind, market) for kind in types for market in ("spot", "on-demand")}
    elif refusal.kind == "spot_quota":
        closed |= {Pool(each, kind, "spot") for each in placement.zones for kind in types}
    elif refusal.kind != "capacity":
        closed = set()
    return tuple(
        PoolBackOff(zone=p.zone, instance_type=p.instance_type, market=p.market, until=until) for p in sorted(closed)
    )


def merge_pool_back_offs(known: Iterable[PoolBackOff], new: Iterable[PoolBackOff], now: int) -> tuple[PoolBackOff, ...]:
    """Both, without what has passed; of two for one pool the later counts."""
    latest: dict[Pool, PoolBackOff] = {}
    for entry in (*known, *new):
        pool = Pool(entry.zone, entry.instance_type, entry.market)
        if entry.until > now and (pool not in latest or latest[pool].until < entry.until):
            latest[pool] = entry
    return tuple(latest[pool] for pool in sorted(latest))


def next_attempt(
    slot: LaunchSlot, placement: Placement, zones: Iterable[str], *, dry: Iterable[PoolBackOff], now: int
) -> LaunchSlot | None:
    """The slot in the next pool that is not dry, with `attempt` one higher; None when none is left."""
    closed = pools_in_back_off(dry, now)
    order = pools_in_order(slot.market, placement, tuple(zones))
    here = pool_of(slot)
    pool = next((p for p in order if p not in closed and p != here), None)
    if pool is None:
        return None
    return replace(
        slot,
        zone=pool.zone,
        subnet_id=placement.zones[pool.zone],
        instance_type=pool.instance_type,
        market=pool.market,
        attempt=slot.attempt + 1,
    )


def launch_error(refusals: Iterable[Refusal]) -> NodeFleetError:
    """The error of a scale-up that launched nothing: the class tells who must act, the message what was tried."""
    listed = list(refusals)
    text = "; ".join(dict.fromkeys(r.sentence for r in listed)) or "every pool answered 'no capacity' minutes ago"
    final = next((r for r in listed if r.kind in FINAL), None)
    error = FINAL[final.kind] if final else NoCapacityError
    return error(f"no worker could be launched: {text}")


def refusal_alerts(refusals: Iterable[Refusal]) -> tuple[Alert, ...]:
    """What a person should hear of even when other workers were launched: quotas and configuration."""
    found = {
        "quota_exceeded" if r.kind != "configuration" else "launch_configuration": r.sentence
        for r in refusals
        if r.kind in ("quota", "spot_quota", "configuration")
    }
    return tuple(Alert(kind=kind, text=text) for kind, text in found.items())


def retry_pause_seconds(token: str, attempt: int, *, cap: float = 8.0) -> float:
    """Pause before asking again with the same token: doubling, capped, spread by the token."""
    spread = int(token[:4], 16) / 0xFFFF
    return float(min(cap, 2.0**attempt)) * (0.5 + 0.5 * spread)


def launch_sentence(operation: Operation) -> str:
    """What became of the plan, for the console and the log."""
    launched = [s for s in operation.slots if s.instance_id]
    listed = ", ".join(f"{s.instance_id} ({s.instance_type} {s.market} in {s.zone})" for s in launched)
    return f"{len(launched)} of {operation.requested} launched{': ' if listed else ''}{listed}"


def dry_run_sentence(slots: Iterable[LaunchSlot]) -> str:
    """What a dry run would have launched."""
    listed = [f"{s.instance_type} {s.market} in {s.zone}" for s in slots]
    return f"dry run: would launch {len(listed)}: {', '.join(listed)}"


def launch_notes(operation: Operation, refusals: Iterable[Refusal]) -> tuple[str, ...]:
    """What an operator reads beside the outcome: each refusal once, and each slot that was given up."""
    missing = [f"slot {s.number} was not launched: {s.detail}" for s in operation.slots if s.outcome == "failed"]
    return tuple(dict.fromkeys([r.sentence for r in refusals] + missing))


def reservations_to_release(operation: Operation, now: int) -> tuple[str, ...]:
    """Reservations that a closed operation gives back: all but those of instances that EC2 may not list yet."""
    return tuple(
        slot_key(operation.operation_id, s.number)
        for s in operation.slots
        if s.outcome != "launched" or now - s.launched_at >= FRESH_SECONDS
    )


FAILURE_KINDS = {
    "QuotaExceededError": "quota_exceeded",
    "LaunchConfigurationError": "launch_configuration",
    "NoCapacityError": "no_capacity",
}
ERRORS_WITHOUT_BACK_OFF = ("PausedError", "LeaseLostError")
"""Ends that say nothing about whether launching works: no back-off follows."""


def failure_alert(error: str, cause: str) -> Alert | None:
    """What a person should hear of a failed launch.

    Nothing when a person or another run stopped it, or when AbandonUnjoined has told of each instance already.
    """
    if error in (*ERRORS_WITHOUT_BACK_OFF, "NothingJoinedError"):
        return None
    return Alert(kind=FAILURE_KINDS.get(error, "scale_up_failed"), text=cause)


def circuit_breaker_alert(memory: Memory, key: str, policy: Policy, now: int) -> Alert | None:
    """The one critical alert of an open circuit breaker."""
    entry = active(memory.back_offs, key, now)
    if key != JOIN or entry is None or entry.failures < policy.join_failures_to_open:
        return None
    text = (
        f"circuit breaker open: {entry.failures} scale-ups in a row and no worker joined; no launch for "
        f"{(entry.until - now) // 60} minutes. Look at a worker's console output and its BootstrapError tag, mend the "
        "cause, then: node-fleet resume --breaker"
    )
    return Alert(kind="circuit_breaker", text=text)
