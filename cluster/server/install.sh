#!/bin/bash
# Server bootstrap, second part: K3s, images of workers, monitoring, metrics of node-fleet, add-ons, join token. The token is
# published last, so no worker joins before the add-ons are pinned to the server. The service that opens new workers does not
# depend on monitoring: on a server that runs already, workers also join while that fails. It is safe to run again. It needs
# the environment that user_data.sh exports.
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

bash "$BUNDLE/server/install_k3s.sh"
bash "$BUNDLE/server/images.sh"
export PATH="$ROOT/usr/local/bin:$PATH"
wait_for_api
bash "$BUNDLE/server/monitoring.sh"
bash "$BUNDLE/server/state_metrics.sh"
bash "$BUNDLE/server/pin_add_ons.sh"
bash "$BUNDLE/server/publish_token.sh"
