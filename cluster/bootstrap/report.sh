# Shared by the user data of server and worker, which set MACHINE and AWS_REGION first.
# NODE_FLEET_ROOT is a prefix for every path that is written. It is empty on a real machine.
ROOT="${NODE_FLEET_ROOT:-}"
METADATA="http://169.254.169.254/latest"
INSTANCE_ID=""
PROBLEM=""

say() {
  echo "node-fleet $MACHINE bootstrap: $1" >&2
}

# The tag shows the reason in every list of instances, so an operator needs no session on the machine.
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
    say "attempt $attempt of $attempts failed: $PROBLEM"
    if ((attempt < attempts)); then sleep "$pause_seconds"; fi
  done
  return 1
}

require_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is not on this image; use Amazon Linux 2023, or install it in the image"
  done
}

# The instance metadata service answers 401 without a session token on a machine that requires IMDSv2.
open_metadata_session() {
  PROBLEM="the instance metadata service returned no session token"
  SESSION="$(curl -fsS --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$METADATA/api/token")" || return 1
  [ -n "$SESSION" ]
}

metadata() {
  curl -fsS --max-time 5 -H "X-aws-ec2-metadata-token: $SESSION" "$METADATA/meta-data/$1"
}
