"""79 pods from tests of other drain implementations: verdicts follow the specification, differences are explained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from node_fleet.domain.scale_down.termination import judge_termination
from tests.support.shipped_scripts import rules

ROOT = Path(__file__).parents[3]
CASES = {case["id"]: case for case in json.loads((ROOT / "tests/fixtures/drain_cases.json").read_text())}
EVERY_KIND = (
    "persistentvolumeclaims",
    "persistentvolumes",
    "poddisruptionbudgets",
    "replicasets",
    "deployments",
    "daemonsets",
)


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
        item = {"metadata": {"namespace": namespace, "name": called}, "spec": {"replicas": spec.get("replicas", 2)}}
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
    return {
        "persistentvolumeclaims": [
            {"metadata": {"namespace": namespace, "name": n}, "spec": {"volumeName": n}} for n in names
        ],
        "persistentvolumes": [{"metadata": {"name": n}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}} for n in names],
    }


def keeps_worker(case: dict[str, Any]) -> bool:
    """Whether node-fleet would keep (or wait for) the worker that hosts this pod."""
    node_facts = case["extra"].get("node", {})
    if case["scope"] == "terminate":
        verdict = judge_termination("gone", still_ready=node_facts["ready"], waited=10, limit=600)
        return verdict.status == "waiting"
    now = rules.epoch(case["extra"]["now"])
    node = {"metadata": {"name": "worker-1", "annotations": node_facts.get("annotations", {})}}
    lists = {"poddisruptionbudgets": budgets(case), **owner_lists(case), **claims(case), "deployments": []}
    cluster = rules.Cluster(lists, now)
    return bool(rules.node_protected(node, now) or cluster.blocker(case["pod"], node))


def documented_differences() -> dict[str, bool]:
    """Case id -> verdict of node-fleet, from the table of differences that people read."""
    text = (ROOT / "docs/scale-down.md").read_text()
    rows = re.findall(r"^\| `([a-z]{2}-\d\d-[a-z0-9-]+)` \| \w[\w -]* \| (kept|eligible) \|", text, re.MULTILINE)
    return {case: verdict == "kept" for case, verdict in rows}


def test_there_are_79_cases() -> None:
    assert len(CASES) == 79


@pytest.mark.parametrize("name", sorted(CASES))
def test_our_verdict_is_the_source_systems_or_the_documented_difference(name: str) -> None:
    expected = documented_differences().get(name, CASES[name]["blocks_drain"])
    assert keeps_worker(CASES[name]) is expected


def test_every_documented_difference_is_one() -> None:
    assert [n for n, stays in documented_differences().items() if stays is CASES[n]["blocks_drain"]] == []
