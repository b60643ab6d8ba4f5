"""A Node states its own identity: no Node makes another instance usable, eligible for removal or terminated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.assembly import assemble
from node_fleet.domain.model.identity import identify
from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Instance, NodeReading, Reading, Snapshot
from node_fleet.domain.scale_down.eligibility import Eligibility, judge_workers
from node_fleet.domain.scale_down.inspection import InspectedNode, Inspection
from node_fleet.domain.scale_up.join import NodeList, close_unjoined, join_alerts, update_slots
from node_fleet.domain.scaling.decision import decide
from tests.support.inspected_nodes import inspected_node, machine
from tests.support.launches import operation, slot

NOW = 1_790_000_000
VICTIM, OTHER = "i-00000000000000001", "i-00000000000000002"
DNS_NAME = "ip-10-0-1-7.ap-southeast-1.compute.internal"
ADDRESSES = ("10.0.1.7", "2600:1f18::7")


def instance(instance_id: str = VICTIM, **changed: Any) -> Instance:
    stated = {"addresses": ADDRESSES, "node_names": (instance_id,), "launched_at": NOW - 86_400}
    return machine(instance_id, **{**stated, **changed})


def node(name: str = VICTIM, claims: str = VICTIM, **changed: Any) -> NodeReading:
    fields = {"provider_id": f"aws:///a/{claims}", "address": ADDRESSES[0], "ready": True, **changed}
    return NodeReading(node_name=name, **fields)


def snapshot(instances: list[Instance], *nodes: NodeReading) -> Snapshot:
    return assemble(instances, Reading(at=NOW, pending=(), nodes=nodes), (), Policy(), NOW)


def judged(instances: list[Instance], *nodes: InspectedNode) -> Eligibility:
    inspection = Inspection(known=True, at=NOW, nodes=nodes)
    return judge_workers(inspection, instances, under_notice=frozenset(), back_offs=(), now=NOW)


UNCONFIRMED = {
    "another name": {"name": "fake"},
    "another zone": {"provider_id": f"aws:///b/{VICTIM}"},
    "no zone": {"provider_id": f"aws:///{VICTIM}"},
    "another address": {"address": "10.0.9.9"},
    "another address of version 6": {"address": "2600:1f18::9"},
}


@pytest.mark.parametrize("stated", UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_a_node_that_ec2_does_not_confirm_makes_no_instance_usable_and_no_instance_unjoined(
    stated: dict[str, Any],
) -> None:
    found = snapshot([instance()], node(**stated))
    assert [(w.phase, w.node_name) for w in found.workers] == [("unknown", "")]
    assert found.unjoined == () and [d.instance_id for d in found.disputes] == [VICTIM]


@pytest.mark.parametrize("address", [*ADDRESSES, ""])
def test_a_node_with_any_address_of_its_instance_or_none_yet_is_confirmed(address: str) -> None:
    assert snapshot([instance()], node(address=address)).workers[0].phase == "usable"


@pytest.mark.parametrize(
    ("name", "phase"), [(DNS_NAME, "usable"), ("ip-10-0-1-7", "usable"), (VICTIM, "unknown"), ("ip-10-0-1", "unknown")]
)
def test_the_names_that_the_rule_allows_are_confirmed_and_no_other(name: str, phase: str) -> None:
    named = instance(node_names=(DNS_NAME, "ip-10-0-1-7"))
    assert snapshot([named], node(name)).workers[0].phase == phase


claims = st.lists(
    st.builds(
        node,
        name=st.sampled_from([VICTIM, OTHER, "fake", "i-00000000000000001.fake"]),
        claims=st.sampled_from([VICTIM, OTHER, "i-0ffffffffffffffff"]),
        address=st.sampled_from([*ADDRESSES, "", "10.0.9.9"]),
        ready=st.booleans(),
        unschedulable=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda one: one.node_name,
)


@given(claims)
def test_whatever_nodes_state_an_instance_has_at_most_one_node_and_it_is_its_own(nodes: list[NodeReading]) -> None:
    instances = [instance(), instance(OTHER, addresses=("10.0.1.8",))]
    found = identify(instances, nodes)
    for one in instances:
        claimants = [n for n in nodes if n.instance_id == one.instance_id]
        confirmed = found.confirmed.get(one.instance_id)
        if confirmed is not None:
            assert claimants == [confirmed] and confirmed.node_name == one.instance_id
        assert (one.instance_id in found.disputed) == (bool(claimants) and confirmed is None)


@given(claims)
def test_no_node_of_another_name_changes_what_is_known_of_an_instance_but_to_dispute_it(
    nodes: list[NodeReading],
) -> None:
    instances, own = [instance(), instance(OTHER)], node()
    alone = judged(instances, shown(own)).candidates
    together = judged(instances, *(shown(n) for n in [own, *nodes] if n is own or n.node_name != VICTIM))
    ids = [c.instance.instance_id for c in together.candidates]
    assert VICTIM not in ids or together.candidates[ids.index(VICTIM)] == alone[0]
    assert all(c.node.node_name == c.instance.instance_id for c in together.candidates)


def shown(one: NodeReading) -> InspectedNode:
    """The same Node as the inspection of the server shows it."""
    return inspected_node(one.instance_id, node_name=one.node_name, zone=one.zone, address=one.address, ready=one.ready)


def test_an_instance_that_two_nodes_claim_is_kept_whichever_of_them_is_empty() -> None:
    busy, fake = inspected_node(VICTIM, address=ADDRESSES[0]), inspected_node(VICTIM, node_name="fake")
    for nodes in ((busy, fake), (fake, busy)):
        found = judged([instance(), instance(OTHER)], *nodes, inspected_node(OTHER))
        assert [c.instance.instance_id for c in found.candidates] == [OTHER]
        assert VICTIM not in found.usable and set(found.disputed) == {VICTIM}
        assert [k.reason for k in found.kept] == [
            f"its identity is disputed: 2 Nodes claim it: fake, {VICTIM}",
        ]


def test_a_node_labelled_as_server_disputes_an_instance_too() -> None:
    found = judged([instance()], inspected_node(VICTIM), inspected_node(VICTIM, node_name="fake", server=True))
    assert found.candidates == () and found.usable == ()


def test_one_alert_names_the_instance_and_both_nodes_until_the_dispute_ends() -> None:
    seen = snapshot([instance()], node(), node("fake"))
    decision = decide(seen, Memory(), Policy(), NOW)
    disputed = [a for a in decision.alerts if a.kind == f"node_disputed:{VICTIM}"]
    assert len(disputed) == 1 and all(name in disputed[0].text for name in (VICTIM, "fake"))
    again = decide(replace(seen, at=NOW + 120), decision.memory, Policy(), NOW + 120)
    assert not [a for a in again.alerts if a.kind.startswith("node_disputed")]


def joined(*nodes: NodeReading) -> Operation:
    launched = operation(slot(1, instance_id=VICTIM, launched_at=NOW))
    found = update_slots(launched, instances={VICTIM: instance()}, nodes=nodes, now=NOW + 300)
    listed = NodeList(nodes=nodes, source="server")
    return close_unjoined(found, listed, now=NOW + 300, limit_seconds=300)


@pytest.mark.parametrize("nodes", [(node("fake"),), (node(), node("fake")), (node(address="10.0.9.9"),)])
def test_a_disputed_worker_has_not_joined_and_is_not_given_up_either(nodes: tuple[NodeReading, ...]) -> None:
    found = joined(*nodes)
    assert [s.outcome for s in found.slots] == ["launched"]
    alerts = join_alerts(found, keep_unjoined=False)
    assert [a.kind for a in alerts] == [f"node_disputed:{VICTIM}"]
    assert all(one.node_name in alerts[0].text for one in nodes)


def test_a_dispute_that_ends_leaves_a_worker_that_joined_or_never_did() -> None:
    assert [s.outcome for s in joined(node()).slots] == ["joined"]
    assert [s.outcome for s in joined().slots] == ["unjoined"]
    launched = operation(slot(1, instance_id=VICTIM, launched_at=NOW, disputed=True, detail="2 Nodes"))
    found = update_slots(launched, instances={VICTIM: instance()}, nodes=(), now=NOW + 300)
    assert not found.slots[0].disputed and not found.slots[0].detail
