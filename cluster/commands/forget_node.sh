#!/bin/sh
# Removes what a terminated worker leaves in the cluster: its Node object and its K3s node-password secret.
# Refuses a node that is ready or belongs to another instance. Safe twice.
#
# From the document: NODE_NAME, INSTANCE_ID. The last line is "result: WORD detail": forgotten (0), ready (71),
# other-instance (72), bad-parameter (64), unreadable (69).
set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
export LC_ALL PATH KUBECONFIG
NODE_NAME="${NODE_NAME:-}" INSTANCE_ID="${INSTANCE_ID:-}"

finish() {
  echo "result: $2"
  exit "$1"
}

case "$NODE_NAME" in
  '' | *[!a-z0-9.-]* | [!a-z0-9]* | *[!a-z0-9]) finish 64 "bad-parameter NODE_NAME" ;;
esac
case "$INSTANCE_ID" in
  i-*[!0-9a-f]* | i-) finish 64 "bad-parameter INSTANCE_ID" ;;
  i-*) ;;
  *) finish 64 "bad-parameter INSTANCE_ID" ;;
esac
[ "${#NODE_NAME}" -le 253 ] || finish 64 "bad-parameter NODE_NAME"
[ "${#INSTANCE_ID}" -le 19 ] || finish 64 "bad-parameter INSTANCE_ID"

found="$(kubectl get node "$NODE_NAME" --ignore-not-found -o json)" || finish 69 "unreadable the node"
if [ -n "$found" ]; then
  facts="$(printf '%s' "$found" | python3 -c '
import json, sys
node = json.load(sys.stdin)
conditions = node.get("status", {}).get("conditions") or ()
ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
same = str(node.get("spec", {}).get("providerID") or "").rpartition("/")[2] == sys.argv[1]
print("same" if same else "other", "ready" if ready else "not-ready")
' "$INSTANCE_ID")" || finish 69 "unreadable the answer about the node"
  case "$facts" in
    other*) finish 72 "other-instance the node of that name is not $INSTANCE_ID" ;;
    *not-ready) ;;
    *) finish 71 "ready the node still answers, so its machine is not gone" ;;
  esac
  kubectl delete node "$NODE_NAME" --ignore-not-found --wait=false || finish 69 "unreadable the node could not be deleted"
fi
kubectl delete secret "$NODE_NAME.node-password.k3s" -n kube-system --ignore-not-found --wait=false ||
  finish 69 "unreadable the secret could not be deleted"
finish 0 "forgotten $NODE_NAME"
