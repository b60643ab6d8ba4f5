#!/bin/bash
# Pins the add-ons of K3s, and the controllers of Flux if installed, to the server: a worker with a kube-system pod is not
# eligible for removal. The add-ons tolerate the taint of the server, and K3s keeps these patches when it applies its own
# manifests again. monitoring/manifests/traefik.yaml pins Traefik. The script is safe to run again; pods restart only when
# something changed.
set -euo pipefail

SELECTOR='"nodeSelector":{"node-role.kubernetes.io/control-plane":"true"}'
TOLERATION='"tolerations":[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists","effect":"NoSchedule"}]'

wait_for() {
  local attempt
  for ((attempt = 1; attempt <= 60; attempt++)); do
    if kubectl --namespace kube-system get deployment "$1" >/dev/null 2>&1; then return 0; fi
    sleep 5
  done
  echo "K3s created no deployment kube-system/$1 in 5 minutes; see journalctl -u k3s" >&2
  return 1
}

# bind NAMESPACE DEPLOYMENT POD_FIELDS
bind() {
  kubectl --namespace "$1" patch deployment "$2" --type strategic \
    --patch "{\"spec\":{\"template\":{\"spec\":{$3}}}}" >/dev/null
}

for add_on in coredns local-path-provisioner metrics-server; do
  wait_for "$add_on"
  bind kube-system "$add_on" "$SELECTOR"
done

if [ -n "$FLUX_GIT_URL" ]; then
  for controller in $(kubectl --namespace flux-system get deployments -o 'jsonpath={.items[*].metadata.name}'); do
    bind flux-system "$controller" "$SELECTOR,$TOLERATION"
  done
fi
