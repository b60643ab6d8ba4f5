set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
# The limit of each request to the API: when the datastore hangs, a script ends with a status of its own before SSM ends it.
REQUEST_TIMEOUT=15s
export LC_ALL PATH KUBECONFIG REQUEST_TIMEOUT
