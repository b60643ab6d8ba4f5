set -u
LC_ALL=C
PATH="$PATH:/usr/local/bin"
KUBECONFIG="${KUBECONFIG:-/etc/rancher/k3s/k3s.yaml}"
export LC_ALL PATH KUBECONFIG
