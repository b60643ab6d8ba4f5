"""Claims and volumes of the K3s local-path provisioner, which binds a volume to a node.

A claim waits for its first pod; then it gets a volume with node affinity to the node of that pod.
"""

from __future__ import annotations

from simulator.cluster.api.store import ObjectStore
from simulator.cluster.objects import LABEL_HOSTNAME, Obj


def claims_of(pod: Obj) -> list[str]:
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes", ())
        if "persistentVolumeClaim" in volume
    ]


def volume_node_terms(store: ObjectStore, pod: Obj) -> list[list[Obj]]:
    """For each bound volume with node affinity: the node selector terms that a node must meet."""
    terms = []
    for claim_name in claims_of(pod):
        claim = store.find("persistentvolumeclaims", pod["metadata"]["namespace"], claim_name)
        volume_name = claim["spec"].get("volumeName") if claim else None
        volume = store.find("persistentvolumes", "", volume_name) if volume_name else None
        required = ((volume or {}).get("spec", {}).get("nodeAffinity") or {}).get("required")
        if required:
            terms.append(required["nodeSelectorTerms"])
    return terms


def claim_problem(store: ObjectStore, pod: Obj) -> str:
    """Why no node can take the pod: a claim does not exist, or waits for a volume that no pod's start provides."""
    for name in claims_of(pod):
        claim = store.find("persistentvolumeclaims", pod["metadata"]["namespace"], name)
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if not claim["spec"].get("volumeName"):
            found = store.find("storageclasses", "", claim["spec"].get("storageClassName", "local-path"))
            if found is not None and found.get("volumeBindingMode") == "Immediate":
                return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def bind_local_claims(store: ObjectStore, pod: Obj, node: Obj) -> None:
    """Give each unbound claim of this pod a volume on its node."""
    namespace = pod["metadata"]["namespace"]
    for name in claims_of(pod):
        claim = store.find("persistentvolumeclaims", namespace, name)
        if claim is not None and not claim["spec"].get("volumeName"):
            _bind_claim(store, claim, node)


def _bind_claim(store: ObjectStore, claim: Obj, node: Obj) -> None:
    namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
    volume_name = f"pvc-{claim['metadata']['uid']}"
    store.create("persistentvolumes", local_volume(volume_name, node["metadata"]["name"], namespace, name))

    def edit(fresh: Obj) -> None:
        fresh["spec"]["volumeName"] = volume_name
        fresh["status"] = {"phase": "Bound"}

    store.update("persistentvolumeclaims", namespace, name, edit)


def local_volume(name: str, node_name: str, namespace: str, claim: str) -> Obj:
    expression = {"key": LABEL_HOSTNAME, "operator": "In", "values": [node_name]}
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
            "hostPath": {"path": f"/var/lib/rancher/k3s/storage/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local-path",
        },
        "status": {"phase": "Bound"},
    }


def local_path_class() -> Obj:
    """The class that K3s installs: a volume is made on the node of the claim's first pod."""
    return {
        "metadata": {
            "name": "local-path",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "rancher.io/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_claim(namespace: str, name: str) -> Obj:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "local-path",
        },
        "status": {"phase": "Pending"},
    }
