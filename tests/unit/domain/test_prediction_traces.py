"""Prediction on real load, where the traces are at hand, and on a made-up shop everywhere."""

from __future__ import annotations

import functools

import pytest

from tests.support.prediction_traces import (
    Scores,
    as_percent,
    diurnal,
    hourly,
    score,
    traces,
)

TRACES = traces()
if not TRACES:
    print("no load traces found (NODE_FLEET_TRACES names their directory): only the made-up shop is scored")


@functools.cache
def scored(name: str) -> Scores:
    return score(name, diurnal() if name == "made-up shop" else as_percent(hourly(TRACES[name])))


@pytest.mark.parametrize("name", [*TRACES, "made-up shop"])
def test_it_raises_fewer_false_alarms_and_costs_less_than_the_plain_mean(name: str) -> None:
    found = scored(name)
    ours, plain = found.ours, found.plain_mean
    assert ours.false_alarms <= max(plain.false_alarms, ours.hits)
    assert ours.worker_hours <= max(plain.worker_hours, 1.1 * found.busy)


@pytest.mark.parametrize("name", [*TRACES, "made-up shop"])
def test_where_it_is_wrong_more_often_than_not_it_abstains_most_of_the_time(name: str) -> None:
    found = scored(name)
    if found.ours.false_alarms and found.ours.hits <= found.ours.false_alarms:
        assert found.ours.abstained > found.hours / 2


def test_on_a_narrow_band_a_level_shift_and_a_sawtooth_it_launches_nothing() -> None:
    quiet = [name for name in TRACES if name.startswith(("google", "nab_ec2_cpu_ac20cd", "nab_asg"))]
    assert [scored(name).ours.worker_hours for name in quiet] == [0] * len(quiet)


@pytest.mark.parametrize("name", [*(n for n in TRACES if n.startswith("wc98")), "made-up shop"])
def test_where_there_is_a_rhythm_it_sees_rises_coming_that_same_as_now_cannot(name: str) -> None:
    found = scored(name)
    assert found.ours.rises >= 10 > found.same_as_now.rises
    assert found.ours.hits > 10 * found.ours.false_alarms
    assert found.ours.worker_hours < found.same_as_now.worker_hours
