"""What EC2's refusals of launches mean: one table, a row for each class. Asks EC2 nothing.

EC2 may also accept a launch and end the instance with a state reason, such as `Server.InsufficientInstanceCapacity`.

A new class of refusals is one row here and one case of its test. A Retry or Catch of its own also needs an error class
in errors.py and the state machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from node_fleet.domain.model.errors import (
    LaunchConfigurationError,
    LaunchError,
    NoCapacityError,
    NodeFleetError,
    QuotaExceededError,
)
from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.value_class import value_class
from node_fleet.domain.scale_up.placement import Placement, Pool

Reaction = Literal["next pool", "same request again", "search by tag", "stop"]
Scope = Literal["", "the pool", "every pool of the zone", "every pool of the market"]

NO_ANSWER = "ConnectionError"
"""The code that stands for a request without any answer from EC2."""


@value_class
class RefusalClass:
    """Codes of EC2 after which the same is done.

    codes, prefixes: whole codes and beginnings of codes, separated by spaces. reaction: what the launcher does next.
    puts_in_back_off: the pools that are not asked for pool_back_off_seconds. advice: what an operator can do. error:
    the failure of a scale-up that launched nothing. alert: its kind, sent even when other workers were launched.
    """

    codes: str = ""
    prefixes: str = ""
    meaning: str
    reaction: Reaction
    puts_in_back_off: Scope = ""
    advice: str = ""
    error: type[NodeFleetError] = LaunchError
    alert: str = ""


REFUSALS = (
    RefusalClass(
        codes=(
            "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity UnfulfillableCapacity "
            "SpotMaxPriceTooLow Unsupported InvalidFleetConfiguration Server.SpotInstanceTermination "
            "Server.SpotInstanceShutdown"
        ),
        meaning="EC2 has no capacity in this pool",
        reaction="next pool",
        puts_in_back_off="the pool",
        advice="add instance types or zones",
        error=NoCapacityError,
    ),
    RefusalClass(
        codes="InsufficientFreeAddressesInSubnet",
        meaning="the subnet has no free address",
        reaction="next pool",
        puts_in_back_off="every pool of the zone",
        advice="use a larger subnet",
        error=NoCapacityError,
    ),
    RefusalClass(
        codes="MaxSpotInstanceCountExceeded",
        meaning="the quota All Standard Spot Instance Requests (L-34B43A08) is used up",
        reaction="next pool",
        puts_in_back_off="every pool of the market",
        advice="request an increase in Service Quotas",
        error=NoCapacityError,
        alert="quota_exceeded",
    ),
    RefusalClass(
        codes="AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        meaning="the account lacks the service-linked role AWSServiceRoleForEC2Spot",
        reaction="next pool",
        puts_in_back_off="every pool of the market",
        advice="create that role once with IAM",
        error=NoCapacityError,
        alert="quota_exceeded",
    ),
    RefusalClass(
        codes="VcpuLimitExceeded InstanceLimitExceeded",
        meaning="the quota of this market is used up (vCPU of t, m and c: L-1216C47A On-Demand, L-34B43A08 Spot)",
        reaction="next pool",
        puts_in_back_off="every pool of the market",
        advice="request an increase in Service Quotas",
        error=QuotaExceededError,
        alert="quota_exceeded",
    ),
    RefusalClass(
        codes="VolumeLimitExceeded ResourceLimitExceeded",
        meaning="the quota that EC2 names is used up (Storage for gp3 volumes is L-7A658B76)",
        reaction="stop",
        advice="request an increase in Service Quotas",
        error=QuotaExceededError,
        alert="quota_exceeded",
    ),
    RefusalClass(
        codes=(
            "RequestLimitExceeded Throttling ThrottlingException RequestThrottled RequestThrottledException "
            "EC2ThrottledException SlowDown InternalError InternalFailure ServiceUnavailable Unavailable "
            "RequestTimeout ConnectionError"
        ),
        meaning="EC2 throttles requests or does not answer",
        reaction="same request again",
        advice="check the AWS Health Dashboard if this lasts",
    ),
    RefusalClass(
        codes="IdempotentParameterMismatch IdempotentInstanceTerminated",
        meaning="an earlier request with other parameters used the same client token",
        reaction="search by tag",
    ),
    RefusalClass(
        codes=(
            "UnauthorizedOperation AccessDenied AuthFailure OptInRequired PendingVerification Blocked "
            "InvalidAMIID.NotFound InvalidAMIID.Unavailable InvalidAMIID.Malformed InvalidKeyPair.NotFound "
            "InvalidGroup.NotFound InvalidSecurityGroupID.NotFound InvalidSubnetID.NotFound InvalidSubnet "
            "MissingParameter UnknownParameter UnsupportedOperation InstanceTypeNotSupported "
            "InstanceCreditSpecification.NotSupported "
            "Client.InternalError Client.InvalidSnapshot.NotFound"
        ),
        prefixes=("AuthFailure. InvalidLaunchTemplate InvalidParameter InvalidBlockDevice InvalidIamInstanceProfile"),
        meaning="the request cannot succeed with this launch template, subnet, account or permission",
        reaction="stop",
        advice="fix what EC2 names and deploy again",
        error=LaunchConfigurationError,
        alert="launch_configuration",
    ),
)
UNKNOWN_REFUSAL = RefusalClass(
    meaning="node-fleet does not know this code", reaction="stop", advice="look the code up in the EC2 API reference"
)
"""The class of every other code: it is final, since a blind repetition would not help."""

ALERT_OF_ERROR = {"NoCapacityError": "no_capacity"} | {
    row.error.__name__: row.alert for row in REFUSALS if row.alert and row.error is not NoCapacityError
}
"""Error class of a failed scale-up -> kind of its alert."""


@value_class
class Refusal:
    """One refused launch, or one instance that EC2 ended: which pool, EC2's code and EC2's message."""

    pool: Pool
    code: str
    message: str
    instance_id: str = ""

    @property
    def refusal_class(self) -> RefusalClass:
        """The row of the table."""
        return class_of(self.code)

    @property
    def sentence(self) -> str:
        """What an operator reads."""
        pool = f"{self.pool.instance_type} {self.pool.market} in {self.pool.zone}"
        action = f"ended {self.instance_id} with {self.code}" if self.instance_id else f"returned {self.code}"
        return f"EC2 {action} for {pool}: {self.refusal_class.meaning} ({self.message[:160]})"


def class_of(code: str) -> RefusalClass:
    """The class of an EC2 error code or state reason; a whole code goes before the beginning of one."""
    bare = code.removeprefix("Server.").removeprefix("Client.")
    whole = [row for each in (code, bare) for row in REFUSALS if each in row.codes.split()]
    beginning = (row for row in REFUSALS if row.prefixes and code.startswith(tuple(row.prefixes.split())))
    return whole[0] if whole else next(beginning, UNKNOWN_REFUSAL)


def pools_closed_by(refusal: Refusal, placement: Placement, until: int) -> tuple[PoolBackOff, ...]:
    """The pools that this refusal puts in back-off until then; empty when it says nothing about a pool."""
    scope = refusal.refusal_class.puts_in_back_off
    pools = {refusal.pool} if scope else set()
    if scope == "every pool of the zone":
        zone = refusal.pool.zone
        pools |= {Pool(zone, kind, market) for kind in placement.instance_types for market in ("spot", "on-demand")}
    elif scope == "every pool of the market":
        market = refusal.pool.market
        pools |= {Pool(zone, kind, market) for zone in placement.zones for kind in placement.instance_types}
    return tuple(
        PoolBackOff(zone=p.zone, instance_type=p.instance_type, market=p.market, until=until) for p in sorted(pools)
    )


def launch_error(refusals: Iterable[Refusal]) -> NodeFleetError:
    """The error of a scale-up that launched nothing: the first that no other pool can help, else NoCapacityError."""
    listed = list(refusals)
    classes = [refusal.refusal_class for refusal in listed]
    final = next((row for row in classes if row.error is not NoCapacityError), classes[-1])
    text = "; ".join(dict.fromkeys(refusal.sentence for refusal in listed))
    advice = f". What you can do: {final.advice}" if final.advice else ""
    return final.error(f"no worker was launched: {text}{advice}")


def refusal_alerts(refusals: Iterable[Refusal]) -> tuple[Alert, ...]:
    """Quotas and configuration, which are alerted even when other workers were launched; one for each kind."""
    found = {r.refusal_class.alert: f"{r.sentence}. What you can do: {r.refusal_class.advice}" for r in refusals}
    return tuple(Alert(kind=kind, text=text) for kind, text in found.items() if kind)
