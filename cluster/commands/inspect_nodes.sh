#!/bin/sh
# Prints every node and what keeps it from being removed, in a compact form. It changes nothing.
# A worker without another blocker is kept when its pods do not fit on the other workers at the same time.
#
# Output, one record a line, fields separated by spaces, "-" for empty, never more than 12,000 characters:
#   nf1 NOW ZONE ZONE ...                        format, the server's time, zones by number
#   w INSTANCE NODE ZONE FLAGS AGE PODS SIZE LEFT CORDON MARK BLOCKERS MORE ADDRESS
#     INSTANCE from the provider id, "-" for a node outside EC2; NODE "=" when the name is the instance id
#     ZONE     number in the first line; AGE in seconds
#     FLAGS    R ready, C cordoned, T a taint repels all pods, S server, W labelled as a worker of the fleet,
#              F hosts pods that only --force evicts, J fits as one of several removals; "-" for none
#     PODS     to move/DaemonSet/mirror/finished
#     SIZE     CPU requested/allocatable in millicores, memory requested/allocatable in MiB, pods allocatable
#     LEFT     the fewest disruptions that a budget of its pods still allows
#     CORDON   the operation that cordoned it, "?" for another user; MARK D or K: annotated not to be removed
#     BLOCKERS up to two, NAMESPACE/NAME:LETTER[=DETAIL] with commas: a pod, or a claim for the letter b (letters:
#              rules.py; for f the detail is REQUESTED/FREE/alone|together/PREDICATE); MORE the count of others, and of those that a node that is not
#              ready keeps too
#   p NAME                                       a node-password secret without a node
#   m COUNT                                      nodes left out to stay within the limit; their status is unknown
#   end LINES CRC32                              lines before this one, and their checksum
# An output without a correct "end" line was cut and must be ignored.
# insert: parts/environment.sh

NODE_FLEET_NOW="$(date +%s)" exec python3 - <<'PYTHON'
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: ../../functions/node_fleet/domain/fit/placement.py
# insert: rules.py
# insert: removal_fit.py
# insert: parts/read_list.py
import ipaddress
import zlib

LIMIT = 11900
MIB = 1024 * 1024
LARGEST_FIGURE = 999_999_999
FIT_SECONDS = 1.0
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
}
SECRET_SUFFIX = ".node-password.k3s"
OPERATION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
REPELLING_TAINTS = (
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node-fleet.io/starting",
)
PLAIN = re.compile(r"[A-Za-z0-9._-]{1,253}")
LASTING = "bvnxu"
FLAGS = 4


def orphan_secrets(nodes):
    names = {meta(node)["name"] for node in nodes}
    listed = kubectl("get", "secrets", "-n", "kube-system", "-o", "name").decode().split()
    found = [s.rpartition("/")[2][: -len(SECRET_SUFFIX)] for s in listed if s.endswith(SECRET_SUFFIX)]
    return [name for name in found if name not in names and PLAIN.fullmatch(name)][:10]


def requested(pods):
    """What the pods request in sum; a pod whose requests cannot be read counts as one without any."""
    total = defaultdict(int)
    for pod in pods:
        try:
            found = requests_of(pod.get("spec") or {})
        except UNREADABLE:
            continue
        for resource, amount in found.items():
            total[resource] += amount
    return total


def allocatable(node, resource):
    """0 when it cannot be read: the figure of one node must not end the inspection of the others."""
    try:
        return amount_of(resource, str(((node.get("status") or {}).get("allocatable") or {}).get(resource) or 0))
    except UNREADABLE:
        return 0


def size(node, pods):
    """Requests are rounded up and what the node offers down, so that free capacity is never more than there is."""
    sums = requested(pods)
    figures = [
        sums["cpu"],
        allocatable(node, "cpu"),
        -(-sums["memory"] // MIB),
        allocatable(node, "memory") // MIB,
        allocatable(node, "pods"),
    ]
    return "/".join(str(bounded(figure)) for figure in figures)


def bounded(number):
    """A figure as the reader of this output accepts it."""
    return min(LARGEST_FIGURE, max(0, int(number)))


def flags(node, pods, cluster):
    roles = meta(node).get("labels") or {}
    marks = {
        "R": is_ready(node),
        "C": bool((node.get("spec") or {}).get("unschedulable")),
        "T": any(t.get("key") in REPELLING_TAINTS for t in (node.get("spec") or {}).get("taints") or ()),
        "S": is_server(node),
        "W": roles.get("node-fleet.io/role") == "worker",
        "F": any(cluster.needs_force(pod) for pod in pods),
    }
    return "".join(letter for letter, on in marks.items() if on) or "-"


def cordon(node):
    if not (node.get("spec") or {}).get("unschedulable"):
        return "-"
    owner = str(annotations(node).get("node-fleet.io/cordoned-by") or "")
    return owner if OPERATION_ID.fullmatch(owner) else "?"


def blockers(node, pods, cluster):
    """Sorted, so that two inspections of one node print the same; a name with other characters is printed as "?"."""
    found = []
    for name, code in cluster.blockers(node, pods):
        letter, _, detail = code.partition("=")
        found.append((shown(name), letter + ("=" + shown(detail) if detail else "")))
    return [f"{name}:{letter}" for name, letter in sorted(found)]


def shown(name):
    plain = name if re.fullmatch(r"[A-Za-z0-9._/-]{1,507}", name) else "?"
    return plain if len(plain) <= 64 else plain[:40] + "~" + plain[-20:]


def disruptions_left(pods, cluster):
    left = [cluster.disruptions_left(b) for pod in pods if moves(pod) for b in cluster.budgets_of(pod)]
    return str(bounded(min(left))) if left else "-"


def counts(pods):
    live = [p for p in pods if not finished(p)]
    mirrors = sum(mirror(p) for p in live)
    daemons = sum(daemon(p) and not mirror(p) for p in live)
    return f"{sum(moves(p) for p in live)}/{daemons}/{mirrors}/{len(pods) - len(live)}"


def address_of(node):
    for entry in (node.get("status") or {}).get("addresses") or ():
        if entry.get("type") == "InternalIP":
            try:
                return ipaddress.ip_address(str(entry.get("address"))).packed.hex()
            except ValueError:
                return "-"
    return "-"


class Line:
    """The record of one worker, in as much detail as fits."""

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
        self.created = epoch(meta(node).get("creationTimestamp")) or cluster.now
        self.is_own = instance != "-" and (meta(node).get("labels") or {}).get("node-fleet.io/role") == "worker"
        mark = node_protected(node, cluster.now)
        self.blockers = blockers(node, pods, cluster)
        self.head = [
            "w",
            instance,
            "=" if name == instance else name,
            str(zones.index(zone)),
            flags(node, pods, cluster),
            str(bounded(cluster.now - self.created)),
            counts(pods),
            size(node, live),
            disruptions_left(pods, cluster),
            cordon(node),
            "D" if mark == DISABLED else "K" if mark else "-",
        ]

        self.address = address_of(node)
        self.name = meta(node)["name"]
        self.is_judged = not self.blockers and cordon(node) == "-" and is_ready(node) and not is_server(node)
        self.evicted = [pod for pod in pods if moves(pod) and "deletionTimestamp" not in meta(pod)]

    def keep(self, misfit):
        """Add the pod that does not fit elsewhere as a blocker."""
        letter = "u" if misfit.predicate == "unknown" else "f"
        where = "together" if misfit.together else "alone"
        detail = "/".join([misfit.requested or "-", misfit.free or "-", where, misfit.predicate])
        self.blockers.append(f"{shown(misfit.pod or '?')}:{letter}" + (f"={detail}" if letter == "f" else ""))

    def text(self, named):
        kept, others = self.blockers[:named], self.blockers[named:]
        lasting = sum(blocker.rpartition(":")[2][0] in LASTING for blocker in others)
        return " ".join([*self.head, ",".join(kept) or "-", f"{len(others)}/{lasting}", self.address])


def limited(header, lines, tail):
    """Two pods a worker, else one, else none; if that is too long, the fleet's workers first and a count of the others.

    Of these the removable ones come first, and the older Nodes: their ages are the API server's, not the workers' own.
    """
    for named in (2, 1, 0):
        body = [line.text(named) for line in lines]
        if len("\n".join([header, *body, *tail])) <= LIMIT:
            return [header, *body, *tail]
    kept, size = [header, *tail], len("\n".join([header, *tail])) + 10
    for line in sorted(lines, key=lambda each: (not each.is_own, bool(each.blockers), each.created)):
        size += len(line.text(0)) + 1
        if size > LIMIT:
            break
        kept.insert(-len(tail) or len(kept), line.text(0))
    return [*kept, f"m {len(lines) + 1 + len(tail) - len(kept)}"]


def judge_fit(lines, cluster, lists):
    evicted = {line.name: line.evicted for line in lines if line.is_judged}
    misfits, together = RemovalFit(cluster, lists, evicted, FIT_SECONDS).judge(evicted)
    for line in lines:
        if misfits.get(line.name):
            line.keep(misfits[line.name])
        if line.name in together:
            line.head[FLAGS] = line.head[FLAGS].replace("-", "") + "J"


def main():
    now = int(os.environ["NODE_FLEET_NOW"])
    lists = {kind: read(path) for kind, path in LISTS.items()}
    cluster, on_node, zones = Cluster(lists, now), defaultdict(list), []
    for pod in lists["pods"]:
        on_node[(pod.get("spec") or {}).get("nodeName") or ""].append(pod)
    nodes = sorted(lists["nodes"], key=lambda node: meta(node)["name"])
    lines = [Line(node, on_node[meta(node)["name"]], cluster, zones) for node in nodes]
    judge_fit(lines, cluster, lists)
    tail = [f"p {name}" for name in orphan_secrets(nodes)]
    printed = limited(" ".join(["nf1", str(now), *zones]), lines, tail)
    print("\n".join([*printed, f"end {len(printed)} {zlib.crc32(chr(10).join(printed).encode()):08x}"]))


main()
PYTHON
