#!/bin/sh
# Looks at every node and what keeps it from being removed, and prints it small. Reads only, changes nothing.
#
# Output, one record a line, fields by spaces, "-" for empty, never more than 12,000 characters:
#   nf1 NOW ZONE ZONE ...                        format, the server's time, zones by number
#   w INSTANCE NODE ZONE FLAGS AGE PODS CPU ROOM CORDON MARK BLOCKERS MORE
#     INSTANCE from the provider id, "-" when it is not of EC2; NODE "=" when named like its instance
#     ZONE     number in the first line; AGE in seconds
#     FLAGS    R ready, C cordoned, T a taint keeps all pods away, S server, W labelled as our worker,
#              F holds pods that only --force evicts; "-" for none
#     PODS     to move/DaemonSet/mirror/finished; CPU requested/allocatable in millicores
#     ROOM     least disruptions left among the budgets of its pods
#     CORDON   operation of ours that cordoned it, "?" when somebody else did; MARK D or K: annotated not to be removed
#     BLOCKERS up to two, NAMESPACE/POD:LETTER[=BUDGET] by commas (letters: rules.py); MORE how many others
#   p NAME                                       a node-password secret without a node
#   m COUNT                                      nodes left out to stay small; nothing is known of them
#   end LINES CRC32                              lines before this one, and their checksum
# Without a right "end" line the answer was cut and says nothing.
set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
export LC_ALL PATH KUBECONFIG

NODE_FLEET_NOW="$(date +%s)" exec python3 - <<'PYTHON'
# --- rules: begin
# Which pods keep a worker from being removed: one letter each; domain/scale_down/eligibility.py gives the words.
# Facts in, letters out; nothing here asks the API or changes anything. Runs on the server with the standard library
# only, inside inspect_nodes.sh and drain_node.sh: embed.py copies this file into both, a test holds them equal.
import datetime
import re
from collections import defaultdict

MIRROR = "kubernetes.io/config.mirror"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
PROTECTED = "karpenter.sh/do-not-disrupt"
HOSTNAME = "kubernetes.io/hostname"
LOOKED_UP = {"apps/ReplicaSet": "replicasets", "extensions/ReplicaSet": "replicasets"}
LIFTED_BY_SAFE = "kscdg"
UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def meta(item):
    return item.get("metadata") or {}


def key(item):
    return (meta(item).get("namespace") or "", meta(item).get("name") or "")


def annotations(item):
    return meta(item).get("annotations") or {}


def epoch(text):
    try:
        return datetime.datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def controller(item):
    return next((r for r in meta(item).get("ownerReferences") or () if r.get("controller")), None)


def finished(pod):
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def mirror(pod):
    owner = controller(pod)
    return MIRROR in annotations(pod) or (owner is not None and owner.get("kind") == "Node")


def daemon(pod):
    owner = controller(pod)
    return owner is not None and owner.get("kind") == "DaemonSet"


def group(owner):
    return str(owner.get("apiVersion") or "").rpartition("/")[0]


def protected(value, started, now):
    """karpenter.sh/do-not-disrupt: "true" for ever, or a duration from the start; anything else is not a request."""
    if value == "true":
        return True
    text = str(value or "")
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|h|m|s))+", text):
        return False
    seconds = sum(float(n) * UNIT_SECONDS[u] for n, _, u in re.findall(r"(\d+(\.\d+)?)(ms|h|m|s)", text))
    return started is None or now < started + seconds


def selects(selector, labels):
    """Kubernetes' label selector; absent selects nothing, empty selects everything, an unknown operator everything."""
    if selector is None:
        return False
    if any(labels.get(k) != v for k, v in (selector.get("matchLabels") or {}).items()):
        return False
    return all(expression_holds(e, labels) for e in selector.get("matchExpressions") or ())


def expression_holds(expression, labels):
    name, operator, values = expression.get("key"), expression.get("operator"), expression.get("values") or ()
    if operator == "In":
        return labels.get(name) in values
    if operator == "NotIn":
        return labels.get(name) not in values
    if operator == "Exists":
        return name in labels
    if operator == "DoesNotExist":
        return name not in labels
    return True


class Cluster:
    """Everything a verdict may depend on, indexed once. `lists` maps a plural name to API objects.

    A list that is absent was not asked for, and owners of that kind are then taken as existing.
    """

    def __init__(self, lists, now):
        self.now = now
        self.known = {kind: {key(item): item for item in items} for kind, items in lists.items()}
        self.budgets = defaultdict(list)
        for budget in lists.get("poddisruptionbudgets", ()):
            self.budgets[key(budget)[0]].append(budget)

    def of(self, kind, namespace, name):
        return self.known.get(kind, {}).get((namespace, name))

    def budgets_of(self, pod):
        labels = meta(pod).get("labels") or {}
        return [b for b in self.budgets[key(pod)[0]] if selects((b.get("spec") or {}).get("selector"), labels)]

    def blocker(self, pod, node):
        """The strongest reason why this pod keeps its node, as LETTER or LETTER=BUDGET; "" when it does not."""
        if finished(pod) or mirror(pod):
            return ""
        try:
            return self._blocker(pod, node)
        except (AttributeError, KeyError, TypeError, ValueError):
            return "u"

    def _blocker(self, pod, node):
        marks = annotations(pod)
        if marks.get(SAFE) == "false":
            return "n"
        if protected(marks.get(PROTECTED), epoch((pod.get("status") or {}).get("startTime")), self.now):
            return "x"
        if daemon(pod):
            return "" if self.owner_exists(pod) or marks.get(SAFE) == "true" else "g"
        return self.volume_blocker(pod, node) or self.liftable(pod, marks) or self.budget_blocker(pod)

    def volume_blocker(self, pod, node):
        namespace = key(pod)[0]
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            name = self.claim_of(pod, volume)
            if name is None:
                continue
            claim = self.of("persistentvolumeclaims", namespace, name)
            if claim is None:
                return "u"
            bound = (claim.get("spec") or {}).get("volumeName")
            disk = self.of("persistentvolumes", "", bound) if bound else None
            if bound and disk is None:
                return "u"
            if disk is not None and bound_to_node(disk, node):
                return "v"
        return ""

    def claim_of(self, pod, volume):
        if "persistentVolumeClaim" in volume:
            return volume["persistentVolumeClaim"]["claimName"]
        return f"{key(pod)[1]}-{volume['name']}" if "ephemeral" in volume else None

    def liftable(self, pod, marks):
        found = self.first_of_four(pod)
        return "" if found in LIFTED_BY_SAFE and marks.get(SAFE) == "true" else found

    def first_of_four(self, pod):
        owner = controller(pod)
        if key(pod)[0] == "kube-system":
            return "k"
        if owner is None:
            return "c"
        if owner.get("kind") == "StatefulSet":
            return "s"
        if not self.owner_exists(pod):
            return "g"
        return "d" if self.only_replica(pod, owner) else ""

    def owner_exists(self, pod):
        owner = controller(pod)
        kind = "daemonsets" if daemon(pod) else LOOKED_UP.get(f"{group(owner)}/{owner.get('kind')}")
        if kind is None or kind not in self.known:
            return True
        return self.of(kind, key(pod)[0], owner.get("name")) is not None

    def only_replica(self, pod, owner):
        replica_set = (
            self.of("replicasets", key(pod)[0], owner.get("name")) if owner.get("kind") == "ReplicaSet" else None
        )
        if replica_set is None:
            return False
        above = controller(replica_set)
        deployment = self.of("deployments", key(pod)[0], above.get("name")) if above else None
        replicas = ((deployment or replica_set).get("spec") or {}).get("replicas")
        return (1 if replicas is None else replicas) <= 1

    def budget_blocker(self, pod):
        budgets = self.budgets_of(pod)
        if len(budgets) > 1:
            return f"t={key(budgets[0])[1]}"
        if budgets and self.room(budgets[0]) < 1:
            return f"p={key(budgets[0])[1]}"
        return ""

    def room(self, budget):
        """Disruptions that a budget allows now; a status older than the budget's spec is not believed."""
        status = budget.get("status") or {}
        seen, wanted = status.get("observedGeneration"), meta(budget).get("generation")
        if seen is not None and wanted is not None and seen < wanted:
            return 0
        return int(status.get("disruptionsAllowed") or 0)

    def needs_force(self, pod):
        """Whether kubectl drain would refuse this pod although its owner says it may go."""
        if finished(pod) or mirror(pod) or annotations(pod).get(SAFE) != "true":
            return False
        return controller(pod) is None or (daemon(pod) and not self.owner_exists(pod))


def bound_to_node(disk, node):
    """A volume that names hosts (K3s local-path, whatever its source type). By zone alone it can follow its pod."""
    required = ((disk.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if not required:
        return "local" in (disk.get("spec") or {})
    name = meta(node).get("name")
    host = (meta(node).get("labels") or {}).get(HOSTNAME, name)
    for term in required.get("nodeSelectorTerms") or ():
        for expression in list(term.get("matchExpressions") or ()) + list(term.get("matchFields") or ()):
            if expression.get("key") in (HOSTNAME, "metadata.name") or {name, host} & set(
                expression.get("values") or ()
            ):
                return True
    return "local" in (disk.get("spec") or {})


def node_protected(node, now):
    marks = annotations(node)
    if marks.get(DISABLED) == "true":
        return DISABLED
    return PROTECTED if protected(marks.get(PROTECTED), epoch(meta(node).get("creationTimestamp")), now) else ""
# --- rules: end
import json
import os
import subprocess
import sys
import zlib

LIMIT = 11900
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
}
SECRET_SUFFIX = ".node-password.k3s"
OURS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
KEEPING_AWAY = (
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
PLAIN = re.compile(r"[A-Za-z0-9._-]{1,253}")


def kubectl(*words):
    done = subprocess.run(["kubectl", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit("cannot read: kubectl " + " ".join(words) + ": " + done.stderr.decode(errors="replace")[:300])
    return done.stdout


def read_lists():
    return {kind: json.loads(kubectl("get", "--raw", path))["items"] or [] for kind, path in LISTS.items()}


def orphan_secrets(nodes):
    names = {meta(node)["name"] for node in nodes}
    listed = kubectl("get", "secrets", "-n", "kube-system", "-o", "name").decode().split()
    found = [s.rpartition("/")[2][: -len(SECRET_SUFFIX)] for s in listed if s.endswith(SECRET_SUFFIX)]
    return [name for name in found if name not in names and PLAIN.fullmatch(name)][:10]


def milli(quantity):
    text = str(quantity)
    for suffix, factor in (("m", 1), ("u", 0.001), ("n", 0.000001), ("k", 1000000)):
        if text.endswith(suffix):
            return float(text[:-1]) * factor
    return float(text) * 1000


def requested(pod):
    containers = (pod.get("spec") or {}).get("containers") or ()
    return sum(milli(((c.get("resources") or {}).get("requests") or {}).get("cpu") or 0) for c in containers)


def flags(node, pods, cluster):
    conditions = (node.get("status") or {}).get("conditions") or ()
    roles = meta(node).get("labels") or {}
    marks = {
        "R": any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        "C": bool((node.get("spec") or {}).get("unschedulable")),
        "T": any(t.get("key") in KEEPING_AWAY for t in (node.get("spec") or {}).get("taints") or ()),
        "S": any(f"node-role.kubernetes.io/{r}" in roles for r in ("control-plane", "master", "etcd")),
        "W": roles.get("node-fleet.io/role") == "worker",
        "F": any(cluster.needs_force(pod) for pod in pods),
    }
    return "".join(letter for letter, on in marks.items() if on) or "-"


def cordon(node):
    if not (node.get("spec") or {}).get("unschedulable"):
        return "-"
    owner = str(annotations(node).get("node-fleet.io/cordoned-by") or "")
    return owner if OURS.fullmatch(owner) else "?"


def blockers(node, pods, cluster):
    """Sorted so that two looks at the same node read the same; a name with odd characters is shown as "?"."""
    found = []
    for pod in pods:
        letter = cluster.blocker(pod, node)
        if letter:
            code, _, budget = letter.partition("=")
            found.append((shown("/".join(key(pod))), code + ("=" + shown(budget) if budget else "")))
    return [f"{name}:{letter}" for name, letter in sorted(found)]


def shown(name):
    plain = name if re.fullmatch(r"[A-Za-z0-9._/-]{1,507}", name) else "?"
    return plain if len(plain) <= 64 else plain[:40] + "~" + plain[-20:]


def room(pods, cluster):
    rooms = [cluster.room(b) for pod in pods if moves(pod) for b in cluster.budgets_of(pod)]
    return str(min(rooms)) if rooms else "-"


def moves(pod):
    return not (finished(pod) or mirror(pod) or daemon(pod))


def counts(pods):
    live = [p for p in pods if not finished(p)]
    mirrors = sum(mirror(p) for p in live)
    daemons = sum(daemon(p) and not mirror(p) for p in live)
    return f"{sum(moves(p) for p in live)}/{daemons}/{mirrors}/{len(pods) - len(live)}"


class Line:
    """One worker's record, in the detail that there is room for."""

    def __init__(self, node, pods, cluster, zones):
        provider = str((node.get("spec") or {}).get("providerID") or "")
        match = re.fullmatch(r"aws:///([a-z0-9-]*)/(i-[0-9a-f]{8,17})", provider)
        instance = match[2] if match else "-"
        zone = match[1] if match else (meta(node).get("labels") or {}).get("topology.kubernetes.io/zone", "")
        zone = zone if PLAIN.fullmatch(zone) else "-"
        if zone not in zones:
            zones.append(zone)
        name = meta(node)["name"]
        name = name if PLAIN.fullmatch(name) else "?"
        live = [p for p in pods if not finished(p)]
        allocatable = milli(((node.get("status") or {}).get("allocatable") or {}).get("cpu") or 0)
        mark = node_protected(node, cluster.now)
        self.blockers = blockers(node, pods, cluster)
        self.head = [
            "w",
            instance,
            "=" if name == instance else name,
            str(zones.index(zone)),
            flags(node, pods, cluster),
            str(int(cluster.now - (epoch(meta(node).get("creationTimestamp")) or cluster.now))),
            counts(pods),
            f"{round(sum(map(requested, live)))}/{round(allocatable)}",
            room(pods, cluster),
            cordon(node),
            "D" if mark == DISABLED else "K" if mark else "-",
        ]

    def text(self, named):
        kept = self.blockers[:named]
        return " ".join([*self.head, ",".join(kept) or "-", str(len(self.blockers) - len(kept))])


def fit(header, lines, tail):
    """Two names a worker, else one, else none; then the workers that may go come first and the rest is counted."""
    for named in (2, 1, 0):
        body = [line.text(named) for line in lines]
        if len("\n".join([header, *body, *tail])) <= LIMIT:
            return [header, *body, *tail]
    kept, size = [header, *tail], len("\n".join([header, *tail])) + 10
    for line in sorted(lines, key=lambda each: bool(each.blockers)):
        size += len(line.text(0)) + 1
        if size > LIMIT:
            break
        kept.insert(-len(tail) or len(kept), line.text(0))
    return [*kept, f"m {len(lines) + 1 + len(tail) - len(kept)}"]


def main():
    now = int(os.environ["NODE_FLEET_NOW"])
    lists = read_lists()
    cluster, on_node, zones = Cluster(lists, now), defaultdict(list), []
    for pod in lists["pods"]:
        on_node[(pod.get("spec") or {}).get("nodeName") or ""].append(pod)
    nodes = sorted(lists["nodes"], key=lambda node: meta(node)["name"])
    lines = [Line(node, on_node[meta(node)["name"]], cluster, zones) for node in nodes]
    tail = [f"p {name}" for name in orphan_secrets(nodes)]
    told = fit(" ".join(["nf1", str(now), *zones]), lines, tail)
    print("\n".join([*told, f"end {len(told)} {zlib.crc32(chr(10).join(told).encode()):08x}"]))


main()
PYTHON
