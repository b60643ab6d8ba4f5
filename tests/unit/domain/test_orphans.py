"""Orphan instances: which one is terminated, and when kube-state-metrics is stale."""

from __future__ import annotations

from typing import Any

import pytest

from node_fleet.domain.model.run import Alert
from node_fleet.domain.scale_up.join import NO_NODE_LIST, NodeList, unjoined_action
from node_fleet.domain.scale_up.orphans import (
    OrphanCheck,
    check_orphans,
    describe_stale_exporter,
    orphan_alert,
)
from tests.support.decisions import worker
from tests.support.launches import NOW, node

ONE, TWO = (worker(n, "unjoined", instance_id=f"i-{n:017x}", launched_at=NOW - 3600) for n in (1, 2))
RUN = 240


def listed(*numbers: int, source: Any = "server", **more: Any) -> NodeList:
    return NodeList(nodes=tuple(node(number, **more) for number in numbers), source=source)


def checked(node_list: NodeList, suspects: dict[str, int] | None = None) -> OrphanCheck:
    return check_orphans((ONE, TWO), node_list, suspects or {}, now=NOW, run_seconds=RUN)


@pytest.mark.parametrize(
    ("node_list", "why"),
    [
        (NO_NODE_LIST, "no node list"),
        (NodeList(nodes=None, source="server", problem="SSM status TimedOut"), "SSM status TimedOut"),
        (NodeList(nodes=(), source="server"), "no node list"),
        (listed(9, source="prometheus"), "no node list"),
    ],
)
def test_without_a_list_of_the_server_nothing_changes(node_list: NodeList, why: str) -> None:
    suspects = {ONE.instance_id: NOW - 120}
    expected = OrphanCheck(terminate="", suspects=suspects, sentence=f"no instance is terminated: {why}")
    assert checked(node_list, suspects) == expected


@pytest.mark.parametrize(("ago", "is_confirmed"), [(0, False), (1, True), (RUN, True), (RUN + 1, False)])
def test_an_instance_is_terminated_when_two_runs_in_a_row_found_no_node(ago: int, is_confirmed: bool) -> None:
    found = checked(listed(2), {ONE.instance_id: NOW - ago})
    if is_confirmed:
        sentence = f"{ONE.instance_id} never became a node: two runs in a row found none"
        assert found == OrphanCheck(terminate=ONE.instance_id, suspects={}, sentence=sentence)
    else:
        sentence = f"no node of {ONE.instance_id} yet; the next run checks again"
        assert found == OrphanCheck(terminate="", suspects={ONE.instance_id: NOW}, sentence=sentence)


def test_one_instance_is_terminated_a_run_and_the_others_stay_suspects() -> None:
    suspects = {ONE.instance_id: NOW - 120, TWO.instance_id: NOW - 120, "i-gone": NOW - 120}
    found = checked(listed(9), suspects)
    assert (found.terminate, found.suspects) == (ONE.instance_id, {TWO.instance_id: NOW})


@pytest.mark.parametrize("shown", [{}, {"ready": False}, {"provider_id": ""}, {"node_name": "worker-1"}], ids=str)
def test_a_listed_node_in_whatever_state_is_not_missing(shown: dict[str, Any]) -> None:
    node_list = NodeList(nodes=(node(1, **shown), node(2)), source="server")
    expected = OrphanCheck(terminate="", suspects={}, sentence="every candidate has a node")
    assert checked(node_list, {ONE.instance_id: NOW - 120}) == expected


@pytest.mark.parametrize(
    ("node_list", "is_proof"),
    [
        (listed(1), True),
        (listed(1, ready=False), False),
        (listed(9), False),
        (listed(1, source="prometheus"), False),
        (NodeList(nodes=None, source="server"), False),
    ],
)
def test_only_a_ready_node_in_the_api_server_proves_that_the_exporter_is_stale(
    node_list: NodeList, is_proof: bool
) -> None:
    text = describe_stale_exporter((TWO, ONE), node_list)
    assert (
        text.startswith(f"kube-state-metrics is stale: the API server shows node {ONE.instance_id} Ready") is is_proof
    )
    assert bool(text) is is_proof
    assert ("rollout restart deployment kube-state-metrics" in text) is is_proof


@pytest.mark.parametrize("kept", [False, True])
def test_the_alert_of_an_orphan_names_its_zone_its_age_and_what_follows(kept: bool) -> None:
    text = f"{ONE.instance_id} in {ONE.zone} ran for 60 min and never joined the cluster: {unjoined_action(kept)}"
    assert orphan_alert(ONE, NOW, kept=kept) == Alert(kind=f"join_failed:{ONE.instance_id}", text=text)
