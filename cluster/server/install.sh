#!/bin/bash
# Server bootstrap, second part: agent of Systems Manager, K3s, images of workers, monitoring, metrics of node-fleet, add-ons,
# join token. The token is published last, so no worker joins before the add-ons are pinned to the server. The service that
# opens new workers does not depend on monitoring: on a server that runs already, workers also join while that fails. It is
# safe to run again. It needs the environment that user_data.sh exports.
set -euo pipefail
umask 077

BUNDLE="$NODE_FLEET_BUNDLE"
ROOT="$NODE_FLEET_ROOT"
set -a
# shellcheck source=/dev/null
. "$BUNDLE/versions.env"
set +a

wait_for_api() {
  local attempt
  for ((attempt = 1; attempt <= 60; attempt++)); do
    if kubectl get --raw /readyz >/dev/null 2>&1; then return 0; fi
    sleep 5
  done
  echo "the Kubernetes API did not become ready in 5 minutes, so nothing was installed into the cluster; see journalctl -u k3s" >&2
  return 1
}

# install_service NAME PROGRAM MEMORY PAUSE: a service that runs the program again PAUSE after it ended. Standard input has
# the lines of its own: of [Unit] first, then [Service] with the rest. It is safe to run again.
install_service() (
  umask 022
  mkdir -p "$ROOT/etc/systemd/system" "$ROOT/opt/node-fleet"
  install -m 0644 "$BUNDLE/server/$2" "$ROOT/opt/node-fleet/$2"
  {
    printf '[Unit]\nStartLimitIntervalSec=0\n'
    cat
    cat <<UNIT
ExecStart=/usr/bin/python3 /opt/node-fleet/$2
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes
MemoryMax=$3
Restart=always
RestartSec=$4

[Install]
WantedBy=multi-user.target
UNIT
  } >"$ROOT/etc/systemd/system/$1.service"
  systemctl daemon-reload
  systemctl enable "$1"
  systemctl restart --no-block "$1"
)

# Also without image_wait_seconds: a worker that an earlier version of the launch template started may still have the taint.
install_images() {
  install_service node-fleet-images images.py 200M 10s <<UNIT
Description=node-fleet: removes the start-up taint of workers whose images are there
After=k3s.service

[Service]
Environment=IMAGE_WAIT_SECONDS=$IMAGE_WAIT_SECONDS KUBECONFIG=/etc/rancher/k3s/k3s.yaml PATH=/usr/local/bin:/usr/bin:/bin
UNIT
}

install_state_metrics() {
  install_service node-fleet-metrics state_metrics.py 150M 30s <<UNIT
Description=node-fleet metrics for Prometheus, from the state item
Wants=network-online.target
After=network-online.target

[Service]
Environment=AWS_REGION=$AWS_REGION STATE_TABLE=$STATE_TABLE CLUSTER_ID=$CLUSTER_ID
DynamicUser=yes
ProtectSystem=strict
UNIT
}

# The agent of Systems Manager runs five commands at a time by default, and a command that waits for 30 s is not run: of six
# interruption notices at once, one worker would not be drained. A missing key of this file has its default.
configure_agent() (
  umask 022
  file="$ROOT/etc/amazon/ssm/amazon-ssm-agent.json"
  wanted='{"Mds": {"CommandWorkersLimit": 20}}'
  if [ "$(cat "$file" 2>/dev/null)" = "$wanted" ]; then return 0; fi
  mkdir -p "${file%/*}"
  printf '%s\n' "$wanted" >"$file"
  systemctl restart --no-block amazon-ssm-agent
)

configure_agent
bash "$BUNDLE/server/install_k3s.sh"
install_images
export PATH="$ROOT/usr/local/bin:$PATH"
wait_for_api
bash "$BUNDLE/server/monitoring.sh"
install_state_metrics
bash "$BUNDLE/server/pin_add_ons.sh"
bash "$BUNDLE/server/publish_token.sh"
