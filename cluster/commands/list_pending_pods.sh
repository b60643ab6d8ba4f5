#!/bin/sh
# Prints the pods that the scheduler could not place, grouped by owner, with what they demand of a node. It changes nothing.
#
# Output, one JSON object a line, never more than 20,000 characters:
#   {"labels", "taints"}   what every worker of the fleet has in common, so that a new one will have it too
#   {"count", "oldest", "example", "owner", "demand", "problem"}   equal pods of one owner; oldest: seconds since the
#       oldest was created; demand: see domain/fit/demand.py, where the pods that run limit the zones of a new worker as
#       a node selector term; problem: why no new worker helps them now, instead of the demand; "lasting": the problem
#       does not end by itself
#   {"more": PODS}         pods of the groups that did not fit into the output
#   end LINES CRC32        lines before this one, and their checksum
# An output without a correct "end" line was cut and must be ignored. Pods of DaemonSets, gated pods and pods that are
# being deleted are left out.
# insert: parts/environment.sh

NODE_FLEET_NOW="$(date +%s)" exec python3 - <<'PYTHON'
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: ../../functions/node_fleet/domain/fit/placement.py
# insert: rules.py
# insert: removal_fit.py
# insert: parts/read_list.py
import zlib

LIMIT = 19900
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
STARTING = "node-fleet.io/starting"
ROLE = "node-fleet.io/role"
VOLUME_LISTS = {
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
}


def is_waiting(pod):
    conditions = (pod.get("status") or {}).get("conditions") or ()
    reasons = {c.get("reason") for c in conditions if c.get("type") == "PodScheduled" and c.get("status") == "False"}
    return "Unschedulable" in reasons and "deletionTimestamp" not in pod["metadata"] and not daemon(pod)


def is_claiming(pod):
    return any("persistentVolumeClaim" in v or "ephemeral" in v for v in pod["spec"].get("volumes") or ())


def common(workers):
    """The labels and taints that all workers share, without those of one node."""
    labels = [
        {(k, v) for k, v in (worker["metadata"].get("labels") or {}).items() if v != worker["metadata"]["name"]}
        for worker in workers
    ]
    lasting = [
        [t for t in worker["spec"].get("taints") or () if "timeAdded" not in t and t.get("key") != STARTING]
        for worker in workers
    ]
    taints = [{json.dumps(taint, sort_keys=True) for taint in each} for each in lasting]
    shared = dict(set.intersection(*labels)) if labels else {}
    return {
        "labels": {k: v for k, v in sorted(shared.items()) if k not in (ZONE, HOSTNAME)},
        "taints": [json.loads(t) for t in sorted(set.intersection(*taints) if taints else ())],
    }


def demand_in(placement, pod, zones):
    """The demand of a pod on a new worker: what depends on pods that run becomes a limit on the zone."""
    demand = pod.demand
    if pod.is_plain and not placement.rules_for(pod):
        return demand
    refused = {}
    for zone in [*zones, "another zone"]:
        new = Node("a new worker", {ZONE: zone, HOSTNAME: "a new worker"}, dict(pod.requests))
        found = placement.refusal_by_pods(pod, new)
        if found:
            refused[zone] = found
    if len(refused) > len(zones):
        raise ValueError("no new worker would satisfy its " + next(iter(refused.values())))
    kept = {k: v for k, v in demand.items() if k not in ("affinity", "spread")}
    if refused:
        allowed = [zone for zone in zones if zone not in refused]
        limit = ("In", allowed) if "another zone" in refused else ("NotIn", sorted(refused))
        term = {"matchExpressions": [{"key": ZONE, "operator": limit[0], "values": limit[1]}]}
        kept["terms"] = [*kept.get("terms", ()), [next(iter(refused.values())), [term]]]
    return kept


def unattachable(cluster, pod):
    """Why no new worker can attach one of the pod's volumes, empty when that is not certain; and whether that lasts."""
    for _, claim in cluster.claims_of(pod):
        disk = cluster.of("persistentvolumes", "", ((claim or {}).get("spec") or {}).get("volumeName"))
        terms = place_terms(disk) if disk else None
        if terms is None:
            continue
        expressions = [e for term in terms for e in [*term["matchExpressions"], *term["matchFields"]]]
        named = sorted({v for e in expressions if e["key"] in (HOSTNAME, "metadata.name") for v in e["values"]})
        place = f"node {', '.join(named)}" if named else f"nodes with the label {expressions[0]['key']}"
        text = f"its volume {meta(disk)['name']} (claim {meta(claim)['name']}) is bound to {place}"
        if not cluster.satisfying(terms):
            return f"{text}, and no such node exists", True
        if named:
            return f"{text}, and no other node can attach it", False
    return "", False


def grouped(waiting, placement, cluster, zones):
    groups = {}
    for each in waiting:
        owner = controller(each) or {"kind": "Pod", "name": each["metadata"]["name"]}
        name = f"{key(each)[0]}/{owner['kind']}/{owner['name']}"
        demand, lasting = {"requests": {"pods": 1}}, False
        try:
            problem, lasting = unattachable(cluster, each)
            if not problem:
                demand = demand_in(placement, Pod(name_of(each), demand_of(each, cluster.volume_terms(each))), zones)
        except UNREADABLE as error:
            problem = str(error)
        if not demand.keys() & {"anti"}:
            demand = {k: v for k, v in demand.items() if k not in ("namespace", "labels")}
        age = cluster.now - (epoch(each["metadata"].get("creationTimestamp")) or cluster.now)
        identity = json.dumps([name, demand, problem], sort_keys=True)
        new = {"count": 0, "oldest": -1, "owner": name, "demand": demand, "problem": problem, "lasting": lasting}
        group = groups.setdefault(identity, new)
        group["count"] += 1
        if age > group["oldest"]:
            group.update(oldest=int(age), example=name_of(each))
    return sorted(groups.values(), key=lambda group: (-group["count"], group["owner"]))


def printed(lines):
    """As many lines as fit, and the number of pods in the others."""
    kept, size = [], 60
    for place, line in enumerate(lines):
        text = json.dumps(line, separators=(",", ":"))
        size += len(text) + 1
        if size > LIMIT:
            return [*kept, json.dumps({"more": sum(other["count"] for other in lines[place:])})]
        kept.append(text)
    return kept


def main():
    now = int(os.environ["NODE_FLEET_NOW"])
    waiting = [pod for pod in read("/api/v1/pods?fieldSelector=spec.nodeName%3D") if is_waiting(pod)]
    nodes = read("/api/v1/nodes") if waiting else []
    lists = {kind: read(path) if any(map(is_claiming, waiting)) else [] for kind, path in VOLUME_LISTS.items()}
    lists["nodes"], lists["pods"] = nodes, read("/api/v1/pods") if waiting else []
    workers = [node for node in nodes if (node["metadata"].get("labels") or {}).get(ROLE) == "worker"]
    zones = sorted({(node["metadata"].get("labels") or {}).get(ZONE, "") for node in nodes} - {""})
    lines = [common(workers), *grouped(waiting, placed_nodes(lists), Cluster(lists, now), zones)]
    text = "\n".join(printed(lines))
    print(f"{text}\nend {len(text.splitlines())} {zlib.crc32(text.encode()):08x}")


main()
PYTHON
