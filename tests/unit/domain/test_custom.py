"""Metrics of the user's own: marks, readings, absence and the traffic guard."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.custom_metric import BUILT_IN, BUILT_IN_PROMQL, CustomMetric
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import CustomReading
from node_fleet.domain.scaling.decision import decide
from tests.support.decisions import START, TICK, Fleet, idle, snapshot, worker, workers
from tests.support.doc_examples import PAGE

QUEUE = CustomMetric(name="queue", query="q", high=1000, low=100, readings=1, unit="jobs")
ERRORS = CustomMetric(
    name="errors", query="e", high=5, low=1, readings=2, unit="%", traffic_query="t", minimum_traffic=1.0
)
LONG_IDLE = Memory(since={"idle": Streak(since=START - 600, last=START - TICK, readings=6)})


def policy(*metrics: CustomMetric) -> Policy:
    return Policy(custom_metrics=metrics)


def custom(**values: float | None) -> tuple[CustomReading, ...]:
    return tuple(CustomReading(name=name, value=value) for name, value in values.items())


def test_the_built_in_metrics_have_the_documented_thresholds() -> None:
    for metric in BUILT_IN:
        row = f"| `{metric.name}` | {metric.high:g} {metric.unit} | {metric.low:g} {metric.unit} |"
        assert row in PAGE.read_text(encoding="utf-8").splitlines()
        assert (metric.readings, metric.when_absent) == (2, "ignore")


@pytest.mark.parametrize(("name", "quantile"), [("latency_p95", 0.95), ("latency_p99", 0.99)])
def test_a_built_in_latency_is_the_quantile_of_its_name_in_milliseconds(name: str, quantile: float) -> None:
    assert BUILT_IN_PROMQL[name].startswith(f"1000 * histogram_quantile({quantile}, sum by (le) (rate(")


@pytest.mark.parametrize(("value", "action"), [(1000.0, "none"), (1000.1, "scale_up")])
def test_strictly_over_its_high_mark_it_asks_for_a_worker(value: float, action: str) -> None:
    decision = decide(snapshot(custom=custom(queue=value)), Memory(), policy(QUEUE), START)
    assert decision.action == action
    if action == "scale_up":
        assert (decision.rule, decision.count) == ("custom:queue", 1)
        assert decision.reasons[0] == "queue 1000.1 jobs over 1000 for 1 reading [custom_metrics]"


def test_it_must_stay_over_its_mark_for_its_own_readings() -> None:
    fleet = Fleet(policy(ERRORS))
    reading = (CustomReading(name="errors", value=9.0, traffic=50.0),)
    decisions = [fleet.tick(snapshot(START + k * TICK, custom=reading)) for k in range(2)]
    assert [d.action for d in decisions] == ["none", "scale_up"]


@pytest.mark.parametrize(("value", "action"), [(99.9, "scale_down"), (100.0, "none"), (500.0, "none")])
def test_only_under_its_low_mark_may_a_worker_go(value: float, action: str) -> None:
    assert decide(idle(custom=custom(queue=value)), LONG_IDLE, policy(QUEUE), START).action == action


def test_the_low_mark_must_hold_as_long_as_the_other_conditions() -> None:
    fleet = Fleet(policy(QUEUE))
    values = [50.0] * 4 + [150.0] + [50.0] * 6
    actions = [fleet.tick(idle(START + k * TICK, custom=custom(queue=v))).action for k, v in enumerate(values)]
    assert actions == ["none"] * 10 + ["scale_down"]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("when_absent", "action", "said"),
    [("ignore", "scale_down", "queue missing, ignored"), ("hold", "none", "queue missing, so no worker is removed")],
)
def test_an_absent_metric_is_left_out_or_holds(value: float | None, when_absent: Any, action: str, said: str) -> None:
    metric = replace(QUEUE, when_absent=when_absent)
    decision = decide(idle(custom=custom(queue=value)), LONG_IDLE, policy(metric), START)
    assert decision.action == action
    evidence = next(c for c in decision.evidence if c.name == "custom:queue")
    assert (evidence.verdict, evidence.text) == ("missing", said)


def test_a_configured_metric_without_a_valid_value_forbids_a_removal_and_a_built_in_one_does_not() -> None:
    for seen in ((), custom(queue=float("nan"))):
        assert decide(idle(custom=seen), LONG_IDLE, policy(QUEUE), START).action == "none"
    assert decide(idle(), LONG_IDLE, policy(*BUILT_IN), START).action == "scale_down"


def test_a_broken_metric_never_blocks_the_others() -> None:
    metrics = (replace(QUEUE, name="broken", when_absent="hold"), QUEUE)
    decision = decide(snapshot(custom=custom(broken=None, queue=5000.0)), Memory(), policy(*metrics), START)
    assert decision.rule == "custom:queue"


def test_a_broken_metric_never_counts_as_healthy() -> None:
    decision = decide(snapshot(custom=custom(queue=None)), Memory(), policy(QUEUE), START)
    assert {c.verdict for c in decision.evidence if c.name == "custom:queue"} == {"missing"}


def test_a_metric_held_for_is_reported_when_it_stays_missing() -> None:
    fleet = Fleet(policy(replace(QUEUE, when_absent="hold")))
    seen = [snapshot(START + k * TICK, missing=("custom:queue (parse error)",)) for k in range(3)]
    assert [[a.kind for a in fleet.tick(one).alerts] for one in seen] == [[], ["metrics_missing"], []]


@pytest.mark.parametrize(
    ("traffic", "action"), [(0.0, "scale_down"), (0.99, "scale_down"), (1.0, "none"), (None, "none")]
)
def test_without_traffic_at_night_a_ratio_is_not_weighed(traffic: float | None, action: str) -> None:
    reading = (CustomReading(name="errors", value=100.0, traffic=traffic),)
    assert decide(idle(custom=reading), LONG_IDLE, policy(ERRORS), START).action == action


def test_without_traffic_a_ratio_that_is_nan_does_not_hold_either() -> None:
    reading = (CustomReading(name="errors", value=float("nan"), traffic=0.0),)
    metric = replace(ERRORS, when_absent="hold")
    assert decide(idle(custom=reading), LONG_IDLE, policy(metric), START).action == "scale_down"


def test_quiet_traffic_ends_a_run_over_the_mark() -> None:
    fleet = Fleet(policy(ERRORS))
    readings = [(9.0, 50.0), (9.0, 0.0), (9.0, 50.0)]
    actions = [
        fleet.tick(
            snapshot(START + k * TICK, custom=(CustomReading(name="errors", value=value, traffic=traffic),))
        ).action
        for k, (value, traffic) in enumerate(readings)
    ]
    assert actions == ["none"] * 3


def test_any_number_of_metrics_is_weighed_and_the_first_over_its_mark_gives_the_rule() -> None:
    metrics = [replace(QUEUE, name=f"m{n}") for n in range(30)]
    values = {f"m{n}": 5000.0 if n in (7, 20) else 1.0 for n in range(30)}
    decision = decide(snapshot(custom=custom(**values)), Memory(), policy(*metrics), START)
    assert decision.rule == "custom:m7"
    assert sum(c.name.startswith("custom:") for c in decision.evidence) == 30


def test_a_joining_worker_is_waited_for() -> None:
    seen = (*workers(3), worker("j", "joining", launched_at=START - 30))
    decision = decide(snapshot(custom=custom(queue=5000.0), workers=seen), Memory(), policy(QUEUE), START)
    assert decision.action == "none"
    assert "but 1 joining worker will help first" in decision.sentence


def test_the_built_in_metrics_are_silent_until_their_series_exist() -> None:
    policy_now = Policy(custom_metrics=BUILT_IN)
    decision = decide(idle(), LONG_IDLE, policy_now, START)
    assert decision.action == "scale_down"
    assert not any(metric.name in decision.sentence for metric in BUILT_IN)


@pytest.mark.parametrize(
    ("name", "value", "traffic", "readings"),
    [("queue_depth", 1000.5, None, 2), ("latency_p95", 2000.5, 9.0, 2), ("error_rate", 5.1, 9.0, 2)],
)
def test_the_built_in_marks_are_those_of_the_specification(
    name: str, value: float, traffic: float | None, readings: int
) -> None:
    fleet = Fleet(Policy(custom_metrics=BUILT_IN))
    reading = (CustomReading(name=name, value=value, traffic=traffic),)
    actions = [fleet.tick(snapshot(START + k * TICK, custom=reading)).action for k in range(readings)]
    assert actions == ["none"] * (readings - 1) + ["scale_up"]
