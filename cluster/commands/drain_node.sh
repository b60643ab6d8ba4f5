#!/bin/sh
# Empties one worker: cordons it for one operation, looks again at what it hosts, then lets kubectl evict its pods.
# Does nothing when it comes too late, twice, after its operation was undone, or to a node that somebody else cordoned.
#
# From the document: NODE_NAME, OPERATION_ID, NOT_AFTER (epoch seconds: no start after it), DRAIN_TIMEOUT_SECONDS and
# DRAIN_MODE: voluntary (every blocker refuses; --force only when every bare pod says it may go), not-ready (the node
# has been dead for long: only node-bound volumes, protected and unreadable pods refuse) or deadline (the machine goes
# anyway: nothing refuses, and in the last third budgets are passed over).
# The last line is "result: WORD detail"; exit status 0 drained, 1 kubectl drain failed, 64 bad parameter, 65 too late,
# 66 no such node, 67 cordoned by somebody else, 68 a pod blocks, 69 the API cannot be read, 70 undone, 75 busy.
set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
export LC_ALL PATH KUBECONFIG
NODE_NAME="${NODE_NAME:-}" OPERATION_ID="${OPERATION_ID:-}" NOT_AFTER="${NOT_AFTER:-}"
DRAIN_TIMEOUT_SECONDS="${DRAIN_TIMEOUT_SECONDS:-}" DRAIN_MODE="${DRAIN_MODE:-voluntary}"
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"

finish() {
  echo "result: $2"
  exit "$1"
}

check_parameters() {
  case "$NODE_NAME" in
    '' | *[!a-z0-9.-]* | [!a-z0-9]* | *[!a-z0-9]) finish 64 "bad-parameter NODE_NAME" ;;
  esac
  case "$OPERATION_ID" in
    '' | *[!A-Za-z0-9._-]* | [!A-Za-z0-9]*) finish 64 "bad-parameter OPERATION_ID" ;;
  esac
  case "$NOT_AFTER" in
    '' | *[!0-9]* | ????????????*) finish 64 "bad-parameter NOT_AFTER" ;;
  esac
  case "$DRAIN_TIMEOUT_SECONDS" in
    '' | *[!0-9]* | ??????*) finish 64 "bad-parameter DRAIN_TIMEOUT_SECONDS" ;;
  esac
  case "$DRAIN_MODE" in
    voluntary | not-ready | deadline) ;;
    *) finish 64 "bad-parameter DRAIN_MODE" ;;
  esac
  [ "${#NODE_NAME}" -le 253 ] || finish 64 "bad-parameter NODE_NAME"
  [ "${#OPERATION_ID}" -le 80 ] || finish 64 "bad-parameter OPERATION_ID"
}

check_time() {
  [ "$(date +%s)" -le "$NOT_AFTER" ] || finish 65 "too-late it may start until $NOT_AFTER, it is $(date +%s)"
}

# The kernel frees the lock when its last holder ends, a kubectl that outlives this script included.
take_lock() {
  mkdir -p "$LOCK_DIRECTORY" || finish 75 "busy $LOCK_DIRECTORY cannot be made"
  exec 9>"$LOCK_DIRECTORY/node-fleet-$NODE_NAME.lock"
  flock -w "$DRAIN_TIMEOUT_SECONDS" 9 || finish 75 "busy another command works on this node"
}

# Sets CORDONED (yes, no or absent), OWNER, UNDONE, VERSION.
read_node() {
  found="$(kubectl get node "$NODE_NAME" --ignore-not-found -o json)" || finish 69 "unreadable the node"
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
')" || finish 69 "unreadable the answer about the node"
  # shellcheck disable=SC2086
  set -- $facts
  CORDONED="$1" OWNER="$2" UNDONE="$3" VERSION="$4"
}

# One patch for cordon and annotation, on exactly the version that was read: nobody's cordon is taken over.
cordon() {
  for attempt in 1 2 3; do
    read_node
    [ "$CORDONED" != absent ] || finish 66 "no-node $NODE_NAME"
    [ "$UNDONE" != "$OPERATION_ID" ] || finish 70 "undone this operation was called off"
    if [ "$CORDONED" = yes ]; then
      [ "$OWNER" != "$OPERATION_ID" ] || return 0
      [ "$DRAIN_MODE" != deadline ] || return 0
      finish 67 "foreign-cordon $OWNER"
    fi
    kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$VERSION"'","annotations":{"node-fleet.io/cordoned-by":"'"$OPERATION_ID"'","node-fleet.io/cordoned-at":"'"$(date +%s)"'","node-fleet.io/undone":null}},"spec":{"unschedulable":true}}' && return 0
    echo "cordon attempt $attempt was refused" >&2
  done
  finish 69 "unreadable the node could not be cordoned"
}

# Prints what blocks, or "force" or "free". The cordon stands, so no new pod can come between this look and the drain.
look_again() {
  NODE_FLEET_NOW="$(date +%s)" NODE_NAME="$NODE_NAME" DRAIN_MODE="$DRAIN_MODE" python3 - <<'PYTHON'
# insert: rules.py
import json
import os
import subprocess
import sys

NODE = os.environ["NODE_NAME"]
LISTS = {
    "pods": "/api/v1/pods?fieldSelector=spec.nodeName%3D" + NODE,
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
}


def read(path):
    done = subprocess.run(["kubectl", "get", "--raw", path], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(1)
    return json.loads(done.stdout)


def main():
    lists = {kind: read(path)["items"] or [] for kind, path in LISTS.items()}
    node = read("/api/v1/nodes/" + NODE)
    cluster = Cluster(lists, int(os.environ["NODE_FLEET_NOW"]))
    pods = [p for p in lists["pods"] if (p.get("spec") or {}).get("nodeName") == NODE]
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    dead = os.environ["DRAIN_MODE"] == "not-ready" and not ready
    refusing = "vnxu" if dead else "vnxukscdgpt"
    found = sorted("/".join(key(p)) + ":" + b for p in pods for b in [cluster.blocker(p, node)] if b and b[0] in refusing)
    mark = node_protected(node, cluster.now)
    if mark:
        found.insert(0, "node:" + mark)
    force = any(cluster.needs_force(p) for p in pods)
    print("blocked " + ",".join(found[:2]) + f" {max(0, len(found) - 2)}" if found else "force" if force else "free")


main()
PYTHON
}

# kubectl repeats itself for every refused eviction; each line is kept once, so that no limit cuts the end off.
drain() {
  seconds="$1"
  shift
  kubectl drain "$NODE_NAME" --ignore-daemonsets --delete-emptydir-data \
    --timeout="${seconds}s" --skip-wait-for-delete-timeout=10 "$@" >"$WORK/out" 2>"$WORK/err"
  status=$?
  awk '!seen[$0]++' "$WORK/out" | tail -n 60 | cut -c1-200
  awk '!seen[$0]++' "$WORK/err" | tail -n 20 | cut -c1-300 >&2
  return "$status"
}

seconds_left() {
  left=$((STARTED + DRAIN_TIMEOUT_SECONDS - $(date +%s)))
  if [ "$DRAIN_MODE" = deadline ] && [ $((NOT_AFTER - $(date +%s))) -lt "$left" ]; then
    left=$((NOT_AFTER - $(date +%s)))
  fi
  echo "$left"
}

drain_before_deadline() {
  drain $(($1 * 2 / 3 + 1)) --force && return 0
  cordon # kubectl drain would cordon again, in nobody's name, a node that somebody uncordoned meanwhile
  left="$(seconds_left)"
  [ "$left" -ge 1 ] || return 1
  drain "$left" --force --disable-eviction
}

# What is left names the pod and the budget that stood in the way.
give_up() {
  finish 1 "drain-failed $(look_again)"
}

check_parameters
check_time
STARTED="$(date +%s)"
take_lock
check_time
cordon
if [ "$DRAIN_MODE" != deadline ]; then
  verdict="$(look_again)" || finish 69 "unreadable the pods of the node"
  case "$verdict" in
    free | force) ;;
    *) finish 68 "$verdict" ;;
  esac
fi
WORK="$(mktemp -d)" || finish 69 "unreadable no temporary directory"
trap 'rm -rf "$WORK"' EXIT
left="$(seconds_left)"
[ "$left" -ge 5 ] || finish 75 "busy the time was spent waiting for another command on this node"
if [ "$DRAIN_MODE" = deadline ]; then
  drain_before_deadline "$left" || give_up
elif [ "$verdict" = force ]; then
  drain "$left" --force || give_up
else
  drain "$left" || give_up
fi
finish 0 "drained $NODE_NAME"
