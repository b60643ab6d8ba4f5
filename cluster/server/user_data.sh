#!/bin/bash
# Server bootstrap, first part: learns who this machine is, fetches the cluster bundle (this folder, uploaded by the
# deployment) and hands over to its server/install.sh. Runs again at every boot, so a changed bundle is applied by a
# restart of the machine. It must not hold secrets: user data can be read by anybody who may describe instances.
#
# Placeholders, filled by the deployment through plain text replacement (dollar sign, braces, name):
#   CLUSTER_ID            id of the cluster, as in the workers' tag Cluster
#   AWS_REGION            region of secrets, topic and bundle
#   BUNDLE_BUCKET         S3 bucket of the bundle
#   BUNDLE_KEY            S3 key of the bundle: a zip of the contents of cluster/
#   TOKEN_SECRET_ID       secret that receives the join token (node-fleet/k3s-token)
#   PROMETHEUS_SECRET_ID  secret with username and password (node-fleet/prometheus-auth)
#   ALERT_TOPIC_ARN       SNS topic whose subscriber starts the workflow
#   FLUX_GIT_URL          Git repository that Flux follows, or empty for no Flux
# NODE_FLEET_ROOT is no placeholder: a prefix for every path that is written, empty on a real machine.
set -Eeuo pipefail
umask 077

# shellcheck disable=SC2269
CLUSTER_ID="${CLUSTER_ID}"
# shellcheck disable=SC2269
AWS_REGION="${AWS_REGION}"
# shellcheck disable=SC2269
BUNDLE_BUCKET="${BUNDLE_BUCKET}"
# shellcheck disable=SC2269
BUNDLE_KEY="${BUNDLE_KEY}"
# shellcheck disable=SC2269
TOKEN_SECRET_ID="${TOKEN_SECRET_ID}"
# shellcheck disable=SC2269
PROMETHEUS_SECRET_ID="${PROMETHEUS_SECRET_ID}"
# shellcheck disable=SC2269
ALERT_TOPIC_ARN="${ALERT_TOPIC_ARN}"
# shellcheck disable=SC2269
FLUX_GIT_URL="${FLUX_GIT_URL}"

ROOT="${NODE_FLEET_ROOT:-}"
METADATA="http://169.254.169.254/latest"
BUNDLE="$ROOT/opt/node-fleet/cluster"
INSTANCE_ID=""
PROBLEM=""

say() {
  echo "node-fleet server bootstrap: $1" >&2
}

tag_error() {
  aws ec2 create-tags --region "$AWS_REGION" --resources "$INSTANCE_ID" --tags "Key=BootstrapError,Value=$1" ||
    say "the tag BootstrapError could not be written"
}

fail() {
  trap - ERR
  say "FAILED: $1"
  if [ -n "$INSTANCE_ID" ]; then
    tag_error "$(printf '%s' "$1" | tr -c 'A-Za-z0-9 +=._:/@-' ' ' | cut -c1-250)"
  fi
  exit 1
}
trap 'fail "unexpected error in line $LINENO: $BASH_COMMAND"' ERR

# retry ATTEMPTS PAUSE_SECONDS COMMAND...
retry() {
  local attempts="$1" pause_seconds="$2" attempt
  shift 2
  for ((attempt = 1; attempt <= attempts; attempt++)); do
    if "$@"; then return 0; fi
    say "attempt $attempt of $attempts: $PROBLEM"
    if ((attempt < attempts)); then sleep "$pause_seconds"; fi
  done
  return 1
}

require_tools() {
  local tool
  for tool in curl aws python3 sha256sum systemctl; do
    command -v "$tool" >/dev/null || fail "$tool is not on this image; use Amazon Linux 2023 or install it in the image"
  done
}

metadata() {
  curl -fsS --max-time 5 -H "X-aws-ec2-metadata-token: $1" "$METADATA/meta-data/$2"
}

read_identity() {
  local session id
  PROBLEM="the instance metadata service gave no session token"
  session="$(curl -fsS --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$METADATA/api/token")" || return 1
  [ -n "$session" ] || return 1
  PROBLEM="the instance metadata service did not tell instance id, zone and address"
  id="$(metadata "$session" instance-id)" || return 1
  ZONE="$(metadata "$session" placement/availability-zone)" || return 1
  PRIVATE_ADDRESS="$(metadata "$session" local-ipv4)" || return 1
  PROBLEM="instance id '$id', zone '$ZONE' or address '$PRIVATE_ADDRESS' is malformed"
  [[ "$id" =~ ^i-[0-9a-f]{8,17}$ && "$ZONE" =~ ^[a-z]{2}(-[a-z0-9]+)+$ && "$PRIVATE_ADDRESS" =~ ^[0-9.]+$ ]] || return 1
  INSTANCE_ID="$id"
}

fetch_bundle() {
  local archive
  archive="$(mktemp)"
  PROBLEM="the bundle s3://$BUNDLE_BUCKET/$BUNDLE_KEY could not be fetched"
  aws s3 cp --only-show-errors --region "$AWS_REGION" "s3://$BUNDLE_BUCKET/$BUNDLE_KEY" "$archive" || return 1
  PROBLEM="the bundle s3://$BUNDLE_BUCKET/$BUNDLE_KEY is not a zip archive"
  rm -rf "$BUNDLE"
  mkdir -p "$BUNDLE"
  python3 -m zipfile -e "$archive" "$BUNDLE" || return 1
  rm -f "$archive"
}

# User data runs once in the life of an instance; this unit runs the current text of it at every later boot.
write_boot_unit() {
  mkdir -p "$ROOT/etc/systemd/system"
  cat >"$ROOT/etc/systemd/system/node-fleet-bootstrap.service" <<'UNIT'
[Unit]
Description=node-fleet server bootstrap, repeated at every boot
Wants=network-online.target
After=network-online.target cloud-final.service

[Service]
Type=oneshot
ExecStart=/bin/bash /opt/node-fleet/cluster/server/rerun_user_data.sh

[Install]
WantedBy=multi-user.target
UNIT
}

require_tools
retry 10 3 read_identity || fail "$PROBLEM; K3s was not started"
say "this is $INSTANCE_ID in $ZONE"
retry 6 10 fetch_bundle || fail "$PROBLEM"
export CLUSTER_ID AWS_REGION TOKEN_SECRET_ID PROMETHEUS_SECRET_ID ALERT_TOPIC_ARN FLUX_GIT_URL
export INSTANCE_ID ZONE PRIVATE_ADDRESS NODE_FLEET_ROOT="$ROOT" NODE_FLEET_BUNDLE="$BUNDLE"
trap - ERR
bash "$BUNDLE/server/install.sh" || fail "server/install.sh ended with status $?; its last lines above say why"
write_boot_unit
systemctl daemon-reload
systemctl enable node-fleet-bootstrap
say "ready: K3s, monitoring and the join token are in place"
