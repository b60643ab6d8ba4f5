#!/bin/bash
# Installs monitoring: credentials as Kubernetes Secrets, configuration as ConfigMaps, and manifests in the folder from
# which K3s applies them. It is safe to run again; pods restart only when their configuration changed. It must not write
# a password into a manifest or a command line.
set -euo pipefail
umask 077

BUNDLE="$NODE_FLEET_BUNDLE"
MANIFESTS="$NODE_FLEET_ROOT/var/lib/rancher/k3s/server/manifests"
WORK="$(mktemp -d)"
trap 'rm -rf "$WORK"' EXIT

# fetch_credentials SECRET PROGRAM [WEB_FILE]: username and password of the program, in the folder $WORK/PROGRAM.
fetch_credentials() {
  local attempt secret="$1" program="$2"
  for ((attempt = 1; attempt <= 12; attempt++)); do
    if aws secretsmanager get-secret-value --region "$AWS_REGION" --secret-id "$secret" \
      --query SecretString --output text >"$WORK/$program.json" &&
      python3 "$BUNDLE/server/credentials.py" "$WORK/$program.json" "$WORK/$program" "${@:3}"; then
      return 0
    fi
    sleep 10
  done
  echo "the secret $secret could not be read, or has no username or password, so $program was not installed" >&2
  return 1
}

# The dashboards are not in the bundle: a changed dashboard must not change the user data, which restarts the server.
fetch_dashboards() {
  local attempt location parameter="/node-fleet/$CLUSTER_ID/dashboards"
  for ((attempt = 1; attempt <= 6; attempt++)); do
    if location="$(aws ssm get-parameter --region "$AWS_REGION" --name "$parameter" --query Parameter.Value --output text)" &&
      aws s3 cp --only-show-errors --region "$AWS_REGION" "$location" "$WORK/dashboards.zip" &&
      python3 -m zipfile -e "$WORK/dashboards.zip" "$WORK/dashboards"; then
      return 0
    fi
    sleep 10
  done
  echo "the dashboards could not be fetched from the location in the parameter $parameter, so Grafana was not installed; check the route to S3 and the role of the server" >&2
  return 1
}

apply() {
  kubectl apply --server-side --force-conflicts --field-manager=node-fleet -f "$1" >/dev/null
}

# put KIND NAME FILE_OR_FOLDER...: creates or replaces one ConfigMap or Secret in the namespace monitoring.
put() {
  local kind=("$1") name="$2" source sources=()
  shift 2
  if [ "${kind[0]}" = "secret" ]; then kind+=("generic"); fi
  for source in "$@"; do sources+=("--from-file=$source"); done
  kubectl create "${kind[@]}" "$name" --namespace monitoring "${sources[@]}" --dry-run=client -o yaml >"$WORK/object.yaml"
  apply "$WORK/object.yaml"
}

# The pods carry this hash as an annotation, so they restart exactly when the configuration changes. The hash covers the
# passwords instead of the web file, whose salt differs in every run. Only Grafana carries the hash of the dashboards.
config_hash() {
  (cd "$WORK" && cat prometheus.json grafana.json rendered/prometheus/* rendered/alertmanager/* rendered/grafana/*) | sha256sum | cut -c1-16
}

apply "$BUNDLE/monitoring/manifests/00-namespace.yaml"
fetch_credentials "$PROMETHEUS_SECRET_ID" prometheus web.yml
fetch_credentials "$GRAFANA_SECRET_ID" grafana
fetch_dashboards
python3 "$BUNDLE/render.py" "$WORK/rendered" "$BUNDLE"/monitoring/{prometheus,alertmanager,grafana}
CONFIG_HASH="$(config_hash)"
DASHBOARDS_HASH="$(cat "$WORK"/dashboards/*.json | sha256sum | cut -c1-16)"
export CONFIG_HASH DASHBOARDS_HASH
python3 "$BUNDLE/render.py" "$WORK/rendered" "$BUNDLE/monitoring/manifests"

put secret prometheus-web "$WORK/prometheus/web.yml"
put secret prometheus-auth "$WORK/prometheus/username" "$WORK/prometheus/password"
put secret grafana-auth "$WORK/grafana/username" "$WORK/grafana/password"
put configmap prometheus-config "$WORK/rendered/prometheus"
put configmap alertmanager-config "$WORK/rendered/alertmanager"
put configmap grafana-provisioning "$WORK/rendered/grafana"
put configmap grafana-dashboards "$WORK/dashboards"
mkdir -p "$MANIFESTS"
for manifest in "$WORK"/rendered/manifests/*.yaml; do
  install -m 0600 "$manifest" "$MANIFESTS/node-fleet-${manifest##*/}"
done

# The manifest of Flux gets every right in the cluster, so it is applied only if it is the pinned file.
fetch_flux() {
  curl -fsSL --retry 5 --max-time 120 -o "$WORK/flux-install.yaml" \
    "https://github.com/fluxcd/flux2/releases/download/$FLUX_VERSION/install.yaml" || {
    echo "Flux $FLUX_VERSION could not be downloaded, so Flux was not installed; check the route to github.com" >&2
    return 1
  }
  echo "$FLUX_SHA256  $WORK/flux-install.yaml" | sha256sum -c --status || {
    echo "the manifest of Flux $FLUX_VERSION does not have the checksum FLUX_SHA256 of versions.env, so Flux was not installed" >&2
    return 1
  }
}

if [ -n "$FLUX_GIT_URL" ]; then
  python3 "$BUNDLE/render.py" "$WORK/rendered" "$BUNDLE/demo/flux"
  fetch_flux
  kubectl apply --server-side --force-conflicts --field-manager=flux-install -f "$WORK/flux-install.yaml" >/dev/null
  kubectl wait --for=condition=Established --timeout=120s \
    crd/gitrepositories.source.toolkit.fluxcd.io crd/kustomizations.kustomize.toolkit.fluxcd.io >/dev/null
  apply "$BUNDLE/demo/app/manifests/namespace.yaml"
  apply "$WORK/rendered/flux"
fi
