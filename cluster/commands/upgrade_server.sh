#!/bin/bash
# Replaces K3s on the server by another release and checks its health. After a failure it restores the earlier binary and
# the datastore as it was before. The mode "check" prints what runs, and changes nothing.
#
# Parameters of the document: MODE, FROM_RELEASE, TO_RELEASE, CHECKSUM. Prints, in the mode "check":
#   server VERSION ready|not-ready     the installed binary, "-" when there is none, and whether the API is ready
#   n NODE VERSION server|worker       each node with the version of its kubelet
# and at the end one line: result: WORD DETAIL
#   checked | upgraded SECONDS-WITHOUT-API | unchanged
#   bad-parameter
#   busy, other-version, not-downloaded, not-kept        nothing was changed
#   restored SECONDS-WITHOUT-API                         the earlier release runs again
#   broken                                               neither release became healthy
# insert: parts/environment.sh

ROOT="${NODE_FLEET_ROOT:-}"
K3S_VERSION="$TO_RELEASE" K3S_SHA256_AMD64="$CHECKSUM"
# insert: ../bootstrap/download_k3s.sh

HEALTH_SECONDS=240
LOCK_DIRECTORY="${NODE_FLEET_LOCK_DIRECTORY:-/run/lock}"
BINARY="$ROOT/usr/local/bin/k3s"
DATASTORE="$ROOT/var/lib/rancher/k3s/server/db"
# The earlier binary and datastore, kept until the next upgrade.
KEPT="$ROOT/var/lib/rancher/k3s/before-upgrade"
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

list_nodes() {
  kubectl get --raw /api/v1/nodes | python3 -c '
import json, sys
for node in json.load(sys.stdin)["items"]:
    role = (node["metadata"].get("labels") or {}).get("node-role.kubernetes.io/control-plane")
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    print("n", node["metadata"]["name"], version, "server" if role == "true" else "worker")
'
}

# is_healthy VERSION: the API is ready, and the Node of the server states this version.
is_healthy() {
  is_ready || return 1
  READY_AT="${READY_AT:-$(date +%s)}"
  list_nodes 2>/dev/null | awk -v version="$1" '$3 == version && $4 == "server" {found = 1} END {exit !found}'
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

# A script that ends early must leave neither the download nor a stopped server behind.
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

# K3s is stopped while its datastore is copied, so the copy is whole. Its containers keep running.
replace() {
  STOPPED_AT="$(date +%s)"
  systemctl stop k3s
  if ! { rm -rf "$KEPT" && mkdir -p "$KEPT" && cp -a "$BINARY" "$KEPT/k3s" && cp -a "$DATASTORE" "$KEPT/db"; }; then
    finish 68 "not-kept the binary and the datastore could not be copied to $KEPT; check the free space"
  fi
  mv -f "$BINARY.new" "$BINARY"
  systemctl start --no-block k3s
}

restore() {
  systemctl stop k3s
  cp -a "$KEPT/k3s" "$BINARY.new" && mv -f "$BINARY.new" "$BINARY"
  rm -rf "$DATASTORE" && cp -a "$KEPT/db" "$DATASTORE"
  systemctl start --no-block k3s
}

check_parameters() {
  local release='^(v1[.][0-9]{1,3}[.][0-9]{1,3}(-rc[0-9]{1,3})?[+]k3s[0-9]{1,3})?$'
  [[ "$MODE" =~ ^(check|upgrade)$ ]] || finish 64 "bad-parameter MODE"
  [[ "$FROM_RELEASE" =~ $release ]] || finish 64 "bad-parameter FROM_RELEASE"
  [[ "$TO_RELEASE" =~ $release ]] || finish 64 "bad-parameter TO_RELEASE"
  [[ "$CHECKSUM" =~ ^([0-9a-f]{64})?$ ]] || finish 64 "bad-parameter CHECKSUM"
}

check_parameters
trap clean_up EXIT
if [ "$MODE" = "check" ]; then check; fi
mkdir -p "$LOCK_DIRECTORY"
exec 9>"$LOCK_DIRECTORY/node-fleet-upgrade.lock"
flock -w 1 9 || finish 75 "busy another upgrade of the server runs"
installed="$(version_of "$BINARY")"
if [ "$installed" = "$K3S_VERSION" ] && is_healthy "$K3S_VERSION"; then finish 0 "unchanged $installed runs already"; fi
[ "$installed" = "$FROM_RELEASE" ] || finish 66 "other-version ${installed:-no K3s} is installed, expected $FROM_RELEASE"
fetch
replace
if wait_until_healthy "$K3S_VERSION"; then finish 0 "upgraded $(seconds_without_api)"; fi
restore
if wait_until_healthy "$FROM_RELEASE"; then finish 70 "restored $(seconds_without_api)"; fi
finish 71 "broken neither $K3S_VERSION nor $FROM_RELEASE became healthy in $HEALTH_SECONDS s; see journalctl -u k3s"
