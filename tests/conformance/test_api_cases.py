"""Requests and budgets on a real control plane: what it refuses, and what its disruption controller allows."""

from __future__ import annotations

import pytest

from tests.support.api_cases import BUDGETS, REQUESTS, budget_record, prepare_requests, request_record
from tests.support.real_plane.cluster import RealCluster
from tests.support.transcripts import Record, recorded

pytestmark = pytest.mark.whole
SUBJECT = "api_cases"


def test_every_request_is_answered_as_recorded(
    cluster: RealCluster, records: Record, pytestconfig: pytest.Config
) -> None:
    prepare_requests(cluster)
    api = cluster.plane.api("node-fleet")
    found = {one.name: request_record(one, api.answer) for one in REQUESTS}
    records.update(found)
    assert pytestconfig.option.record or found == {name: recorded(SUBJECT)[name] for name in found}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_allows_what_is_recorded(
    name: str, cluster: RealCluster, records: Record, pytestconfig: pytest.Config
) -> None:
    records[name] = found = budget_record(name, cluster)
    assert pytestconfig.option.record or found == recorded(SUBJECT)[name]
