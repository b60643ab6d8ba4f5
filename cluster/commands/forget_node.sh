#!/bin/sh
# Deletes the objects of a terminated worker: its Node and its K3s node-password secret. It refuses a node that is ready
# or belongs to another instance. It is safe to run twice.
#
# Parameters of the document: NODE_NAME, INSTANCE_ID. It first prints "volume CLAIM VOLUME POD" for each volume that ended
# with the node (lost_volumes.py), also when the node was deleted before. The last line is "result: WORD detail": forgotten (0), ready (71),
# other-instance (72), bad-parameter (64), unreadable (69).
# insert: parts/environment.sh

# insert: parts/node.sh
INSTANCE_ID="${INSTANCE_ID:-}"

check_node_name
case "$INSTANCE_ID" in
  i-*[!0-9a-f]*) finish 64 "bad-parameter INSTANCE_ID" ;;
  i-????????*) ;;
  *) finish 64 "bad-parameter INSTANCE_ID" ;;
esac
[ "${#INSTANCE_ID}" -le 19 ] || finish 64 "bad-parameter INSTANCE_ID"

print_volumes() {
  NODE_NAME="$NODE_NAME" python3 - <<'PYTHON'
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: rules.py
# insert: lost_volumes.py
# insert: parts/read_list.py

NODE = os.environ["NODE_NAME"]
DELETED = {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}


def main():
    nodes = read("/api/v1/nodes")
    nodes += [] if any(node["metadata"]["name"] == NODE for node in nodes) else [DELETED]
    cluster = Cluster({"nodes": nodes, "persistentvolumes": read("/api/v1/persistentvolumes")}, 0)
    for line in volume_lines(cluster, NODE, lambda namespace: read(f"/api/v1/namespaces/{namespace}/pods")):
        print(line)


main()
PYTHON
}

report_removed() {
  NODE_FLEET_NOW="$(date +%s)" NODE_NAME="$NODE_NAME" INSTANCE_ID="$INSTANCE_ID" python3 - <<'PYTHON' >&2 || echo "the Event of node $NODE_NAME could not be written" >&2
# insert: events.py
import sys

MESSAGE = f"instance {os.environ['INSTANCE_ID']} has ended, and node-fleet deleted its Node"
sys.exit(0 if record_event(("Node", "", os.environ["NODE_NAME"]), "Removed", MESSAGE, False) else 1)
PYTHON
}

found="$(kubectl get node "$NODE_NAME" --ignore-not-found -o json)" || finish 69 "unreadable node $NODE_NAME"
if [ -n "$found" ]; then
  facts="$(printf '%s' "$found" | python3 -c '
import json, sys
node = json.load(sys.stdin)
conditions = node.get("status", {}).get("conditions") or ()
ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
same = str(node.get("spec", {}).get("providerID") or "").rpartition("/")[2] == sys.argv[1]
print("same" if same else "other", "ready" if ready else "not-ready")
' "$INSTANCE_ID")" || finish 69 "unreadable the API's answer about node $NODE_NAME"
  case "$facts" in
    other*) finish 72 "other-instance node $NODE_NAME is not instance $INSTANCE_ID" ;;
    *not-ready) ;;
    *) finish 71 "ready node $NODE_NAME is still Ready, so its instance is not terminated" ;;
  esac
fi
print_volumes || echo "the volumes of node $NODE_NAME could not be read" >&2
if [ -n "$found" ]; then
  kubectl delete node "$NODE_NAME" --ignore-not-found --wait=false || finish 69 "unreadable node $NODE_NAME could not be deleted"
fi
kubectl delete secret "$NODE_NAME.node-password.k3s" -n kube-system --ignore-not-found --wait=false ||
  finish 69 "unreadable the secret of node $NODE_NAME could not be deleted"
[ -z "$found" ] || report_removed
finish 0 "forgotten $NODE_NAME"
