NODE_NAME="${NODE_NAME:-}"

finish() {
  echo "result: $2"
  exit "$1"
}

kubectl() {
  command kubectl --request-timeout="$REQUEST_TIMEOUT" "$@"
}

check_node_name() {
  case "$NODE_NAME" in
    '' | *[!a-z0-9.-]* | [!a-z0-9]* | *[!a-z0-9]) finish 64 "bad-parameter NODE_NAME" ;;
  esac
  [ "${#NODE_NAME}" -le 253 ] || finish 64 "bad-parameter NODE_NAME"
}
