"""Scenarios of scale-up and of lost workers, with the real template: how each ends and which messages it sends.

The scale-down at the end of each breaks no budget, and the back-test has the actions of the flash sale.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from simulator.aws.recorder import AwsCall
from tests.support.backtest_check import assert_model_agrees
from tests.support.scenario_watch import FleetWatch, watched

NAMES = (
    "flash-sale", "spot-storm", "dry-pool", "quota", "slow-boot", "never-joins", "prometheus-dies-mid-join",
    "timed-capacity", "money-limit",
)  # fmt: skip
WITH_INTERRUPTIONS = ("spot-storm", "money-limit")


@pytest.fixture(scope="module", params=NAMES)
def watch(request: pytest.FixtureRequest) -> Iterator[FleetWatch]:
    with watched(request.param) as made:
        yield made


@pytest.mark.sampled(3)
def test_what_must_hold_in_every_scenario_and_its_own_end(watch: FleetWatch) -> None:
    accounted_for(watch)
    if watch.sim.scenario.name not in WITH_INTERRUPTIONS:
        watch.checker.assert_only_safe_removals()
    OWN[watch.sim.scenario.name](watch)


def accounted_for(watch: FleetWatch) -> None:
    """Launched = joined + reaped; nothing without tags; never above the maximum, not even for a second."""
    reaped = set(watch.ended_at) & watch.never_joined
    assert set(watch.launched) == set(watch.usable_at) | reaped
    assert not set(watch.usable_at) & reaped
    assert not watch.untagged
    assert watch.over_maximum == []
    assert not watch.notices


def says(watch: FleetWatch, *words: str) -> bool:
    return any(all(word in sentence for word in words) for sentence in watch.messages())


def flash_sale(watch: FleetWatch) -> None:
    sim = watch.sim
    assert max(watch.decision_to_usable()) < 180
    peak = max(sim.points, key=lambda p: p.unschedulable_pods)
    assert peak.unschedulable_pods > 0
    later = [p for p in sim.points if peak.at < p.at <= peak.at + 300]
    assert min(p.unschedulable_pods for p in later) == 0
    assert 5 <= max(p.workers_usable for p in sim.points) <= watch.maximum
    assert sim.points[-1].workers_usable == 2
    assert says(watch, "scaled up from")
    assert_model_agrees(sim)


def spot_storm(watch: FleetWatch) -> None:
    launched_for = {e: [x for x in watch.launched.values() if 0 <= x - e <= 6] for e in watch.notices_at.values()}
    assert len(watch.notices_at) >= 4 and all(launched_for.values())
    assert len(watch.launched) == len(watch.notices_at)
    assert not watch.never_joined
    assert watch.sim.points[-1].workers_usable == 6
    assert watch.sim.points[-1].unschedulable_pods == 0
    for sentence in [s for s in watch.messages() if "AWS reclaims this Spot instance" in s]:
        assert "drain drained" in sentence and "replacement launched" in sentence


def refused_by(watch: FleetWatch, code: str) -> list[AwsCall]:
    """The requests of which EC2 refused a type with that code."""
    asked = watch.sim.deployment.cloud.recorder.of("CreateFleet")
    return [call for call in asked if call.result and code in {e["ErrorCode"] for e in call.result.get("Errors", ())}]


def dry_pool(watch: FleetWatch) -> None:
    asked = watch.sim.deployment.cloud.recorder.of("CreateFleet")
    refused = refused_by(watch, "InsufficientInstanceCapacity")
    assert refused and len(refused) < len(asked)
    assert says(watch, "no capacity")
    assert watch.sim.points[-1].unschedulable_pods == 0
    assert not watch.never_joined


def quota(watch: FleetWatch) -> None:
    refused = refused_by(watch, "VcpuLimitExceeded")
    assert refused and all(c.attempts == 1 for c in refused)
    assert says(watch, "L-1216C47A")
    apart = [b.at - a.at for a, b in itertools.pairwise(refused)]
    assert all(seconds >= 100 for seconds in apart)
    assert watch.sim.points[-1].unschedulable_pods == 0


def slow_boot(watch: FleetWatch) -> None:
    slow = [watch.usable_at[i] - at for i, at in watch.launched.items() if i in watch.usable_at]
    assert max(slow) >= 240
    assert not watch.never_joined
    assert watch.sim.points[-1].unschedulable_pods == 0
    for run in watch.scale_ups():
        others = [r for r in watch.scale_ups() if r is not run and run.started_at <= r.started_at < (run.ended_at or 0)]
        assert not others


def never_joins(watch: FleetWatch) -> None:
    assert len(watch.never_joined) == 5
    assert all(300 <= watch.ended_at[i] - watch.launched[i] < 330 for i in watch.never_joined)
    failed = [r for r in watch.scale_ups() if r.status == "FAILED"]
    assert [r.error for r in failed] == ["NothingJoinedError"] * 3
    assert says(watch, "circuit breaker open", "3 scale-ups in a row")
    opened = failed[-1].ended_at or 0
    first_after = min(at for at in watch.launched.values() if at > opened)
    assert 880 <= first_after - opened <= 1100
    assert watch.sim.points[-1].unschedulable_pods == 0


def prometheus_dies_mid_join(watch: FleetWatch) -> None:
    start = watch.sim.scenario.start_at
    down, up = start + 11 * 60, start + 25 * 60
    mid_join = [i for i, at in watch.launched.items() if at < down < watch.usable_at[i]]
    assert mid_join and not watch.ended_at
    looked = watch.sim.deployment.cloud.recorder.of("SendCommand")
    assert any(down <= call.at <= up and "InspectNodes" in call.parameters["DocumentName"] for call in looked)
    first = watch.scale_ups()[0]
    assert first.status == "SUCCEEDED" and first.ended_at is not None and down < first.ended_at < up
    assert watch.sim.points[-1].unschedulable_pods == 0


def timed_capacity(watch: FleetWatch) -> None:
    sim, start = watch.sim, watch.sim.scenario.start_at
    usable = [(p.at - start, p.workers_usable) for p in sim.points]
    assert {count for at, count in usable if at < 300} == {2}
    assert {count for at, count in usable if 480 <= at <= 2100} == {5}, "there in time, and kept while it lasts"
    assert min(watch.ended_at.values()) - start > 2100 and usable[-1][1] == 2
    (run,) = watch.scale_ups()
    sentence = run.output_of("Decide")["decision"]["sentence"]
    assert sentence.startswith("2 workers, under the minimum of 5 until") and "a sale) -> +3" in sentence


def money_limit(watch: FleetWatch) -> None:
    assert 0.15 - 0.0605 < watch.highest_usd <= 0.15, "no more of the dearer type would fit"
    assert watch.notices_at and watch.sim.points[-1].workers_usable >= 3
    limit = "the limit allows no further worker (max_usd_per_hour: 0.1"
    assert says(watch, limit, "of 0.15 USD an hour", "not launched")


OWN = {
    "flash-sale": flash_sale,
    "spot-storm": spot_storm,
    "dry-pool": dry_pool,
    "quota": quota,
    "slow-boot": slow_boot,
    "never-joins": never_joins,
    "prometheus-dies-mid-join": prometheus_dies_mid_join,
    "timed-capacity": timed_capacity,
    "money-limit": money_limit,
}
