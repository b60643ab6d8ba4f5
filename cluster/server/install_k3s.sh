#!/bin/bash
# Installs the pinned K3s and its configuration, and starts it. Replaces an older binary, keeps the cluster's data.
set -euo pipefail
umask 077

ROOT="$NODE_FLEET_ROOT"
# GitHub has no IPv6 address: a machine without IPv4 egress needs a mirror here.
K3S_DOWNLOAD_BASE="https://github.com/k3s-io/k3s/releases/download"

installed_version() {
  if [ -x "$ROOT/usr/local/bin/k3s" ]; then
    "$ROOT/usr/local/bin/k3s" --version | sed -n 's/^k3s version \([^ ]*\).*/\1/p'
  fi
}

download() {
  local suffix="" sums="sha256sum-amd64.txt" release="$K3S_DOWNLOAD_BASE/${K3S_VERSION/+/%2B}" folder
  if [ "$(uname -m)" = "aarch64" ]; then suffix="-arm64" sums="sha256sum-arm64.txt"; fi
  folder="$(mktemp -d)"
  curl -fsSL --retry 5 --max-time 300 -o "$folder/k3s$suffix" "$release/k3s$suffix"
  curl -fsSL --retry 5 --max-time 60 -o "$folder/sums" "$release/$sums"
  grep " k3s$suffix\$" "$folder/sums" >"$folder/sum"
  if ! (cd "$folder" && sha256sum -c --status sum); then
    echo "the K3s $K3S_VERSION download does not have its published checksum" >&2
    return 1
  fi
  install -D -m 0755 "$folder/k3s$suffix" "$ROOT/usr/local/bin/k3s"
  ln -sf k3s "$ROOT/usr/local/bin/kubectl"
  rm -rf "$folder"
}

# Workers get a token of their own: whoever takes it from a worker cannot add a second server with it.
make_agent_token() {
  local file="$ROOT/etc/rancher/k3s/agent-token"
  if [ -s "$file" ]; then return 0; fi
  head -c 32 /dev/urandom | sha256sum | cut -d' ' -f1 >"$file"
}

# ServiceLB runs its DaemonSet only where enablelb stands, once any node carries it: on the server alone.
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
CONFIG
}

write_unit() {
  mkdir -p "$ROOT/etc/systemd/system"
  cat >"$ROOT/etc/systemd/system/k3s.service" <<'UNIT'
[Unit]
Description=K3s server
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s server
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
UNIT
}

mkdir -p "$ROOT/etc/rancher/k3s"
if [ "$(installed_version)" != "$K3S_VERSION" ]; then download; fi
make_agent_token
write_config
write_unit
systemctl daemon-reload
systemctl enable k3s
systemctl restart --no-block k3s
