#!/bin/sh
# Takes back the cordon that one operation made, and nobody else's; a drain of that operation that arrives later is
# refused because of the annotation left here. Safe twice and late.
#
# From the document: NODE_NAME, OPERATION_ID. The last line is "result: WORD detail": uncordoned, not-cordoned,
# foreign-cordon, no-node (all exit status 0), bad-parameter (64), unreadable (69), busy (75).
set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
export LC_ALL PATH KUBECONFIG
NODE_NAME="${NODE_NAME:-}" OPERATION_ID="${OPERATION_ID:-}"
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"

finish() {
  echo "result: $2"
  exit "$1"
}

case "$NODE_NAME" in
  '' | *[!a-z0-9.-]* | [!a-z0-9]* | *[!a-z0-9]) finish 64 "bad-parameter NODE_NAME" ;;
esac
case "$OPERATION_ID" in
  '' | *[!A-Za-z0-9._-]* | [!A-Za-z0-9]*) finish 64 "bad-parameter OPERATION_ID" ;;
esac
[ "${#NODE_NAME}" -le 253 ] || finish 64 "bad-parameter NODE_NAME"
[ "${#OPERATION_ID}" -le 80 ] || finish 64 "bad-parameter OPERATION_ID"

mkdir -p "$LOCK_DIRECTORY" || finish 75 "busy $LOCK_DIRECTORY cannot be made"
exec 9>"$LOCK_DIRECTORY/node-fleet-$NODE_NAME.lock"
flock -w 10 9 || finish 75 "busy a drain of this node still runs"

for attempt in 1 2 3; do
  found="$(kubectl get node "$NODE_NAME" --ignore-not-found -o json)" || finish 69 "unreadable the node"
  [ -n "$found" ] || finish 0 "no-node $NODE_NAME"
  facts="$(printf '%s' "$found" | python3 -c '
import json, re, sys
node = json.load(sys.stdin)
owner = (node["metadata"].get("annotations") or {}).get("node-fleet.io/cordoned-by") or ""
version = node["metadata"].get("resourceVersion") or ""
print("yes" if node.get("spec", {}).get("unschedulable") else "no",
      owner if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", owner) else "-",
      version if re.fullmatch(r"[A-Za-z0-9]{1,40}", version) else "-")
')" || finish 69 "unreadable the answer about the node"
  # shellcheck disable=SC2086
  set -- $facts
  word="not-cordoned" detail="$NODE_NAME"
  marks='"node-fleet.io/undone":"'"$OPERATION_ID"'"' spec=""
  if [ "$2" = "$OPERATION_ID" ]; then
    marks="$marks"',"node-fleet.io/cordoned-by":null,"node-fleet.io/cordoned-at":null'
    [ "$1" = no ] || word="uncordoned" spec=',"spec":{"unschedulable":null}'
  elif [ "$1" = yes ]; then
    word="foreign-cordon" detail="$2"
  fi
  kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$3"'","annotations":{'"$marks"'}}'"$spec"'}' &&
    finish 0 "$word $detail"
  echo "attempt $attempt was refused" >&2
done
finish 69 "unreadable the node could not be changed"
