#!/bin/bash
# Worker bootstrap: joins this machine to the K3s server under its EC2 instance id, or reports why it cannot (console
# output, the tag BootstrapError, /var/log/cloud-init-output.log). It must never start K3s with an empty id, and the
# join token must never reach a log, a tag or a command line.
#
# The deployment inserts the files that lines "insert: FILE" name, and replaces these placeholders in the text:
#   SERVER_ADDRESS   private address of the K3s server
#   AWS_REGION       region of the secret
#   TOKEN_SECRET_ID  name or ARN of the secret that holds the join token (node-fleet/k3s-token)
#   K3S_VERSION      release of K3s
#   K3S_SHA256_AMD64 checksum of its binary for amd64
set -Eeuo pipefail
umask 077

# shellcheck disable=SC2269
SERVER_ADDRESS="${SERVER_ADDRESS}"
# shellcheck disable=SC2269
AWS_REGION="${AWS_REGION}"
# shellcheck disable=SC2269
TOKEN_SECRET_ID="${TOKEN_SECRET_ID}"
# shellcheck disable=SC2269
K3S_VERSION="${K3S_VERSION}"
# shellcheck disable=SC2269
K3S_SHA256_AMD64="${K3S_SHA256_AMD64}"
MACHINE="worker"
TOKEN_ATTEMPTS=18
TOKEN_PAUSE_SECONDS=10
AGENT_ATTEMPTS=20
AGENT_PAUSE_SECONDS=5

# insert: ../bootstrap/report.sh

# insert: ../bootstrap/download_k3s.sh

# insert: ../bootstrap/k3s.sh

read_identity() {
  open_metadata_session || return 1
  PROBLEM="the instance metadata service did not return instance id, zone and type"
  INSTANCE_ID="$(metadata instance-id)" || return 1
  ZONE="$(metadata placement/availability-zone)" || return 1
  INSTANCE_TYPE="$(metadata instance-type)" || return 1
  LIFE_CYCLE="$(metadata instance-life-cycle)" || return 1
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

# The second part of the token is the hash of the server's certificate authority. A rebuilt server has a new authority,
# and an agent with the old token would retry for ever, so this compares the two before K3s starts. K3s hashes a bundle
# of several certificates in another way, so K3s itself checks such a bundle.
token_matches_server() {
  local token="$1" bundle shown wanted
  bundle="$(mktemp)"
  PROBLEM="the K3s server $SERVER_ADDRESS does not answer on port 6443; check the server and its security group"
  curl -kfsS --max-time 5 -o "$bundle" "https://$SERVER_ADDRESS:6443/cacerts" || return 1
  if [ "$(grep -c 'BEGIN CERTIFICATE' "$bundle")" != "1" ]; then return 0; fi
  shown="$(sha256sum "$bundle" | cut -d' ' -f1)"
  wanted="${token:3:64}"
  rm -f "$bundle"
  PROBLEM="the join token in $TOKEN_SECRET_ID belongs to another server (token authority $wanted, server authority $shown); a rebuilt server stores a new token at the end of its bootstrap"
  [ "$shown" = "$wanted" ]
}

fetch_join_token() {
  local token
  PROBLEM="the secret $TOKEN_SECRET_ID could not be read in $AWS_REGION; check that it exists and that the role of the workers may read it"
  token="$(aws secretsmanager get-secret-value --region "$AWS_REGION" --secret-id "$TOKEN_SECRET_ID" \
    --query SecretString --output text)" || return 1
  PROBLEM="the secret $TOKEN_SECRET_ID holds no K3s join token yet; the server stores it at the end of its bootstrap"
  [[ "$token" =~ ^K10[0-9a-f]{64}::[a-z]+:.+$ ]] || return 1
  token_matches_server "$token" || return 1
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

agent_is_up() {
  PROBLEM="the K3s agent has not joined https://$SERVER_ADDRESS:6443; see journalctl -u k3s-agent"
  systemctl is-active --quiet k3s-agent
}

require_tools curl aws sha256sum systemctl
retry 10 3 read_identity || fail "$PROBLEM; K3s was not started"
say "this is $INSTANCE_ID ($INSTANCE_TYPE, $MARKET) in $ZONE"
retry 5 5 download_k3s 120 0 || fail "$PROBLEM"
retry "$TOKEN_ATTEMPTS" "$TOKEN_PAUSE_SECONDS" fetch_join_token || fail "$PROBLEM; K3s was not started"
write_agent_config
write_k3s_unit k3s-agent agent
systemctl daemon-reload
systemctl enable k3s-agent
systemctl start --no-block k3s-agent
retry "$AGENT_ATTEMPTS" "$AGENT_PAUSE_SECONDS" agent_is_up || fail "$PROBLEM"
say "joined as $INSTANCE_ID"
