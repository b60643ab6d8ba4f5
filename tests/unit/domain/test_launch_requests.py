"""What one request asks for: which slots and types go together, what follows an answer, and what a repetition finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.model.memory import PoolBackOff
from node_fleet.domain.model.operation import LaunchRequest, Operation
from node_fleet.domain.model.snapshot import Market
from node_fleet.domain.scale_up.launch import merge_pool_back_offs, record_launched
from node_fleet.domain.scale_up.placement import Placement, Pool, pools_in_back_off
from node_fleet.domain.scale_up.refusals import Refusal, pools_closed_by
from node_fleet.domain.scale_up.requests import (
    client_token,
    explains,
    is_first_choice,
    missing_slots,
    open_pools,
    plan_request,
    record_answer,
    refusals_of,
    slots_tag,
)
from node_fleet.payload import from_payload, to_payload
from tests.support.launches import NOW, ZONES, codes_that_close, instance, operation, placement, request, slot

TYPES = ("t3.small", "t3a.small")


def planned(*zones: str, **more: Any) -> Operation:
    slots = [slot(n, zone=zone, outcome="planned", **more) for n, zone in enumerate(zones, 1)]
    return operation(*slots)


def next_request(
    found: Operation, setup: Placement | None = None, closed: frozenset[Pool] = frozenset()
) -> LaunchRequest:
    """The request for the first planned slot."""
    setup = setup or placement()
    first = next(s for s in found.slots if s.outcome == "planned")
    wanted = plan_request(found, first, tuple(ZONES), setup, closed).request
    assert wanted is not None
    return wanted


def test_a_token_is_the_same_for_the_same_request_and_differs_for_every_other() -> None:
    requests = [request(), request(2), request(1, 2), request(12), request(zone="b"), request(market="on-demand")]
    requests += [request(attempt=1)]
    tokens = [client_token(op, each) for op in ("up-1", "up-2") for each in requests]
    assert len(set(tokens)) == len(tokens)
    assert client_token("up-1", requests[0]) == tokens[0]
    assert all(len(t) == 64 and t.isascii() for t in tokens)


def test_a_request_that_offers_other_types_has_the_same_token_so_that_ec2_does_not_launch_again() -> None:
    assert client_token("up-1", request(types=TYPES)) == client_token("up-1", request(types=TYPES[:1]))


def test_slots_of_one_zone_and_market_are_requested_together_with_every_type() -> None:
    found = planned("a", "b", "a", "a").with_slot(slot(4, zone="a", market="on-demand", outcome="planned"))
    assert next_request(found) == request(1, 3, types=TYPES)


@pytest.mark.parametrize(
    "other",
    [
        {"types": ("t3.medium",)},
        {"pools": ("a/t3.small/spot",)},
        {"avoid": ("a/t3.small/spot",)},
        {"smaller_types": ("t3.nano",), "types": ("t3a.small",)},
        {"pools": ("b/t3.small/spot",)},
    ],
    ids=["other types", "fewer pools", "a pool that it avoids", "types of other sizes", "no pool of the zone"],
)
def test_a_slot_that_other_types_suit_has_a_request_of_its_own(other: dict[str, Any]) -> None:
    found = planned("a", "a").with_slot(slot(2, zone="a", outcome="planned", **other))
    assert next_request(found).slots == (1,)


def test_a_request_takes_only_as_many_slots_as_their_tag_names() -> None:
    found = operation(*(slot(n, outcome="planned") for n in range(900, 1000)))
    wanted = next_request(found)
    assert (len(wanted.slots), len(slots_tag(wanted)) <= 256) == (40, True)


def test_types_that_are_smaller_and_a_pool_to_avoid_are_offered_only_when_nothing_else_is_left() -> None:
    setup = placement(instance_types=("t3.small", "t3.medium", "t3.large"))
    found = planned("a", types=("t3.medium", "t3.large"), smaller_types=("t3.small",), avoid=("a/t3.medium/spot",))
    assert next_request(found, setup).types == ("t3.large",)
    asked, closed = [], frozenset[Pool]()
    while pools := open_pools(found.slots[0], setup, tuple(ZONES), closed):
        wanted = next_request(found, setup, closed)
        asked.append((wanted.zone, wanted.market, wanted.types))
        closed |= {Pool(wanted.zone, kind, wanted.market) for kind in wanted.types}
    large = ("t3.medium", "t3.large")
    assert asked == [
        ("a", "spot", ("t3.large",)),
        *[(zone, "spot", large) for zone in "bc"],
        *[(zone, "spot", ("t3.small",)) for zone in "abc"],
        ("a", "spot", ("t3.medium",)),
        *[(zone, "on-demand", large) for zone in "abc"],
        *[(zone, "on-demand", ("t3.small",)) for zone in "abc"],
    ]
    assert pools == ()


@pytest.mark.parametrize(
    ("closed", "is_first"),
    [
        ((), True),
        (("t3.small",), True),
        (TYPES, False),
    ],
)
def test_other_zones_are_considered_only_when_the_planned_one_has_no_open_pool(
    closed: tuple[str, ...], is_first: bool
) -> None:
    only = slot(outcome="planned")
    pools = open_pools(only, placement(), ("a",), frozenset(Pool("a", kind, "spot") for kind in closed))
    assert is_first_choice(only, pools, placement()) is is_first


def test_without_spot_anywhere_each_zone_has_one_request_on_demand() -> None:
    found = planned("a", "b", "a")
    closed = frozenset(Pool(zone, kind, "spot") for zone in ZONES for kind in TYPES)
    assert next_request(found, closed=closed) == request(1, 3, market="on-demand", types=TYPES)


def test_a_request_for_one_zone_takes_no_slot_of_another_along() -> None:
    found = planned("a", "b")
    closed = frozenset(Pool("b", kind, "spot") for kind in TYPES)
    wanted = plan_request(found, found.slots[0], ("a",), placement(), closed).request
    assert wanted is not None and wanted.slots == (1,)


def test_a_slot_that_moves_joins_the_request_of_its_new_zone() -> None:
    closed = frozenset(Pool("a", kind, "spot") for kind in TYPES)
    found = planned("a", "b")
    moved = plan_request(found, found.slots[0], tuple(ZONES), placement(), closed)
    assert moved.request == request(1, 2, zone="b", subnet_id="subnet-b", types=TYPES)
    assert [(s.zone, s.subnet_id) for s in moved.slots] == [("b", "subnet-b")] * 2


def test_a_slot_whose_zone_a_deployment_removed_has_pools_only_in_the_configured_zones() -> None:
    setup = placement(zones={"b": "subnet-b"})
    only = slot(zone="a", outcome="planned")
    assert open_pools(only, setup, ("a",), frozenset()) == ()
    assert {pool.zone for pool in open_pools(only, setup, ("a", "b"), frozenset())} == {"b"}


def test_instances_are_recorded_in_the_order_of_slots_with_their_own_type() -> None:
    asked = replace(planned("a", "a", "a"), request=request(1, 2, 3, types=TYPES))
    found = record_answer(asked, {"i-b": "t3a.small", "i-a": "t3.small"}, NOW)
    assert [(s.instance_id, s.outcome, s.attempt) for s in found.slots] == [
        ("i-a", "launched", 1),
        ("i-b", "launched", 1),
        ("", "planned", 1),
    ]
    assert [s.instance_type for s in found.slots[:2]] == ["t3.small", "t3a.small"]
    assert (found.request, [s.number for s in missing_slots(found, request(1, 2, 3))]) == (None, [3])


def test_a_repeated_answer_adds_only_the_instances_that_are_not_recorded() -> None:
    asked = replace(planned("a", "a"), request=request(1, 2))
    listed = record_launched(asked, [instance(5, slot="1 2")])
    found = record_answer(listed, {instance(5).instance_id: "t3.small", instance(4).instance_id: "t3.small"}, NOW)
    assert [s.instance_id for s in found.slots] == [instance(5).instance_id, instance(4).instance_id]


def test_an_instance_of_a_slot_that_failed_meanwhile_is_recorded_too() -> None:
    asked = replace(operation(slot(1, outcome="failed", instance_id="")), request=request(1))
    assert record_answer(asked, {"i-a": "t3.small"}, NOW).instance_ids == ("i-a",)


def test_of_the_instances_of_one_tag_those_that_run_come_first() -> None:
    listed = [instance(1, state="terminated", slot="1 2"), instance(2, slot="1 2"), instance(3, slot="3")]
    found = record_launched(planned("a", "a"), listed)
    assert [(s.outcome, s.instance_id) for s in found.slots] == [
        ("launched", instance(2).instance_id),
        ("failed", instance(1).instance_id),
    ]


@pytest.mark.parametrize("code", codes_that_close("the pool"))
def test_a_refusal_of_the_whole_request_closes_each_pool_that_it_offered(code: str) -> None:
    refusals = refusals_of(request(types=TYPES), code, "message")
    assert [r.pool for r in refusals] == [Pool("a", kind, "spot") for kind in TYPES]
    assert explains(refusals, request(types=TYPES))


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded", "VcpuLimitExceeded", "New"])
def test_a_refusal_that_closes_no_single_pool_is_named_once(code: str) -> None:
    refusals = refusals_of(request(types=TYPES), code, "message")
    assert [r.pool.instance_type for r in refusals] == [TYPES[0]]
    assert explains(refusals, request(types=TYPES))


def test_a_refusal_of_a_type_that_was_not_offered_explains_nothing() -> None:
    foreign = Refusal(pool=Pool("a", "m5.large", "spot"), code="InsufficientInstanceCapacity", message="")
    assert not explains((foreign,), request(types=TYPES)) and not explains((), request())


def test_an_operation_of_a_version_without_requests_is_read_and_its_instances_are_found() -> None:
    data = to_payload(planned("a", "a"))
    del data["request"]
    old = {"smaller_types", "avoid"}
    data["slots"] = {
        "columns": [c for c in data["slots"]["columns"] if c not in old],
        "rows": [
            [value for column, value in zip(data["slots"]["columns"], row, strict=True) if column not in old]
            for row in data["slots"]["rows"]
        ],
    }
    found = from_payload(Operation, data)
    assert found == planned("a", "a")
    assert [s.outcome for s in record_launched(found, [instance(7, slot="2")]).slots] == ["planned", "launched"]


pool_names = st.tuples(st.sampled_from("abc"), st.sampled_from(TYPES), st.sampled_from(["spot", "on-demand"]))


@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.dictionaries(pool_names, st.integers(0, 4)),
    st.sampled_from(codes_that_close("the pool")),
)
def test_with_any_capacity_each_slot_gets_an_instance_or_every_pool_has_refused_it(
    zones: list[str], capacity: dict[tuple[str, str, Market], int], code: str
) -> None:
    left = Counter({Pool(*name): count for name, count in capacity.items()})
    found, tokens, dry = planned(*zones), list[str](), tuple[PoolBackOff, ...]()
    while first := next((s for s in found.slots if s.outcome == "planned"), None):
        closed = pools_in_back_off(dry, NOW)
        if not open_pools(first, placement(), tuple(ZONES), closed):
            found = found.with_slot(replace(first, outcome="failed"))
            continue
        found = plan_request(found, first, tuple(ZONES), placement(), closed)
        asked = found.request
        assert asked is not None
        tokens.append(client_token(found.operation_id, asked))
        launched, refusals = dict[str, str](), list[Refusal]()
        for kind in asked.types:
            pool = Pool(asked.zone, kind, asked.market)
            while left[pool] and len(launched) < len(asked.slots):
                left[pool] -= 1
                launched[f"i-{len(tokens)}-{len(launched)}"] = kind
            if len(launched) < len(asked.slots):
                refusals.append(Refusal(pool=pool, code=code, message=""))
        found = record_answer(found, launched, NOW)
        closing = [pool for r in refusals for pool in pools_closed_by(r, placement(), NOW + 600)]
        dry = merge_pool_back_offs(dry, closing, NOW)
    assert len(found.instance_ids) == min(len(zones), sum(capacity.values()))
    assert len(set(found.instance_ids)) == len(found.instance_ids) and len(set(tokens)) == len(tokens)
    assert all(s.outcome == "launched" for s in found.slots) or not any(left.values())
