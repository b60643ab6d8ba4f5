#!/bin/bash
# Replaces K3s on the server by another release and checks its health. After a failure it restores the earlier binary and
# the datastore as it was before. The mode "check" prints what runs, and changes nothing.
#
# Parameters of the document: MODE, FROM_RELEASE, TO_RELEASE, CHECKSUM. Prints, in the mode "check":
#   server VERSION ready|not-ready                       the installed binary, or "-", and whether the API is ready
#   n server|worker VERSION ready|not-ready NODE...      the nodes by the version of their kubelet
# and at the end one line: result: WORD DETAIL
#   checked | upgraded SECONDS-WITHOUT-API | unchanged
#   bad-parameter
#   busy, other-version, not-downloaded, not-kept        nothing was changed
#   restored SECONDS-WITHOUT-API                         the earlier release runs again
#   broken                                               the installed release is not healthy, or K3s is stopped
# insert: parts/environment.sh

ROOT="${NODE_FLEET_ROOT:-}"
K3S_VERSION="$TO_RELEASE" K3S_SHA256_AMD64="$CHECKSUM"
# insert: ../bootstrap/download_k3s.sh

HEALTH_SECONDS=240
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"
BINARY="$ROOT/usr/local/bin/k3s"
DATASTORE="$ROOT/var/lib/rancher/k3s/server/db"
# The earlier binary and datastore, or after their restoration the datastore of the other release, until the next upgrade.
KEPT="$ROOT/var/lib/rancher/k3s/before-upgrade"
# K3s unpacks a new release beside its datastore.
UNPACKED_KIB=524288
STOPPED_AT="" READY_AT=""

finish() {
  echo "result: $2"
  exit "$1"
}

kubectl() {
  command kubectl --request-timeout="$REQUEST_TIMEOUT" "$@"
}

version_of() {
  if [ -x "$1" ]; then "$1" --version 2>/dev/null | sed -n 's/^k3s version \([^ ]*\).*/\1/p'; fi
}

is_ready() {
  kubectl get --raw /readyz >/dev/null 2>&1
}

# Names in groups: SSM cuts the output at 24,000 characters, and a fleet has up to 1000 workers.
list_nodes() {
  kubectl get --raw /api/v1/nodes | python3 -c '
import json, sys
groups = {}
for node in json.load(sys.stdin)["items"]:
    role = (node["metadata"].get("labels") or {}).get("node-role.kubernetes.io/control-plane")
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions") or ())
    group = "server" if role == "true" else "worker", version, "ready" if ready else "not-ready"
    groups.setdefault(group, []).append(node["metadata"]["name"])
for group, names in groups.items():
    print("n", *group, *names)
'
}

# is_healthy VERSION: the API is ready, and the Node of the server states this version and is Ready.
is_healthy() {
  is_ready || return 1
  READY_AT="${READY_AT:-$(date +%s)}"
  list_nodes 2>/dev/null | awk -v version="$1" '$2 == "server" && $3 == version && $4 == "ready" {found = 1} END {exit !found}'
}

wait_until_healthy() {
  local until
  until=$(($(date +%s) + HEALTH_SECONDS))
  READY_AT=""
  until is_healthy "$1"; do
    if (($(date +%s) >= until)); then return 1; fi
    sleep 2
  done
}

seconds_without_api() {
  echo $((READY_AT - STOPPED_AT))
}

# A script that ends early must leave neither its download nor a stopped server behind. Only the holder of the lock cleans up.
# shellcheck disable=SC2317
clean_up() {
  rm -f "$BINARY.new"
  if [ -n "$STOPPED_AT" ]; then systemctl start --no-block k3s; fi
}

check() {
  local status=not-ready nodes installed
  installed="$(version_of "$BINARY")"
  if is_ready; then status=ready; fi
  echo "server ${installed:--} $status"
  nodes="$(list_nodes)" || finish 69 "unreadable the API of the server does not list its nodes"
  echo "$nodes"
  finish 0 "checked"
}

fetch() {
  local found
  rm -f "$BINARY.new"
  download_k3s 180 1 "$BINARY.new" || finish 67 "not-downloaded $PROBLEM"
  found="$(version_of "$BINARY.new")"
  [ "$found" = "$K3S_VERSION" ] || finish 67 "not-downloaded the binary states version ${found:-nothing}, not $K3S_VERSION"
}

# A volume that becomes full while K3s is stopped would leave the datastore without space.
require_space() {
  local needed free
  rm -rf "$KEPT"
  needed="$(du -skc "$BINARY" "$DATASTORE" 2>/dev/null | tail -n 1 | cut -f 1)"
  free="$(df -kP "$ROOT/var/lib/rancher/k3s" | awk 'NR == 2 {print $4}')"
  needed=$((needed + UNPACKED_KIB))
  ((free >= needed)) || finish 68 "not-kept $KEPT and the new release need $((needed / 1024)) MiB, $((free / 1024)) MiB are free"
}

keep() {
  mkdir -p "$KEPT" && cp -a "$BINARY" "$KEPT/k3s" && cp -a "$DATASTORE" "$KEPT/db" &&
    find "$KEPT" "$BINARY.new" -type f -exec sync {} +
}

# K3s is stopped while its datastore is copied, so the copy is whole. Its containers keep running.
replace() {
  STOPPED_AT="$(date +%s)"
  systemctl stop k3s || finish 68 "not-kept K3s could not be stopped; see systemctl status k3s"
  if ! keep; then
    rm -rf "$KEPT"
    finish 68 "not-kept the binary and the datastore could not be copied to $KEPT; check the free space"
  fi
  mv -f "$BINARY.new" "$BINARY" || finish 68 "not-kept $BINARY could not be replaced"
  systemctl start --no-block k3s
}

# It renames, and so needs no space and leaves no half of a datastore. K3s must not start without one: it would make a new
# cluster.
restore() {
  systemctl stop k3s
  if ! { mv -f "$KEPT/k3s" "$BINARY" && mv "$DATASTORE" "$KEPT/db.failed" && mv "$KEPT/db" "$DATASTORE"; }; then
    STOPPED_AT=""
    finish 71 "broken $FROM_RELEASE could not be restored from $KEPT, and K3s is stopped"
  fi
  systemctl start --no-block k3s
}

check_parameters() {
  local name release='^(v1[.][0-9]{1,3}[.][0-9]{1,3}(-rc[0-9]{1,3})?[+]k3s[0-9]{1,3})?$'
  [[ "$MODE" =~ ^(check|upgrade)$ ]] || finish 64 "bad-parameter MODE"
  [[ "$FROM_RELEASE" =~ $release ]] || finish 64 "bad-parameter FROM_RELEASE"
  [[ "$TO_RELEASE" =~ $release ]] || finish 64 "bad-parameter TO_RELEASE"
  [[ "$CHECKSUM" =~ ^([0-9a-f]{64})?$ ]] || finish 64 "bad-parameter CHECKSUM"
  if [ "$MODE" = "check" ]; then return; fi
  for name in FROM_RELEASE TO_RELEASE CHECKSUM; do
    [ -n "${!name}" ] || finish 64 "bad-parameter $name is empty"
  done
}

check_parameters
if [ "$MODE" = "check" ]; then check; fi
mkdir -p "$LOCK_DIRECTORY"
exec 9>"$LOCK_DIRECTORY/node-fleet-upgrade.lock"
flock -w 1 9 || finish 75 "busy another upgrade of the server runs"
trap clean_up EXIT
installed="$(version_of "$BINARY")"
if [ "$installed" = "$K3S_VERSION" ]; then
  # Someone else has upgraded the server, or the machine was restarted during an earlier run of this command.
  systemctl start --no-block k3s
  if wait_until_healthy "$K3S_VERSION"; then finish 0 "unchanged $installed runs already"; fi
  finish 71 "broken $installed is installed and did not become healthy in $HEALTH_SECONDS s; see journalctl -u k3s"
fi
[ "$installed" = "$FROM_RELEASE" ] || finish 66 "other-version ${installed:-no K3s} is installed, expected $FROM_RELEASE"
fetch
require_space
replace
if wait_until_healthy "$K3S_VERSION"; then finish 0 "upgraded $(seconds_without_api)"; fi
restore
if wait_until_healthy "$FROM_RELEASE"; then finish 70 "restored $(seconds_without_api)"; fi
finish 71 "broken neither $K3S_VERSION nor $FROM_RELEASE became healthy in $HEALTH_SECONDS s; see journalctl -u k3s"
