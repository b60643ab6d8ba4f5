"""Who may be removed: every rule keeps its worker, with the reason an operator reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node_fleet.domain.model.fleet_state import Protection
from node_fleet.domain.model.memory import BackOff
from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.blocker_reasons import REASONS
from node_fleet.domain.scale_down.eligibility import judge_workers
from node_fleet.domain.scale_down.inspection import Blocker, InspectedNode, Inspection
from tests.support.inspected_nodes import inspected_node, machine

ID = "i-0123456789abcdef0"
NOW = 1_000_000


def node(instance_id: str = ID, **changed: object) -> InspectedNode:
    return inspected_node(instance_id, **changed)


def instance(instance_id: str = ID, **changed: object) -> Instance:
    return machine(instance_id, **changed)


def reason(seen: InspectedNode, *, machine: Instance | None = None, **rules: object) -> str:
    """The reason for the one worker; empty when it is eligible."""
    given: dict[str, object] = {"under_notice": frozenset(), "back_offs": (), "now": NOW, **rules}
    machines = (machine or instance(),) if machine is not None or "machines" not in rules else ()
    given.pop("machines", None)
    result = judge_workers(Inspection(known=True, nodes=(seen,)), machines, **given)  # type: ignore[arg-type]
    return result.kept[0].reason if result.kept else ""


def blocked(letter: str, budget: str = "") -> InspectedNode:
    return node(blockers=(Blocker(pod="shop/orders-db-0", letter=letter, detail=budget),))


PROTECTED = {"protections": {ID: Protection(instance_id=ID, by="ana", since=NOW, until=1_790_000_000)}}

KEPT = [
    (node(), PROTECTED, "it is protected by ana until 2026-09-21 14:13 UTC"),
    (node(), {**PROTECTED, "under_notice": frozenset({ID})}, "it is under interruption notice"),
    (blocked("s"), PROTECTED, "it is protected by ana"),
    (node(ready=False), {**PROTECTED, "not_ready": ID}, ""),
    (node(server=True), {}, "it is the server"),
    (node(), {"machines": ()}, "it is not managed by node-fleet"),
    (node(instance_id=""), {}, "it is not managed by node-fleet"),
    (node(), {"machine": instance(under_notice=True)}, "it is under interruption notice"),
    (node(), {"under_notice": frozenset({ID})}, "it is under interruption notice"),
    (node(cordoned=True), {}, "another user cordoned it"),
    (node(cordoned=True, cordoned_by="?"), {}, "another user cordoned it"),
    (node(cordoned=True, cordoned_by="down-9-1"), {}, "it is still cordoned by operation down-9-1"),
    (node(protected_by="karpenter.sh/do-not-disrupt"), {}, "it is annotated karpenter.sh/do-not-disrupt"),
    (node(ready=False), {}, "it is not ready"),
    (node(tainted=True), {}, "it does not accept pods yet"),
    (node(), {"machine": instance(state="pending")}, "its instance is pending"),
    (node(), {"back_offs": (BackOff(key=f"node:{ID}", failures=1, until=NOW + 60),)}, "in back-off for another 60 s"),
    (blocked("k"), {}, "shop/orders-db-0 is a kube-system pod of no DaemonSet"),
    (blocked("s"), {}, "shop/orders-db-0 is a StatefulSet pod"),
    (blocked("d"), {}, "shop/orders-db-0 is the only replica of its Deployment"),
    (blocked("c"), {}, "shop/orders-db-0 has no controller"),
    (blocked("g"), {}, "belongs to a controller that does not exist"),
    (blocked("v"), {}, "uses a volume that exists on this node only"),
    (blocked("n"), {}, 'is annotated safe-to-evict "false"'),
    (blocked("x"), {}, "is annotated karpenter.sh/do-not-disrupt"),
    (blocked("p", "orders"), {}, "allows no disruption now (budget orders)"),
    (
        blocked("d", "paused"),
        {},
        "Deployment, which cannot get a second pod first: it is paused",
    ),
    (blocked("t", "orders"), {}, "is under two PodDisruptionBudgets"),
    (blocked("e", "12"), {}, "shop/orders-db-0 has been terminating for 12 min"),
    (blocked("o"), {}, "tolerates a cordon"),
    (blocked("w"), {}, 'safe-to-evict "on-completion"'),
    (
        blocked("f", "1000m/900m/alone/cpu"),
        {},
        "shop/orders-db-0 requests 1000m CPU, most free elsewhere is 900m",
    ),
    (
        blocked("f", "1/0/together/nvidia.com/gpu"),
        {},
        "requests 1 nvidia.com/gpu, most free elsewhere is 0 once the other pods of this worker run there",
    ),
    (blocked("f", "-/-/alone/volume"), {}, "uses a volume that no other worker can attach"),
    (blocked("f", "1/0/alone/pods"), {}, "finds no other worker below its maximum number of pods"),
    (blocked("f", "-/-/alone/time"), {}, "the inspection reached its time limit"),
    (blocked("u"), {}, "cannot be judged"),
    (blocked("z"), {}, "cannot be judged"),
    (node(more_blockers=3), {}, "3 of its pods and claims keep it"),
    (replace(blocked("s"), more_blockers=3), {}, "is a StatefulSet pod, and 3 more"),
    (node(blockers=blocked("s").blockers * 2), {}, "is a StatefulSet pod, and 1 more"),
    (node(blockers=blocked("s").blockers * 3, more_blockers=4), {}, "is a StatefulSet pod, and 6 more"),
    (blocked("b", "pvc-1"), {}, "claim shop/orders-db-0 is bound to a volume that no other node can attach: pvc-1"),
    (node(), {"set_aside": frozenset({ID})}, "its removal is set aside"),
]


@pytest.mark.parametrize(("seen", "rules", "words"), KEPT)
def test_each_rule_keeps_its_worker_and_says_why(seen: InspectedNode, rules: dict[str, object], words: str) -> None:
    found = reason(seen, **rules)  # type: ignore[arg-type]
    assert words in found and (", and " in found) is (", and " in words)


def test_a_worker_that_was_to_be_replaced_and_is_ready_again_stays() -> None:
    assert reason(node(ready=True), not_ready=ID) == "it is ready again"
    assert reason(node(ready=False), not_ready=ID) == ""


def test_lost_pods_that_the_answer_only_counts_do_not_keep_a_dead_worker() -> None:
    lost = replace(blocked("s"), ready=False, more_blockers=7)
    assert reason(lost, not_ready=ID) == ""
    assert reason(replace(lost, more_lasting=2), not_ready=ID) == "2 of its pods and claims keep it"


def test_the_operators_sentence() -> None:
    judged = judge_workers(
        Inspection(known=True, nodes=(blocked("s"),)), (instance(),), under_notice=frozenset(), back_offs=(), now=NOW
    )
    assert judged.kept[0].sentence == f"worker {ID}: kept, shop/orders-db-0 is a StatefulSet pod"


@pytest.mark.parametrize(
    ("predicate", "to_spot", "is_kept"),
    [
        ("affinity", True, True),
        ("taints", True, True),
        ("market", True, True),
        ("cpu", True, False),
        ("market", False, False),
    ],
)
def test_a_pod_that_may_select_on_demand_keeps_its_worker_from_a_return_to_spot(
    predicate: str, to_spot: bool, is_kept: bool
) -> None:
    seen = blocked("f", f"-/-/alone/{predicate}")
    assert bool(reason(seen, before_launch=True, to_spot=to_spot)) is is_kept


def test_a_worker_that_nothing_speaks_against_may_go() -> None:
    assert reason(node()) == ""


@pytest.mark.parametrize(("until", "kept"), [(NOW, False), (NOW + 1, True)])
def test_a_back_off_ends_exactly_at_its_time(until: int, kept: bool) -> None:
    assert bool(reason(node(), back_offs=(BackOff(key=f"node:{ID}", failures=2, until=until),))) is kept


def test_instances_without_a_node_are_in_flight_and_kept() -> None:
    young = instance("i-0aaaaaaaaaaaaaaaa")
    judged = judge_workers(
        Inspection(known=True, nodes=(node(),)), (instance(), young), under_notice=frozenset(), back_offs=(), now=NOW
    )
    assert [(k.instance_id, k.reason) for k in judged.kept] == [
        (young.instance_id, "it has not joined the cluster yet")
    ]
    assert judged.usable == (ID,)


def test_workers_that_the_answer_left_out_are_kept() -> None:
    judged = judge_workers(
        Inspection(known=True, nodes=(), left_out=1), (instance(),), under_notice=frozenset(), back_offs=(), now=NOW
    )
    assert judged.kept[0].reason == "it did not fit into the answer of the server"


@pytest.mark.parametrize("first", [{"zone": "elsewhere"}, {"node_name": "other"}], ids=["EC2", "two Nodes"])
def test_an_instance_with_a_disputed_node_is_kept_once_with_the_reason_and_counts_for_the_balance_only(
    first: dict[str, str],
) -> None:
    other = instance("i-0aaaaaaaaaaaaaaaa")
    nodes = (node(), node(other.instance_id, **first), *([node(other.instance_id)] if "node_name" in first else []))
    judged = judge_workers(
        Inspection(known=True, nodes=nodes), (instance(), other), under_notice=frozenset(), back_offs=(), now=NOW
    )
    assert list(judged.disputed) == [other.instance_id]
    sentence = judged.disputed[other.instance_id].sentence
    assert [(kept.instance_id, kept.reason) for kept in judged.kept] == [(other.instance_id, sentence)]
    assert [candidate.instance.instance_id for candidate in judged.candidates] == [ID]
    assert (judged.usable, judged.kept_places) == ((ID,), ((other.zone, other.market),))


@pytest.mark.parametrize("unusable", [{"ready": False}, {"cordoned": True}, {"tainted": True}])
def test_usable_are_workers_that_take_pods_now(unusable: dict[str, object]) -> None:
    other = "i-0aaaaaaaaaaaaaaaa"
    judged = judge_workers(
        Inspection(known=True, nodes=(node(), node(other, **unusable))),
        (instance(), instance(other)),
        under_notice=frozenset(),
        back_offs=(),
        now=NOW,
    )
    assert judged.usable == (ID,)


@pytest.mark.parametrize("letter", sorted(REASONS))
def test_a_dead_worker_is_kept_only_by_what_cannot_be_lost(letter: str) -> None:
    seen = replace(blocked(letter), ready=False, tainted=True)
    assert bool(reason(seen, not_ready=ID)) is (letter in "bvnxu")
    assert reason(seen, not_ready="i-0aaaaaaaaaaaaaaaa") == "it is not ready"


@pytest.mark.parametrize(
    "rule",
    [{"cordoned": True}, {"protected_by": "karpenter.sh/do-not-disrupt"}, {"more_blockers": 1, "more_lasting": 1}],
)
def test_a_dead_worker_keeps_its_other_protections(rule: dict[str, object]) -> None:
    assert reason(node(ready=False, **rule), not_ready=ID)


def test_the_places_of_kept_workers_count_for_the_balance_and_those_under_notice_do_not() -> None:
    names = [ID, *(f"i-0{letter * 16}" for letter in "abcd")]
    crew = (
        instance(names[0]),
        instance(names[1], zone="b", market="spot"),
        instance(names[2], zone="c", under_notice=True),
        instance(names[3], zone="c"),
        instance(names[4], zone="d"),
    )
    seen = (node(), node(names[1], zone="b", cordoned=True), node(names[2], zone="c"), node(names[3], zone="c"))
    judged = judge_workers(
        Inspection(known=True, nodes=seen),
        crew,
        under_notice=frozenset({names[3]}),
        back_offs=(),
        now=NOW,
        cpu_percent={ID: 40.0},
    )
    assert [(c.instance.instance_id, c.idle_percent) for c in judged.candidates] == [(ID, 60.0)]
    assert (judged.usable, judged.kept_places) == ((ID,), (("b", "spot"), ("d", crew[4].market)))


def test_without_measured_cpu_the_requests_tell_how_idle_a_worker_is() -> None:
    judged = judge_workers(
        Inspection(known=True, nodes=(node(),)), (instance(),), under_notice=frozenset(), back_offs=(), now=NOW
    )
    assert judged.candidates[0].idle_percent == judged.candidates[0].node.idle_cpu_percent


@pytest.mark.parametrize(
    ("allocatable", "requested", "idle"),
    [(0, 0, 0.0), (1, 0, 100.0), (2000, 500, 75.0), (2000, 2000, 0.0), (1, 2, 0.0)],
)
def test_idle_cpu_is_the_share_that_no_pod_requests(allocatable: int, requested: int, idle: float) -> None:
    assert node(cpu_allocatable_milli=allocatable, cpu_requested_milli=requested).idle_cpu_percent == idle


@pytest.mark.parametrize(
    ("when", "end"), [("alone", ""), ("together", " once the other pods of this worker run there")]
)
def test_a_pod_that_fits_nowhere_says_whether_the_others_of_its_worker_are_the_reason(when: str, end: str) -> None:
    found = reason(blocked("f", f"1000m/900m/{when}/cpu"))
    assert found == f"shop/orders-db-0 requests 1000m CPU, most free elsewhere is 900m{end}"


@pytest.mark.parametrize(
    ("shown", "hidden", "more"),
    [(1, 0, ""), (2, 0, ", and 1 more"), (3, 0, ", and 2 more"), (1, 4, ", and 4 more"), (3, 4, ", and 6 more")],
)
def test_of_several_pods_the_first_is_named_and_the_others_are_counted(shown: int, hidden: int, more: str) -> None:
    blockers = tuple(Blocker(pod=f"shop/db-{n}", letter="s", detail="") for n in range(shown))
    seen = node(blockers=blockers, more_blockers=hidden)
    assert reason(seen) == f"shop/db-0 is a StatefulSet pod{more}"
