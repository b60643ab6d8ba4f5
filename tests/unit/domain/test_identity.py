"""Which Node belongs to which instance, and the words of each dispute."""

from __future__ import annotations

import pytest

from node_fleet.domain.model.identity import identify
from node_fleet.domain.model.snapshot import Instance, NodeReading
from tests.support.inspected_nodes import machine

ONE = "i-0aaaaaaaaaaaaaaaa"


def node(name: str = ONE, provider_id: str = f"aws:///a/{ONE}", address: str = "") -> NodeReading:
    return NodeReading(node_name=name, provider_id=provider_id, ready=True, address=address)


def dispute(instance: Instance, *nodes: NodeReading) -> str:
    found = identify([instance], nodes)
    assert bool(found.confirmed) is not bool(found.disputed)
    return found.disputed[ONE].reason if found.disputed else ""


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (1, ""),
        (2, "2 Nodes claim it: n0, n1"),
        (3, "3 Nodes claim it: n0, n1, n2"),
        (4, "4 Nodes claim it: n0, n1, n2 and 1 more"),
        (7, "7 Nodes claim it: n0, n1, n2 and 4 more"),
    ],
)
def test_three_of_the_nodes_that_claim_an_instance_are_named(number: int, reason: str) -> None:
    nodes = [node(f"n{n}") for n in reversed(range(number))]
    assert dispute(machine(ONE), *nodes) == reason
    shown = identify([machine(ONE)], nodes).disputed
    assert [one.node_names for one in shown.values()] == [("n0", "n1", "n2")[:number]] * bool(reason)


@pytest.mark.parametrize(
    ("changes", "seen", "reason"),
    [
        ({}, {}, ""),
        ({"node_names": ("x", ONE)}, {}, ""),
        ({"node_names": ("x", "y")}, {}, f"Node {ONE} claims it, and the name of its Node must be x or y"),
        ({}, {"provider_id": f"aws:///b/{ONE}"}, f"Node {ONE} claims it and states zone b, EC2 shows a"),
        ({}, {"provider_id": f"aws:////{ONE}"}, f"Node {ONE} claims it and states zone none, EC2 shows a"),
        ({"addresses": ("10.0.0.1", "::1")}, {"address": "::1"}, ""),
        ({"addresses": ("10.0.0.1", "::1")}, {"address": ""}, ""),
        ({"addresses": ()}, {"address": "10.0.0.9"}, ""),
        (
            {"addresses": ("10.0.0.1", "::1")},
            {"address": "10.0.0.9"},
            f"Node {ONE} claims it and states address 10.0.0.9, EC2 shows 10.0.0.1, ::1",
        ),
    ],
)
def test_the_only_node_of_an_instance_is_confirmed_by_its_name_zone_and_address(
    changes: dict[str, tuple[str, ...]], seen: dict[str, str], reason: str
) -> None:
    assert dispute(machine(ONE, zone="a", **changes), node(**seen)) == reason


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        (f"aws:///a/{ONE}", ONE),
        (f"aws:///a/{ONE}b", ""),
        ("aws:///a/i-1", "i-1"),
        ("aws:///a/x-1", ""),
        (f"gce:///a/{ONE}", ""),
        ("", ""),
    ],
)
def test_a_provider_id_names_an_instance_of_at_most_17_digits(provider_id: str, instance_id: str) -> None:
    assert node(provider_id=provider_id).instance_id == instance_id
