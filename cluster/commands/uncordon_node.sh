#!/bin/sh
# Removes the cordon of one operation and no other cordon. The annotation that it leaves makes a later drain of that
# operation end without effect. It is safe to run twice or late.
#
# Parameters of the document: NODE_NAME, OPERATION_ID. The last line is "result: WORD detail": uncordoned, not-cordoned,
# foreign-cordon, no-node (all exit status 0), bad-parameter (64), unreadable (69), busy (75). Before it comes
# "own-pods: COUNT NAMESPACE/POD" when pods are unschedulable whose owner had pods on the node before the drain.
# insert: parts/environment.sh

# insert: parts/node.sh

# insert: parts/cordon.sh

# Prints "own-pods: COUNT NAMESPACE/POD" when pods wait whose owner had pods on this node when the operation drained it: their
# ReplicaSet or another controller, or the Deployment above it.
print_own_pods() {
  python3 - <<'PYTHON'
# insert: parts/read_list.py

PENDING = "/api/v1/pods?fieldSelector=spec.nodeName%3D"
REPLICA_SETS = "/apis/apps/v1/replicasets"


def owner(item):
    return next((r.get("uid") for r in item["metadata"].get("ownerReferences") or () if r.get("controller")), None)


def is_unschedulable(pod):
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def main():
    with open(os.environ["OWNERS_FILE"]) as file:
        operation, *owners = file.read().split()
    if operation != os.environ["OPERATION_ID"]:
        return
    waiting = [p for p in read(PENDING) if is_unschedulable(p)]
    above = {r["metadata"].get("uid"): owner(r) for r in read(REPLICA_SETS)} if waiting else {}
    waiting = [p for p in waiting if {owner(p), above.get(owner(p))} & set(owners)]
    if waiting:
        names = sorted(p["metadata"]["namespace"] + "/" + p["metadata"]["name"] for p in waiting)
        print(f"own-pods: {len(names)} {names[0]}")


try:
    main()
except (OSError, ValueError, subprocess.CalledProcessError) as error:
    print(f"the pods that wait are unknown: {error}", file=sys.stderr)
PYTHON
}

report_uncordoned() {
  NODE_FLEET_NOW="$(date +%s)" python3 - <<'PYTHON' >&2 || echo "the Event of node $NODE_NAME could not be written" >&2
# insert: events.py
import sys

MESSAGE = f"the worker is uncordoned and takes pods again: operation {os.environ['OPERATION_ID']} does not remove it"
sys.exit(0 if record_event(("Node", "", os.environ["NODE_NAME"]), "Uncordoned", MESSAGE, False) else 1)
PYTHON
}

check_node_name
check_operation_id
export NODE_NAME
take_lock 10
print_own_pods

for attempt in 1 2 3; do
  read_node
  [ "$CORDONED" != absent ] || finish 0 "no-node $NODE_NAME"
  word="not-cordoned" detail="$NODE_NAME"
  marks='"node-fleet.io/undone":"'"$OPERATION_ID"'"' spec=""
  if [ "$OWNER" = "$OPERATION_ID" ]; then
    marks="$marks"',"node-fleet.io/cordoned-by":null,"node-fleet.io/cordoned-at":null'
    [ "$CORDONED" = no ] || word="uncordoned" spec=',"spec":{"unschedulable":null}'
  elif [ "$CORDONED" = yes ]; then
    word="foreign-cordon" detail="$OWNER"
  fi
  kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$VERSION"'","annotations":{'"$marks"'}}'"$spec"'}' && {
    [ "$word" != uncordoned ] || report_uncordoned
    finish 0 "$word $detail"
  }
  echo "the API refused attempt $attempt of 3 to uncordon node $NODE_NAME" >&2
done
finish 69 "unreadable node $NODE_NAME could not be changed"
