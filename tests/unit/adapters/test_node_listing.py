"""The list of nodes from two sources: both problems are named when neither knows it."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.adapters.node_listing import list_nodes_closely, node_list_of
from node_fleet.domain.model.errors import MetricsUnavailableError, ServerUnreachableError
from node_fleet.domain.model.snapshot import NodeReading
from node_fleet.domain.scale_down.inspection import Inspection
from tests.support.inspected_nodes import inspected_node

NODE = inspected_node("i-1", zone="b")
READING = NodeReading(node_name="n", provider_id="aws:///a/i-2", ready=True)


class Source:
    """Prometheus or the server, with one answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def inspect(self, now: int = 0) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    nodes = inspect


AWAY, SILENT = ServerUnreachableError("the server is away"), MetricsUnavailableError("no answer")
SEEN = Inspection(known=True, nodes=(NODE,))


@pytest.mark.parametrize(
    ("server", "prometheus", "source", "problem"),
    [
        (SEEN, (READING,), "server", ""),
        (SEEN, SILENT, "server", ""),
        (AWAY, (READING,), "prometheus", ""),
        (AWAY, SILENT, "none", "the server is away; no answer"),
    ],
)
def test_the_server_is_asked_first_and_both_problems_are_named(
    server: Any, prometheus: Any, source: str, problem: str
) -> None:
    found = list_nodes_closely(Source(prometheus), Source(server), 0)
    assert (found.source, found.problem, found.known) == (source, problem, source != "none")


@pytest.mark.parametrize(
    ("inspection", "problem"),
    [
        (Inspection(known=False, detail="cut"), "cut"),
        (Inspection(known=True), "the server listed 0 nodes and left out 0"),
        (Inspection(known=True, nodes=(NODE,), left_out=2), "the server listed 1 nodes and left out 2"),
        (SEEN, ""),
    ],
)
def test_a_list_that_lacks_nodes_is_unknown(inspection: Inspection, problem: str) -> None:
    found = node_list_of(inspection)
    assert (found.problem, found.nodes is None) == (problem, bool(problem))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"ready": False}, {"ready": False}),
        ({"cordoned": True}, {"unschedulable": True}),
        ({"tainted": True}, {"blocking_taints": ("tainted",)}),
        ({"address": "10.0.0.1"}, {"address": "10.0.0.1"}),
    ],
)
def test_a_node_of_the_server_is_read_like_one_of_prometheus(changes: Any, expected: Any) -> None:
    (found,) = node_list_of(Inspection(known=True, nodes=(inspected_node("i-1", zone="b", **changes),))).nodes or ()
    usual: Any = {"node_name": NODE.node_name, "provider_id": "aws:///b/i-1", "ready": True, "address": NODE.address}
    assert found == NodeReading(**{**usual, **expected})
