# Shared by worker/user_data.sh, server/install_k3s.sh and commands/upgrade_server.sh, which set first: ROOT, K3S_VERSION,
# and K3S_SHA256_AMD64, the SHA-256 of this version's k3s for amd64 from a second source. For arm64 the published checksum
# is the only one.
# GitHub has no IPv6 address: a machine without IPv4 egress needs a mirror here.
K3S_DOWNLOAD_BASE="https://github.com/k3s-io/k3s/releases/download"

# download_k3s TIME_LIMIT_SECONDS RETRIES [FILE]: installs K3s, by default where it runs from, if its checksums are right,
# or sets PROBLEM.
download_k3s() {
  local folder status=0
  folder="$(mktemp -d)"
  download_k3s_into "$folder" "$@" || status=1
  rm -rf "$folder"
  return "$status"
}

download_k3s_into() {
  local folder="$1" suffix="" sums="sha256sum-amd64.txt" release="$K3S_DOWNLOAD_BASE/${K3S_VERSION/+/%2B}"
  local target="${4:-$ROOT/usr/local/bin/k3s}"
  if [ "$(uname -m)" = "aarch64" ]; then suffix="-arm64" sums="sha256sum-arm64.txt"; fi
  PROBLEM="K3s $K3S_VERSION could not be downloaded from $K3S_DOWNLOAD_BASE; check the route to the internet"
  curl -fsSL --retry "$3" --max-time "$2" -o "$folder/k3s$suffix" "$release/k3s$suffix" || return 1
  curl -fsSL --retry "$3" --max-time 60 -o "$folder/sums" "$release/$sums" || return 1
  PROBLEM="the K3s $K3S_VERSION download does not have its published checksum, or not the one that is pinned beside the version"
  grep " k3s$suffix\$" "$folder/sums" >"$folder/sum" || return 1
  if [ -z "$suffix" ]; then echo "$K3S_SHA256_AMD64  k3s" >>"$folder/sum"; fi
  (cd "$folder" && sha256sum -c --strict --status sum) || return 1
  PROBLEM="K3s $K3S_VERSION could not be written to $target; check the free space"
  install -D -m 0755 "$folder/k3s$suffix" "$target"
}
