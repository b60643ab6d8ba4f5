"""An inspection that is too large for its limits of time and output keeps more workers and states nothing wrong."""

from __future__ import annotations

import itertools

import pytest

from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import parse_inspection
from tests.support.fit_clusters import KINDS, judged_fit, random_cluster, removal_fit
from tests.support.inspected_nodes import machine
from tests.support.server_site import FIRST, SECOND, Site
from tests.support.shipped_scripts import script


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("judged", [0, 1, 2, 3])
def test_a_worker_that_is_not_judged_in_time_is_kept_and_the_others_are_judged_as_without_a_limit(
    number: int, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock passes the limit after so many workers."""
    cluster = random_cluster(number)
    lists = {kind: cluster.objects(kind) for kind in KINDS}
    whole, _ = judged_fit(lists)
    passed = itertools.count()
    monkeypatch.setattr(removal_fit.time, "process_time", lambda: next(passed))
    found, together = judged_fit(lists, judged)
    late = {name for name, misfit in found.items() if misfit is not None and misfit.predicate == "time"}
    assert len(late) == max(0, len(whole) - judged)
    for name in found.keys() - late:
        assert (found[name] is None) is (whole[name] is None)
    assert not together & late


@pytest.mark.parametrize("limit", [120, 150, 230])
def test_a_worker_that_does_not_fit_into_the_answer_is_counted_and_kept(site: Site, limit: int) -> None:
    whole = {node.node_name: node for node in site.inspect().nodes}
    cut = parse_inspection(site.shell.run(script("inspect_nodes").replace("LIMIT = 11900", f"LIMIT = {limit}")).stdout)
    assert cut.known and len(cut.nodes) + cut.left_out == len(whole) and cut.left_out > 0
    assert all(whole[node.node_name] == node for node in cut.nodes)
    judged = judge_workers(cut, (machine(FIRST), machine(SECOND)), under_notice=frozenset(), back_offs=(), now=1)
    shown = {node.instance_id for node in cut.nodes}
    assert {candidate.instance.instance_id for candidate in judged.candidates} <= shown
    left_out = {kept.instance_id: kept.reason for kept in judged.kept if kept.instance_id not in shown}
    assert left_out == {name: "it did not fit into the answer of the server" for name in {FIRST, SECOND} - shown}
