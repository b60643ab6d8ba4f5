#!/bin/sh
# Empties one worker: cordons it for one operation, inspects its pods again, then evicts them with kubectl drain. It does
# nothing when it starts too late, runs twice, its operation was rolled back, or another user cordoned the node.
#
# Parameters of the document: NODE_NAME, OPERATION_ID, NOT_AFTER (epoch seconds of the latest start),
# DRAIN_TIMEOUT_SECONDS and DRAIN_MODE: voluntary (every blocker refuses; --force only when every bare pod is annotated as
# safe to evict), not-ready (the node has been not ready for long: only node-bound volumes, protected and unreadable pods
# refuse) or deadline (AWS reclaims the instance: nothing refuses, and the last third of the time ignores budgets).
# A deadline drain first prints "volume CLAIM VOLUME POD" for each volume that ends with the node (lost_volumes.py).
# The last line is "result: WORD detail"; exit status 0 drained, 1 kubectl drain failed, 64 bad parameter, 65 too late,
# 66 no such node, 67 cordoned by another user, 68 a pod blocks, 69 the API cannot be read, 70 rolled back, 75 busy.
# insert: parts/environment.sh

# insert: parts/node.sh

# insert: parts/cordon.sh
NOT_AFTER="${NOT_AFTER:-}" DRAIN_TIMEOUT_SECONDS="${DRAIN_TIMEOUT_SECONDS:-}" DRAIN_MODE="${DRAIN_MODE:-voluntary}"

check_parameters() {
  check_node_name
  check_operation_id
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
}

check_time() {
  [ "$(date +%s)" -le "$NOT_AFTER" ] || finish 65 "too-late the latest start is $NOT_AFTER, the time is $(date +%s)"
}

# One patch sets cordon and annotation on exactly the version that was read, so it never replaces another cordon.
cordon() {
  for attempt in 1 2 3; do
    read_node
    [ "$CORDONED" != absent ] || finish 66 "no-node $NODE_NAME"
    [ "$UNDONE" != "$OPERATION_ID" ] || finish 70 "undone operation $OPERATION_ID was rolled back"
    if [ "$CORDONED" = yes ]; then
      [ "$OWNER" != "$OPERATION_ID" ] || return 0
      [ "$DRAIN_MODE" != deadline ] || return 0
      finish 67 "foreign-cordon $OWNER"
    fi
    kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$VERSION"'","annotations":{"node-fleet.io/cordoned-by":"'"$OPERATION_ID"'","node-fleet.io/cordoned-at":"'"$(date +%s)"'","node-fleet.io/undone":null}},"spec":{"unschedulable":true}}' && return 0
    echo "the API refused attempt $attempt of 3 to cordon node $NODE_NAME" >&2
  done
  finish 69 "unreadable node $NODE_NAME could not be cordoned"
}

# inspect_again blockers: prints what blocks, or "force" or "free". The node is cordoned, so no new pod starts between this
# and the drain. inspect_again volumes: prints the volumes that end with the node.
inspect_again() {
  NODE_FLEET_NOW="$(date +%s)" NODE_NAME="$NODE_NAME" DRAIN_MODE="$DRAIN_MODE" SUBJECT="$1" python3 - <<'PYTHON'
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: rules.py
# insert: lost_volumes.py
import json
import os
import subprocess
import sys

NODE = os.environ["NODE_NAME"]
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods?fieldSelector=spec.nodeName%3D" + NODE,
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
}


def read(path):
    limit = "--request-timeout=" + os.environ["REQUEST_TIMEOUT"]
    done = subprocess.run(["kubectl", limit, "get", "--raw", path], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(1)
    return json.loads(done.stdout)


def pods_in(namespace):
    return read(f"/api/v1/namespaces/{namespace}/pods")["items"] or []


def main():
    if os.environ["SUBJECT"] == "volumes":
        lists = {kind: read(LISTS[kind])["items"] or [] for kind in ("nodes", "persistentvolumes")}
        for line in volume_lines(Cluster(lists, 0), NODE, pods_in):
            print(line)
        return
    lists = {kind: read(path)["items"] or [] for kind, path in LISTS.items()}
    node = next(each for each in lists["nodes"] if each["metadata"]["name"] == NODE)
    cluster = Cluster(lists, int(os.environ["NODE_FLEET_NOW"]))
    pods = [p for p in lists["pods"] if (p.get("spec") or {}).get("nodeName") == NODE]
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    not_ready = os.environ["DRAIN_MODE"] == "not-ready" and not ready
    refusing = "bvnxu" if not_ready else "bvnxuwkscdgeptqo"
    found = sorted(f"{name}:{code}" for name, code in cluster.blockers(node, pods) if code[0] in refusing)
    mark = node_protected(node, cluster.now)
    if mark:
        found.insert(0, "node:" + mark)
    owners = {controller(p)["uid"] for p in pods if moves(p) and controller(p) and "uid" in controller(p)}
    with open(os.environ["OWNERS_FILE"], "w") as file:
        file.write(" ".join([os.environ["OPERATION_ID"], *sorted(owners)]))
    force = any(cluster.needs_force(p) for p in pods)
    print("blocked " + ",".join(found[:2]) + f" {max(0, len(found) - 2)}" if found else "force" if force else "free")


main()
PYTHON
}

# kubectl prints one line for every refused eviction; each line is kept once, so that no limit cuts the end of the output.
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
  cordon # kubectl drain would cordon a node that was uncordoned meanwhile, without the annotation
  left="$(seconds_left)"
  [ "$left" -ge 1 ] || return 1
  drain "$left" --force --disable-eviction
}

# The remaining blockers name the pod and the budget that refused.
give_up() {
  finish 1 "drain-failed $(inspect_again blockers)"
}

check_parameters
check_time
STARTED="$(date +%s)"
take_lock "$DRAIN_TIMEOUT_SECONDS"
check_time
cordon
if [ "$DRAIN_MODE" != deadline ]; then
  verdict="$(inspect_again blockers)" || finish 69 "unreadable the pods of node $NODE_NAME"
  case "$verdict" in
    free | force) ;;
    *) finish 68 "$verdict" ;;
  esac
fi
WORK="$(mktemp -d)" || finish 69 "unreadable no temporary directory could be created"
trap 'rm -rf "$WORK"' EXIT
left="$(seconds_left)"
[ "$left" -ge 5 ] || finish 75 "busy the time ran out while another command ran on node $NODE_NAME"
if [ "$DRAIN_MODE" = deadline ]; then
  inspect_again volumes || echo "the volumes of node $NODE_NAME could not be read" >&2
  drain_before_deadline "$left" || give_up
elif [ "$verdict" = force ]; then
  drain "$left" --force || give_up
else
  drain "$left" || give_up
fi
finish 0 "drained $NODE_NAME"
