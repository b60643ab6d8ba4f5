#!/bin/sh
# Empties one worker: cordons it for one operation, inspects its pods again, then evicts them with kubectl drain. It does
# nothing when it starts too late, runs twice, its operation was rolled back, or another user cordoned the node.
# A Deployment of one replica that is annotated restart-before-drain is restarted first: its second pod becomes available
# on another node before its first one ends. Two thirds of the time are for that; when it fails, no pod is evicted.
#
# Parameters of the document: NODE_NAME, OPERATION_ID, NOT_AFTER (epoch seconds of the latest start),
# DRAIN_TIMEOUT_SECONDS and DRAIN_MODE: voluntary (every blocker refuses; --force only when every bare pod is annotated as
# safe to evict), not-ready (the node has been not ready for long: only node-bound volumes, protected and unreadable pods
# refuse), hibernate (the whole cluster is switched off: only pods refuse that would not come back or lose their data) or
# deadline (AWS reclaims the instance: nothing refuses, and the last third of the time ignores budgets).
# CAUSE (none, spot, rebalance or scheduled) is why EC2 ends the instance, for the Event of the node.
# A deadline drain first prints "volume CLAIM VOLUME POD" for each volume that ends with the node (lost_volumes.py).
# The last line is "result: WORD detail"; exit status 0 drained, 1 kubectl drain or a restart failed, 64 bad parameter, 65 too late,
# 66 no such node, 67 cordoned by another user, 68 a pod blocks, 69 the API cannot be read, 70 rolled back, 75 busy.
# insert: parts/environment.sh

# insert: parts/node.sh

# insert: parts/cordon.sh
NOT_AFTER="${NOT_AFTER:-}" DRAIN_TIMEOUT_SECONDS="${DRAIN_TIMEOUT_SECONDS:-}" DRAIN_MODE="${DRAIN_MODE:-voluntary}"
CAUSE="${CAUSE:-none}"

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
    voluntary | not-ready | deadline | hibernate) ;;
    *) finish 64 "bad-parameter DRAIN_MODE" ;;
  esac
  case "$CAUSE" in
    none | spot | rebalance | scheduled) ;;
    *) finish 64 "bad-parameter CAUSE" ;;
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
      [ "$OWNER" != "$OPERATION_ID" ] || {
        repeated=yes
        return 0
      }
      [ "$DRAIN_MODE" != deadline ] || return 0
      finish 67 "foreign-cordon $OWNER"
    fi
    kubectl patch node "$NODE_NAME" --type merge -p '{"metadata":{"resourceVersion":"'"$VERSION"'","annotations":{"node-fleet.io/cordoned-by":"'"$OPERATION_ID"'","node-fleet.io/cordoned-at":"'"$(date +%s)"'","node-fleet.io/undone":null}},"spec":{"unschedulable":true}}' && return 0
    echo "the API refused attempt $attempt of 3 to cordon node $NODE_NAME" >&2
  done
  finish 69 "unreadable node $NODE_NAME could not be cordoned"
}

# inspect_again blockers: prints what blocks, or "force" or "free" and the Deployments to restart first. The node is
# cordoned, so no new pod starts between this and the drain. inspect_again volumes: prints the volumes that end with the
# node.
inspect_again() {
  NODE_FLEET_NOW="$(date +%s)" NODE_NAME="$NODE_NAME" DRAIN_MODE="$DRAIN_MODE" SUBJECT="$1" python3 - <<'PYTHON'
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: rules.py
# insert: lost_volumes.py
# insert: parts/read_list.py

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


def pods_in(namespace):
    return read(f"/api/v1/namespaces/{namespace}/pods")


def main():
    if os.environ["SUBJECT"] == "volumes":
        lists = {kind: read(LISTS[kind]) for kind in ("nodes", "persistentvolumes")}
        for line in volume_lines(Cluster(lists, 0), NODE, pods_in):
            print(line)
        return
    lists = {kind: read(path) for kind, path in LISTS.items()}
    node = next(each for each in lists["nodes"] if each["metadata"]["name"] == NODE)
    cluster = Cluster(lists, int(os.environ["NODE_FLEET_NOW"]))
    pods = [p for p in lists["pods"] if (p.get("spec") or {}).get("nodeName") == NODE]
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    not_ready = os.environ["DRAIN_MODE"] == "not-ready" and not ready
    refusing = "bvnxu" if not_ready else "bvnxuwcg" if os.environ["DRAIN_MODE"] == "hibernate" else "bvnxuwkscdgeptqo"
    found = sorted(f"{name}:{code}" for name, code in cluster.blockers(node, pods) if code[0] in refusing)
    mark = node_protected(node, cluster.now)
    if mark:
        found.insert(0, "node:" + mark)
    restarts = [] if found or not_ready or os.environ["DRAIN_MODE"] == "hibernate" else cluster.restarts(pods)
    if not all(re.fullmatch("[a-z0-9-]+/[a-z0-9][a-z0-9.-]*", name) for name in restarts):
        sys.exit("a Deployment has a name that no API server accepts")
    owners = {controller(p)["uid"] for p in pods if moves(p) and controller(p) and "uid" in controller(p)}
    owners |= {uid for p in pods if moves(p) and (uid := meta(cluster.deployment_of(p) or {}).get("uid"))}
    with open(os.environ["OWNERS_FILE"], "w") as file:
        file.write(" ".join([os.environ["OPERATION_ID"], *sorted(owners)]))
    force = any(cluster.needs_force(p) for p in pods)
    if found:
        print("blocked " + ",".join(found[:2]) + f" {max(0, len(found) - 2)}")
    else:
        print("force" if force else "free", *restarts)


main()
PYTHON
}

# report REASON Normal|Warning MESSAGE [BLOCKERS]: an Event on the node, and one on each pod that BLOCKERS names. The drain
# does not depend on it. Before a deadline no pod keeps the node, and little time is left: only the node has an Event.
report() {
  NODE_FLEET_NOW="$(date +%s)" DRAIN_MODE="$DRAIN_MODE" python3 - "$NODE_NAME" "$@" <<'PYTHON' >&2 || echo "the Event $1 of node $NODE_NAME could not be written" >&2
# insert: events.py
# insert: ../../functions/node_fleet/domain/scale_down/blocker_reasons.py
import sys


def blockers_in(words):
    """(pod, why it blocks) of "blocked POD:LETTER[=DETAIL],... MORE"; without a pod when the node or a claim blocks."""
    found = []
    for entry in words[1].split(",") if words[:1] == ["blocked"] else ():
        name, _, code = entry.rpartition(":")
        letter, _, detail = code.partition("=")
        why = reason_of(letter, detail)
        alone = f"the node is annotated {code}" if name == "node" else f"claim {name} {why}" if letter == "b" else ""
        found.append(("", alone) if alone else (name, why))
    return found


def main(node, reason, kind, message, blockers=""):
    found = blockers_in(blockers.split())
    named = "; ".join(f"{pod} {why}" if pod else why for pod, why in found)
    more = int(blockers.split()[-1]) if found else 0
    named += f", and {more} more" if more else ""
    done = record_event(("Node", "", node), reason, f"{message}: {named}" if named else message, kind == "Warning")
    for pod, why in found if os.environ["DRAIN_MODE"] != "deadline" else ():
        namespace, _, name = pod.partition("/")
        if name:
            text = f"it keeps worker {node} from being removed: it {why}"
            done = record_event(("Pod", namespace, name), reason, text, kind == "Warning") and done
    return 0 if done else 1


sys.exit(main(*sys.argv[1:]))
PYTHON
}

report_begin() {
  until="$(date -u -d "@$((STARTED + DRAIN_TIMEOUT_SECONDS))" +%H:%M:%S) UTC (operation $OPERATION_ID)"
  case "$CAUSE" in
    spot) report SpotInterruption Warning "EC2 reclaims this Spot instance: node-fleet evicts its pods until $until" ;;
    rebalance) report SpotInterruption Warning "EC2 recommends to replace this Spot instance: node-fleet evicts its pods until $until" ;;
    scheduled) report ScheduledChange Warning "EC2 has scheduled a change of this instance: node-fleet evicts its pods until $until" ;;
    *) report Draining Normal "node-fleet evicts the pods of this worker until $until, then removes or reboots it" ;;
  esac
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

# note_restart NAMESPACE/NAME EPOCH|null: without a success this Deployment is not restarted again for some hours, also when
# this script is ended.
note_restart() {
  kubectl patch deployment "${1#*/}" -n "${1%/*}" --type merge -p '{"metadata":{"annotations":{"node-fleet.io/restart-begun-at":'"$2"'}}}' >&2
}

# restart_first NAMESPACE/NAME ...: each gets a second pod on another node, and its first one ends when that is available.
# Nothing of it is undone: someone else may have changed the Deployment since. When one fails, the others are waited for, so
# that their annotation is removed. A wait that outlives this script does not keep the lock.
restart_first() {
  seconds=$(($(seconds_left) * 2 / 3)) problem=""
  until=$(($(date +%s) + seconds))
  for each; do
    { note_restart "$each" "\"$(date +%s)\"" &&
      kubectl rollout restart "deployment/${each#*/}" -n "${each%/*}" --field-manager=node-fleet >&2; } ||
      problem="${problem:-$each could not be restarted}"
  done
  for each; do
    left=$((until - $(date +%s)))
    if kubectl rollout status "deployment/${each#*/}" -n "${each%/*}" --timeout="$((left > 1 ? left : 1))s" >&2 9>&-; then
      note_restart "$each" null
    else
      late="no second pod of $each became available elsewhere within $seconds s of its restart; its first pod still runs"
      problem="${problem:-$late}"
    fi
  done
  [ -z "$problem" ] || stay "$problem"
  left="$(seconds_left)"
  [ "$left" -ge 5 ] || stay "the restarts took so long that no time is left to evict the other pods"
}

stay() {
  report DrainFailed Warning "the worker is not drained (operation $OPERATION_ID): $1"
  finish 1 "not-restarted $1"
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
  remaining="$(inspect_again blockers)"
  report DrainFailed Warning "kubectl drain did not finish in $DRAIN_TIMEOUT_SECONDS s (operation $OPERATION_ID)" "$remaining"
  finish 1 "drain-failed $remaining"
}

check_parameters
check_time
STARTED="$(date +%s)"
take_lock "$DRAIN_TIMEOUT_SECONDS"
check_time
repeated=no
cordon
if [ "$DRAIN_MODE" != deadline ]; then
  verdict="$(inspect_again blockers)" || finish 69 "unreadable the pods of node $NODE_NAME"
  case "$verdict" in
    free* | force*) ;;
    *)
      report DrainFailed Warning "the worker is not drained (operation $OPERATION_ID)" "$verdict"
      finish 68 "$verdict"
      ;;
  esac
fi
[ "$repeated" = yes ] || report_begin
WORK="$(mktemp -d)" || finish 69 "unreadable no temporary directory could be created"
trap 'rm -rf "$WORK"' EXIT
left="$(seconds_left)"
[ "$left" -ge 5 ] || finish 75 "busy the time ran out while another command ran on node $NODE_NAME"
if [ "$DRAIN_MODE" = deadline ]; then
  inspect_again volumes || echo "the volumes of node $NODE_NAME could not be read" >&2
  drain_before_deadline "$left" || give_up
else
  # shellcheck disable=SC2086
  set -- $verdict
  verdict="$1"
  shift
  if [ $# -gt 0 ]; then
    restart_first "$@"
  fi
  case "$verdict" in
    force) drain "$left" --force || give_up ;;
    *) drain "$left" || give_up ;;
  esac
fi
finish 0 "drained $NODE_NAME"
