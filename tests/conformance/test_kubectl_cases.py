"""kubectl on a real control plane answers what the transcripts say, to which the simulated cluster is held."""

from __future__ import annotations

import pytest

from tests.support.kubectl_cases import CASES, Case
from tests.support.real_plane.cluster import RealCluster
from tests.support.transcripts import Record, kubectl_record, recorded

pytestmark = pytest.mark.whole
SUBJECT = "kubectl_cases"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_ends_as_recorded(
    case: Case, cluster: RealCluster, records: Record, pytestconfig: pytest.Config
) -> None:
    records[case.name] = found = kubectl_record(case, cluster)
    assert pytestconfig.option.record or found == recorded(SUBJECT)[case.name]
