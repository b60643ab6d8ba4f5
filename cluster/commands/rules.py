# Which pods keep a worker from being removed: one letter each; domain/scale_down/eligibility.py has the reasons.
# This code calls no API and changes nothing. It runs on the server with the standard library, inside inspect_nodes.sh
# and drain_node.sh: cdk_app/scripts.py inserts this file into both.
import datetime
import re
from collections import defaultdict

MIRROR = "kubernetes.io/config.mirror"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
PROTECTED = "karpenter.sh/do-not-disrupt"
HOSTNAME = "kubernetes.io/hostname"
OWNER_LISTS = {"apps/ReplicaSet": "replicasets", "extensions/ReplicaSet": "replicasets"}
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


def is_protected(value, started, now):
    """karpenter.sh/do-not-disrupt: "true" without end, or a duration from the start; any other value is ignored."""
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
    """Everything that a verdict depends on, indexed once. `lists` maps a plural name to API objects.

    Without a list of a kind, owners of that kind count as existing.
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
        if is_protected(marks.get(PROTECTED), epoch((pod.get("status") or {}).get("startTime")), self.now):
            return "x"
        if daemon(pod):
            return "" if self.owner_exists(pod) or marks.get(SAFE) == "true" else "g"
        return self.volume_blocker(pod, node) or self.unless_safe_to_evict(pod, marks) or self.budget_blocker(pod)

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

    def owner_exists(self, pod):
        owner = controller(pod)
        kind = "daemonsets" if daemon(pod) else OWNER_LISTS.get(f"{group(owner)}/{owner.get('kind')}")
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
        if budgets and self.disruptions_left(budgets[0]) < 1:
            return f"p={key(budgets[0])[1]}"
        return ""

    def disruptions_left(self, budget):
        """Disruptions that a budget allows now; 0 while its status is older than its spec."""
        status = budget.get("status") or {}
        seen, wanted = status.get("observedGeneration"), meta(budget).get("generation")
        if seen is not None and wanted is not None and seen < wanted:
            return 0
        return int(status.get("disruptionsAllowed") or 0)

    def needs_force(self, pod):
        """Whether kubectl drain would refuse this pod although it is annotated as safe to evict."""
        if finished(pod) or mirror(pod) or annotations(pod).get(SAFE) != "true":
            return False
        return controller(pod) is None or (daemon(pod) and not self.owner_exists(pod))


def bound_to_node(disk, node):
    """Whether a volume names hosts (K3s local-path of any source type). A volume bound to a zone can follow its pod."""
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
    return PROTECTED if is_protected(marks.get(PROTECTED), epoch(meta(node).get("creationTimestamp")), now) else ""
