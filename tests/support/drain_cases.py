"""79 pods from tests of other drain implementations: node-fleet's verdict, and what becomes of the pod's worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node_fleet.domain.model.snapshot import Instance
from node_fleet.domain.scale_down.termination import judge_termination
from simulator.cluster.api.store import RESOURCES
from tests.support.clusters import AnyCluster
from tests.support.drain_clusters import as_shipped, remove_one
from tests.support.shipped_scripts import rules

ROOT = Path(__file__).parents[2]
CASES = {case["id"]: case for case in json.loads((ROOT / "tests/fixtures/drain_cases.json").read_text())}
CONTAINER = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
NOW = "2026-01-15T12:00:00Z"
WORKERS = tuple(f"i-{number:017x}" for number in (1, 2, 3))


def owner_lists(case: dict[str, Any]) -> dict[str, list[Any]]:
    """The controllers a case names; without a list every owner exists, as the cases mean it."""
    pod, extra = case["pod"], case["extra"]
    given = extra.get("controllers")
    owner = next(iter(pod["metadata"].get("ownerReferences", [])), None)
    named = {} if given is None else dict(given)
    if given is None and owner and owner["kind"] in ("ReplicaSet", "DaemonSet"):
        named[f"{owner['kind']}/{pod['metadata']['namespace']}/{owner['name']}"] = {"replicas": 2}
    found: dict[str, list[Any]] = {"replicasets": [], "daemonsets": []}
    for name, spec in named.items():
        kind, namespace, called = name.split("/")
        labels = {"owner": called}
        item = {
            "metadata": {"namespace": namespace, "name": called},
            "spec": {
                "replicas": spec.get("replicas", 2),
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}},
            },
        }
        found.setdefault(kind.lower() + "s", []).append(item)
    return found


def budgets(case: dict[str, Any]) -> list[Any]:
    return [
        {
            "metadata": {"namespace": b["namespace"], "name": f"budget-{n}"},
            "spec": {"selector": b["selector"]},
            "status": {"disruptionsAllowed": b["disruptionsAllowed"]},
        }
        for n, b in enumerate(case["extra"].get("pdbs", []))
    ]


def claims(case: dict[str, Any]) -> dict[str, list[Any]]:
    """A claim that a case mentions is bound to a volume that can follow its pod: the cases say nothing of it."""
    names = [
        v["persistentVolumeClaim"]["claimName"]
        for v in case["pod"]["spec"].get("volumes", [])
        if "persistentVolumeClaim" in v
    ]
    namespace = case["pod"]["metadata"]["namespace"]
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    return {
        "persistentvolumeclaims": [
            {
                "metadata": {"namespace": namespace, "name": name},
                "spec": {**modes, "volumeName": name, "resources": {"requests": size}},
            }
            for name in names
        ],
        "persistentvolumes": [
            {
                "metadata": {"name": name},
                "spec": {**modes, "capacity": size, "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": name}},
            }
            for name in names
        ],
    }


def keeps_worker(case: dict[str, Any]) -> bool:
    """Whether node-fleet would keep (or wait for) the worker that hosts this pod."""
    node_facts = case["extra"].get("node", {})
    if case["scope"] == "terminate":
        verdict = judge_termination("gone", still_ready=node_facts["ready"], waited=10, limit=600, standby=False)
        return verdict.status == "waiting"
    now = rules.epoch(NOW)
    node = {"metadata": {"name": "worker-1", "annotations": node_facts.get("annotations", {})}}
    lists = {"poddisruptionbudgets": budgets(case), **owner_lists(case), **claims(case), "deployments": []}
    cluster = rules.Cluster(lists, now)
    return bool(rules.node_protected(node, now) or cluster.blocker(case["pod"], node))


def act_out(case: dict[str, Any], cluster: AnyCluster, settle: Callable[[float], None]) -> str:
    """What becomes of the worker that hosts this pod, in a cluster with two more workers and room for everything."""
    cluster.add_server("i-0000000000000000f", "eu-west-1a")
    for name in WORKERS:
        cluster.add_worker(name, az="eu-west-1a")
    cluster.settle()
    cluster.ensure_namespace(case["pod"]["metadata"]["namespace"])
    for kind, items in claims(case).items():
        for item in items:
            cluster.create(kind, item)
    for number, budget in enumerate(case["extra"].get("pdbs", [])):
        bound = {"minAvailable": 0} if budget["disruptionsAllowed"] else {"maxUnavailable": 0}
        metadata = {"namespace": budget["namespace"], "name": f"budget-{number}"}
        cluster.create(
            "poddisruptionbudgets", {"metadata": metadata, "spec": {"selector": budget["selector"], **bound}}
        )
    marks = case["extra"].get("node", {}).get("annotations", {})
    cluster.update("nodes", "", WORKERS[0], lambda node: node["metadata"].setdefault("annotations", {}).update(marks))
    cluster.create_owned_pod(pod_of(case), {k: items for k, items in owner_lists(case).items() if k in RESOURCES})
    cluster.settle()
    fleet = tuple(
        Instance(
            instance_id=name,
            zone="eu-west-1a",
            instance_type="t3.small",
            market="spot",
            state="running",
            launched_at=0 if name == WORKERS[0] else 1,
        )
        for name in WORKERS
    )

    def run(script_text: str, environment: dict[str, str]) -> tuple[int, str, str]:
        ended = cluster.script(script_text, environment)
        return ended.exit_code, ended.stdout, ended.stderr

    return remove_one(cluster, fleet, run, settle, as_shipped, order="oldest")


def pod_of(case: dict[str, Any]) -> dict[str, Any]:
    """The case's pod with what every API server asks for."""
    pod: dict[str, Any] = json.loads(json.dumps(case["pod"]).replace('"worker-1"', f'"{WORKERS[0]}"'))
    pod["spec"].setdefault("containers", [dict(CONTAINER)])
    pod["spec"].setdefault("terminationGracePeriodSeconds", 30)
    pod["status"].setdefault("conditions", [{"type": "Ready", "status": "True"}])
    if any(owner["kind"] == "Node" for owner in pod["metadata"].get("ownerReferences", ())):
        pod["metadata"].setdefault("annotations", {})[rules.MIRROR] = "the kubelet sets it on every mirror pod"
    return pod
