"""Headroom that an operator chooses: what launches add for it, what keeps a worker for it, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.cost.fleet_cost import headroom_month
from node_fleet.domain.cost.prices import PriceList
from node_fleet.domain.cost.tariff import Tariff
from node_fleet.domain.model.chosen_headroom import HeadroomPods
from node_fleet.domain.model.memory import Memory, Streak
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.model.snapshot import Worker
from node_fleet.domain.scale_down.inspection import Inspection
from node_fleet.domain.scale_down.selection import missing_headroom
from node_fleet.domain.scaling.check import Check, Decision
from node_fleet.domain.scaling.decision import decide
from node_fleet.settings import Settings
from tests.support.decisions import START, TICK, idle, pods, snapshot, worker
from tests.support.inspected_nodes import inspected_node
from tests.support.tiers import examples

PODS = {"count": 3, "cpu_milli": 500, "memory_mib": 400}
IDLE = Memory(since={"idle": Streak(since=START - 1200, last=START - TICK, readings=10)})


def policy(**settings: Any) -> Policy:
    return Settings.from_mapping({"max_workers": 20, **settings}).policy()


def loaded(number: int, cpu: int, memory: int = 100, **changes: Any) -> Worker:
    """A worker of 2000m and 1900 MiB with these requests."""
    return worker(number, cpu_requested_milli=cpu, memory_requested_mib=memory, pods=4, **changes)


def fleet(*cpu: int) -> tuple[Worker, ...]:
    return tuple(loaded(number, milli) for number, milli in enumerate(cpu))


def check_of(decision: Decision) -> Check | None:
    return next((c for c in decision.evidence if c.name == "headroom"), None)


@pytest.mark.parametrize("nothing", ["cpu_allocatable_milli", "memory_allocatable_mib"])
@pytest.mark.parametrize("kind", ["t3.small", "x9.odd"])
def test_workers_that_offer_pods_nothing_leave_the_headroom_to_a_launch(nothing: str, kind: str) -> None:
    crew = tuple(replace(one, **{nothing: 0}) for one in fleet(0, 0))
    decision = decide(snapshot(workers=crew), Memory(), policy(headroom_workers=1, instance_types=[kind]), START)
    assert (decision.action, decision.rule) == ("scale_up", "headroom")


def test_without_a_choice_there_is_no_check() -> None:
    assert check_of(decide(snapshot(workers=fleet(2000, 2000)), Memory(), policy(), START)) is None


class TestLaunch:
    @pytest.mark.parametrize(
        ("requested", "add", "text"),
        [
            # 90 % of a worker's 2000m are 1800m: PROJECTION_MARGIN is left for DaemonSets.
            ((200, 2000, 2000), 0, "headroom of 1.0 workers, at least 1"),
            ((201, 2000, 2000), 1, "headroom of 1.0 workers, under 1"),
            ((1100, 1100, 2000), 0, "headroom of 1.0 workers, at least 1"),
            ((2000, 2000, 2000), 1, "headroom of 0.0 workers, under 1"),
        ],
    )
    def test_free_capacity_of_a_worker_is_kept(self, requested: tuple[int, ...], add: int, text: str) -> None:
        decision = decide(snapshot(workers=fleet(*requested)), Memory(), policy(headroom_workers=1), START)
        check = check_of(decision)
        assert check is not None and check.text == text and check.setting == "headroom_workers"
        assert (decision.action, decision.count) == (("scale_up", add) if add else ("none", 0))
        assert decision.rule == ("headroom" if add else "none")

    @pytest.mark.parametrize("types", [("t3.small",), ("t3.small", "m5.4xlarge")])
    def test_it_is_counted_in_workers_of_the_first_type_and_market(self, types: tuple[str, ...]) -> None:
        chosen = policy(headroom_workers=1, spot_percent=100, instance_types=types)
        decision = decide(snapshot(workers=fleet(200, 2000, 2000)), Memory(), chosen, START)
        assert getattr(check_of(decision), "text", "") == "headroom of 1.0 workers, at least 1"

    def test_memory_counts_as_well(self) -> None:
        seen = tuple(loaded(n, 100, 1800) for n in range(3))
        decision = decide(snapshot(workers=seen), Memory(), policy(headroom_workers=1), START)
        assert (decision.rule, decision.count) == ("headroom", 1)

    @pytest.mark.parametrize(
        ("requested", "add", "text"),
        [
            ((500, 2000, 2000), 0, "headroom for 3 of 3 pods of 500m CPU and 400 MiB"),
            ((501, 2000, 2000), 1, "headroom for 2 of 3 pods of 500m CPU and 400 MiB"),
            # 499m are free on each of three workers: 1497m in sum hold no pod of 500m.
            ((1501, 1501, 1501), 1, "headroom for 0 of 3 pods of 500m CPU and 400 MiB"),
            ((1500, 1500, 1500), 0, "headroom for 3 of 3 pods of 500m CPU and 400 MiB"),
        ],
    )
    def test_pods_must_fit_on_single_workers(self, requested: tuple[int, ...], add: int, text: str) -> None:
        decision = decide(snapshot(workers=fleet(*requested)), Memory(), policy(headroom_pods=PODS), START)
        check = check_of(decision)
        assert check is not None and (check.text, check.setting) == (text, "headroom_pods")
        assert (decision.count, decision.rule) == ((add, "headroom") if add else (0, "none"))

    @pytest.mark.parametrize(("taken", "add"), [(3, 0), (4, 1)])
    def test_each_pod_of_the_headroom_takes_one_of_the_pods_that_a_worker_may_run(self, taken: int, add: int) -> None:
        seen = (worker(1, pods=taken, pods_allocatable=6), *fleet(2000))
        small = {"count": 3, "cpu_milli": 1, "memory_mib": 1}
        decision = decide(snapshot(workers=seen), Memory(), policy(headroom_pods=small), START)
        assert decision.count == add

    def test_pods_that_no_worker_could_run_are_worth_one_launch(self) -> None:
        chosen = replace(policy(), headroom_pods=HeadroomPods(count=3, cpu_milli=9000, memory_mib=1))
        decision = decide(snapshot(workers=fleet(100, 100)), Memory(), chosen, START)
        assert (decision.count, getattr(check_of(decision), "text", "")[:24]) == (1, "headroom for 0 of 3 pods")

    def test_as_many_workers_are_added_as_the_pods_need(self) -> None:
        chosen = policy(headroom_pods={**PODS, "count": 9})
        assert decide(snapshot(workers=fleet(2000, 2000)), Memory(), chosen, START).count == 3
        small = policy(headroom_pods={**PODS, "count": 9}, max_workers=4)
        assert decide(snapshot(workers=fleet(2000, 2000)), Memory(), small, START).count == 2, "the maximum holds"

    def test_a_joining_worker_counts_after_the_pods_that_wait_for_it(self) -> None:
        joining = worker(9, "joining", launched_at=START - 30)
        seen = (*fleet(2000, 2000), joining)
        free = decide(snapshot(workers=seen), Memory(), policy(headroom_pods=PODS), START)
        assert (free.action, getattr(check_of(free), "verdict", "")) == ("none", "ok")
        waiting = decide(snapshot(workers=seen, pending=pods(2)), Memory(), policy(headroom_pods=PODS), START)
        assert (waiting.rule, waiting.count) == ("headroom", 1)

    def test_the_cooldown_holds_for_it(self) -> None:
        before = Memory(last_action="scale_up", last_action_at=START - 100)
        decision = decide(snapshot(workers=fleet(2000, 2000)), before, policy(headroom_workers=1), START)
        assert (decision.action, decision.blocked_by) == ("none", ("cooldown",))

    def test_pending_pods_lead_and_the_larger_number_is_launched(self) -> None:
        chosen = policy(headroom_pods={**PODS, "count": 9})
        decision = decide(snapshot(workers=fleet(2000, 2000), pending=pods(1)), Memory(), chosen, START)
        assert (decision.rule, decision.count) == ("pending", 3)

    def test_unknown_requests_launch_no_worker_and_remove_none(self) -> None:
        seen = (*fleet(100, 100, 100), worker(9, cpu_requested_milli=None))
        decision = decide(idle(workers=seen), IDLE, policy(headroom_workers=1), START)
        assert decision.action == "none"
        assert check_of(decision) == Check(
            name="headroom",
            verdict="missing",
            text="headroom unknown: requests of some workers are missing",
            threshold=1,
            setting="headroom_workers",
        )


class TestRemoval:
    @pytest.mark.parametrize(
        ("settings", "requested", "count"),
        [
            ({"headroom_workers": 1}, (700, 700, 700), 1),
            ({"headroom_workers": 1}, (700, 700, 800), 1),
            ({"headroom_workers": 1, "spot_percent": 100, "instance_types": ("t3.small",)}, (700, 700, 800), 1),
            ({"headroom_workers": 1}, (700, 700, 801), 0),
            ({"headroom_workers": 1}, (734, 734, 734), 0),
            ({"headroom_workers": 2}, (100, 100, 100), 1),
            ({"headroom_workers": 2}, (140, 140, 140), 0),
            # The four pods of the removed worker are spread: 600m are moved, 1100m stay free on each of two workers.
            ({"headroom_pods": PODS}, (600, 600, 600), 1),
            ({"headroom_pods": {**PODS, "count": 5}}, (600, 600, 600), 0),
            ({"headroom_pods": PODS}, (800, 800, 800), 0),
        ],
    )
    def test_a_worker_is_removed_only_if_the_headroom_stays(
        self, settings: dict[str, Any], requested: tuple[int, ...], count: int
    ) -> None:
        decision = decide(
            idle(workers=fleet(*requested)), IDLE, policy(**settings, projection_margin_percent=10), START
        )
        assert (decision.action, decision.count) == (("scale_down", 1) if count else ("none", 0))
        if not count:
            held = [c for c in decision.evidence if c.name == "headroom" and c.verdict == "hold"]
            assert held and held[0].text.startswith("headroom would be ")

    @pytest.mark.parametrize(("moved", "action"), [(None, "none"), (0, "none"), (1, "none"), (2, "scale_down")])
    def test_the_requests_of_a_worker_are_moved_as_so_many_pods_and_as_one_when_their_number_is_unknown(
        self, moved: int | None, action: str
    ) -> None:
        """600m fit in halves where four workers have 400m free each, and in one piece nowhere."""
        seen = (
            worker(0, cpu_requested_milli=600, memory_requested_mib=100, pods=moved),
            *(loaded(n, 1600) for n in (1, 2, 3, 4)),
        )
        chosen = policy(headroom_pods={"count": 2, "cpu_milli": 100, "memory_mib": 1}, cpu_down_percent=60)
        assert decide(idle(workers=seen), IDLE, chosen, START).action == action

    def test_load_that_would_be_too_high_is_named_before_the_headroom(self) -> None:
        decision = decide(idle(workers=fleet(1300, 1300, 1300)), IDLE, policy(headroom_workers=1), START)
        held = [c.text for c in decision.evidence if c.verdict == "hold"]
        assert held == ["requests would be 97.5 %, over 90 %"]

    def test_the_text_names_how_much_headroom_would_be_left(self) -> None:
        decision = decide(idle(workers=fleet(800, 800, 800)), IDLE, policy(headroom_pods=PODS), START)
        check = check_of(decision)
        texts = [c.text for c in decision.evidence if c.name == "headroom"]
        assert check is not None and "headroom would be 2 of 3 pods of 500m CPU and 400 MiB" in texts

    def test_the_largest_worker_is_the_one_that_must_be_dispensable(self) -> None:
        large = loaded(9, 100, cpu_allocatable_milli=4000, memory_allocatable_mib=3800, instance_type="t3.medium")
        chosen = policy(headroom_workers=2, cpu_down_percent=60)
        decision = decide(idle(workers=(*fleet(500, 500), large)), IDLE, chosen, START)
        texts = [c.text for c in decision.evidence if c.name == "headroom" and c.verdict == "hold"]
        assert (decision.action, texts) == ("none", ["headroom would be 1.6 workers, under 2"])

    def test_of_several_as_many_are_removed_as_leave_the_headroom(self) -> None:
        chosen = {"max_targets": 4, "headroom_workers": 2}
        decision = decide(idle(workers=fleet(*[100] * 6)), IDLE, policy(**chosen), START)
        assert (decision.action, decision.count) == ("scale_down", 3)

    @examples(60)
    @given(
        st.lists(st.integers(0, 2000), min_size=2, max_size=7),
        st.one_of(
            st.fixed_dictionaries({"headroom_workers": st.integers(1, 3)}),
            st.fixed_dictionaries(
                {
                    "headroom_pods": st.fixed_dictionaries(
                        {"count": st.integers(1, 8), "cpu_milli": st.integers(50, 900), "memory_mib": st.just(64)}
                    )
                }
            ),
        ),
    )
    def test_a_removal_is_not_followed_by_a_launch_for_the_headroom(
        self, requested: list[int], chosen: dict[str, Any]
    ) -> None:
        seen = tuple(loaded(n, milli, 0) for n, milli in enumerate(requested))
        rules = policy(**chosen, min_workers=1, cooldown_up_seconds=0)
        decision = decide(idle(workers=seen), IDLE, rules, START)
        if decision.action != "scale_down":
            return
        left = sorted(seen, key=lambda w: w.cpu_requested_milli or 0)[1:]
        moved = min(requested)
        if "headroom_workers" in chosen:
            first, *others = left
            after = [loaded(50, (first.cpu_requested_milli or 0) + moved, 0), *others]
            if (after[0].cpu_requested_milli or 0) <= 2000:
                assert decide(snapshot(workers=tuple(after)), Memory(), rules, START).action == "none"
        else:
            free = sum(2000 - (w.cpu_requested_milli or 0) for w in left) - moved
            assert free >= chosen["headroom_pods"]["count"] * chosen["headroom_pods"]["cpu_milli"]


class TestBeforeTheTermination:
    NODES = tuple(
        inspected_node(f"i-{n}", cpu_allocatable_milli=2000, cpu_requested_milli=requested)
        for n, requested in enumerate((0, 500, 1100))
    )

    @pytest.mark.parametrize(
        ("settings", "staying", "expected"),
        [
            ({}, (), ""),
            ({"headroom_workers": 1}, ("i-1", "i-2"), ""),
            ({"headroom_workers": 2}, ("i-1", "i-2"), "headroom would be 1.3 workers, under 2"),
            ({"headroom_workers": 1}, (), "headroom would be 0.0 workers, under 1"),
            ({"headroom_pods": {**PODS, "count": 4}}, ("i-1", "i-2"), ""),
            (
                {"headroom_pods": {**PODS, "count": 5}},
                ("i-1", "i-2"),
                "headroom would be 4 of 5 pods of 500m CPU and 400 MiB",
            ),
        ],
    )
    def test_the_headroom_is_compared_with_what_the_server_shows(
        self, settings: dict[str, Any], staying: tuple[str, ...], expected: str
    ) -> None:
        inspection = Inspection(known=True, nodes=self.NODES)
        assert missing_headroom(policy(**settings), inspection, frozenset(staying)) == expected

    @pytest.mark.parametrize(
        ("settings", "figures", "expected"),
        [
            ({"headroom_workers": 1}, {"memory_requested_mib": 950}, ""),
            ({"headroom_workers": 1}, {"memory_requested_mib": 1200}, "headroom would be 0.8 workers, under 1"),
            ({"headroom_workers": 1}, {"memory_requested_mib": 2500}, "headroom would be 0.0 workers, under 1"),
            ({"headroom_pods": {**PODS, "count": 6}}, {"memory_requested_mib": 700}, ""),
            (
                {"headroom_pods": {**PODS, "count": 6}},
                {"memory_requested_mib": 701},
                "headroom would be 4 of 6 pods of 500m CPU and 400 MiB",
            ),
            ({"headroom_pods": {**PODS, "count": 6}}, {"pods_allocatable": 6}, ""),
            (
                {"headroom_pods": {**PODS, "count": 6}},
                {"pods_allocatable": 5},
                "headroom would be 4 of 6 pods of 500m CPU and 400 MiB",
            ),
            (
                {"headroom_pods": {**PODS, "count": 1}},
                {"pods_allocatable": 2},
                "headroom would be 0 of 1 pod of 500m CPU and 400 MiB",
            ),
        ],
        ids=[
            "memory",
            "less memory",
            "no memory",
            "pods by memory",
            "1 MiB less",
            "places",
            "1 place less",
            "no place",
        ],
    )
    def test_memory_and_places_count_as_cpu_does(
        self, settings: dict[str, Any], figures: dict[str, int], expected: str
    ) -> None:
        idle_cpu = {"cpu_requested_milli": 0, "memory_requested_mib": 0, "pods_to_move": 2, "daemon_pods": 1}
        nodes = tuple(inspected_node(f"i-{n}", **{**idle_cpu, **figures}) for n in range(2))
        seen = Inspection(known=True, nodes=nodes)
        assert missing_headroom(policy(**settings), seen, frozenset({"i-0", "i-1"})) == expected


def test_it_is_priced_by_the_wanted_share_of_spot() -> None:
    tariff = Tariff(prices=PriceList.shipped("ap-southeast-1"))
    spot, on_demand = (tariff.hour("t3.small", market, 0.0).usd * 730 for market in ("spot", "on-demand"))
    assert headroom_month(tariff, "t3.small", 70, 2).usd == pytest.approx(2 * (0.7 * spot + 0.3 * on_demand))
    assert headroom_month(tariff, "t3.small", 0, 0.5).usd == pytest.approx(0.5 * on_demand)
    assert headroom_month(tariff, "t3.small", 70, 0).usd == 0
