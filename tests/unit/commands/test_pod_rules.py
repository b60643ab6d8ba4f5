"""Which pods keep their worker: the rules that the inspection and the drain share, and where a volume can be used."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.shipped_scripts import rules

NOW = 1_000_000
ZONE = "topology.kubernetes.io/zone"


def owned_by(kind: str, name: str, version: str = "apps/v1", **more: Any) -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": version, "kind": kind, "name": name, "controller": True, **more}]}


def pod(**metadata: Any) -> dict[str, Any]:
    given = {"name": "web-1", "namespace": "shop", **owned_by("ReplicaSet", "web"), **metadata}
    return {"metadata": given, "spec": metadata.pop("spec", {}), "status": {"phase": "Running"}}


def item(name: str, spec: dict[str, Any] | None = None, namespace: str = "shop", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec or {}}


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def blocker(given: dict[str, Any], **lists: list[dict[str, Any]]) -> str:
    held = {"replicasets": [item("web", {"replicas": 2})], "daemonsets": [], "deployments": [], **lists}
    found: str = rules.Cluster(held, NOW).blocker(given, node("n1"))
    return found


def iso(epoch: int) -> str:
    return f"1970-01-{1 + epoch // 86400:02d}T{epoch % 86400 // 3600:02d}:{epoch % 3600 // 60:02d}:{epoch % 60:02d}Z"


@pytest.mark.parametrize(
    ("above", "letter"),
    [
        (owned_by("Deployment", "web"), ""),
        (owned_by("Rollout", "web", "argoproj.io/v1alpha1"), "d"),
        (owned_by("Deployment", "web", uid="2"), "d"),
        (owned_by("Deployment", "web", uid="1"), ""),
        ({}, "d"),
    ],
)
def test_an_owner_is_known_by_group_kind_name_and_uid(above: dict[str, Any], letter: str) -> None:
    """A Deployment with three replicas has the name of the owner of a ReplicaSet with one."""
    lists = {
        "replicasets": [item("web", {"replicas": 1}, **above)],
        "deployments": [item("web", {"replicas": 3}, uid="1")],
    }
    assert blocker(pod(), **lists) == letter


def test_a_daemon_pod_of_any_group_never_keeps_its_worker_and_may_need_force() -> None:
    lists = {"daemonsets": [item("agent")]}
    cluster = rules.Cluster(lists, NOW)
    ours, gone = pod(**owned_by("DaemonSet", "agent")), pod(**owned_by("DaemonSet", "gone"))
    foreign = pod(**owned_by("DaemonSet", "log", "apps.kruise.io/v1alpha1"))
    assert [blocker(p, **lists) for p in (ours, gone, foreign)] == ["", "", ""]
    assert [cluster.needs_force(p) for p in (ours, gone, foreign)] == [False, True, True]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("true", True),
        ("1h", True),
        ("+1h", True),
        (".5h", True),
        ("0.4h10m", True),
        ("1.h", True),
        ("1800s", False),
        ("29m59s", False),
        ("1799999ms", False),
        ("1800001000us", True),
        ("-1h", False),
        ("0", False),
        ("1", False),
        ("1 h", False),
        ("", False),
    ],
)
def test_go_durations_protect_a_pod_since_its_start(value: str, kept: bool) -> None:
    given = pod(annotations={"karpenter.sh/do-not-disrupt": value})
    given["status"]["startTime"] = iso(NOW - 1800 if value != ".5h" else NOW - 1799)
    assert blocker(given) == ("x" if kept else "")


@pytest.mark.parametrize(("phase", "letter"), [("Running", "w"), ("Pending", "w"), ("Succeeded", "")])
def test_a_pod_that_must_run_to_completion_keeps_its_worker_until_it_has_finished(phase: str, letter: str) -> None:
    given = pod(**owned_by("Job", "batch", "batch/v1"), annotations={rules.SAFE: "on-completion"})
    given["status"]["phase"] = phase
    assert blocker(given) == letter


@pytest.mark.parametrize(
    ("ago", "letter"), [(-20, ""), (30, ""), (31, "e=0"), (59, "e=0"), (60, "e=1"), (3600, "e=60")]
)
def test_a_pod_that_should_have_ended_keeps_its_worker(ago: int, letter: str) -> None:
    assert blocker(pod(deletionTimestamp=iso(NOW - ago))) == letter


@pytest.mark.parametrize(
    ("toleration", "letter"),
    [
        ({"operator": "Exists"}, "o"),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, "o"),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, ""),
        ({"operator": "Exists", "effect": "NoExecute"}, ""),
    ],
)
def test_a_pod_that_tolerates_a_cordon_keeps_its_worker(toleration: dict[str, str], letter: str) -> None:
    assert blocker({**pod(), "spec": {"tolerations": [toleration]}}) == letter


def affinity(key: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def uses(**disk: Any) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    lists = {
        "nodes": [node("n1", **{"rack": "1", ZONE: "a"}), node("n2", **{"rack": "2", ZONE: "b"})],
        "persistentvolumeclaims": [item("data", {"volumeName": "disk"})],
        "persistentvolumes": [item("disk", disk.get("spec"), namespace="", labels=disk.get("labels", {}))],
    }
    return {**pod(), "spec": {"volumes": [volume]}}, lists


@pytest.mark.parametrize(
    ("spec", "letter"),
    [
        (affinity("rack", "1"), "v"),
        (affinity("rack", "1", "2"), ""),
        (affinity("rack", "3", "1"), "v"),
        (affinity(ZONE, "a"), ""),
        (affinity("topology.ebs.csi.aws.com/zone", "a"), ""),
        ({"local": {"path": "/data"}}, "v"),
        ({"csi": {"driver": "ebs.csi.aws.com"}}, ""),
    ],
)
def test_a_volume_that_no_other_node_satisfies_keeps_its_worker_whatever_the_label(
    spec: dict[str, Any], letter: str
) -> None:
    given, lists = uses(spec=spec)
    assert blocker(given, **lists) == letter


@pytest.mark.parametrize(
    ("disk", "terms"),
    [
        ({"spec": affinity(ZONE, "a")}, [affinity(ZONE, "a")["nodeAffinity"]["required"]["nodeSelectorTerms"]]),
        (
            {"labels": {ZONE: "a__b"}},
            [[{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]],
        ),
        ({"spec": {"csi": {}}}, []),
    ],
)
def test_the_places_of_a_volume_are_its_affinity_and_its_zone(disk: dict[str, Any], terms: list[Any]) -> None:
    given, lists = uses(**disk)
    assert rules.Cluster(lists, NOW).volume_terms(given) == terms


def storage_class(name: str, mode: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more.pop("metadata", {})}, "volumeBindingMode": mode, **more}


@pytest.mark.parametrize(
    ("classes", "claim", "terms"),
    [
        ([storage_class("ebs", "WaitForFirstConsumer")], {"storageClassName": "ebs"}, []),
        (
            [
                storage_class(
                    "ebs",
                    "WaitForFirstConsumer",
                    allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}],
                )
            ],
            {"storageClassName": "ebs"},
            [[{"matchExpressions": [{"key": ZONE, "values": ["b"], "operator": "In"}]}]],
        ),
        (
            [storage_class("ebs", "WaitForFirstConsumer", metadata={"annotations": {rules.DEFAULT_CLASS: "true"}})],
            {},
            [],
        ),
    ],
)
def test_a_claim_that_waits_for_its_pod_allows_the_places_of_its_class(
    classes: list[Any], claim: dict[str, Any], terms: list[Any]
) -> None:
    given, lists = uses()
    lists |= {"storageclasses": classes, "persistentvolumeclaims": [item("data", claim)]}
    assert rules.Cluster(lists, NOW).volume_terms(given) == terms


@pytest.mark.parametrize(
    ("classes", "problem"),
    [
        ([], "claim data is not bound"),
        ([storage_class("ebs", "Immediate")], "claim data is not bound"),
        ([storage_class("ebs", "WaitForFirstConsumer", provisioner=rules.BY_HAND)], "claim data is not bound"),
    ],
)
def test_a_claim_that_waits_for_a_volume_is_an_error_with_its_name(classes: list[Any], problem: str) -> None:
    given, lists = uses()
    lists |= {"storageclasses": classes, "persistentvolumeclaims": [item("data", {"storageClassName": "ebs"})]}
    with pytest.raises(ValueError, match=problem):
        rules.Cluster(lists, NOW).volume_terms(given)


@pytest.mark.parametrize(
    ("missing", "problem"),
    [("persistentvolumeclaims", "claim data does not exist"), ("persistentvolumes", "volume of its claim data")],
)
def test_a_claim_or_volume_that_is_missing_is_an_error_and_keeps_the_worker(missing: str, problem: str) -> None:
    given, lists = uses()
    lists[missing] = []
    assert blocker(given, **lists) == "u"
    with pytest.raises(ValueError, match=problem):
        rules.Cluster(lists, NOW).volume_terms(given)


def test_a_volume_of_the_pods_own_is_judged_by_its_class() -> None:
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "ebs"}}}}
    given = {**pod(), "spec": {"volumes": [volume]}}
    known = rules.Cluster({"storageclasses": [storage_class("ebs", "WaitForFirstConsumer")]}, NOW)
    assert known.volume_terms(given) == []
    with pytest.raises(ValueError, match="claim of its own is not bound"):
        rules.Cluster({}, NOW).volume_terms(given)


@pytest.mark.parametrize(
    ("kind", "claims", "letter"),
    [
        ("ephemeral", [item("web-1-tmp", {"volumeName": "disk"})], "v"),
        ("ephemeral", [item("tmp", {"volumeName": "disk"})], ""),
        ("ephemeral", [item("web-1-tmp", {"volumeName": "gone"})], ""),
        ("ephemeral", [], ""),
        ("emptyDir", [item("web-1-tmp", {"volumeName": "disk"})], ""),
    ],
)
def test_a_volume_of_the_pods_own_on_a_disk_of_its_worker_keeps_the_worker(
    kind: str, claims: list[Any], letter: str
) -> None:
    """It lives and ends with its pod, so a missing claim keeps no worker."""
    _, lists = uses(spec={"local": {"path": "/data"}})
    given = {**pod(), "spec": {"volumes": [{"name": "tmp", kind: {}}]}}
    assert blocker(given, **{**lists, "persistentvolumeclaims": claims}) == letter


def budget(name: str, allowed: int, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    selector = {"matchLabels": labels} if labels else {}
    return {**item(name, {"selector": selector}), "status": {"disruptionsAllowed": allowed, **status}}


def test_a_budget_that_shares_any_pod_with_another_keeps_the_workers_of_its_pods() -> None:
    """The pod of our worker is under one budget; another pod of that budget is under two."""
    ours, shared = pod(labels={"app": "web"}), pod(name="web-2", labels={"app": "web", "tier": "front"})
    budgets = [budget("web", 1, {"app": "web"}), budget("front", 1, {"tier": "front"})]
    lists = {"poddisruptionbudgets": budgets, "pods": [ours, shared]}
    assert blocker(ours, **lists) == "q=web"
    assert blocker(shared, **lists) == "t=web"
    assert blocker(ours, **{**lists, "pods": [ours]}) == ""


def test_budgets_of_other_namespaces_do_not_overlap() -> None:
    other = {**budget("web", 1), "metadata": {"name": "web", "namespace": "stage"}}
    assert blocker(pod(), poddisruptionbudgets=[budget("web", 1), other], pods=[pod()]) == ""


def test_a_pod_whose_labels_cannot_be_read_does_not_end_the_inspection() -> None:
    lists = {"poddisruptionbudgets": [budget("web", 1, {"app": "web"})], "pods": [pod(labels=["app"]), pod()]}
    assert blocker(pod(labels={"app": "web"}), **lists) == ""


@pytest.mark.parametrize(("reason", "letter"), [("SyncFailed", "p=web"), ("SufficientPods", "")])
def test_a_budget_whose_status_cannot_be_computed_allows_nothing(reason: str, letter: str) -> None:
    """A budget with a percentage that also selects a Job's pod; an older status may still show room."""
    conditions = [{"type": "DisruptionAllowed", "status": "False", "reason": reason}]
    assert blocker(pod(), poddisruptionbudgets=[budget("web", 1, conditions=conditions)]) == letter


def test_a_term_that_cannot_be_read_for_one_node_is_judged_for_the_others() -> None:
    def is_disk(kind: str) -> dict[str, Any]:
        return {"key": "disk", "operator": "In", "values": [kind]}

    terms = [
        {"matchExpressions": [is_disk("ssd"), {"key": "a", "operator": "Near"}]},
        {"matchExpressions": [is_disk("hdd")]},
    ]
    nodes = [node("n1", disk="ssd"), node("n2", disk="hdd"), node("n3")]
    assert rules.Cluster({"nodes": nodes}, NOW).satisfying(terms) == {"n2"}


@pytest.mark.parametrize(
    ("volumes", "refused"),
    [
        (({"name": "d", "persistentVolumeClaim": {"claimName": "gone"}},), "its claim gone does not exist"),
        (
            ({"name": "d", "persistentVolumeClaim": {"claimName": "lost"}},),
            "the volume of its claim lost cannot be found",
        ),
        (({"name": "d", "persistentVolumeClaim": {"claimName": "waits"}},), "its claim waits is not bound"),
        (({"name": "d", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},), "its claim of its own is not bound"),
        (({"name": "d", "emptyDir": {}},), ""),
        (({"name": "d", "persistentVolumeClaim": {"claimName": "bound"}},), ""),
    ],
)
def test_a_volume_that_cannot_be_judged_is_refused_by_the_name_of_its_claim(
    volumes: tuple[dict[str, Any], ...], refused: str
) -> None:
    claims = [item("lost", {"volumeName": "pv-9"}), item("waits"), item("bound", {"volumeName": "pv-1"})]
    cluster = rules.Cluster({"persistentvolumeclaims": claims, "persistentvolumes": [item("pv-1", namespace="")]}, NOW)
    given = {**pod(), "spec": {"volumes": list(volumes)}}
    if not refused:
        assert cluster.volume_terms(given) == []
        return
    with pytest.raises(ValueError, match=refused):
        cluster.volume_terms(given)


@pytest.mark.parametrize(
    ("given", "name", "terms"),
    [
        ({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "ebs"}, "fast", []),
        ({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "ebs"}, "", None),
        (
            {
                "volumeBindingMode": "WaitForFirstConsumer",
                "provisioner": "ebs",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}],
            },
            "",
            [{"matchExpressions": [{"key": ZONE, "values": ["a"], "operator": "In"}]}],
        ),
        ({"volumeBindingMode": "Immediate", "provisioner": "ebs"}, "fast", None),
        ({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}, "fast", None),
        ({"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "ebs"}, "other", None),
    ],
)
def test_a_claim_that_waits_may_be_created_where_its_storage_class_allows(
    given: dict[str, Any], name: str, terms: list[Any] | None
) -> None:
    metadata = {"name": "fast", "annotations": given.get("annotations", {})}
    kind = {**given, "metadata": metadata}
    cluster = rules.Cluster({"storageclasses": [kind]}, NOW)
    if terms is None:
        with pytest.raises(ValueError, match="its claim data is not bound"):
            cluster.class_terms(name, "data")
    else:
        assert cluster.class_terms(name, "data") == terms


def test_a_budget_that_cannot_be_read_hides_no_overlap_in_another_namespace() -> None:
    wide = {"selector": {"matchLabels": {}}}
    lists = {
        "pods": [pod(namespace="broken"), pod()],
        "poddisruptionbudgets": [
            item("odd", {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, namespace="broken"),
            *(item(name, wide) for name in ("one", "two")),
        ],
    }
    assert rules.Cluster(lists, NOW).overlapping == {("shop", "one"), ("shop", "two")}


MIRROR = {"kubernetes.io/config.mirror": "x"}


@pytest.mark.parametrize(
    ("marks", "owner", "phase", "forced"),
    [
        ({rules.SAFE: "true"}, {"ownerReferences": []}, "Running", True),
        ({rules.SAFE: "true"}, {"ownerReferences": []}, "Pending", True),
        ({rules.SAFE: "true"}, {"ownerReferences": []}, "Succeeded", False),
        ({rules.SAFE: "true"}, {"ownerReferences": []}, "Failed", False),
        ({rules.SAFE: "true", **MIRROR}, {"ownerReferences": []}, "Running", False),
        ({rules.SAFE: "false"}, {"ownerReferences": []}, "Running", False),
        ({}, {"ownerReferences": []}, "Running", False),
        ({rules.SAFE: "true"}, {}, "Running", False),
    ],
)
def test_only_a_running_pod_of_no_controller_that_its_owner_gives_up_is_drained_with_force(
    marks: dict[str, str], owner: dict[str, Any], phase: str, forced: bool
) -> None:
    given = pod(annotations=marks, **owner)
    given["status"]["phase"] = phase
    assert rules.Cluster({"daemonsets": []}, NOW).needs_force(given) is forced


@pytest.mark.parametrize(
    ("status", "generation", "left"),
    [
        ({"disruptionsAllowed": 2}, 1, 2),
        ({"disruptionsAllowed": 2, "observedGeneration": 1}, 1, 2),
        ({"disruptionsAllowed": 2, "observedGeneration": 2}, 1, 2),
        ({"disruptionsAllowed": 2, "observedGeneration": 1}, 2, 0),
        ({"disruptionsAllowed": 2, "observedGeneration": 1}, None, 2),
        ({"disruptionsAllowed": 2, "conditions": [{"reason": "SyncFailed"}]}, 1, 0),
        ({"disruptionsAllowed": 2, "conditions": [{"reason": "SufficientPods"}]}, 1, 2),
        ({"disruptionsAllowed": None}, 1, 0),
        ({}, 1, 0),
    ],
)
def test_a_budget_allows_what_its_status_says_while_the_status_is_that_of_its_spec(
    status: dict[str, Any], generation: int | None, left: int
) -> None:
    budget = {**item("web", generation=generation), "status": status}
    assert rules.Cluster({}, NOW).disruptions_left(budget) == left


def test_a_pod_uses_the_claims_that_it_names_and_those_that_are_made_for_it() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "orders"}},
        {"name": "cache", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "tmp", "emptyDir": {}},
    ]
    given = {**pod(), "spec": {"volumes": volumes}}
    assert rules.Cluster({}, NOW).claim_names(given) == ["shop/orders", "shop/web-1-cache"]
    assert rules.Cluster({}, NOW).claim_names(pod()) == []


@pytest.mark.parametrize(
    ("changes", "is_pinned"),
    [
        ({}, True),
        ({"status": {"phase": "Released"}}, False),
        ({"status": {}}, False),
        ({"claimRef": None}, False),
        ({**affinity("rack", "1", "2")}, False),
        ({**affinity("rack", "9")}, False),
        ({"nodeAffinity": None}, False),
    ],
)
def test_a_bound_volume_that_one_node_satisfies_pins_its_claim_there(changes: dict[str, Any], is_pinned: bool) -> None:
    spec = {"claimRef": {"namespace": "shop", "name": "data"}, **affinity("rack", "1"), **changes}
    disk = {**item("disk", spec, namespace=""), "status": spec.pop("status", {"phase": "Bound"})}
    nodes = [node("n1", rack="1"), node("n2", rack="2")]
    cluster = rules.Cluster({"nodes": nodes, "persistentvolumes": [disk, {**disk, "metadata": {"name": "again"}}]}, NOW)
    pinned = {"n1": [("shop/data", "disk"), ("shop/data", "again")]} if is_pinned else {}
    assert dict(cluster.pinned_volumes) == pinned
    assert cluster.blockers(nodes[1], []) == []
    found = [("shop/data", "b=disk"), ("shop/data", "b=again")] if is_pinned else []
    assert cluster.blockers(nodes[0], []) == found


def test_a_pinned_claim_is_named_only_when_no_pod_that_uses_it_keeps_the_worker() -> None:
    given, lists = uses(spec={**affinity("rack", "1"), "claimRef": {"namespace": "shop", "name": "data"}})
    lists["persistentvolumes"][0]["status"] = {"phase": "Bound"}
    lists |= {"replicasets": [item("web", {"replicas": 2})], "daemonsets": [], "deployments": []}
    cluster, here = rules.Cluster(lists, NOW), lists["nodes"][0]
    other = pod(name="web-2")
    assert cluster.blockers(here, [given, other]) == [("shop/web-1", "v")]
    assert cluster.blockers(here, [other]) == [("shop/data", "b=disk")]


def single(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **marks: str) -> dict[str, Any]:
    """A Deployment of one replica that asks for a second pod before a drain, rolled out."""
    asked = {rules.RESTART_FIRST: "true", **marks}
    counts = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 4, **(status or {})}
    return {**item("web", {"replicas": 1, **(spec or {})}, annotations=asked, uid="1", generation=4), "status": counts}


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}}


def single_blocker(deployment: dict[str, Any], given: dict[str, Any] | None = None, **lists: Any) -> str:
    owned = [item("web", {"replicas": 1}, **owned_by("Deployment", "web", uid="1"))]
    return blocker(given or pod(), replicasets=owned, deployments=[deployment], **lists)


@pytest.mark.parametrize(
    ("deployment", "letter"),
    [
        (single(), ""),
        (single(**{rules.RESTART_FIRST: "yes"}), "d=value"),
        (single(**{rules.RESTART_FIRST: "false"}), "d"),
        (single({"replicas": 0}), "d"),
        (single({"replicas": 2}), ""),
        (single({"strategy": {"type": "Recreate"}}), "d=strategy"),
        (single(rolling(1, 0)), ""),
        (single(rolling("1%", "99%")), ""),
        (single(rolling(0, "99%")), "d=surge"),
        (single(rolling("0%", 0)), "d=surge"),
        (single(rolling(1, 1)), "d=unavailable"),
        (single(rolling(1, "100%")), "d=unavailable"),
        (single(rolling("one", 0)), "u"),
        (single({"paused": True}), "d=paused"),
        (single(status={"observedGeneration": 3}), "d=incomplete"),
        (single(status={"replicas": 2}), "d=incomplete"),
        (single(status={"updatedReplicas": 0}), "d=incomplete"),
        (single(status={"availableReplicas": 0}), "d=incomplete"),
        (single(**{rules.RESTART_BEGUN: str(NOW - 21_599)}), "d=failed"),
        (single(**{rules.RESTART_BEGUN: str(NOW - 21_600)}), ""),
        (single(**{rules.RESTART_BEGUN: str(NOW + 1)}), ""),
        (single(**{rules.RESTART_BEGUN: "soon"}), ""),
        ({**single(), "metadata": {**single()["metadata"], "deletionTimestamp": iso(NOW)}}, "d=incomplete"),
    ],
)
def test_an_only_replica_moves_when_its_deployment_can_get_a_second_pod_first(
    deployment: dict[str, Any], letter: str
) -> None:
    assert single_blocker(deployment) == letter


def test_a_budget_does_not_keep_an_only_replica_that_is_not_evicted() -> None:
    budget = {**item("web", {"selector": {}}), "status": {"disruptionsAllowed": 0}}
    assert single_blocker(single(), poddisruptionbudgets=[budget]) == ""
    assert single_blocker(single({"replicas": 2}), poddisruptionbudgets=[budget]) == "p=web"
    assert single_blocker(single(), pod(annotations={rules.SAFE: "false"}), poddisruptionbudgets=[budget]) == "n"


def test_an_only_replica_that_is_safe_to_evict_is_evicted_when_it_can_get_no_second_pod() -> None:
    assert single_blocker(single({"paused": True}), pod(annotations={rules.SAFE: "true"})) == ""


@pytest.mark.parametrize(
    ("volume", "modes", "letter"),
    [
        ({"emptyDir": {}}, [], ""),
        ({"persistentVolumeClaim": {"claimName": "data"}}, ["ReadWriteOnce"], "d=volume"),
        ({"persistentVolumeClaim": {"claimName": "data"}}, ["ReadWriteOncePod"], "d=volume"),
        ({"persistentVolumeClaim": {"claimName": "data"}}, ["ReadWriteOnce", "ReadWriteMany"], ""),
        ({"persistentVolumeClaim": {"claimName": "data"}}, ["ReadOnlyMany"], ""),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, [], "d=volume"),
    ],
)
def test_a_volume_that_two_workers_cannot_use_at_once_allows_no_second_pod(
    volume: dict[str, Any], modes: list[str], letter: str
) -> None:
    given = pod()
    given["spec"] = {"volumes": [{"name": "data", **volume}]}
    lists = {
        "persistentvolumeclaims": [item("data", {"volumeName": "pv-1", "accessModes": ["ReadWriteMany"]})],
        "persistentvolumes": [item("pv-1", {"accessModes": modes}, namespace="")],
    }
    assert single_blocker(single(), given, **lists) == letter


def test_deployments_are_restarted_once_and_not_for_a_pod_that_ends_already() -> None:
    lists = {
        "replicasets": [item("web", {"replicas": 1}, **owned_by("Deployment", "web", uid="1"))],
        "deployments": [single()],
    }
    cluster = rules.Cluster(lists, NOW)
    assert cluster.restarts([pod(), pod(deletionTimestamp=iso(NOW)), pod(**owned_by("Job", "once", "batch/v1"))]) == [
        "shop/web"
    ]
    assert cluster.restarts([pod(deletionTimestamp=iso(NOW))]) == []
