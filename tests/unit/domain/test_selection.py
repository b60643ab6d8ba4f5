"""Which worker goes first, and that the minimum holds on the whole set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.snapshot import Market
from node_fleet.domain.scale_down.eligibility import Candidate, Eligibility, Kept
from node_fleet.domain.scale_down.inspection import InspectedNode, Inspection
from node_fleet.domain.scale_down.selection import (
    begin_removal,
    choose,
    leftovers,
    stays_above,
    stray_cordons,
)
from tests.support.inspected_nodes import inspected_node, machine


def candidate(
    number: int,
    zone: str = "a",
    *,
    cpu: float | None = None,
    pods: int = 2,
    launched: int = 0,
    market: Market = "on-demand",
    requested: int = 500,
    together: bool = True,
) -> Candidate:
    name = f"i-{number:017x}"
    seen = inspected_node(name, zone=zone, pods_to_move=pods, cpu_requested_milli=requested, fits_together=together)
    host = machine(name, zone=zone, market=market, launched_at=launched)
    return Candidate(instance=host, node=seen, cpu_percent=cpu)


def fleet(*candidates: Candidate, kept: int = 0) -> Eligibility:
    names = tuple(c.instance.instance_id for c in candidates)
    others = tuple(f"i-0kept{n}" for n in range(kept))
    return Eligibility(
        candidates=candidates,
        kept=tuple(Kept(instance_id=o, reason="shop/db-0 is a StatefulSet pod") for o in others),
        usable=names + others,
        kept_places=(("a", "on-demand"),) * kept,
    )


def first(
    *candidates: Candidate, order: str = "balance", spot: int = 70, count: int = 1, minimum: int = 0
) -> list[int]:
    plan = choose(fleet(*candidates), count=count, minimum=minimum, order=order, spot_percent=spot)
    return [int(c.instance.instance_id[2:], 16) for c in plan.targets]


ORDERS = [
    # balance: zone with most workers, then idle, pods, age, market, id
    ("balance", [candidate(1, "a"), candidate(2, "b"), candidate(3, "b")], 2),
    ("balance", [candidate(1, cpu=40.0), candidate(2, cpu=10.0)], 2),
    ("balance", [candidate(1, cpu=10.4), candidate(2, cpu=10.0, pods=1)], 2),
    ("balance", [candidate(1, requested=900), candidate(2, requested=100)], 2),
    ("balance", [candidate(1, pods=3), candidate(2, pods=1)], 2),
    ("balance", [candidate(1, launched=50), candidate(2, launched=40)], 2),
    ("balance", [candidate(1, market="spot"), candidate(2, market="on-demand"), candidate(3, market="on-demand")], 2),
    ("balance", [candidate(2), candidate(1)], 1),
    # 002: fewest pods, most idle, zone
    ("fewest-pods", [candidate(1, "a", pods=3), candidate(2, "b", pods=1), candidate(3, "a", pods=3)], 2),
    ("fewest-pods", [candidate(1, cpu=40.0), candidate(2, cpu=10.0)], 2),
    ("fewest-pods", [candidate(1, "a"), candidate(2, "b"), candidate(3, "b")], 2),
    # 003: oldest
    ("oldest", [candidate(1, "b", launched=9, pods=0), candidate(2, "a", launched=5, pods=9)], 2),
    ("oldest", [candidate(2, launched=5), candidate(1, launched=5)], 1),
]


@pytest.mark.parametrize(("order", "candidates", "goes"), ORDERS)
def test_each_order_picks_by_its_first_difference(order: str, candidates: list[Candidate], goes: int) -> None:
    assert first(*candidates, order=order) == [goes]


def test_zones_and_shares_are_counted_again_after_each_choice() -> None:
    three, two = [candidate(n, "a") for n in (1, 2, 3)], [candidate(n, "b") for n in (4, 5)]
    assert first(*three, *two, count=3) == [1, 2, 4]


@pytest.mark.parametrize(("together", "chosen"), [((2, 3), [1]), ((1, 3), [1, 3]), ((1, 2, 3), [1, 2])])
def test_several_workers_are_removed_only_when_their_pods_fit_elsewhere_together(
    together: tuple[int, ...], chosen: list[int]
) -> None:
    assert first(*(candidate(n, together=n in together) for n in (1, 2, 3)), count=2) == chosen


@pytest.mark.parametrize("kept", [(), ("spot",), ("on-demand",), ("spot",) * 4, ("on-demand",) * 4])
@pytest.mark.parametrize("share", [0, 30, 50, 70, 100])
@pytest.mark.parametrize(("spots", "others"), [(5, 5), (1, 3), (3, 1), (1, 1)])
def test_the_market_that_goes_brings_the_fleet_nearest_to_its_share(
    spots: int, others: int, share: int, kept: tuple[Market, ...]
) -> None:
    pool = fleet(*(candidate(n, market="spot" if n < spots else "on-demand") for n in range(spots + others)))
    pool = replace(pool, kept_places=tuple(("a", market) for market in kept))
    plan = choose(pool, count=1, minimum=0, order="balance", spot_percent=share)
    remaining, spot = spots + others + len(kept) - 1, spots + kept.count("spot")
    after_spot, after_demand = abs(100 * (spot - 1) / remaining - share), abs(100 * spot / remaining - share)
    assert plan.targets[0].instance.market == ("spot" if after_spot <= after_demand else "on-demand")


def test_each_kept_worker_counts_once_for_the_shares_and_the_zones() -> None:
    """With one more Spot worker that is kept, 1 of 2 is further from 80 % than 2 of 2."""
    two = fleet(candidate(1, market="spot"), candidate(2))
    (one,) = choose(
        replace(two, kept_places=(("a", "spot"),)), count=1, minimum=0, order="balance", spot_percent=80
    ).targets
    assert one.instance.market == "on-demand"
    for lowest in "ab":  # as many workers in both zones: the lowest id decides
        zones = ("a", "b", "b") if lowest == "a" else ("b", "b", "a")
        three = fleet(*(candidate(n, zone) for n, zone in enumerate(zones)))
        kept = replace(three, kept_places=(("a", "on-demand"),))
        (one,) = choose(kept, count=1, minimum=0, order="balance", spot_percent=0).targets
        assert one.instance.zone == lowest


@pytest.mark.parametrize(("workers", "minimum"), [(3, 3), (2, 3), (1, 1)])
def test_at_the_minimum_nobody_is_chosen_and_nothing_is_disturbed(workers: int, minimum: int) -> None:
    plan = choose(fleet(*map(candidate, range(workers))), count=1, minimum=minimum, order="balance", spot_percent=70)
    assert plan.targets == ()
    assert plan.sentence.startswith(f"at_min: {workers} usable workers, minimum {minimum}")


def test_nobody_eligible_names_a_reason() -> None:
    plan = choose(fleet(kept=3), count=1, minimum=1, order="balance", spot_percent=70)
    assert plan.sentence == "no worker is eligible: worker i-0kept0: kept, shop/db-0 is a StatefulSet pod"


@given(
    zones=st.lists(st.sampled_from("abc"), max_size=12),
    kept=st.integers(0, 4),
    count=st.integers(1, 6),
    minimum=st.integers(0, 12),
    order=st.sampled_from(["balance", "fewest-pods", "oldest"]),
)
def test_the_minimum_holds_on_the_whole_set_and_nobody_is_chosen_twice(
    zones: list[str], kept: int, count: int, minimum: int, order: str
) -> None:
    judged = fleet(*(candidate(n, zone) for n, zone in enumerate(zones)), kept=kept)
    plan = choose(judged, count=count, minimum=minimum, order=order, spot_percent=70)
    chosen = [c.instance.instance_id for c in plan.targets]
    assert len(chosen) == len(set(chosen)) <= count
    assert not chosen or stays_above(minimum, judged.usable, chosen)
    again = choose(
        replace(judged, candidates=judged.candidates[::-1]), count=count, minimum=minimum, order=order, spot_percent=70
    )
    assert [c.instance.instance_id for c in again.targets] == chosen


@pytest.mark.parametrize(
    ("usable", "leaving", "minimum", "holds"),
    [("abc", "a", 2, True), ("abc", "ab", 2, False), ("abc", "x", 3, True), ("", "", 0, True)],
)
def test_the_minimum_counts_usable_workers_that_stay(usable: str, leaving: str, minimum: int, holds: bool) -> None:
    assert stays_above(minimum, usable, leaving) is holds


def test_the_dead_worker_and_no_other_is_replaced() -> None:
    dead = candidate(2)
    plan = choose(
        fleet(candidate(1), dead),
        count=1,
        minimum=2,
        order="balance",
        spot_percent=70,
        not_ready=dead.instance.instance_id,
    )
    operation = begin_removal(plan, operation_id="down-1-5", execution_id="e", reason="r", now=5, workers_before=2)
    assert [(t.instance_id, t.not_ready, t.phase) for t in operation.targets] == [
        (dead.instance.instance_id, True, "selected")
    ]


def inspected(**changed: object) -> InspectedNode:
    return replace(candidate(1).node, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (inspected(ready=False), True),
        (inspected(ready=True), False),
        (inspected(ready=False, worker=False), False),
        (inspected(ready=False, server=True), False),
        (inspected(ready=False, instance_id=""), False),
    ],
)
def test_only_dead_nodes_of_our_own_workers_are_leftovers(seen: InspectedNode, found: bool) -> None:
    assert bool(leftovers(Inspection(known=True, nodes=(seen,)), frozenset())) is found
    assert leftovers(Inspection(known=True, nodes=(seen,)), frozenset({f"i-{1:017x}"})) == ()


@pytest.mark.parametrize(("name", "found"), [("i-0123456789abcdef0", True), ("ip-10-0-1-23", False), ("i-0123", False)])
def test_a_password_is_a_leftover_only_when_its_node_was_named_like_an_instance(name: str, found: bool) -> None:
    assert bool(leftovers(Inspection(known=True, orphans=(name,)), frozenset())) is found


@pytest.mark.parametrize(
    ("owner", "noticed", "found"),
    [("down-1-1", False, True), ("?", False, False), ("", False, False), ("spot-1", True, False)],
)
def test_only_our_own_forgotten_cordons_are_given_back(owner: str, noticed: bool, found: bool) -> None:
    seen = inspected(cordoned=True, cordoned_by=owner)
    notices = frozenset({seen.instance_id}) if noticed else frozenset()
    assert bool(stray_cordons(Inspection(known=True, nodes=(seen,)), notices)) is found


@pytest.mark.parametrize(
    ("not_ready", "reason"), [("i-0kept1", "shop/db-0 is a StatefulSet pod"), ("i-0gone", "it does not exist")]
)
def test_a_dead_worker_that_may_not_be_replaced_stays_with_its_own_reason(not_ready: str, reason: str) -> None:
    several = fleet(candidate(1), kept=2)
    own = replace(several, kept=(replace(several.kept[0], reason="it is the server"), several.kept[1]))
    plan = choose(own, count=1, minimum=0, order="balance", spot_percent=70, not_ready=not_ready)
    assert (plan.targets, plan.sentence) == ((), f"{not_ready} cannot be replaced: {reason}")


@pytest.mark.parametrize("kept", [0, 1])
def test_where_only_the_server_is_kept_there_is_no_worker(kept: int) -> None:
    empty = replace(fleet(kept=kept), usable=("i-server",))
    only = replace(empty, kept=tuple(replace(one, reason="it is the server") for one in empty.kept))
    plan = choose(only, count=1, minimum=0, order="balance", spot_percent=70)
    assert plan.sentence == "no worker is eligible: there is no worker"


@pytest.mark.parametrize(
    ("order", "outdated", "why"),
    [
        ("balance", (), "from the zone with most workers, the most idle"),
        ("fewest-pods", (), "the worker with fewest pods"),
        ("oldest", (), "the oldest"),
        ("oldest", (2,), "outdated"),
        ("balance", (9,), "from the zone with most workers, the most idle"),
    ],
)
def test_the_plan_names_its_workers_its_order_and_how_many_are_kept(
    order: str, outdated: tuple[int, ...], why: str
) -> None:
    names = [f"i-{number:017x}" for number in (1, 2)]
    for kept, others in ((0, "0 others"), (1, "1 other"), (3, "3 others")):
        pool = fleet(candidate(1, together=True), candidate(2, together=True), kept=kept)
        first_out = tuple(f"i-{number:017x}" for number in outdated)
        plan = choose(pool, count=2, minimum=0, order=order, spot_percent=70, outdated=first_out)
        shown = names[::-1] if outdated == (2,) else names
        assert plan.sentence == f"{', '.join(shown)}: {why}; {others} kept"


@pytest.mark.parametrize(("minimum", "removed"), [(0, 1), (1, 2), (2, 2)])
def test_on_demand_workers_of_their_minimum_are_removed_after_the_spot_workers(minimum: int, removed: int) -> None:
    pool = fleet(candidate(1, cpu=1.0), candidate(2, cpu=90.0, market="spot"))
    plan = choose(pool, count=1, minimum=0, order="balance", spot_percent=70, on_demand_minimum=minimum)
    assert [t.instance.instance_id for t in plan.targets] == [f"i-{removed:017x}"]
    only = fleet(candidate(1))
    assert choose(only, count=1, minimum=0, order="balance", spot_percent=70, on_demand_minimum=minimum).targets
