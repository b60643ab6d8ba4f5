"""What is learned of Spot pools: fading counts, the rate with little evidence, and when a noisy pool is used again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import Memory, PoolBackOff, SpotPool
from node_fleet.domain.model.spot_pools import (
    HALF_LIFE_SECONDS,
    LONGEST_SECONDS,
    POOLS_KEPT,
    add_hours,
    count_losses,
    last_loss,
    noisy_pools,
    per_100_hours,
    spot_pools_for,
)
from node_fleet.payload import from_payload, to_payload
from tests.support.decisions import START, worker

NAME = "ap-southeast-1a/t3.small"
DAY = 86_400


def memory(*pools: SpotPool, at: int = START) -> Memory:
    return Memory(spot_pools=pools, spot_at=at)


def pool(lost: float = 0.0, hours: float = 0.0, **changes: Any) -> SpotPool:
    values: dict[str, Any] = {"pool": NAME, "lost": lost, "hours": hours, "lost_at": START, "seen": 3, **changes}
    return SpotPool(**values)


class TestTheRate:
    @pytest.mark.parametrize(
        ("lost", "hours", "rate"),
        [
            (0, 0, 0.03),
            (1, 2, 0.525),
            (1, 200, 0.265),
            (2, 2, 1.02),
            (3, 100, 1.02),
            (10, 800, 1.006),
            (0, 10_000, 0.000588),
        ],
    )
    def test_little_evidence_leaves_a_pool_near_the_worst_band_of_the_spot_advisor(
        self, lost: float, hours: float, rate: float
    ) -> None:
        assert per_100_hours(lost, hours) == pytest.approx(rate, rel=0.01)

    @pytest.mark.parametrize(("lost", "is_noisy"), [(1.0, False), (2.0, True)])
    def test_one_interruption_in_two_hours_makes_no_pool_noisy_and_two_do(self, lost: float, is_noisy: bool) -> None:
        assert bool(noisy_pools(memory(pool(lost, 2.0)), 1.0, START)) is is_noisy

    @pytest.mark.parametrize(("lost", "is_noisy"), [(2.94, False), (2.95, True)])
    def test_a_pool_is_noisy_only_above_the_limit(self, lost: float, is_noisy: bool) -> None:
        """(0.06 + 2.94) / 300 h is exactly 1 per 100 h."""
        assert bool(noisy_pools(memory(pool(lost, 100.0)), 1.0, START)) is is_noisy


class TestWhenAPoolIsUsedAgain:
    def test_the_named_time_is_the_one_at_which_the_rate_falls_to_the_limit(self) -> None:
        known = memory(pool(3.0, 50.0))
        (noisy,) = noisy_pools(known, 1.0, START)
        assert START < noisy.until < START + LONGEST_SECONDS
        assert noisy_pools(known, 1.0, noisy.until - 60) and not noisy_pools(known, 1.0, noisy.until)

    def test_many_interruptions_close_a_pool_for_three_days_after_the_last(self) -> None:
        known = memory(pool(60.0, 1.0))
        assert noisy_pools(known, 1.0, START)[0].until == START + LONGEST_SECONDS
        assert noisy_pools(known, 1.0, START + LONGEST_SECONDS - 1) and not noisy_pools(
            known, 1.0, START + LONGEST_SECONDS
        )

    def test_the_noisiest_pool_comes_first(self) -> None:
        others = (pool(4.0, pool="b/t3.small"), pool(9.0, pool="a/t3.small"), pool(0.0, 90.0))
        assert [one.pool for one in noisy_pools(memory(*others), 1.0, START)] == ["a/t3.small", "b/t3.small"]

    def test_its_sentence_has_the_rate_and_the_evidence(self) -> None:
        (noisy,) = noisy_pools(memory(pool(3.0, 4.0)), 1.0, START)
        assert noisy.sentence == f"{NAME}: 1.5 interruptions per 100 h (3.0 in 4 h)"

    @given(
        lost=st.floats(0, 1e6), hours=st.floats(0, 1e6), limit=st.floats(0.05, 100), seconds=st.integers(0, 10 * DAY)
    )
    def test_without_a_new_interruption_a_quiet_pool_stays_quiet(
        self, lost: float, hours: float, limit: float, seconds: int
    ) -> None:
        known = memory(pool(lost, hours))
        before, after = (noisy_pools(known, limit, at) for at in (START, START + seconds))
        assert len(after) <= len(before)
        assert all(START < one.until <= START + LONGEST_SECONDS for one in before)


class TestTheHours:
    def test_the_first_look_counts_nothing_and_the_next_the_time_since(self) -> None:
        known = add_hours(Memory(), [worker(1)], START)
        assert known.spot_pools == (SpotPool(pool=NAME),)
        later = add_hours(known, [worker(1), worker(2)], START + 3600)
        assert later.spot_pools[0].hours == pytest.approx(2.0, rel=0.01)

    def test_a_worker_counts_from_its_launch_and_an_on_demand_one_never(self) -> None:
        seen = [worker(1, launched_at=START + 1800), worker(2, market="on-demand"), worker(3, launched_at=START + 9999)]
        known = add_hours(memory(), seen, START + 3600)
        assert [(p.pool, round(p.hours, 2)) for p in known.spot_pools] == [(NAME, 0.5)]

    def test_after_the_half_life_an_hour_counts_half(self) -> None:
        known = add_hours(memory(pool(hours=100.0)), [], START + HALF_LIFE_SECONDS)
        assert known.spot_pools[0].hours == pytest.approx(50.0)

    def test_a_clock_that_goes_back_adds_nothing_and_is_followed(self) -> None:
        known = add_hours(memory(pool(hours=5.0)), [worker(1)], START - 600)
        assert (known.spot_at, known.spot_pools[0].hours) == (START - 600, 5.0)

    def test_an_interruption_of_a_clock_that_was_ahead_counts_as_one_of_the_next_tick(self) -> None:
        known = add_hours(memory(pool(5.0, lost_at=START + 365 * DAY)), [], START)
        assert noisy_pools(known, 1.0, START)[0].until <= START + LONGEST_SECONDS and last_loss(known) == START

    @pytest.mark.parametrize(("hours", "seen", "is_kept"), [(0.99, 0, False), (1.0, 0, True), (0.0, 1, True)])
    def test_a_pool_without_workers_hours_and_interruptions_is_forgotten(
        self, hours: float, seen: int, is_kept: bool
    ) -> None:
        known = add_hours(memory(pool(0.0, hours, seen=seen)), [], START)
        assert bool(known.spot_pools) is is_kept

    def test_the_memory_keeps_the_pools_with_the_most_evidence_and_stays_small(self) -> None:
        many = [worker(n, zone=f"zone-{n}", launched_at=START) for n in range(100)]
        faded = (pool(0.04, pool=f"z-{n}/t3.small") for n in range(POOLS_KEPT))
        known = add_hours(memory(pool(3.0), pool(0.0, 2.0, pool="zone-9/t3.small"), *faded), many, START + 60)
        assert len(known.spot_pools) == POOLS_KEPT
        assert [p.pool for p in known.spot_pools[:3]] == [NAME, "zone-9/t3.small", "zone-0/t3.small"]
        assert len(str(to_payload(known.spot_pools))) < 1800
        assert from_payload(tuple[SpotPool, ...], to_payload((pool(1.5, 2.25),))) == (pool(1.5, 2.25),)


class TestTheInterruptions:
    def test_each_is_counted_once_however_often_the_state_item_is_read(self) -> None:
        known = count_losses(memory(pool(seen=0)), {NAME: 2}, START)
        assert (known.spot_pools[0].lost, known.spot_pools[0].seen) == (2.0, 2)
        assert count_losses(known, {NAME: 2}, START + 60) is known

    def test_an_earlier_one_fades_until_the_next(self) -> None:
        known = memory(pool(2.0, seen=2, lost_at=START - HALF_LIFE_SECONDS))
        (found,) = count_losses(known, {NAME: 3}, START).spot_pools
        assert (found.lost, found.lost_at, found.seen) == (pytest.approx(2.0), START, 3)

    def test_a_count_of_a_new_table_adds_nothing(self) -> None:
        (found,) = count_losses(memory(pool(seen=7)), {NAME: 0}, START).spot_pools
        assert (found.lost, found.seen) == (0.0, 0)

    def test_a_count_from_before_the_learning_adds_nothing(self) -> None:
        (found,) = count_losses(Memory(), {NAME: 7}, START).spot_pools
        assert (found.lost, found.seen) == (0.0, 7)
        known = add_hours(Memory(spot_pools=(found,)), [], START)
        assert count_losses(known, {NAME: 7}, START + 60) is known

    def test_a_worker_that_is_interrupted_before_the_first_tick_that_sees_it_counts(self) -> None:
        known = count_losses(add_hours(memory(), [], START), {NAME: 1}, START + 60)
        assert known.spot_pools[0].lost == 1.0 and last_loss(known) == START + 60
        later = add_hours(known, [], START + 30 * DAY)
        assert count_losses(later, {NAME: 1}, START + 30 * DAY) is later, "an old one is not counted again"

    def test_a_pool_that_had_no_place_in_the_memory_begins_with_its_count(self) -> None:
        full = memory(*(pool(1.0, pool=f"z-{n}/t3.small") for n in range(POOLS_KEPT)))
        counts = {p.pool: p.seen for p in full.spot_pools} | {NAME: 9}
        assert [p.lost for p in count_losses(full, counts, START).spot_pools if p.pool == NAME] == [0.0]

    def test_the_last_one_is_known(self) -> None:
        assert last_loss(memory(pool(1.0, lost_at=5), pool(1.0, lost_at=9), pool(lost_at=0))) == 9
        assert last_loss(Memory()) == 0


@pytest.mark.parametrize(
    ("noisy", "closed", "expected"),
    [
        ((), (), ["t3.small", "t3.medium"]),
        (("z/t3.small",), (), ["t3.medium"]),
        ((), ("t3.medium",), ["t3.small"]),
        (("z/t3.small",), ("t3.medium",), []),
        (("y/t3.small",), (), ["t3.small", "t3.medium"]),
    ],
)
def test_a_worker_returns_in_its_zone_to_an_open_quiet_pool_of_its_size(
    noisy: tuple[str, ...], closed: tuple[str, ...], expected: list[str]
) -> None:
    back_offs = [PoolBackOff(zone="z", instance_type=kind, market="spot", until=START + 1) for kind in closed]
    over = PoolBackOff(zone="z", instance_type="t3.small", market="spot", until=START)
    other = replace(over, market="on-demand", until=START + 1)
    types = ("t3.micro", "t3.small", "t3.medium", "x9.odd")
    found = spot_pools_for("z", "t3.small", types, noisy=noisy, back_offs=[*back_offs, over, other], now=START)
    assert found == tuple(f"z/{kind}/spot" for kind in expected)


def test_a_type_of_unknown_size_is_as_large_as_itself() -> None:
    assert spot_pools_for("z", "x9.odd", ("t3.small", "x9.odd"), noisy=(), back_offs=(), now=START) == (
        "z/x9.odd/spot",
    )
