"""The inspection of the nodes: what one Node states changes its own line only, and the fleet's workers come first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.fit.demand import amount_of
from tests.support.server_site import FIRST, SECOND, SERVER, Site

QUANTITIES = [
    "1M",
    "4Ki",
    "1E",
    "1.7e308",
    "1e999999999",
    "1.2.3",
    ".E0",
    "",
    "-5",
    "nan",
    "Infinity",
    ".",
    "9" * 400,
    "1 000",
]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_quantity_of_one_node_does_not_end_the_inspection_of_the_others(site: Site, quantity: str) -> None:
    before = site.node(SECOND)
    amounts = {"cpu": quantity, "memory": quantity, "pods": quantity}
    site.world.update("nodes", "", FIRST, lambda node: node["status"].update(allocatable=amounts))
    found = site.inspect()
    assert found.known, found.detail
    assert next(n for n in found.nodes if n.instance_id == SECOND).node_name == before.node_name


@pytest.mark.parametrize("created", ["2999-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "noon", None, 5])
def test_an_impossible_date_of_one_node_does_not_end_the_inspection(site: Site, created: Any) -> None:
    site.world.update("nodes", "", FIRST, lambda node: node["metadata"].update(creationTimestamp=created))
    assert {n.instance_id for n in site.inspect().nodes} == {SERVER, FIRST, SECOND}


def stranger(number: int, labels: dict[str, str], instance_id: str) -> dict[str, Any]:
    status = {"conditions": [], "allocatable": {"cpu": "2", "memory": "2Gi", "pods": "110"}, "addresses": []}
    spec = {"providerID": f"aws:///us-east-1a/{instance_id}" if instance_id else ""}
    return {"metadata": {"name": f"{number:03d}" + "x" * 240, "labels": labels}, "spec": spec, "status": status}


@pytest.mark.parametrize("as_workers", [False, True])
def test_any_number_of_nodes_with_long_names_hides_no_worker(site: Site, as_workers: bool) -> None:
    site.clock.advance(60)
    labels = {"node-fleet.io/role": "worker"} if as_workers else {}
    with site.world.changing():
        for number in range(300):
            node = stranger(number, labels, f"i-{number:017x}" if as_workers else "")
            site.world.store.create("nodes", node)
    found = site.inspect()
    assert found.known and found.left_out > 200
    assert {FIRST, SECOND} <= {n.instance_id for n in found.nodes}


@given(st.text(alphabet="0123456789.eE+-KMGTPimnuk", max_size=40) | st.text(max_size=40))
def test_any_text_is_a_bounded_amount_or_a_value_error(quantity: str) -> None:
    try:
        amount = amount_of("cpu", quantity)
    except ValueError:
        return
    assert abs(amount) < 10**60
