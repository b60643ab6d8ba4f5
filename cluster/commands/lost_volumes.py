# The Bound volumes that end with a node, as lines "volume CLAIM VOLUME POD". POD is the last pod of the claim, "-" when
# none is known. This code calls no API and changes nothing. It runs on the server, after rules.py, inside
# drain_node.sh and forget_node.sh.
import re

MOST_VOLUMES = 30
SHOWN = re.compile(r"[A-Za-z0-9._/-]{1,507}")


def volume_lines(cluster, node_name, pods_in):
    """pods_in: a function that lists the pods of a namespace."""
    lines, pods = [], {}
    for claim, volume in cluster.pinned_volumes.get(node_name, ())[:MOST_VOLUMES]:
        namespace = claim.partition("/")[0]
        if namespace not in pods:
            pods[namespace] = pods_in(namespace)
        words = [claim, volume, last_pod(cluster, claim, node_name, pods[namespace])]
        lines.append(" ".join(["volume", *(word if SHOWN.fullmatch(word) else "?" for word in words)]))
    return lines


def last_pod(cluster, claim, node_name, pods):
    """The newest pod that uses the claim; one on the node counts before the others."""
    users = [pod for pod in pods if claim in cluster.claim_names(pod)]
    users.sort(
        key=lambda pod: (pod["spec"].get("nodeName") == node_name, pod["metadata"].get("creationTimestamp") or "")
    )
    return f"{users[-1]['metadata']['namespace']}/{users[-1]['metadata']['name']}" if users else "-"
