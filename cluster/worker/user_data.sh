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
#   REGISTRY_MIRROR  true when the nodes give each other the images that they have
#   IMAGE_WAIT_SECONDS how long this worker may pull images before pods start on it; 0: it pulls none
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
# shellcheck disable=SC2269
REGISTRY_MIRROR="${REGISTRY_MIRROR}"
# shellcheck disable=SC2269
IMAGE_WAIT_SECONDS="${IMAGE_WAIT_SECONDS}"
MACHINE="worker"
TOKEN_ATTEMPTS=18
TOKEN_PAUSE_SECONDS=10
AGENT_ATTEMPTS=20
AGENT_PAUSE_SECONDS=5
MOST_IMAGES=40
MOST_DISK_PERCENT=70

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
  if ((IMAGE_WAIT_SECONDS > 0)); then
    printf 'node-taint:\n  - "node-fleet.io/starting=%s:NoSchedule"\n' "$IMAGE_WAIT_SECONDS" >>"$ROOT/etc/rancher/k3s/config.yaml"
  fi
}

agent_is_up() {
  PROBLEM="the K3s agent has not joined https://$SERVER_ADDRESS:6443; see journalctl -u k3s-agent"
  systemctl is-active --quiet k3s-agent
}

# The list that server/images.py writes; K3s serves it without a login. The agent has verified the authority in server-ca.crt.
fetch_image_list() {
  PROBLEM="the server does not give its list of images"
  IMAGES="$(curl -fsS --max-time 10 --cacert "$AGENT/server-ca.crt" "https://$SERVER_ADDRESS:6443/static/node-fleet/images.txt")"
}

disk_percent() {
  { df --output=pcent "$AGENT" 2>/dev/null || echo 0; } | tail -n 1 | tr -dc '0-9'
}

mark_images() {
  PROBLEM="the node $INSTANCE_ID could not be annotated"
  "$ROOT/usr/local/bin/k3s" kubectl --kubeconfig "$AGENT/kubelet.kubeconfig" annotate --overwrite node "$INSTANCE_ID" \
    "node-fleet.io/images=$1" >/dev/null
}

# The kubelet would pull these images when the first pods start; here they are pulled before. What cannot be pulled is left to
# the kubelet, which has the pull secrets of the pods. No failure ends the bootstrap: the server removes the taint in time.
pull_images() {
  local image left started until wanted=0 pulled=0
  AGENT="$ROOT/var/lib/rancher/k3s/agent"
  started="$(date +%s)"
  until=$((started + IMAGE_WAIT_SECONDS))
  retry 3 5 fetch_image_list || IMAGES=""
  while read -r image; do
    [[ "$image" =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$ ]] || continue
    wanted=$((wanted + 1))
    left=$((until - $(date +%s)))
    if ((left < 1 || $(disk_percent) > MOST_DISK_PERCENT)); then continue; fi
    if timeout "$left" "$ROOT/usr/local/bin/k3s" crictl pull "$image" >/dev/null </dev/null; then
      pulled=$((pulled + 1))
    else
      say "$image was not pulled; the kubelet pulls it for the first pod that needs it"
    fi
  done < <(head -n "$MOST_IMAGES" <<<"$IMAGES")
  left=$(($(date +%s) - started))
  say "$pulled of $wanted images were pulled in $left s"
  aws ec2 create-tags --region "$AWS_REGION" --resources "$INSTANCE_ID" \
    --tags "Key=ImagePull,Value=$pulled of $wanted in $left s" || say "the tag ImagePull could not be written"
  retry 10 3 mark_images "$pulled/$wanted/$left" || say "$PROBLEM; the server lets pods onto this worker when the limit has passed"
}

require_tools curl aws sha256sum systemctl
retry 10 3 read_identity || fail "$PROBLEM; K3s was not started"
say "this is $INSTANCE_ID ($INSTANCE_TYPE, $MARKET) in $ZONE"
retry 5 5 download_k3s 120 0 || fail "$PROBLEM"
retry "$TOKEN_ATTEMPTS" "$TOKEN_PAUSE_SECONDS" fetch_join_token || fail "$PROBLEM; K3s was not started"
write_agent_config
write_registries
write_k3s_unit k3s-agent agent
systemctl daemon-reload
systemctl enable k3s-agent
systemctl start --no-block k3s-agent
retry "$AGENT_ATTEMPTS" "$AGENT_PAUSE_SECONDS" agent_is_up || fail "$PROBLEM"
say "joined as $INSTANCE_ID"
if ((IMAGE_WAIT_SECONDS > 0)); then
  pull_images || say "the images were not pulled; the server lets pods onto this worker in time"
  # A Node that this machine registers later, for example as a standby worker that is started, has the images: no taint.
  # The file is replaced as a whole: without it the machine would never join again.
  sed -i '/^node-taint:$/,$d' "$ROOT/etc/rancher/k3s/config.yaml" || say "the taint could not be removed from the configuration of K3s"
fi
