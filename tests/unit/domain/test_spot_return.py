"""On-Demand workers that return to Spot in quiet time, one at a time, and what the decision says about noisy pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from node_fleet.domain.model.budget import Budget
from node_fleet.domain.model.memory import BackOff, Memory, PoolBackOff, Replacement, RollOut, SpotPool
from node_fleet.domain.model.operation import Operation
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scale_up.join import back_off_key, is_return, no_return_sentence, waits_for_spot
from node_fleet.domain.scale_up.moved import moved_sentence
from node_fleet.domain.scale_up.placement import Pool, plan_slots, pools_in_order, pools_of_return
from node_fleet.domain.scale_up.requests import is_first_choice, open_pools, plan_request
from node_fleet.domain.scaling.decision import Decision, decide
from node_fleet.domain.scaling.roll_out import inspected_in_vain, removal_order
from node_fleet.domain.scaling.roll_out_hold import replaceable_workers
from node_fleet.domain.scaling.spot_return import QUIET_SECONDS, is_below_share
from node_fleet.domain.scaling.tick import make_tick
from node_fleet.settings import Settings
from tests.support.decisions import START, snapshot, worker, workers
from tests.support.launches import NOW, instance, operation, placement, slot

ZONE = "ap-southeast-1a"
POLICY = Policy(spot_learning="return", spot_percent=75, subnets=(f"{ZONE}=subnet-1",), bake_seconds=300)
BACK = {"launched_at": START - 9000, "market": "on-demand"}
QUIET = Memory(last_action_at=START - QUIET_SECONDS)
CHECK = "roll_out:on-demand"


def fleet(on_demand: int = 2, spot: int = 2) -> tuple[Worker, ...]:
    old = tuple(worker(n, **{**BACK, "launched_at": START - 9000 + n}) for n in range(on_demand))
    return (*old, *(worker(50 + n) for n in range(spot)))


def decided(seen: tuple[Worker, ...], memory: Memory = QUIET, policy: Policy = POLICY, **more: Any) -> Decision:
    return decide(snapshot(workers=seen, **more), memory, policy, START)


def texts(decision: Decision, name: str) -> list[str]:
    return [check.text for check in decision.evidence if check.name == name]


def noisy(lost: float = 4.0, at: int = START - QUIET_SECONDS) -> Memory:
    return replace(QUIET, spot_pools=(SpotPool(pool=f"{ZONE}/t3.small", lost=lost, lost_at=at, seen=4),), spot_at=START)


def step(**changes: Any) -> Memory:
    values: dict[str, Any] = {"worker": "i-0000", "reason": "on-demand", "replacement": "i-0050", "since": START - 300}
    return replace(QUIET, roll_out=RollOut(current=Replacement(**{**values, **changes})))


class TestTheReturn:
    def test_the_oldest_on_demand_worker_returns_and_the_text_has_the_share_and_the_price(self) -> None:
        decision = decided(fleet())
        assert (decision.action, decision.rule, decision.replace) == ("replace", "on-demand", "i-0000")
        text = "i-0000 on-demand: 2 of 4 workers Spot, 75 % wanted, Spot costs 0.0177 USD an hour less -> replace 1"
        assert decision.sentence.startswith(text)
        assert texts(decision, "on-demand")[0].startswith("2 of 4 workers on-demand, first i-0000 on-demand: 2 of 4")

    @pytest.mark.parametrize(
        ("spot", "total", "percent", "is_below"),
        [
            (2, 4, 75, True),
            (3, 4, 75, False),
            (1, 2, 75, False),
            (0, 1, 50, False),
            (0, 1, 51, True),
            (0, 3, 0, False),
            (3, 13, 27, True),
        ],
    )
    def test_a_return_brings_the_fleet_strictly_nearer_to_the_share(
        self, spot: int, total: int, percent: int, is_below: bool
    ) -> None:
        assert is_below_share(spot, total, percent) is is_below

    @pytest.mark.parametrize(
        "policy",
        [
            replace(POLICY, spot_learning="avoid"),
            replace(POLICY, spot_learning="off"),
            replace(POLICY, spot_percent=50),
            replace(POLICY, on_demand_minimum=2),
            replace(POLICY, subnets=("ap-southeast-1b=subnet-2",)),
            replace(POLICY, instance_types=("t3.micro",)),
        ],
        ids=["only avoided", "off", "share reached", "minimum", "other zone", "smaller type"],
    )
    def test_no_worker_returns_without_the_setting_the_share_or_a_pool(self, policy: Policy) -> None:
        decision = decided(fleet(), policy=policy)
        assert decision.action == "none" and not texts(decision, CHECK) + texts(decision, "on-demand")

    def test_a_zone_without_spot_capacity_holds_no_worker_of_another_zone(self) -> None:
        zones = [f"ap-southeast-1{letter}" for letter in "abc"]
        policy = replace(POLICY, subnets=tuple(f"{zone}=subnet" for zone in zones))
        seen = tuple(worker(n, zone=zone, **{**BACK, "launched_at": START - 9000 + n}) for n, zone in enumerate(zones))
        first = []
        for failures in range(4):
            memory = replace(QUIET, back_offs=(BackOff(key="spot", failures=failures, until=START),))
            tick = make_tick(snapshot(workers=(*seen, *fleet(0, 2))), memory, policy, START)
            first.append(replaceable_workers(tick, "on-demand")[0][0])
        assert first == ["i-0000", "i-0001", "i-0002", "i-0000"]

    def test_a_worker_that_is_not_usable_is_none_of_the_minimum(self) -> None:
        policy = replace(POLICY, on_demand_minimum=1)
        seen = (worker(0, **BACK), worker(1, "not_ready", **BACK), *fleet(0, 3))
        assert decided(seen, policy=policy).rule != "on-demand"
        assert not texts(decided(seen, policy=policy), "on-demand")
        assert texts(decided(seen, policy=replace(policy, on_demand_minimum=0)), "on-demand")

    def test_no_worker_returns_to_a_type_that_costs_more_and_the_least_saving_is_named(self) -> None:
        def sentence(*types: str) -> str:
            memory = noisy() if "t3.small" in types else QUIET
            return decided(fleet(), memory, replace(POLICY, instance_types=types)).sentence

        assert "0.0090 USD an hour less" in sentence("t3.small", "t3.medium", "m5.large")
        assert "on-demand" not in sentence("t3.small", "m5.large", "x9.odd")
        assert "0.0090 USD an hour less" in sentence("t3a.small", "t3.medium")
        old = instance(1, zone=ZONE, market="on-demand")
        types = ("t3.small", "t3.medium", "m5.large", "x9.odd")
        allowed = pools_of_return(old, placement(zones={ZONE: "subnet"}, instance_types=types), (), NOW)
        assert allowed == (f"{ZONE}/t3.small/spot", f"{ZONE}/t3.medium/spot")

    def test_one_on_demand_worker_above_the_minimum_may_return(self) -> None:
        assert decided(fleet(), policy=replace(POLICY, on_demand_minimum=1)).action == "replace"

    def test_no_worker_returns_to_a_noisy_pool_or_one_in_back_off(self) -> None:
        closed = PoolBackOff(zone=ZONE, instance_type="t3.small", market="spot", until=START + 1)
        assert decided(fleet(), noisy()).action == "none"
        assert decided(fleet(), replace(QUIET, dry_pools=(closed,))).action == "none"
        assert decided(fleet(), noisy(lost=0.5)).action == "replace"

    @pytest.mark.parametrize(
        ("memory", "changes", "why"),
        [
            (replace(QUIET, last_action_at=START - QUIET_SECONDS + 1), {}, "3599 s ago, 3600 s of quiet needed"),
            (noisy(lost=0.5, at=START - 60), {}, "an interruption 60 s ago"),
            (replace(QUIET, back_offs=(BackOff(key="spot", failures=1, until=START + 9),)), {}, "next try in 9 s"),
            (QUIET, {"workers": (*fleet(), worker(9, under_notice=True))}, "under interruption notice"),
            (QUIET, {"workers": (*fleet(), worker(9, "joining", launched_at=START - 9))}, "1 worker joining"),
            (replace(QUIET, roll_out=RollOut(stopped="bad", stopped_version="2")), {}, "the roll-out is stopped: bad"),
        ],
    )
    def test_what_holds_a_return_is_no_part_of_the_sentence(
        self, memory: Memory, changes: dict[str, Any], why: str
    ) -> None:
        decision = decided(changes.pop("workers", fleet()), memory, template_version="2", **changes)
        assert decision.action == "none" and why in texts(decision, CHECK)[0]
        assert "not replaced now" not in decision.sentence

    def test_the_maximum_and_a_budget_hold_a_return_and_name_it(self) -> None:
        at_most = decided(fleet(), policy=replace(POLICY, max_workers=4))
        assert "at the maximum of 4 workers, and a return launches before it removes" in texts(at_most, CHECK)[0]
        budget = Budget(nodes="0", reasons=("on-demand",))
        kept = decided(fleet(), policy=replace(POLICY, disruption_budgets=(budget,)))
        assert "no on-demand worker is replaced: at most 0 workers (on-demand)" in texts(kept, CHECK)[0]
        other = replace(POLICY, disruption_budgets=(replace(budget, reasons=("idle",)),))
        assert decided(fleet(), policy=other).action == "replace"

    def test_an_inspection_in_vain_delays_the_next_return_longer_each_time_and_no_other_replacement(self) -> None:
        memory = inspected_in_vain(inspected_in_vain(QUIET, POLICY, START, "on-demand"), POLICY, START, "on-demand")
        assert memory.back_offs == (BackOff(key="spot", failures=2, until=START + 1200),)
        assert memory.roll_out.retry_at == 0 and decided((worker(9, drift="image"), *fleet()), memory).rule == "drifted"
        assert inspected_in_vain(QUIET, POLICY, START, "drifted").roll_out.retry_at == START + 600

    def test_without_live_data_no_worker_returns(self) -> None:
        assert decided(fleet(), source="cached").action == "none"

    def test_a_drifted_worker_comes_first_and_is_named_once(self) -> None:
        seen = (worker(9, drift="image", **BACK), *fleet())
        decision = decided(seen)
        assert (decision.rule, decision.replace) == ("drifted", "i-0009")
        tick = make_tick(snapshot(workers=seen), QUIET, POLICY, START)
        assert replaceable_workers(tick, "drifted") == [("i-0009", "drifted")]
        assert replaceable_workers(tick, "on-demand") == [("i-0000", "on-demand"), ("i-0001", "on-demand")]
        assert removal_order(tick) == ["i-0009"]


class TestTheStep:
    def test_the_replacement_that_restored_the_share_still_leads_to_the_removal(self) -> None:
        decision = decided(fleet(1, 3), step())
        assert (decision.action, decision.rule, decision.replace) == ("scale_down", "on-demand", "i-0000")

    def test_the_last_worker_of_the_minimum_stays_although_its_replacement_runs(self) -> None:
        decision = decided(fleet(1, 3), step(), replace(POLICY, on_demand_minimum=1))
        assert (decision.action, decision.memory.roll_out.current) == ("none", None)

    def test_the_saving_of_the_step_is_that_of_the_type_that_ec2_chose(self) -> None:
        seen = (*fleet(1, 0), worker(50, instance_type="t3.medium"), *fleet(0, 3)[1:])
        assert "Spot costs 0.0090 USD an hour less" in decided(seen, step()).sentence

    def test_the_others_wait_for_the_step(self) -> None:
        memory = step(since=START - 299)
        decision = decided(fleet(3, 1), memory)
        assert decision.action == "none" and "Ready 299 of 300 s" in texts(decision, CHECK)[0]

    def test_a_scaling_action_meanwhile_and_the_maximum_do_not_hold_the_removal(self) -> None:
        memory, policy = replace(step(), last_action_at=START - 60), replace(POLICY, max_workers=4)
        assert decided(fleet(3, 1), memory, policy).action == "scale_down"
        tick = make_tick(snapshot(workers=fleet(3, 1)), memory, policy, START)
        assert replaceable_workers(tick, "on-demand") == [("i-0000", "on-demand")]

    @pytest.mark.parametrize("lost", [0, 1])
    def test_a_replacement_that_aws_reclaimed_ends_the_step_and_stops_nothing(self, lost: int) -> None:
        memory = step(replacement="i-0999")
        memory = replace(memory, roll_out=replace(memory.roll_out, lost=lost))
        decision = decided(fleet(), memory)
        after = decision.memory.roll_out
        assert (after.current, after.stopped, after.lost) == (None, "", lost)
        assert decision.action == "none", "the next tick looks whether the fleet is quiet"
        assert decided((worker(9, drift="image"), *fleet()), memory).rule == "drifted"

    def test_a_replacement_under_notice_ends_the_step_and_begins_no_other(self) -> None:
        seen = tuple(replace(w, under_notice=w.instance_id == "i-0050") for w in fleet())
        decision = decided(seen, step())
        assert (decision.action, decision.memory.roll_out.current) == ("none", None)

    def test_without_the_setting_the_step_ends_and_no_worker_is_removed(self) -> None:
        decision = decided(fleet(1, 3), step(), replace(POLICY, spot_learning="avoid"))
        assert (decision.action, decision.memory.roll_out.current) == ("none", None)


class TestTheDecision:
    def test_a_noisy_pool_is_a_check_with_its_rate_its_end_and_the_price(self) -> None:
        policy = replace(POLICY, spot_learning="avoid")
        (text,) = texts(decided(workers(4), noisy(), policy), "spot_pools")
        assert text.startswith(
            f"1 noisy Spot pool, first {ZONE}/t3.small: 2.0 interruptions per 100 h (4.0 in 0 h), used"
        )
        assert text.endswith("quieter Spot pools, then On-Demand, which costs 0.0177 USD an hour more")
        assert "noisy" not in decided(workers(4), noisy(), policy).sentence

    def test_a_region_without_shipped_prices_has_no_price(self) -> None:
        known = replace(noisy(), spot_pools=(replace(noisy().spot_pools[0], pool="xx-odd-1a/t3.small"),))
        (text,) = texts(decided(workers(4), known), "spot_pools")
        assert text.endswith("then On-Demand")

    def test_a_quiet_pool_is_no_check(self) -> None:
        assert texts(decided(workers(4), noisy(lost=0.5)), "spot_pools") == []

    def test_the_memory_learns_only_where_it_is_set_and_forgets_when_it_is_off(self) -> None:
        learned = decided(workers(4), noisy()).memory
        assert learned.spot_at == START and learned.spot_pools[0].seen == 4
        off = decided(workers(4), noisy(), replace(POLICY, spot_learning="off"))
        assert (off.memory.spot_at, off.memory.spot_pools) == (0, ()) and not texts(off, "spot_pools")


class TestThePlacement:
    NOISY = placement(noisy=frozenset({"a/t3.small"}), spot_percent=100)

    def test_quieter_pools_come_first_then_on_demand_and_noisy_pools_last(self) -> None:
        order = pools_in_order("spot", self.NOISY, ("a", "b"))
        assert order[:3] == (
            Pool("a", "t3a.small", "spot"),
            Pool("b", "t3.small", "spot"),
            Pool("b", "t3a.small", "spot"),
        )
        assert order[3].market == "on-demand" and order[-1] == Pool("a", "t3.small", "spot")

    def test_with_every_spot_pool_noisy_the_next_worker_is_on_demand(self) -> None:
        every = placement(zones={"a": "subnet-a"}, instance_types=("t3.small",), noisy=frozenset({"a/t3.small"}))
        (planned,) = plan_slots(1, (), every, now=NOW)
        assert planned.market == "on-demand"
        closed = PoolBackOff(zone="a", instance_type="t3.small", market="on-demand", until=NOW + 1)
        (last,) = plan_slots(1, (), every, back_offs=(closed,), now=NOW)
        assert last.market == "spot"

    def test_a_request_offers_no_noisy_type_beside_a_quiet_one(self) -> None:
        planned = operation(slot(outcome="planned"))
        request = plan_request(planned, planned.slots[0], ("a",), self.NOISY, frozenset()).request
        assert request is not None and request.types == ("t3a.small",)

    def test_a_noisy_pool_is_no_first_choice(self) -> None:
        wanted = slot(outcome="planned")
        pools = open_pools(wanted, self.NOISY, ("a",), frozenset({Pool("a", "t3a.small", "spot")}))
        assert not is_first_choice(wanted, pools, self.NOISY)


class TestWhatAMoveCosts:
    TARIFF = Settings().tariff()
    NOISY = frozenset({f"{ZONE}/t3.small"})
    SPOT, ON_DEMAND = (slot(1, zone=ZONE, market=market) for market in ("spot", "on-demand"))

    def test_the_sentence_has_both_pools_and_the_price(self) -> None:
        text = moved_sentence((self.ON_DEMAND, slot(2)), (self.SPOT, slot(2)), self.NOISY, self.TARIFF)
        assert text == (
            f"planned 1 worker away from a noisy Spot pool: t3.small on-demand in {ZONE} in place of "
            f"t3.small spot in {ZONE}, 0.0177 USD an hour more"
        )
        cheaper = moved_sentence(
            (replace(self.SPOT, instance_type="t3a.small"),), (self.SPOT,), self.NOISY, self.TARIFF
        )
        assert cheaper.endswith("0.0004 USD an hour less")

    def test_a_worker_that_only_balances_the_others_is_none_that_left_a_noisy_pool(self) -> None:
        others = slot(2, zone="b", market="spot"), slot(2, zone=ZONE, market="on-demand")
        text = moved_sentence((self.ON_DEMAND, others[0]), (self.SPOT, others[1]), self.NOISY, self.TARIFF)
        assert text.startswith("planned 1 worker away") and text.endswith("0.0000 USD an hour more")

    def test_an_unknown_price_is_left_out_and_no_move_is_no_sentence(self) -> None:
        odd = replace(self.ON_DEMAND, instance_type="x9.odd")
        assert moved_sentence((odd,), (self.SPOT,), self.NOISY, self.TARIFF).endswith(f"t3.small spot in {ZONE}")
        assert moved_sentence((self.SPOT, slot(2)), (self.SPOT,), self.NOISY, self.TARIFF) == ""


class TestAReturnThatFails:
    NO_CAPACITY = {"error": "NoCapacityError", "cause": "EC2 refused"}

    @pytest.mark.parametrize(
        ("error", "key", "waits"),
        [
            ("NoCapacityError", "spot", True),
            ("QuotaExceededError", "spot", False),
            ("NothingJoinedError", "join", False),
            ("PausedError", "", False),
        ],
    )
    def test_only_missing_spot_capacity_is_no_fault_and_no_other_launch_waits_for_it(
        self, error: str, key: str, waits: bool
    ) -> None:
        failure = {"error": error, "cause": "x"}
        assert (back_off_key(failure, is_return=True), waits_for_spot(failure)) == (key, waits)

    def test_a_return_without_a_pool_waits_too(self) -> None:
        assert (back_off_key(None, is_return=True), back_off_key(None), waits_for_spot(None)) == ("spot", "", True)

    @pytest.mark.parametrize(
        ("found", "rule", "expected"),
        [
            (None, "on-demand", True),
            (None, "drifted", False),
            (operation(replaces="i-1", replace_reason="on-demand"), "", True),
            (operation(), "on-demand", False),
        ],
    )
    def test_the_operation_counts_before_the_decision(self, found: Operation | None, rule: str, expected: bool) -> None:
        assert is_return(found, rule) is expected

    def test_the_sentence_names_the_worker_the_reason_and_the_next_try(self) -> None:
        begun = operation(replaces="i-1")
        assert (
            no_return_sentence(begun, self.NO_CAPACITY, 600) == "i-1 stays On-Demand: EC2 refused; next try in 10 min"
        )
        full = operation(slot(outcome="failed", detail="the fleet is at its maximum size"), replaces="i-1")
        assert "its maximum size" in no_return_sentence(full, None, 600)
        assert no_return_sentence(None, None, 600).startswith(
            "the worker stays On-Demand: no quiet Spot pool of its zone"
        )


def test_an_interrupted_worker_of_the_fleet_counts_for_its_pool_alone() -> None:
    from node_fleet.domain.interruption.announcement import Announcement, pool_lost

    spot = Announcement(instance_ids=("i-1",), kind="spot", at=NOW)
    assert pool_lost(spot, instance(1)) == "a/t3.small"
    assert pool_lost(spot, instance(1, market="on-demand")) == ""
    assert pool_lost(replace(spot, kind="rebalance"), instance(1)) == ""
