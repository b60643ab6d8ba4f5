# Which pods and claims keep a worker from being removed: one letter each (scale_down/eligibility.py).
# This code calls no API and changes nothing. It runs on the server with the standard library, inside the commands
# that judge pods and volumes: cdk_app/scripts.py inserts this file into them.
import datetime
import functools
import json
import re
from collections import defaultdict

from node_fleet.domain.fit.demand import CORDON, UNREADABLE, any_term_holds, selects, tolerates

MIRROR = "kubernetes.io/config.mirror"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
PROTECTED = "karpenter.sh/do-not-disrupt"
OWNER_LISTS = {"apps/ReplicaSet": "replicasets", "apps/DaemonSet": "daemonsets", "apps/Deployment": "deployments"}
RESTART_FIRST = "node-fleet.io/restart-before-drain"
# The epoch at which drain_node.sh began a restart; it is removed when the restart succeeded during the drain.
RESTART_BEGUN = "node-fleet.io/restart-begun-at"
RESTART_AGAIN_SECONDS = 6 * 3600
LIFTED_BY_SAFE = "kscdg"
# What two pods on two nodes can use at the same time; of claims, those with one of these access modes.
SHARED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "projected"}
SHARED_VOLUMES |= {"persistentVolumeClaim", "secret"}
SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}
STUCK_SECONDS = 30
ZONE_LABELS = re.compile(r".*/(zone|region)")
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
BY_HAND = "kubernetes.io/no-provisioner"
UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
DURATION = re.compile(r"(\d+\.?\d*|\.\d+)(" + "|".join(sorted(UNIT_SECONDS, key=len, reverse=True)) + ")")


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


def is_protected(value, started, now):
    """karpenter.sh/do-not-disrupt: "true" without end, or a Go duration from the start; another value is ignored."""
    if value == "true":
        return True
    text = str(value or "")
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if not re.fullmatch(f"({DURATION.pattern})+", unsigned):
        return False
    seconds = sum(float(n) * UNIT_SECONDS[u] for n, u in DURATION.findall(unsigned))
    return started is None or now < started + (-seconds if text[0] == "-" else seconds)


class Cluster:
    """Everything that a verdict depends on, indexed once. `lists` maps a plural name to API objects.

    Without a list of a kind, owners of that kind count as existing.
    """

    def __init__(self, lists, now):
        self.now = now
        self.known = {kind: {key(item): item for item in items} for kind, items in lists.items()}
        self.budgets = defaultdict(list)
        for budget in lists.get("poddisruptionbudgets", ()):
            self.budgets[key(budget)[0]].append(budget)
        self.overlapping = self.overlapping_budgets(lists.get("pods", ()))

    def of(self, kind, namespace, name):
        return self.known.get(kind, {}).get((namespace, name))

    def budgets_of(self, pod):
        labels = meta(pod).get("labels") or {}
        return [b for b in self.budgets[key(pod)[0]] if selects((b.get("spec") or {}).get("selector"), labels)]

    def blockers(self, node, pods):
        """(NAMESPACE/NAME, letter and detail) of each pod that keeps the node, and of each claim without such a pod."""
        verdicts = [(pod, self.blocker(pod, node)) for pod in pods]
        in_use = {claim for pod, code in verdicts if code == "v" for claim in self.claim_names(pod)}
        pinned = self.pinned_volumes.get(meta(node)["name"], ())
        claims = [(claim, f"b={volume}") for claim, volume in pinned if claim not in in_use]
        return [("/".join(key(pod)), code) for pod, code in verdicts if code] + claims

    def overlapping_budgets(self, pods):
        """The budgets that share a pod with another. Their status may show room that is not there: the disruption
        controller refreshes one budget for each event of a pod."""
        found = set()
        for pod in pods:
            try:
                budgets = self.budgets_of(pod)
            except UNREADABLE:
                continue
            found |= {key(budget) for budget in budgets} if len(budgets) > 1 else set()
        return found

    def blocker(self, pod, node):
        """The strongest reason why this pod keeps its node, as LETTER or LETTER=BUDGET; "" when it does not."""
        if finished(pod) or mirror(pod):
            return ""
        try:
            return self._blocker(pod, node)
        except UNREADABLE:
            return "u"

    def _blocker(self, pod, node):
        marks = annotations(pod)
        if marks.get(SAFE) in ("false", "on-completion"):
            return "n" if marks[SAFE] == "false" else "w"
        if is_protected(marks.get(PROTECTED), epoch((pod.get("status") or {}).get("startTime")), self.now):
            return "x"
        if daemon(pod):
            return ""
        if found := self.volume_blocker(pod, node):
            return found
        if stuck := self.stuck_seconds(pod):
            return f"e={stuck // 60}"
        found, restart = self.unless_safe_to_evict(pod, marks), self.restart_problem(pod)
        if found == "d" and restart is not None:
            found = f"d={restart}" if restart else ""
        if not found and tolerates((pod.get("spec") or {}).get("tolerations") or (), CORDON):
            return "o"
        return found or ("" if restart == "" else self.budget_blocker(pod))

    def stuck_seconds(self, pod):
        """Seconds since a pod that is being deleted should have ended; 0 while it may still end by itself."""
        over = self.now - (epoch(meta(pod).get("deletionTimestamp")) or self.now)
        return int(over) if over > STUCK_SECONDS else 0

    def volume_blocker(self, pod, node):
        found = ""
        for name, claim in self.claims_of(pod):
            bound = ((claim or {}).get("spec") or {}).get("volumeName")
            disk = self.of("persistentvolumes", "", bound) if bound else None
            if name and (claim is None or (bound and disk is None)):
                return "u"
            if disk is not None and self.bound_to_node(disk, node):
                found = "v"
        return found

    def claims_of(self, pod):
        """(name, claim or None) of each volume that has a claim; for a claim of the pod's own the name is empty."""
        found = []
        for volume in (pod.get("spec") or {}).get("volumes") or ():
            if "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                found.append((name, self.of("persistentvolumeclaims", key(pod)[0], name)))
            elif "ephemeral" in volume:
                name = f"{key(pod)[1]}-{volume['name']}"
                found.append(("", self.of("persistentvolumeclaims", key(pod)[0], name)))
        return found

    @staticmethod
    def claim_names(pod):
        """NAMESPACE/NAME of the claims that a pod uses, those of its own included."""
        namespace, name = key(pod)
        volumes = (pod.get("spec") or {}).get("volumes") or ()
        used = [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]
        own = [f"{name}-{v['name']}" for v in volumes if "ephemeral" in v]
        return [f"{namespace}/{claim}" for claim in used + own]

    def volume_terms(self, pod):
        """Node selector terms of each volume of the pod. ValueError when a claim waits or cannot be found."""
        volumes = (pod.get("spec") or {}).get("volumes") or ()
        own = [v["ephemeral"]["volumeClaimTemplate"] for v in volumes if "ephemeral" in v]
        wanted = [self.class_terms((c.get("spec") or {}).get("storageClassName"), "of its own") for c in own]
        for name, claim in self.claims_of(pod):
            if not name:
                continue
            if claim is None:
                raise ValueError(f"its claim {name} does not exist")
            bound = claim["spec"].get("volumeName")
            disk = self.of("persistentvolumes", "", bound) if bound else None
            if bound and disk is None:
                raise ValueError(f"the volume of its claim {name} cannot be found")
            wanted += disk_terms(disk) if disk else [self.class_terms(claim["spec"].get("storageClassName"), name)]
        return [terms for terms in wanted if terms]

    def class_terms(self, class_name, claim):
        """Where a volume may be created for a claim that waits for its pod to be scheduled."""
        classes = self.known.get("storageclasses", {}).values()
        default = [c for c in classes if annotations(c).get(DEFAULT_CLASS) == "true"]
        found = [c for c in classes if meta(c)["name"] == class_name] if class_name else default
        provisioner = found[0].get("provisioner") if found else ""
        if not found or found[0].get("volumeBindingMode") != "WaitForFirstConsumer" or provisioner == BY_HAND:
            raise ValueError(f"its claim {claim} is not bound")
        return [
            {"matchExpressions": [{**e, "operator": "In"} for e in t.get("matchLabelExpressions") or ()]}
            for t in found[0].get("allowedTopologies") or ()
        ]

    def bound_to_node(self, disk, node):
        """Whether no other node satisfies the volume, zones and regions left aside: another worker may start there."""
        terms = place_terms(disk)
        if terms is None:
            return "local" in (disk.get("spec") or {})
        return not self.satisfying(terms) - {meta(node)["name"]}

    def satisfying(self, terms):
        """The names of the nodes of which one of the terms holds; none for terms that the scheduler cannot read."""
        found = set()
        for node in self.known.get("nodes", {}).values():
            try:
                if any_term_holds(terms, meta(node).get("labels") or {}, meta(node)["name"]):
                    found.add(meta(node)["name"])
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
        return found

    @functools.cached_property
    def pinned_volumes(self):
        """Node -> (claim, volume) of each Bound volume that only this node satisfies, with or without a running pod."""
        found, known = defaultdict(list), {}
        for disk in self.known.get("persistentvolumes", {}).values():
            claim, terms = (disk.get("spec") or {}).get("claimRef"), place_terms(disk)
            if terms is None or not claim or (disk.get("status") or {}).get("phase") != "Bound":
                continue
            identity = json.dumps(terms, sort_keys=True)
            if identity not in known:
                known[identity] = self.satisfying(terms)
            if len(known[identity]) == 1:
                name = f"{claim.get('namespace') or ''}/{claim.get('name') or ''}"
                found[next(iter(known[identity]))].append((name, meta(disk)["name"]))
        return found

    def unless_safe_to_evict(self, pod, marks):
        found = self.owner_blocker(pod)
        return "" if found in LIFTED_BY_SAFE and marks.get(SAFE) == "true" else found

    def owner_blocker(self, pod):
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

    def owner_exists(self, item):
        """False when the owner is of a kind that is listed, and not in the list. Its uid counts as well as its name."""
        owner = controller(item)
        kind = OWNER_LISTS.get(f"{group(owner)}/{owner.get('kind')}")
        return kind not in self.known or self.owner_of(item) is not None

    def owner_of(self, item):
        owner = controller(item)
        kind = OWNER_LISTS.get(f"{group(owner)}/{owner.get('kind')}") if owner else None
        found = self.of(kind, key(item)[0], owner.get("name")) if kind else None
        same = found is None or not owner.get("uid") or meta(found).get("uid") in (None, owner["uid"])
        return found if same else None

    def only_replica(self, pod, owner):
        replica_set = self.owner_of(pod) if owner.get("kind") == "ReplicaSet" else None
        if replica_set is None:
            return False
        replicas = ((self.owner_of(replica_set) or replica_set).get("spec") or {}).get("replicas")
        return (1 if replicas is None else replicas) <= 1

    def restart_problem(self, pod):
        """Why the Deployment of this only replica cannot get a second pod first (blocker_reasons.py); "" when it can.

        None when it does not ask for that, or wants another number of replicas. A Deployment that can is not below its
        replicas at any time, so no budget keeps its pod: it is not evicted.
        """
        deployment = self.deployment_of(pod)
        spec = (deployment or {}).get("spec") or {}
        asked = annotations(deployment or {}).get(RESTART_FIRST)
        if asked in (None, "false") or spec.get("replicas", 1) != 1:
            return None
        if asked != "true":
            return "value"
        strategy = spec.get("strategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return "strategy"
        if not of_one(rolling.get("maxSurge", "25%"), up=True):
            return "surge"
        if of_one(rolling.get("maxUnavailable", "25%"), up=False):
            return "unavailable"
        if spec.get("paused"):
            return "paused"
        if not all(self.is_shared(volume, pod) for volume in (pod.get("spec") or {}).get("volumes") or ()):
            return "volume"
        if not is_rolled_out(deployment):
            return "incomplete"
        begun = annotations(deployment).get(RESTART_BEGUN) or ""
        known = re.fullmatch(r"[0-9]{1,11}", begun) is not None
        return "failed" if known and 0 <= self.now - int(begun) < RESTART_AGAIN_SECONDS else ""

    def deployment_of(self, pod):
        owner = controller(pod)
        replica_set = self.owner_of(pod) if owner and owner.get("kind") == "ReplicaSet" else None
        above = controller(replica_set) if replica_set else None
        return self.owner_of(replica_set) if above and above.get("kind") == "Deployment" else None

    def is_shared(self, volume, pod):
        """Whether a second pod on another node can use the volume while this one does."""
        if not volume.keys() - {"name"} <= SHARED_VOLUMES:
            return False
        if "persistentVolumeClaim" not in volume:
            return True
        claim = self.of("persistentvolumeclaims", key(pod)[0], volume["persistentVolumeClaim"]["claimName"])
        disk = self.of("persistentvolumes", "", ((claim or {}).get("spec") or {}).get("volumeName"))
        return bool(SHARED_MODES.intersection(((disk or claim or {}).get("spec") or {}).get("accessModes") or ()))

    def restarts(self, pods):
        """NAMESPACE/NAME of the Deployments that get a second pod before these pods are drained."""
        leaving = [pod for pod in pods if moves(pod) and "deletionTimestamp" not in meta(pod)]
        found = {key(self.deployment_of(pod)) for pod in leaving if self.restart_problem(pod) == ""}
        return sorted("/".join(each) for each in found)

    def budget_blocker(self, pod):
        budgets = self.budgets_of(pod)
        if len(budgets) > 1:
            return f"t={key(budgets[0])[1]}"
        if budgets and key(budgets[0]) in self.overlapping:
            return f"q={key(budgets[0])[1]}"
        if budgets and self.disruptions_left(budgets[0]) < 1:
            return f"p={key(budgets[0])[1]}"
        return ""

    def disruptions_left(self, budget):
        """Disruptions that a budget allows now; 0 while its status is older than its spec or could not be computed."""
        status = budget.get("status") or {}
        if any(c.get("reason") == "SyncFailed" for c in status.get("conditions") or ()):
            return 0
        seen, wanted = status.get("observedGeneration"), meta(budget).get("generation")
        if seen is not None and wanted is not None and seen < wanted:
            return 0
        return int(status.get("disruptionsAllowed") or 0)

    def needs_force(self, pod):
        """Whether kubectl drain refuses this pod without --force: it only looks for a DaemonSet of the group apps."""
        if finished(pod) or mirror(pod):
            return False
        if daemon(pod):
            return "daemonsets" in self.known and self.of("daemonsets", key(pod)[0], controller(pod)["name"]) is None
        return controller(pod) is None and annotations(pod).get(SAFE) == "true"


def of_one(value, *, up):
    """A number or a percentage of one replica, as the Deployment controller rounds it."""
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    percent = int(text[:-1])
    return -(-percent // 100) if up else percent // 100


def is_rolled_out(deployment):
    """Whether the one pod of the newest template is available, and no other is left."""
    status = deployment.get("status") or {}
    counts = [status.get(count) or 0 for count in ("replicas", "updatedReplicas", "availableReplicas")]
    seen, wanted = status.get("observedGeneration"), meta(deployment).get("generation")
    is_seen = seen is None or wanted is None or seen >= wanted
    return is_seen and counts == [1, 1, 1] and "deletionTimestamp" not in meta(deployment)


def disk_terms(disk):
    """The node selector terms of a volume, as lists of alternatives: its node affinity, and its zone as labels."""
    required = ((disk.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    found = [required.get("nodeSelectorTerms") or []] if required else []
    zones = {k: v for k, v in (meta(disk).get("labels") or {}).items() if ZONE_LABELS.fullmatch(k)}
    expressions = [{"key": k, "operator": "In", "values": v.split("__")} for k, v in sorted(zones.items())]
    return [*found, [{"matchExpressions": expressions}]] if zones else found


def place_terms(disk):
    """The node affinity of a volume without zones and regions; None when it has none, or accepts a node by its zone."""
    terms = []
    for term in (((disk.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}).get(
        "nodeSelectorTerms"
    ) or ():
        by_label = [e for e in term.get("matchExpressions") or () if not ZONE_LABELS.fullmatch(str(e.get("key")))]
        by_field = term.get("matchFields") or ()
        if not by_label and not by_field:
            return None
        terms.append({"matchExpressions": by_label, "matchFields": by_field})
    return terms or None


def moves(pod):
    """Whether a removal evicts this pod and its controller starts it again."""
    return not (finished(pod) or mirror(pod) or daemon(pod))


def node_protected(node, now):
    marks = annotations(node)
    if marks.get(DISABLED) == "true":
        return DISABLED
    return PROTECTED if is_protected(marks.get(PROTECTED), epoch(meta(node).get("creationTimestamp")), now) else ""
