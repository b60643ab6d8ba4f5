# Whether the pods of each worker fit on the other workers at the same time, judged as the Kubernetes scheduler would.
# This code calls no API and changes nothing. It runs on the server, after rules.py, inside inspect_nodes.sh.
import time

from node_fleet.domain.fit.demand import UNREADABLE, amount_of, demand_of, requests_of
from node_fleet.domain.fit.placement import Misfit, Node, Placement, Pod

LARGEST_SET = 10
MARKET = "node-fleet.io/market"


def is_server(node):
    labels = (node.get("metadata") or {}).get("labels") or {}
    return any(f"node-role.kubernetes.io/{role}" in labels for role in ("control-plane", "master", "etcd"))


def is_ready(node):
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def amounts_of(node):
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    try:
        return {resource: amount_of(resource, str(quantity)) for resource, quantity in allocatable.items()}
    except UNREADABLE:
        return None


def placed_nodes(lists):
    """The nodes of the cluster with the pods that run on them.

    A node whose amounts cannot be read, or that has a pod that cannot be read, takes no pods.
    """
    nodes = {}
    for each in lists["nodes"]:
        spec, amounts = each.get("spec") or {}, amounts_of(each)
        nodes[each["metadata"]["name"]] = Node(
            each["metadata"]["name"],
            each["metadata"].get("labels") or {},
            amounts or {},
            spec.get("taints") or (),
            amounts is not None and is_ready(each) and not spec.get("unschedulable"),
        )
    placement = Placement(nodes.values())
    for each in lists["pods"]:
        node = nodes.get((each.get("spec") or {}).get("nodeName"))
        if node is None or (each.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        try:
            pod = placed_pod(each)
        except UNREADABLE:
            node.is_open = False
            continue
        placement.add(pod, node)
        if "deletionTimestamp" in each["metadata"]:
            placement.leaving.append((pod, node))
    return placement


def placed_pod(pod):
    """A pod that runs already: of what it demands only its requests, ports and anti-affinity matter to others."""
    try:
        demand = demand_of(pod)
    except ValueError:
        demand = {"requests": requests_of(pod["spec"]), "namespace": pod["metadata"].get("namespace") or ""}
    return Pod(name_of(pod), demand)


def name_of(pod):
    return f"{pod['metadata'].get('namespace') or ''}/{pod['metadata']['name']}"


class RemovalFit:
    """The fit of the workers' pods. evicted: worker -> the pods that its removal evicts and that start again.

    It takes `seconds` of CPU time at most: a worker that is not judged by then is kept.
    """

    def __init__(self, cluster, lists, evicted, seconds):
        self.cluster = cluster
        self.evicted = evicted
        self.known = {}
        self.placement = placed_nodes(lists)
        self.end = time.process_time() + seconds
        self.node_of = {node.name: node for node in self.placement.nodes}
        servers = {node["metadata"]["name"] for node in lists["nodes"] if is_server(node)}
        self.workers = [node for node in self.placement.nodes if node.name not in servers]

    def judge(self, names):
        """Name -> why the pods of that worker fit nowhere else, None when they do; and names that fit as a set.

        Every part of that set fits too. The pods of its workers have no conditions on other pods.
        """
        ordered = sorted(names, key=lambda name: (len(self.evicted[name]), self.requested_cpu(name), name))
        found = {name: self.misfit(name) for name in ordered}
        together = []
        for name in ordered:
            if found[name] is None and len(together) < LARGEST_SET and self.fits_with(name, together):
                together.append(name)
        return found, set(together) if len(together) > 1 else set()

    def requested_cpu(self, name):
        node = self.node_of[name]
        return node.allocatable.get("cpu", 0) - node.free.get("cpu", 0)

    def misfit(self, name):
        if time.process_time() > self.end:
            return Misfit("", "time")
        pods = []
        for each in self.evicted[name]:
            try:
                pods.append(self.demanded(each))
            except UNREADABLE:
                return Misfit(name_of(each), "unknown")
        node = self.node_of[name]
        misfit = self.misfit_without(node, pods)
        if misfit is None or misfit.predicate in ("affinity", "taints"):
            return misfit
        return self.market_misfit(node, pods) or misfit

    def market_misfit(self, node, pods):
        """The misfit of an On-Demand worker's pods that a Spot worker in its place would not accept either."""
        if node.labels.get(MARKET) != "on-demand":
            return None
        spot = Node(node.name, {**node.labels, MARKET: "spot"}, node.allocatable, node.taints)
        bound = [pod for pod in pods if self.placement.refusal(pod, spot, ()) == "affinity"]
        misfit = self.misfit_without(node, bound) if bound else None
        return misfit and Misfit(misfit.pod, "market")

    def demanded(self, pod):
        """The pod as it will wait for a node, with the conditions of its volumes."""
        name = name_of(pod)
        if name not in self.known:
            self.known[name] = Pod(name, demand_of(pod, self.cluster.volume_terms(pod)))
        return self.known[name]

    def misfit_without(self, node, pods):
        """The misfit while the node is cordoned and its pods end, and after they have ended.

        The only pod of a Deployment that is restarted does not end before its second pod is available.
        """
        names, others = {pod.name for pod in pods}, self.without({node})
        staying = {name_of(pod) for pod in self.evicted[node.name] if self.cluster.restart_problem(pod) == ""}
        leaving = [pod for pod in node.pods if pod.name in names]
        before, was_open, node.is_open = self.placement.leaving, node.is_open, False
        self.placement.leaving = before + [(pod, node) for pod in leaving if pod.name not in staying]
        misfit = self.placement.misfit(pods, others)
        self.placement.leaving = before
        if misfit is None and any(pod.demand.keys() & {"affinity", "anti"} for pod in pods):
            for pod in leaving:
                self.placement.remove(pod, node)
            misfit = self.placement.misfit(pods, others)
            for pod in leaving:
                self.placement.add(pod, node)
        node.is_open = was_open
        return misfit

    def without(self, nodes):
        return [node for node in self.workers if node.is_open and node not in nodes]

    def fits_with(self, name, together):
        """Whether the pods of this worker and of those in the set fit on the others, in whichever order they move."""
        if time.process_time() > self.end:
            return False
        names = [*together, name]
        pods = [self.demanded(each) for each in (pod for one in names for pod in self.evicted[one])]
        return self.placement.is_certain(pods, self.without({self.node_of[each] for each in names}))
