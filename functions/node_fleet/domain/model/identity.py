"""Which Node belongs to which instance. A Node states its own provider id, so EC2 must confirm what it states.

One Node per instance: its zone and its address are those of the instance, and its name follows the cluster's rule
(Instance.node_names). An instance that several Nodes claim, or one Node that EC2 does not confirm, has a disputed
identity: it is neither usable, nor eligible for removal, nor terminated as unjoined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from node_fleet.domain.model.snapshot import Dispute, Instance
from node_fleet.domain.model.value_class import value_class

NAMES_SHOWN = 3
DISPUTE_ADVICE = (
    "node-fleet counts and keeps the instance until exactly one Node claims it and EC2 confirms that Node. "
    "Find the machine that registered the wrong Node, and delete that Node with kubectl"
)


class NodeClaim(Protocol):
    """What a Node states about itself."""

    @property
    def node_name(self) -> str: ...
    @property
    def instance_id(self) -> str: ...
    @property
    def zone(self) -> str: ...
    @property
    def address(self) -> str: ...


Claim = TypeVar("Claim", bound=NodeClaim)


@value_class
class Identities(Generic[Claim]):
    """The one confirmed Node of each instance, and the instances whose identity is disputed, both by instance id."""

    confirmed: Mapping[str, Claim]
    disputed: Mapping[str, Dispute]


def identify(instances: Iterable[Instance], nodes: Iterable[Claim]) -> Identities[Claim]:
    """Compare every Node that names one of the instances with what EC2 shows of that instance."""
    claims: dict[str, list[Claim]] = {}
    for node in nodes:
        claims.setdefault(node.instance_id, []).append(node)
    confirmed: dict[str, Claim] = {}
    disputed: dict[str, Dispute] = {}
    for instance in instances:
        claimants = claims.get(instance.instance_id, [])
        if reason := _dispute_reason(instance, claimants):
            names = tuple(sorted(node.node_name for node in claimants))
            disputed[instance.instance_id] = Dispute(
                instance_id=instance.instance_id, node_names=names[:NAMES_SHOWN], reason=reason
            )
        elif claimants:
            confirmed[instance.instance_id] = claimants[0]
    return Identities(confirmed=confirmed, disputed=disputed)


def _dispute_reason(instance: Instance, claimants: Sequence[NodeClaim]) -> str:
    if len(claimants) > 1:
        shown = sorted(node.node_name for node in claimants)
        others = f" and {len(shown) - NAMES_SHOWN} more" if len(shown) > NAMES_SHOWN else ""
        return f"{len(shown)} Nodes claim it: {', '.join(shown[:NAMES_SHOWN])}{others}"
    return _mismatch(instance, claimants[0]) if claimants else ""


def _mismatch(instance: Instance, node: NodeClaim) -> str:
    """How the Node differs from its instance; empty when EC2 confirms it. An address that neither shows is no proof."""
    lead = f"Node {node.node_name} claims it"
    if instance.node_names and node.node_name not in instance.node_names:
        return f"{lead}, and the name of its Node must be {' or '.join(instance.node_names)}"
    if node.zone != instance.zone:
        return f"{lead} and states zone {node.zone or 'none'}, EC2 shows {instance.zone}"
    if instance.addresses and node.address not in ("", *instance.addresses):
        return f"{lead} and states address {node.address}, EC2 shows {', '.join(instance.addresses)}"
    return ""
