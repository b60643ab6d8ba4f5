#!/bin/bash
# Prints what forbids to switch the whole cluster off, or copies the datastore of K3s before its server is stopped.
#
# Parameter of the document: HIBERNATE_MODE. Prints, in the mode "check", the first of each kind:
#   server NAME                                  every node of the control plane
#   job NAMESPACE/NAME                           a Job that runs
#   namespace NAME                               it has the label node-fleet.io/hibernate=never
#   node NAME:ANNOTATION                         a worker that must not be removed
#   pod NAMESPACE/NAME:LETTER                    a pod or claim that would not come back, or lose its data (rules.py)
# and at the end one line: result: WORD DETAIL
#   checked | kept FOLDER | external             no datastore is on this machine
#   bad-parameter
#   unreadable                                   the API does not answer
#   busy, not-kept                               there is no copy, and K3s runs
# insert: parts/environment.sh

ROOT="${NODE_FLEET_ROOT:-}"
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"
DATASTORE="$ROOT/var/lib/rancher/k3s/server/db"
# The datastore as it was when the server was switched off last.
KEPT="$ROOT/var/lib/rancher/k3s/before-hibernation"
STOPPED=no

finish() {
  echo "result: $2"
  exit "$1"
}

check() {
  NODE_FLEET_NOW="$(date +%s)" python3 - <<'PYTHON' || finish 69 "unreadable the API of the server does not answer"
# insert: ../../functions/node_fleet/domain/fit/demand.py
# insert: rules.py
# insert: parts/read_list.py

SHOWN = 3
LASTING = "bvnxuwcg"
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "namespaces": "/api/v1/namespaces",
    "jobs": "/apis/batch/v1/jobs",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "replicasets": "/apis/apps/v1/replicasets",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
}


def is_server(node):
    return (meta(node).get("labels") or {}).get("node-role.kubernetes.io/control-plane") == "true"


def runs(job):
    return int((job.get("status") or {}).get("active") or 0) > 0


def marked(namespace):
    return (meta(namespace).get("labels") or {}).get("node-fleet.io/hibernate") == "never"


def lasting(node, pods, cluster):
    return [f"{name}:{code[0]}" for name, code in cluster.blockers(node, pods) if code[0] in LASTING]


def show(kind, names):
    for name in sorted(names)[:SHOWN]:
        print(kind, re.sub(r"[^A-Za-z0-9._/:~-]", "?", name)[:200])


def main():
    lists = {kind: read(path) for kind, path in LISTS.items()}
    cluster, on_node = Cluster(lists, int(os.environ["NODE_FLEET_NOW"])), defaultdict(list)
    for pod in lists["pods"]:
        on_node[(pod.get("spec") or {}).get("nodeName") or ""].append(pod)
    workers = [node for node in lists["nodes"] if not is_server(node)]
    show("server", [meta(node)["name"] for node in lists["nodes"] if is_server(node)])
    show("job", ["/".join(key(job)) for job in lists["jobs"] if runs(job)])
    show("namespace", [meta(each)["name"] for each in lists["namespaces"] if marked(each)])
    marks = {meta(node)["name"]: node_protected(node, cluster.now) for node in workers}
    show("node", [f"{name}:{mark}" for name, mark in marks.items() if mark])
    show("pod", [entry for node in workers for entry in lasting(node, on_node[meta(node)["name"]], cluster)])


main()
PYTHON
  finish 0 "checked"
}

# Only the holder of the lock cleans up: a script that ends early must not leave K3s stopped.
# shellcheck disable=SC2317
clean_up() {
  if [ "$STOPPED" = yes ]; then systemctl start --no-block k3s; fi
}

# The copy before is kept until the new one is whole. K3s is stopped meanwhile, so the copy is consistent.
back_up() {
  local needed free
  [ -d "$DATASTORE" ] || finish 0 "external"
  rm -rf "$KEPT.new"
  needed="$(du -sk "$DATASTORE" | cut -f 1)"
  free="$(df -kP "$ROOT/var/lib/rancher/k3s" | awk 'NR == 2 {print $4}')"
  ((free > needed)) || finish 68 "not-kept $KEPT needs $((needed / 1024)) MiB, $((free / 1024)) MiB are free"
  STOPPED=yes
  systemctl stop k3s || finish 68 "not-kept K3s could not be stopped; see systemctl status k3s"
  # Systems Manager ends this script after ten minutes, and then K3s would stay stopped.
  if ! { timeout 400 cp -a "$DATASTORE" "$KEPT.new" && find "$KEPT.new" -type f -exec sync {} +; }; then
    rm -rf "$KEPT.new"
    finish 68 "not-kept the datastore could not be copied to $KEPT; check the free space"
  fi
  if ! { rm -rf "$KEPT" && mv "$KEPT.new" "$KEPT"; }; then
    finish 68 "not-kept $KEPT could not be replaced"
  fi
  finish 0 "kept $KEPT"
}

case "${HIBERNATE_MODE:-}" in
  check) check ;;
  backup) ;;
  *) finish 64 "bad-parameter HIBERNATE_MODE" ;;
esac
mkdir -p "$LOCK_DIRECTORY"
exec 9>"$LOCK_DIRECTORY/node-fleet-upgrade.lock"
flock -w 1 9 || finish 75 "busy an upgrade or another backup of the server runs"
trap clean_up EXIT
back_up
