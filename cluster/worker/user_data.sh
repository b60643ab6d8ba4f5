#!/bin/bash
# Worker bootstrap: joins this machine to the K3s server under its EC2 instance id, or fails where an operator sees
# it (console output, the tag BootstrapError, /var/log/cloud-init-output.log). It must never start K3s with an empty
# id, and the join token must never reach a log, a tag or a command line.
#
# Placeholders, filled by the deployment through plain text replacement (dollar sign, braces, name):
#   SERVER_ADDRESS   private address of the K3s server
#   AWS_REGION       region of the secret
#   TOKEN_SECRET_ID  name or ARN of the secret that holds the join token (node-fleet/k3s-token)
# NODE_FLEET_ROOT is no placeholder: a prefix for every path that is written, empty on a real machine.
set -Eeuo pipefail
umask 077

# shellcheck disable=SC2269
SERVER_ADDRESS="${SERVER_ADDRESS}"
# shellcheck disable=SC2269
AWS_REGION="${AWS_REGION}"
# shellcheck disable=SC2269
TOKEN_SECRET_ID="${TOKEN_SECRET_ID}"
K3S_VERSION="v1.35.5+k3s1"
# GitHub has no IPv6 address: a machine without IPv4 egress needs a mirror here.
K3S_DOWNLOAD_BASE="https://github.com/k3s-io/k3s/releases/download"

ROOT="${NODE_FLEET_ROOT:-}"
METADATA="http://169.254.169.254/latest"
TOKEN_ATTEMPTS=18
TOKEN_PAUSE_SECONDS=10
AGENT_ATTEMPTS=20
AGENT_PAUSE_SECONDS=5
INSTANCE_ID=""
PROBLEM=""

say() {
  echo "node-fleet worker bootstrap: $1" >&2
}

# A tag shows in every listing of instances, so the reason is seen without opening the machine.
fail() {
  trap - ERR
  say "FAILED: $1"
  if [ -n "$INSTANCE_ID" ]; then
    aws ec2 create-tags --region "$AWS_REGION" --resources "$INSTANCE_ID" \
      --tags "Key=BootstrapError,Value=$(printf '%s' "$1" | tr -c 'A-Za-z0-9 +=._:/@-' ' ' | cut -c1-250)" ||
      say "the tag BootstrapError could not be written"
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
  for tool in curl aws sha256sum systemctl; do
    command -v "$tool" >/dev/null || fail "$tool is not on this image; use Amazon Linux 2023 or install it in the image"
  done
}

metadata() {
  curl -fsS --max-time 5 -H "X-aws-ec2-metadata-token: $1" "$METADATA/meta-data/$2"
}

# Instance metadata is asked with a session token only: a machine that requires tokens answers 401 without one.
read_identity() {
  local session
  PROBLEM="the instance metadata service gave no session token"
  session="$(curl -fsS --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$METADATA/api/token")" || return 1
  [ -n "$session" ] || return 1
  PROBLEM="the instance metadata service did not tell instance id, zone and type"
  INSTANCE_ID="$(metadata "$session" instance-id)" || return 1
  ZONE="$(metadata "$session" placement/availability-zone)" || return 1
  INSTANCE_TYPE="$(metadata "$session" instance-type)" || return 1
  LIFE_CYCLE="$(metadata "$session" instance-life-cycle)" || return 1
  check_identity
}

check_identity() {
  local id="$INSTANCE_ID"
  INSTANCE_ID=""
  PROBLEM="instance id '$id' is not of the form i-0123456789abcdef0"
  [[ "$id" =~ ^i-[0-9a-f]{8,17}$ ]] || return 1
  INSTANCE_ID="$id"
  PROBLEM="zone '$ZONE' is not an availability zone"
  [[ "$ZONE" =~ ^[a-z]{2}(-[a-z0-9]+)+$ ]] || return 1
  PROBLEM="instance type '$INSTANCE_TYPE' is not an instance type"
  [[ "$INSTANCE_TYPE" =~ ^[a-z0-9-]+\.[a-z0-9-]+$ ]] || return 1
  MARKET="on-demand"
  if [ "$LIFE_CYCLE" = "spot" ]; then MARKET="spot"; fi
}

download_k3s() {
  local suffix="" sums="sha256sum-amd64.txt" release="$K3S_DOWNLOAD_BASE/${K3S_VERSION/+/%2B}" folder
  if [ "$(uname -m)" = "aarch64" ]; then suffix="-arm64" sums="sha256sum-arm64.txt"; fi
  folder="$(mktemp -d)"
  PROBLEM="K3s $K3S_VERSION could not be downloaded from $K3S_DOWNLOAD_BASE"
  curl -fsSL --max-time 120 -o "$folder/k3s$suffix" "$release/k3s$suffix" || return 1
  curl -fsSL --max-time 30 -o "$folder/sums" "$release/$sums" || return 1
  PROBLEM="the K3s $K3S_VERSION download does not have its published checksum"
  grep " k3s$suffix\$" "$folder/sums" >"$folder/sum" || return 1
  (cd "$folder" && sha256sum -c --status sum) || return 1
  install -D -m 0755 "$folder/k3s$suffix" "$ROOT/usr/local/bin/k3s" || return 1
  rm -rf "$folder"
}

# The token's second part is the hash of the server's certificate authority. A rebuilt server has a new one, and an
# agent given the old token would loop for ever, so the two are compared before K3s starts. A bundle of several
# certificates is hashed in another way by K3s and is left to K3s itself.
token_fits_server() {
  local token="$1" bundle shown wanted
  bundle="$(mktemp)"
  PROBLEM="the K3s server $SERVER_ADDRESS does not answer on port 6443"
  curl -kfsS --max-time 5 -o "$bundle" "https://$SERVER_ADDRESS:6443/cacerts" || return 1
  if [ "$(grep -c 'BEGIN CERTIFICATE' "$bundle")" != "1" ]; then return 0; fi
  shown="$(sha256sum "$bundle" | cut -d' ' -f1)"
  wanted="${token:3:64}"
  rm -f "$bundle"
  PROBLEM="the join token in $TOKEN_SECRET_ID belongs to another server (authority $wanted, the server shows $shown): was the server rebuilt?"
  [ "$shown" = "$wanted" ]
}

fetch_join_token() {
  local token
  PROBLEM="the secret $TOKEN_SECRET_ID could not be read in $AWS_REGION"
  token="$(aws secretsmanager get-secret-value --region "$AWS_REGION" --secret-id "$TOKEN_SECRET_ID" \
    --query SecretString --output text)" || return 1
  PROBLEM="the secret $TOKEN_SECRET_ID holds no K3s join token yet"
  [[ "$token" =~ ^K10[0-9a-f]{64}::[a-z]+:.+$ ]] || return 1
  token_fits_server "$token" || return 1
  mkdir -p "$ROOT/etc/rancher/k3s"
  printf '%s\n' "$token" >"$ROOT/etc/rancher/k3s/join-token"
}

write_agent_config() {
  cat >"$ROOT/etc/rancher/k3s/config.yaml" <<CONFIG
server: "https://$SERVER_ADDRESS:6443"
token-file: "/etc/rancher/k3s/join-token"
node-name: "$INSTANCE_ID"
node-label:
  - "topology.kubernetes.io/zone=$ZONE"
  - "topology.kubernetes.io/region=$AWS_REGION"
  - "node.kubernetes.io/instance-type=$INSTANCE_TYPE"
  - "node-fleet.io/market=$MARKET"
  - "node-fleet.io/role=worker"
kubelet-arg:
  - "provider-id=aws:///$ZONE/$INSTANCE_ID"
CONFIG
}

write_agent_unit() {
  mkdir -p "$ROOT/etc/systemd/system"
  cat >"$ROOT/etc/systemd/system/k3s-agent.service" <<'UNIT'
[Unit]
Description=K3s agent
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s agent
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

agent_is_up() {
  PROBLEM="the K3s agent has not joined https://$SERVER_ADDRESS:6443; see journalctl -u k3s-agent"
  systemctl is-active --quiet k3s-agent
}

require_tools
retry 10 3 read_identity || fail "$PROBLEM; K3s was not started"
say "this is $INSTANCE_ID ($INSTANCE_TYPE, $MARKET) in $ZONE"
retry 5 5 download_k3s || fail "$PROBLEM"
retry "$TOKEN_ATTEMPTS" "$TOKEN_PAUSE_SECONDS" fetch_join_token || fail "$PROBLEM; K3s was not started"
write_agent_config
write_agent_unit
systemctl daemon-reload
systemctl enable k3s-agent
systemctl start --no-block k3s-agent
retry "$AGENT_ATTEMPTS" "$AGENT_PAUSE_SECONDS" agent_is_up || fail "$PROBLEM"
say "joined as $INSTANCE_ID"
