"""Each hard predicate of the Kubernetes scheduler, at its boundary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_fleet.domain.fit.demand import amount_of, demand_of, expression_holds, requests_of, selects, tolerates
from node_fleet.domain.fit.placement import Misfit, Node, Placement, Pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node(name: str, zone: str = "a", **changed: Any) -> Node:
    given = {"allocatable": {"cpu": 2000, "memory": 2**31, "pods": 10}, "labels": {HOST: name, ZONE: zone}, **changed}
    return Node(name, **given)


def pod(name: str = "web", cpu: str = "100m", *, volumes: Any = (), **spec: Any) -> Pod:
    """A pod of the application of that name; its spec by keyword."""
    containers = [{"resources": {"requests": {"cpu": cpu}}, "ports": spec.pop("ports", [])}]
    metadata = {"name": name, "namespace": "shop", "labels": {"app": name.partition("-")[0]}}
    return Pod(name, demand_of({"metadata": metadata, "spec": {"containers": containers, **spec}}, volumes))


def beside(app: str, key: str = HOST, *, anti: bool = False, **term: Any) -> dict[str, Any]:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **term}]
    return {"affinity": {"podAntiAffinity" if anti else "podAffinity": {REQUIRED: terms}}}


def spread(most: int = 1, key: str = ZONE, **changed: Any) -> dict[str, Any]:
    constraint = {"maxSkew": most, "topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **changed}
    return {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", **constraint}]}


def refusal(given: Pod, on: Node, *others: tuple[Pod, Node]) -> str:
    """Why the pod does not fit on the node while the others run."""
    placement = Placement({on, *(n for _, n in others)})
    for other, where in others:
        placement.add(other, where)
    return placement.refusal(given, on, placement.rules_for(given))


@pytest.mark.parametrize(
    ("resource", "quantity", "amount"),
    [
        ("cpu", "250m", 250),
        ("cpu", "0.5", 500),
        ("cpu", "2", 2000),
        ("cpu", "100u", 1),
        ("memory", "1Gi", 2**30),
        ("memory", "128Mi", 2**27),
        ("memory", "1k", 1000),
        ("memory", "1e3", 1000),
        ("memory", "1E", 10**18),
        ("memory", "1500m", 2),
        ("memory", "5.", 5),
        ("memory", ".5Ki", 512),
        ("nvidia.com/gpu", "1", 1),
    ],
)
def test_a_quantity_is_rounded_up(resource: str, quantity: str, amount: int) -> None:
    assert amount_of(resource, quantity) == amount


@pytest.mark.parametrize("quantity", ["", "one", "1Qi", "m", ".", ".E0", "1.2.3", "+", "E3"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        amount_of("cpu", quantity)


def test_a_quantity_beyond_those_of_kubernetes_is_refused() -> None:
    assert amount_of("memory", "9.9e18") == 99 * 10**17
    with pytest.raises(ValueError, match="'1e19' is larger than any quantity of Kubernetes"):
        amount_of("memory", "1e19")


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"requests": {"a": "0", "b": "1"}}}]},
        {"containers": [{}], "resources": {"requests": {"a": "0", "b": "1"}}},
        {"containers": [{}], "overhead": {"a": "0", "b": "1"}},
    ],
    ids=["a container", "the whole pod", "its overhead"],
)
def test_a_request_of_nothing_asks_no_node_for_the_resource(spec: dict[str, Any]) -> None:
    assert requests_of(spec) == {"pods": 1, "b": 1}


def test_requests_are_those_of_the_largest_step_of_the_pod_and_its_overhead() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = container("100m", restartPolicy="Always")
    main = [container("200m"), container("300m")]
    cpu = [
        requests_of(spec).get("cpu")
        for spec in (
            {"containers": main},
            {"containers": main, "initContainers": [container("400m")]},
            {"containers": main, "initContainers": [container("700m")]},
            {"containers": main, "initContainers": [sidecar, container("550m")]},
            {"containers": main, "initContainers": [container("550m"), sidecar]},
            {"containers": main, "overhead": {"cpu": "50m"}},
            {"containers": main, "resources": {"requests": {"cpu": "800m"}}},
            {"containers": [{"resources": {"limits": {"cpu": "1"}}}]},
            {"containers": [{}]},
        )
    ]
    assert cpu == [500, 500, 700, 650, 600, 550, 800, 1000, None]
    assert requests_of({"containers": [{}]}) == {"pods": 1}


@pytest.mark.parametrize(
    ("operator", "values", "holds"),
    [
        ("In", ["5"], True),
        ("NotIn", ["5"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["4"], True),
        ("Gt", ["5"], False),
        ("Lt", ["6"], True),
        ("Lt", ["5"], False),
    ],
)
def test_operators_of_selectors(operator: str, values: list[str], holds: bool) -> None:
    expression = {"key": "size", "operator": operator, "values": values}
    assert expression_holds(expression, {"size": "5"}) is holds
    assert expression_holds(expression, {}) is (operator in ("NotIn", "DoesNotExist"))


@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_a_label_that_is_not_a_whole_number_is_neither_greater_nor_less(operator: str) -> None:
    assert not expression_holds({"key": "app", "operator": operator, "values": ["5"]}, {"app": "web"})


def test_an_unknown_operator_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="Near"):
        selects({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {"a": "b"})


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "data"}, True),
        ({"key": "team", "value": "data", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "data", "effect": "NoExecute"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "team", "operator": "Gt", "value": "1"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], matches: bool) -> None:
    taint = {"key": "team", "value": "data", "effect": "NoSchedule"}
    assert tolerates([toleration], taint) is matches
    on = node("n1", taints=[taint])
    assert refusal(pod(tolerations=[toleration]), on) == ("" if matches else "taints")


def test_a_taint_that_only_prefers_is_ignored() -> None:
    assert refusal(pod(), node("n1", taints=[{"key": "team", "effect": "PreferNoSchedule"}])) == ""


@pytest.mark.parametrize(
    ("resource", "quantity", "refused"),
    [
        ("cpu", "2", ""),
        ("cpu", "2001m", "cpu"),
        ("memory", "2Gi", ""),
        ("memory", "2049Mi", "memory"),
        ("gpu", "1", "gpu"),
    ],
)
def test_a_request_fits_up_to_what_is_free(resource: str, quantity: str, refused: str) -> None:
    asking = Pod(
        "web", demand_of({"metadata": {}, "spec": {"containers": [{"resources": {"requests": {resource: quantity}}}]}})
    )
    assert refusal(asking, node("n1")) == refused


def test_the_number_of_pods_is_limited() -> None:
    on = node("n1", allocatable={"cpu": 2000, "pods": 1})
    assert refusal(pod(), on) == ""
    assert refusal(pod(), on, (pod("other"), on)) == "pods"


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"nodeSelector": {ZONE: "a"}}, ""),
        ({"nodeSelector": {ZONE: "b"}}, "affinity"),
        ({"nodeSelector": {"disk": "ssd"}}, "affinity"),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}, "affinity"),
        ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}, "affinity"),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}}, ""),
    ],
)
def test_node_selector_and_required_node_affinity(spec: dict[str, Any], refused: str) -> None:
    assert refusal(pod(**spec), node("n1")) == refused


@pytest.mark.parametrize(("fields", "refused"), [(["n1"], ""), (["n2"], "affinity")])
def test_node_affinity_by_name_and_one_of_several_terms(fields: list[str], refused: str) -> None:
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": fields}]},
    ]
    assert refusal(pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}), node("n1")) == refused


def test_a_volume_must_be_reachable_from_the_node() -> None:
    in_b = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]
    assert refusal(pod(volumes=[in_b]), node("n1")) == "volume"
    assert refusal(pod(volumes=[in_b]), node("n1", "b")) == ""


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        ({"hostPort": 80}, "ports"),
        ({"hostPort": 80, "hostIP": "0.0.0.0"}, "ports"),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, "ports"),
        ({"hostPort": 80, "protocol": "TCP"}, "ports"),
        ({"hostPort": 80, "protocol": "UDP"}, ""),
        ({"hostPort": 81}, ""),
        ({"containerPort": 80}, ""),
    ],
)
def test_a_host_port_is_held_once(other: dict[str, Any], refused: str) -> None:
    on = node("n1")
    assert refusal(pod(ports=[{"hostPort": 80}]), on, (pod("other", ports=[other]), on)) == refused


@pytest.mark.parametrize(
    ("one", "other", "refused"),
    [
        ("10.0.0.1", "10.0.0.1", "ports"),
        ("10.0.0.1", "10.0.0.2", ""),
        ("10.0.0.1", "0.0.0.0", "ports"),
        ("10.0.0.1", "", "ports"),
        ("0.0.0.0", "10.0.0.2", "ports"),
    ],
)
def test_two_pods_share_a_host_port_only_at_different_addresses(one: str, other: str, refused: str) -> None:
    needed, held = ([{"hostPort": 80, "hostIP": address}] for address in (one, other))
    on = node("n1")
    assert refusal(pod(ports=needed), on, (pod("other", ports=held), on)) == refused


def test_a_port_of_udp_is_held_for_udp() -> None:
    on, ports = node("n1"), [{"hostPort": 53, "protocol": "UDP"}]
    assert refusal(pod(ports=ports), on, (pod("other", ports=ports), on)) == "ports"


def test_pod_affinity_needs_a_matching_pod_in_the_same_place() -> None:
    first, second = node("n1"), node("n2")
    assert refusal(pod(**beside("db")), first, (pod("db"), first)) == ""
    assert refusal(pod(**beside("db")), second, (pod("db"), first)) == "pod-affinity"
    assert refusal(pod(**beside("db", ZONE)), second, (pod("db"), first)) == ""
    assert refusal(pod(**beside("db")), node("n3")) == "pod-affinity"


def test_the_first_pod_of_a_group_that_matches_itself_starts_anywhere_with_the_label() -> None:
    assert refusal(pod(**beside("web")), node("n1")) == ""
    assert refusal(pod(**beside("web", "rack")), node("n1")) == "pod-affinity"


@pytest.mark.parametrize(
    ("term", "refused"),
    [
        ({}, "pod-affinity"),
        ({"namespaces": ["data"]}, ""),
        ({"namespaceSelector": {}}, ""),
    ],
)
def test_pod_affinity_looks_into_its_own_namespace_unless_described(term: dict[str, Any], refused: str) -> None:
    on, other = node("n1"), pod("db")
    other.demand["namespace"] = "data"
    assert refusal(pod(**beside("db", **term)), on, (other, on)) == refused


def test_affinity_that_selects_namespaces_by_labels_cannot_be_judged_and_anti_affinity_covers_all() -> None:
    chosen = {"namespaceSelector": {"matchLabels": {"team": "data"}}}
    with pytest.raises(ValueError, match="namespaces by their labels"):
        pod(**beside("db", **chosen))
    on, other = node("n1"), pod("db")
    other.demand["namespace"] = "elsewhere"
    assert refusal(pod(**beside("db", anti=True, **chosen)), on, (other, on)) == "anti-affinity"


def test_anti_affinity_holds_for_the_pod_that_comes_and_for_the_pod_that_runs() -> None:
    first, second, away = node("n1"), node("n2"), node("n3", "b")
    apart, plain = beside("db", ZONE, anti=True), pod("db")
    assert refusal(pod(**apart), second, (plain, first)) == "anti-affinity"
    assert refusal(pod(**apart), away, (plain, first)) == ""
    assert refusal(plain, second, (pod(**apart), first)) == "anti-affinity"
    assert refusal(pod("cache"), second, (pod(**apart), first)) == ""


@pytest.mark.parametrize("keys", [("rack", HOST), (HOST, "rack")])
def test_a_term_about_a_label_that_the_node_lacks_does_not_hide_the_next_one(keys: tuple[str, str]) -> None:
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": {"app": "db"}}} for key in keys]
    apart = pod(affinity={"podAntiAffinity": {REQUIRED: terms}})
    racked = Node("n2", {HOST: "n2", "rack": "r1"}, dict(node("n2").allocatable), ())
    first = node("n1")
    assert refusal(apart, first, (pod("db"), first), (pod("db"), racked)) == "anti-affinity"


@pytest.mark.parametrize(
    ("constraint", "refused"),
    [
        (spread(1), "spread"),
        (spread(2), ""),
        (spread(1, whenUnsatisfiable="ScheduleAnyway"), ""),
        (spread(2, minDomains=3), ""),
        (spread(1, minDomains=3), "spread"),
        (spread(1, "rack"), "spread"),
        (spread(1, labelSelector={"matchLabels": {"app": "db"}}), ""),
        (spread(1, labelSelector={}), ""),
        (spread(1, labelSelector={}, matchLabelKeys=["app"]), "spread"),
        (spread(1, labelSelector={}, matchLabelKeys=["version"]), ""),
        (spread(1, labelSelector=None, matchLabelKeys=["app"]), ""),
    ],
)
def test_spread_limits_the_skew_over_the_emptiest_place(constraint: dict[str, Any], refused: str) -> None:
    """One pod runs in zone a, none in zone b; the next comes to zone a."""
    first, second = node("n1"), node("n2", "b")
    assert refusal(pod("web-2", **constraint), first, (pod("web-1"), first), (pod("db"), second)) == refused


@pytest.mark.parametrize(("policy", "refused"), [({}, "spread"), ({"nodeTaintsPolicy": "Honor"}, "")])
def test_a_cordoned_node_counts_for_spread_unless_the_constraint_honors_taints(
    policy: dict[str, str], refused: str
) -> None:
    first, cordoned = node("n1"), node("n2", "b", is_open=False)
    given = pod("web-2", **spread(1, **policy))
    assert refusal(given, first, (pod("web-1"), first), (pod("db"), cordoned)) == refused


IN_ZONE_A = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("policy", "demand", "refused"),
    [
        ({}, {}, "spread"),
        ({}, {"nodeSelector": {ZONE: "a"}}, ""),
        ({"nodeAffinityPolicy": "Ignore"}, {"nodeSelector": {ZONE: "a"}}, "spread"),
        ({}, {"volumes": [IN_ZONE_A]}, "spread"),
    ],
)
def test_a_place_that_the_node_affinity_excludes_does_not_count_for_spread_and_one_of_a_volume_does(
    policy: dict[str, str], demand: dict[str, Any], refused: str
) -> None:
    """One pod runs in zone a, none in zone b; the next comes to zone a."""
    first, second = node("n1"), node("n2", "b")
    given = pod("web-2", **spread(1, **policy), **demand)
    assert refusal(given, first, (pod("web-1"), first), (pod("db"), second)) == refused


@pytest.mark.parametrize("lacking", ["cpu", "memory", "pods"])
def test_no_pod_is_placed_on_a_node_that_does_not_state_a_resource(lacking: str) -> None:
    amounts = {resource: 5 for resource in ("cpu", "memory", "pods") if resource != lacking}
    given = Pod("web", {"requests": {"cpu": 1, "memory": 1, "pods": 1}})
    only = node("n1", allocatable=amounts)
    assert Placement([only]).fill(given, only, 3) == 0
    assert Placement([node("n2")]).fill(given, node("n2"), 3) == 3


def test_a_resource_that_no_node_states_is_missing_in_full() -> None:
    wanted, gpu = Pod("web", {"requests": {"cpu": 1, "nvidia.com/gpu": 1}}), "nvidia.com/gpu"
    assert refusal(wanted, node("n1")) == gpu
    assert described(Placement([node("n1")]).misfit([wanted], [node("n1")])) == ("web", gpu, "1", "0", False)


def test_a_pod_that_is_taken_off_a_node_counts_for_nothing_there() -> None:
    first, second, gone = node("n1"), node("n2", "b"), pod("web-1", "300m", ports=[{"hostPort": 80}])
    placement = Placement([first, second])
    placement.add(gone, first)
    placement.remove(gone, first)
    assert (first.free, first.pods) == (dict(node("n1").allocatable), [])
    for other in (pod("web-2", **spread(1)), pod("db", **beside("web", anti=True)), pod("x", ports=[{"hostPort": 80}])):
        assert placement.refusal(other, first, placement.rules_for(other)) == ""


def test_pods_that_are_being_deleted_do_not_count_for_spread() -> None:
    first, second = node("n1"), node("n2", "b")
    placement, leaving, given = Placement([first, second]), pod("web-1"), pod("web-2", **spread(1))
    placement.add(leaving, first)
    assert placement.refusal(given, first, placement.rules_for(given)) == "spread"
    placement.leaving = [(leaving, first)]
    assert placement.refusal(given, first, placement.rules_for(given)) == ""


def test_nothing_fits_on_a_closed_node() -> None:
    assert refusal(pod(), node("n1", is_open=False)) == "nodes"


def described(misfit: Misfit | None) -> tuple[str, str, str, str, bool] | None:
    return misfit and (misfit.pod, misfit.predicate, misfit.requested, misfit.free, misfit.together)


def test_a_misfit_names_pod_predicate_and_amounts() -> None:
    nodes = [node("n1", allocatable={"cpu": 800, "pods": 9}), node("n2", allocatable={"cpu": 900, "pods": 9})]
    placement = Placement(nodes)
    assert described(placement.misfit([pod("big", "1")], nodes)) == ("big", "cpu", "1000m", "900m", False)
    three = [pod(name, "500m") for name in "abc"]
    assert described(placement.misfit(three, nodes)) == ("c", "cpu", "500m", "400m", True)
    assert described(placement.misfit([pod("a")], [])) == ("a", "nodes", "", "", False)
    assert placement.misfit([], []) is None
    assert [n.free["cpu"] for n in nodes] == [800, 900]


def test_pods_that_fit_only_in_one_order_do_not_fit() -> None:
    """900m must come first: a small pod on each node would leave no space for it."""
    nodes = [node("n1", allocatable={"cpu": 950, "pods": 9}), node("n2", allocatable={"cpu": 950, "pods": 9})]
    found = Placement(nodes).misfit([pod("big", "900m"), pod("a"), pod("b")], nodes)
    assert described(found) == ("big", "cpu", "900m", "850m", True)


def test_a_pod_may_wait_for_the_one_that_it_must_run_beside() -> None:
    nodes = [node("n1"), node("n2")]
    assert Placement(nodes).misfit([pod("web", "500m", **beside("db")), pod("db", "100m")], nodes) is None


def test_a_pod_without_a_node_is_named_before_one_that_waits_for_another() -> None:
    nodes = [node("n1")]
    found = Placement(nodes).misfit([pod("app", "10m", **beside("db")), pod("big", "3")], nodes)
    assert described(found) == ("big", "cpu", "3000m", "2000m", False)


def test_the_fit_of_pods_is_certain_only_when_none_depends_on_where_another_is() -> None:
    nodes = [node("n1"), node("n2")]
    assert Placement(nodes).is_certain([pod("a"), pod("b")], nodes)
    assert not Placement(nodes).is_certain([pod("a"), pod("web", **beside("db"))], nodes)
    assert not Placement(nodes).is_certain([pod("a")], [])


@pytest.mark.parametrize(("cpu", "pods", "certain"), [(3, 9, 6), (3, 3, 3), (9, 3, 6), (5, 5, 5), (0, 9, 0)])
def test_the_fit_is_certain_until_the_other_pods_can_fill_every_node(cpu: int, pods: int, certain: int) -> None:
    nodes = [node(name, allocatable={"cpu": cpu, "pods": pods}) for name in ("n1", "n2")]
    fits = [Placement(nodes).is_certain([pod(f"p{n}", "1m") for n in range(count)], nodes) for count in range(1, 9)]
    assert fits == [count <= certain for count in range(1, 9)]


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6),
    free=st.lists(st.integers(100, 2000), min_size=1, max_size=4),
    choices=st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_when_the_fit_is_certain_no_order_and_no_choice_fails(
    sizes: list[int], free: list[int], choices: list[int]
) -> None:
    nodes = [node(f"n{i}", allocatable={"cpu": amount, "pods": 9}) for i, amount in enumerate(free)]
    placement, pods = Placement(nodes), [pod(f"p{i}", f"{size}m") for i, size in enumerate(sizes)]
    if not placement.is_certain(pods, nodes):
        return
    for each, choice in zip(pods, choices, strict=False):
        fitting = [n for n in nodes if not placement.refusal(each, n, ())]
        assert fitting
        placement.add(each, fitting[choice % len(fitting)])


@given(count=st.integers(0, 30), cpu=st.integers(1, 700), free=st.integers(0, 3000))
def test_filling_places_as_many_pods_as_fit_one_by_one(count: int, cpu: int, free: int) -> None:
    bulk, single = (node("n1", allocatable={"cpu": free, "pods": 12}) for _ in range(2))
    placed = Placement([bulk]).fill(pod("web", f"{cpu}m"), bulk, count)
    one_by_one = Placement([single]).fill(pod("web", f"{cpu}m", ports=[{"hostPort": 1}]), single, min(count, 1))
    assert placed == min(count, free // cpu, 12)
    assert one_by_one == min(count, free // cpu, 1)
