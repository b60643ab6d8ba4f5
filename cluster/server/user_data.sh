#!/bin/bash
# Server bootstrap, first part: reads the identity of this machine, fetches the cluster bundle (the folder cluster/, which
# the deployment uploads) and runs its server/install.sh. It runs again at every boot, so a restart of the machine applies
# a changed bundle, and one minute after every failure. It must not hold secrets: every principal with
# ec2:DescribeInstanceAttribute can read user data.
#
# The deployment inserts the files that lines "insert: FILE" name, and replaces these placeholders in the text:
#   CLUSTER_ID            id of the cluster, as in the workers' tag Cluster
#   AWS_REGION            region of secrets, topic and bundle
#   BUNDLE_BUCKET         S3 bucket of the bundle
#   BUNDLE_KEY            S3 key of the bundle: a zip of the contents of cluster/
#   TOKEN_SECRET_ID       secret that receives the join token (node-fleet/k3s-token)
#   PROMETHEUS_SECRET_ID  secret with username and password (node-fleet/prometheus-auth)
#   GRAFANA_SECRET_ID     secret with username and password (node-fleet/grafana-auth)
#   ALERT_TOPIC_ARN       SNS topic whose subscriber starts the workflow
#   STATE_TABLE           DynamoDB table with the state item, for the metrics of node-fleet
#   FLUX_GIT_URL          Git repository that Flux follows, or empty for no Flux
#   REGISTRY_MIRROR       true when the nodes give each other the images that they have
#   IMAGE_WAIT_SECONDS    how long a new worker may pull images before pods start on it; 0: it pulls none
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
GRAFANA_SECRET_ID="${GRAFANA_SECRET_ID}"
# shellcheck disable=SC2269
ALERT_TOPIC_ARN="${ALERT_TOPIC_ARN}"
# shellcheck disable=SC2269
STATE_TABLE="${STATE_TABLE}"
# shellcheck disable=SC2269
FLUX_GIT_URL="${FLUX_GIT_URL}"
# shellcheck disable=SC2269
REGISTRY_MIRROR="${REGISTRY_MIRROR}"
# shellcheck disable=SC2269
IMAGE_WAIT_SECONDS="${IMAGE_WAIT_SECONDS}"

MACHINE="server"

# insert: ../bootstrap/report.sh
BUNDLE="$ROOT/opt/node-fleet/cluster"

read_identity() {
  local id
  open_metadata_session || return 1
  PROBLEM="the instance metadata service did not return instance id, zone and address"
  id="$(metadata instance-id)" || return 1
  ZONE="$(metadata placement/availability-zone)" || return 1
  PRIVATE_ADDRESS="$(metadata local-ipv4)" || return 1
  PROBLEM="instance id '$id', zone '$ZONE' or address '$PRIVATE_ADDRESS' is malformed"
  [[ "$id" =~ ^i-[0-9a-f]{8,17}$ && "$ZONE" =~ ^[a-z]{2}(-[a-z0-9]+)+$ && "$PRIVATE_ADDRESS" =~ ^[0-9.]+$ ]] || return 1
  INSTANCE_ID="$id"
}

# The earlier bundle stays until the new one is complete.
fetch_bundle() {
  local archive
  archive="$(mktemp)"
  PROBLEM="the bundle s3://$BUNDLE_BUCKET/$BUNDLE_KEY could not be fetched; check the route to S3 and the role of the server"
  aws s3 cp --only-show-errors --region "$AWS_REGION" "s3://$BUNDLE_BUCKET/$BUNDLE_KEY" "$archive" || return 1
  PROBLEM="the bundle s3://$BUNDLE_BUCKET/$BUNDLE_KEY is not a zip archive"
  rm -rf "$BUNDLE.new"
  mkdir -p "$BUNDLE.new"
  python3 -m zipfile -e "$archive" "$BUNDLE.new" || return 1
  rm -rf "$archive" "$BUNDLE"
  mv "$BUNDLE.new" "$BUNDLE"
}

# EC2 runs user data only at the first boot. This unit runs the current user data at every later boot, and again after a
# failure until a run succeeds.
write_boot_unit() {
  mkdir -p "$ROOT/etc/systemd/system" "$ROOT/opt/node-fleet"
  cat >"$ROOT/opt/node-fleet/rerun_user_data.sh" <<'RERUN'
# insert: rerun_user_data.sh
RERUN
  cat >"$ROOT/etc/systemd/system/node-fleet-bootstrap.service" <<'UNIT'
[Unit]
Description=node-fleet server bootstrap, repeated at every boot and after a failure
Wants=network-online.target
After=network-online.target cloud-final.service
StartLimitIntervalSec=0

[Service]
Type=oneshot
Environment=STARTED_BY_BOOT_UNIT=yes
ExecStart=/bin/bash /opt/node-fleet/rerun_user_data.sh
Restart=on-failure
RestartSec=60s

[Install]
WantedBy=multi-user.target
UNIT
  systemctl daemon-reload
  systemctl enable node-fleet-bootstrap
}

# systemd repeats only what it started itself. The unit waits until cloud-init, which runs this first attempt, has ended.
start_boot_unit_after_failure() {
  if [ "$?" = "0" ] || [ -n "${STARTED_BY_BOOT_UNIT:-}" ]; then return 0; fi
  say "the unit node-fleet-bootstrap repeats the bootstrap every minute until it succeeds; see journalctl -u node-fleet-bootstrap"
  systemctl start --no-block node-fleet-bootstrap
}

require_tools curl aws python3 sha256sum systemctl
write_boot_unit
trap start_boot_unit_after_failure EXIT
retry 10 3 read_identity || fail "$PROBLEM; K3s was not started"
say "this is $INSTANCE_ID in $ZONE"
retry 6 10 fetch_bundle || fail "$PROBLEM"
export CLUSTER_ID AWS_REGION TOKEN_SECRET_ID PROMETHEUS_SECRET_ID GRAFANA_SECRET_ID ALERT_TOPIC_ARN STATE_TABLE
export FLUX_GIT_URL REGISTRY_MIRROR IMAGE_WAIT_SECONDS
export INSTANCE_ID ZONE PRIVATE_ADDRESS NODE_FLEET_ROOT="$ROOT" NODE_FLEET_BUNDLE="$BUNDLE"
trap - ERR
bash "$BUNDLE/server/install.sh" || fail "server/install.sh ended with status $?; the console output above this line gives the reason"
say "ready: K3s, monitoring and the join token are in place"
