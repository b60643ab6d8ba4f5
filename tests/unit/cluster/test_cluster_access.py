"""What Flux may change, which pods a namespace admits, and which connections monitoring accepts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.unit.cluster.test_manifests import CLUSTER, FLUX, ON_SERVER, build, objects

MANAGE = {"get", "list", "watch", "create", "patch", "delete"}
ENFORCE = "pod-security.kubernetes.io/enforce"


def only(folder: str, kind: str, name: str = "") -> dict[str, Any]:
    found = [o for _, o in objects(folder) if o["kind"] == kind and name in ("", o["metadata"]["name"])]
    assert len(found) == 1, f"{folder} has {len(found)} objects {kind} {name}"
    return found[0]


def applied_by_flux(tmp_path: Path) -> list[dict[str, Any]]:
    """The objects of the demo application after the patches of the Kustomization, built by kustomize itself."""
    spec = only("demo/flux", "Kustomization")["spec"]
    shutil.copytree(CLUSTER / "demo/app", tmp_path / "app")
    wrapped = {"resources": ["app"], "patches": spec["patches"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(wrapped))
    return build(tmp_path)


def plural(document: dict[str, Any]) -> tuple[str, str]:
    """API group and resource of an object: what a rule of a Role names."""
    group = document["apiVersion"].rpartition("/")[0]
    kind = document["kind"].lower()
    return group, kind.removesuffix("y") + "ies" if kind.endswith("y") else kind + ("es" if kind.endswith("s") else "s")


def granted(verbs: set[str]) -> set[tuple[str, str]]:
    rules = only("demo/flux", "Role")["rules"]
    return {
        (g, r) for rule in rules if set(rule["verbs"]) == verbs for g in rule["apiGroups"] for r in rule["resources"]
    }


def test_flux_may_change_exactly_the_kinds_of_the_demo_application_in_its_namespace(tmp_path: Path) -> None:
    applied = applied_by_flux(tmp_path)
    assert {o["metadata"].get("namespace") for o in applied} == {"demo"}
    assert granted(MANAGE) == {plural(o) for o in applied}
    assert granted({"get", "list", "watch"}) == {("", "pods"), ("apps", "replicasets")}
    assert only("demo/flux", "Role")["metadata"]["namespace"] == "demo"
    assert not [o for _, o in objects("demo/flux") if o["kind"].startswith("Cluster")]


def test_flux_applies_the_repository_with_the_account_of_this_role() -> None:
    account, binding = only("demo/flux", "ServiceAccount")["metadata"], only("demo/flux", "RoleBinding")
    assert binding["roleRef"]["name"] == only("demo/flux", "Role")["metadata"]["name"]
    assert binding["metadata"]["namespace"] == "demo"
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    kustomizations = [o for _, o in FLUX if o["kind"] == "Kustomization"]
    used = [(o["metadata"]["namespace"], o["spec"]["serviceAccountName"]) for o in kustomizations]
    assert used == [(account["namespace"], account["name"])]


def test_the_bootstrap_creates_the_namespace_of_the_demo_before_the_role_in_it() -> None:
    script = (CLUSTER / "server/monitoring.sh").read_text()
    namespace = script.index("demo/app/manifests/namespace.yaml")
    assert namespace < script.index('apply "$WORK/rendered/flux"')


def test_the_demo_application_keeps_the_level_that_its_namespace_enforces() -> None:
    namespace = only("demo/app/manifests", "Namespace")["metadata"]
    assert namespace["labels"] == {ENFORCE: "restricted"}
    assert namespace["annotations"] == {"kustomize.toolkit.fluxcd.io/prune": "disabled"}
    pod = only("demo/app/manifests", "Deployment")["spec"]["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {next(iter(set(volume) - {"name"})) for volume in pod["volumes"]} <= {"configMap", "emptyDir", "secret"}
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not [port for port in container["ports"] if "hostPort" in port]


def test_the_pods_of_the_demo_application_may_open_no_connection() -> None:
    pod = only("demo/app/manifests", "Deployment")["spec"]["template"]["metadata"]["labels"]
    policy = only("demo/app/manifests", "NetworkPolicy")["spec"]
    assert policy == {"podSelector": {"matchLabels": {"app": pod["app"]}}, "policyTypes": ["Egress"]}


def test_every_pod_of_monitoring_in_the_pod_network_is_scraped_from_its_own_machine_alone() -> None:
    # kube-router, the network policy controller of K3s, and Kubernetes itself let a machine reach its own pods.
    policy = only("monitoring/manifests", "NetworkPolicy")["spec"]
    assert policy == {"podSelector": {}, "policyTypes": ["Ingress"]}
    pods = {
        o["metadata"]["name"]: o["spec"]["template"]["spec"]
        for _, o in objects("monitoring/manifests")
        if o["kind"] in ("Deployment", "DaemonSet")
    }
    in_pod_network = {name for name, pod in pods.items() if not pod.get("hostNetwork")}
    scraped = re.findall(
        r"([\w-]+)\.monitoring\.svc\.cluster\.local", (CLUSTER / "monitoring/prometheus/prometheus.yml").read_text()
    )
    assert in_pod_network == set(scraped) == {"kube-state-metrics"}
    assert pods["prometheus"]["hostNetwork"] is True
    assert pods["prometheus"]["nodeSelector"] == pods["kube-state-metrics"]["nodeSelector"] == ON_SERVER


def test_monitoring_states_the_level_that_its_pods_need() -> None:
    assert only("monitoring/manifests", "Namespace")["metadata"]["labels"] == {ENFORCE: "privileged"}
