"""What a real control plane answered, kept in files: the simulated cluster is held to it on machines without Go.

A transcript has only what is the same in every run: no times, versions, generated names or fields that no script reads.
`./node-fleet test --conformance --record` writes the files again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from simulator.cluster.kubectl.fake import CommandResult
from simulator.cluster.objects import Obj, controller_of
from tests.support.clusters import SET_BY_KUBERNETES, AnyCluster, nodes_of, pods_of, secrets_of
from tests.support.kubectl_cases import Case, prepare

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "real_plane"
NOISE = re.compile(r"^[EWI]\d{4} |^Warning: version difference")
GENERATED = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names."""
Record = dict[str, Any]


def file_of(subject: str) -> Path:
    return FOLDER / f"{subject}.json"


def recorded(subject: str) -> Record:
    """Case name -> what the real control plane answered."""
    found: Record = json.loads(file_of(subject).read_text(encoding="utf-8"))
    return found


def write(subject: str, records: Record) -> None:
    """Replace these records; the others of the subject stay."""
    records = {**(recorded(subject) if file_of(subject).exists() else {}), **records}
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(records[name])}" for name in sorted(records)]
    file_of(subject).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def kubectl_record(case: Case, cluster: AnyCluster) -> Record:
    """Run a case of `kubectl_cases`: exits, essential lines, and the cluster afterwards."""
    prepare(case, cluster)
    if case.before:
        case.before(cluster)
    ended = [cluster.kubectl(*words, reachable=case.reachable) for words in case.commands]
    cluster.wait(5)
    return {"commands": [result_of(one) for one in ended], **state_of(cluster)}


def state_of(cluster: AnyCluster) -> Record:
    return {"nodes": nodes_of(cluster), "pods": pods_of(cluster), "secrets": secrets_of(cluster)}


def result_of(ended: CommandResult) -> list[Any]:
    return [ended.exit_code, essential(ended.stdout), essential(ended.stderr)]


def essential(text: str) -> list[str]:
    """The distinct lines, without ages, ports, pods' random endings and the client's log; the order may differ.

    Of an object, what a script of node-fleet reads.
    """
    if text.startswith("{"):
        return [json.dumps(essence(json.loads(text)), sort_keys=True)]
    lines = (re.sub(r"127\.0\.0\.1:\d+", "SERVER", line) for line in text.splitlines() if not NOISE.match(line))
    unnamed = (re.sub(r"-[0-9a-f]{8,10}-[a-z0-9]{5}\b", "-POD", line) for line in lines)
    unnamed = (re.sub(rf"-[{GENERATED}]{{5}}\b", "-POD", line) for line in unnamed)
    plain = (re.sub(r" +", " ", re.sub(r"\b\d+s\b", "Ns", line)).strip() for line in unnamed)
    return sorted({_without_order(line) for line in plain if line})


def _without_order(line: str) -> str:
    """kubectl walks through maps: what it lists, and the parts of a warning, come in any order."""
    word, colon, parts = line.partition("Warning: ")
    if colon and not word:
        line = colon + "; ".join(sorted(parts.split("; ")))
    return re.sub(r"\[(.*)\]", lambda found: f"[{', '.join(sorted(found[1].split(', ')))}]", line)


def _labels_set_by_kubernetes(obj: Obj) -> tuple[str, ...]:
    """Labels that controllers and admission add and nothing of node-fleet reads."""
    places = () if obj.get("kind") == "Node" else ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
    hashes = ("pod-template-hash", "controller-revision-hash", "pod-template-generation")
    return ("beta.kubernetes.io/arch", "beta.kubernetes.io/os", *hashes, *places)


def essence(obj: Obj) -> Obj:
    """What a script reads of an object or of each object of a list, and what identifies it."""
    if "items" in obj:
        return {"kind": obj["kind"], "items": sorted((essence(one) for one in obj["items"]), key=json.dumps)}
    metadata, spec, status = obj["metadata"], obj.get("spec", {}), obj.get("status") or {}
    owner = controller_of(obj)
    taints = [(t["key"], t.get("value", ""), t["effect"]) for t in spec.get("taints", ())]
    found = {
        "namespace": metadata.get("namespace"),
        "name": None if owner else metadata.get("name"),
        "owner": owner and [owner["apiVersion"], owner["kind"]],
        "labels": {k: v for k, v in metadata.get("labels", {}).items() if k not in _labels_set_by_kubernetes(obj)},
        "annotations": {k: v for k, v in metadata.get("annotations", {}).items() if k not in SET_BY_KUBERNETES},
        "version is text": isinstance(metadata.get("resourceVersion"), str),
        **{name: spec.get(name) for name in ("providerID", "unschedulable", "nodeName")},
        "taints": sorted(taints),
        "allocatable": status.get("allocatable"),
        "phase": status.get("phase") if obj.get("kind") != "Node" else None,
        "conditions": sorted((c["type"], c["status"]) for c in status.get("conditions", ())),
    }
    return {name: value for name, value in found.items() if value}
