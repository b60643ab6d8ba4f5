#!/bin/bash
# Stores the join token of the workers in Secrets Manager. Every run compares it: a rebuilt server has a new certificate
# authority, and workers with the old token would never join. The token passes only through files of mode 0600, never
# through a command line or a log.
set -euo pipefail
umask 077

TOKEN_FILE="$NODE_FLEET_ROOT/var/lib/rancher/k3s/server/agent-token"
WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT

wait_for_token_file() {
  local attempt
  for ((attempt = 1; attempt <= 24; attempt++)); do
    if grep -Eq '^K10[0-9a-f]{64}::[a-z]+:.+$' "$TOKEN_FILE" 2>/dev/null; then return 0; fi
    sleep 5
  done
  echo "K3s wrote no join token to $TOKEN_FILE in 2 minutes, so no worker can join; see journalctl -u k3s" >&2
  return 1
}

store() {
  local attempt
  for ((attempt = 1; attempt <= 6; attempt++)); do
    if aws secretsmanager put-secret-value --region "$AWS_REGION" --secret-id "$TOKEN_SECRET_ID" \
      --secret-string "file://$WORK/token" --query VersionId --output text; then
      return 0
    fi
    sleep 10
  done
  echo "the join token could not be stored in $TOKEN_SECRET_ID, so no worker can join; check that the secret exists and that the role of the server may write it" >&2
  return 1
}

stored_is_current() {
  aws secretsmanager get-secret-value --region "$AWS_REGION" --secret-id "$TOKEN_SECRET_ID" \
    --query SecretString --output text 2>/dev/null | tr -d '\n' | cmp -s - "$WORK/token"
}

wait_for_token_file
tr -d '\n' <"$TOKEN_FILE" >"$WORK/token"
if stored_is_current; then
  echo "the join token in $TOKEN_SECRET_ID is current" >&2
else
  store >/dev/null
  echo "the join token was stored in $TOKEN_SECRET_ID" >&2
fi
