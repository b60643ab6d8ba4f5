"""The figures of docs/backtest.md against the real traces, if they are present; quick policies on short traces."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from backtest.compare import Assumptions, study
from backtest.trace import Trace, read_trace
from node_fleet.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "backtest.md"
QUICK = ("fixed-5", "target-tracking-50", "cluster-autoscaler", "karpenter")
SHORT = ("nab_ec2_cpu_ac20cd", "nab_ec2_cpu_fe7f93", "nab_rds_cpu_cc0c53")
ALL = (
    *SHORT,
    "google2019_cell_cpu_5min",
    "nab_asg_cpu_misconfiguration",
    "nab_twitter_volume_AAPL",
    "wc98_requests_1min",
)


def real_trace(name: str) -> Trace:
    folder = Path(os.environ.get("NODE_FLEET_TRACES") or ROOT.parent / "shared" / "traces")
    path = folder / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(
            f"{path} is not there: the traces are not part of the repository, name their folder in NODE_FLEET_TRACES"
        )
    return read_trace(path)


def stated(policy: str, name: str) -> list[float]:
    """The document's five figures of that policy on that trace."""
    short = name.removeprefix("nab_").removesuffix("_5min").removesuffix("_1min")
    found = []
    for table in DOCUMENT.read_text(encoding="utf-8").split("| policy | ")[1:6]:
        column = table.split("\n", 1)[0].rstrip(" |").split(" | ").index(short)
        row = re.search(rf"^\| {policy} \| (.*) \|$", table, re.MULTILINE)
        assert row is not None
        found.append(float(row[1].split(" | ")[column]))
    return found


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", SHORT)
def test_the_document_has_the_figures_of_the_short_traces(name: str) -> None:
    trace = real_trace(name)
    found = study(trace, Settings(), Assumptions().with_unit_of(trace), QUICK)
    for measures in found.results[1:]:
        hours, waiting, turns, instances, usd = stated(measures.policy, name)
        assert hours == pytest.approx(found.times_bound(measures), abs=0.001)
        assert waiting == pytest.approx(measures.avoidable_per_day, abs=0.1)
        assert turns == pytest.approx(measures.changes_per_day, abs=0.1)
        instances_usd = found.instances_usd(measures)
        assert instances_usd is not None
        assert instances == pytest.approx(instances_usd / measures.days, abs=0.001)
        assert usd == pytest.approx(found.cost(measures).usd / measures.days, abs=0.001)


@pytest.mark.parametrize("name", ALL)
def test_every_real_trace_is_read_with_its_gaps(name: str) -> None:
    trace = real_trace(name)
    covered = sum(stretch.times[-1] - stretch.times[0] for stretch in trace.stretches)
    assert 0 < covered <= trace.end - trace.start
    assert trace.interval_seconds in (60, 300)
