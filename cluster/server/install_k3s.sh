#!/bin/bash
# Installs K3s on a new server, and on each the configuration, and starts it. It never changes the version of an installed
# K3s, which "node-fleet upgrade" does, and keeps the data of the cluster.
set -euo pipefail
umask 077

ROOT="$NODE_FLEET_ROOT"
# shellcheck source=/dev/null
. "$NODE_FLEET_BUNDLE/bootstrap/download_k3s.sh"
# shellcheck source=/dev/null
. "$NODE_FLEET_BUNDLE/bootstrap/k3s.sh"

installed_version() {
  if [ -x "$ROOT/usr/local/bin/k3s" ]; then
    "$ROOT/usr/local/bin/k3s" --version | sed -n 's/^k3s version \([^ ]*\).*/\1/p'
  fi
}

# Version and checksum are in a parameter, not in the user data or the bundle: a change of those restarts the server.
read_release() {
  local attempt release parameter="/node-fleet/$CLUSTER_ID/k3s" form='^(v[0-9][^ ]*) ([0-9a-f]{64})$'
  for ((attempt = 1; attempt <= 6; attempt++)); do
    if release="$(aws ssm get-parameter --region "$AWS_REGION" --name "$parameter" --query Parameter.Value --output text)" &&
      [[ "$release" =~ $form ]]; then
      # shellcheck disable=SC2034
      K3S_VERSION="${BASH_REMATCH[1]}" K3S_SHA256_AMD64="${BASH_REMATCH[2]}"
      return 0
    fi
    sleep 10
  done
  echo "the parameter $parameter does not give version and checksum of K3s, so K3s was not installed; check the route to SSM and the role of the server" >&2
  return 1
}

# Workers get a token of their own: a token stolen from a worker cannot add a second server.
make_agent_token() {
  local file="$ROOT/etc/rancher/k3s/agent-token"
  if [ -s "$file" ]; then return 0; fi
  head -c 32 /dev/urandom | sha256sum | cut -d' ' -f1 >"$file"
}

# The label enablelb on one node restricts the DaemonSet of ServiceLB to labelled nodes: the server alone. NodePorts answer
# on the address of the machine and on loopback (port forwarding), and not on the addresses of the pod network.
write_config() {
  cat >"$ROOT/etc/rancher/k3s/config.yaml" <<CONFIG
node-name: "$INSTANCE_ID"
node-label:
  - "topology.kubernetes.io/zone=$ZONE"
  - "topology.kubernetes.io/region=$AWS_REGION"
  - "node-fleet.io/role=server"
  - "svccontroller.k3s.cattle.io/enablelb=true"
node-taint:
  - "node-role.kubernetes.io/control-plane=true:NoSchedule"
agent-token-file: "/etc/rancher/k3s/agent-token"
tls-san:
  - "$PRIVATE_ADDRESS"
write-kubeconfig-mode: "0600"
secrets-encryption: true
kubelet-arg:
  - "provider-id=aws:///$ZONE/$INSTANCE_ID"
kube-proxy-arg:
  - "nodeport-addresses=$PRIVATE_ADDRESS/32,127.0.0.0/8"
CONFIG
  if [ "$REGISTRY_MIRROR" = "true" ]; then echo "embedded-registry: true" >>"$ROOT/etc/rancher/k3s/config.yaml"; fi
}

# What a running K3s has read at its start. Without a change the server is not restarted, because the bootstrap runs again
# after every failure.
start_input() {
  installed_version
  cat "$ROOT/etc/rancher/k3s/config.yaml" "$ROOT/etc/rancher/k3s/registries.yaml" \
    "$ROOT/etc/systemd/system/k3s.service" 2>/dev/null || true
}

mkdir -p "$ROOT/etc/rancher/k3s"
before="$(start_input)"
if [ -z "$(installed_version)" ]; then
  read_release
  download_k3s 300 5 || {
    echo "$PROBLEM" >&2
    exit 1
  }
  ln -sf k3s "$ROOT/usr/local/bin/kubectl"
fi
make_agent_token
write_config
write_registries
write_k3s_unit k3s server
systemctl daemon-reload
systemctl enable k3s
if [ "$(start_input)" = "$before" ]; then
  systemctl start --no-block k3s
else
  systemctl restart --no-block k3s
fi
