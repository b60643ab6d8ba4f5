OPERATION_ID="${OPERATION_ID:-}"
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"
# The operation that drains the node, and the owners of the pods that it evicts.
OWNERS_FILE="$LOCK_DIRECTORY/node-fleet-$NODE_NAME.owners"
export OWNERS_FILE OPERATION_ID

check_operation_id() {
  case "$OPERATION_ID" in
    '' | *[!A-Za-z0-9._-]* | [!A-Za-z0-9]*) finish 64 "bad-parameter OPERATION_ID" ;;
  esac
  [ "${#OPERATION_ID}" -le 80 ] || finish 64 "bad-parameter OPERATION_ID"
}

# take_lock SECONDS: the kernel releases the lock when its last holder ends, including a kubectl that outlives the script.
take_lock() {
  mkdir -p "$LOCK_DIRECTORY" || finish 75 "busy the lock directory $LOCK_DIRECTORY cannot be created"
  exec 9>"$LOCK_DIRECTORY/node-fleet-$NODE_NAME.lock"
  flock -w "$1" 9 || finish 75 "busy another command runs on node $NODE_NAME"
}

# Sets CORDONED (yes, no or absent), OWNER, UNDONE, VERSION.
read_node() {
  found="$(kubectl get node "$NODE_NAME" --ignore-not-found -o json)" || finish 69 "unreadable node $NODE_NAME"
  facts="$(printf '%s' "$found" | python3 -c '
import json, re, sys
text = sys.stdin.read()
node = json.loads(text) if text.strip() else None
marks = (node or {}).get("metadata", {}).get("annotations") or {}
def plain(value):
    return value if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", value or "") else "-"
if node is None:
    print("absent - - -")
else:
    print("yes" if node.get("spec", {}).get("unschedulable") else "no", plain(marks.get("node-fleet.io/cordoned-by")),
          plain(marks.get("node-fleet.io/undone")), plain(node["metadata"].get("resourceVersion")))
')" || finish 69 "unreadable the API's answer about node $NODE_NAME"
  # shellcheck disable=SC2086
  set -- $facts
  # shellcheck disable=SC2034
  CORDONED="$1" OWNER="$2" UNDONE="$3" VERSION="$4"
}
