# Shared by worker/user_data.sh and server/install_k3s.sh, which set ROOT and REGISTRY_MIRROR first.

# write_registries: every registry is mirrored, or none. A file that an image or a person wrote stays as it is.
write_registries() {
  local file="$ROOT/etc/rancher/k3s/registries.yaml" mark="# Written by node-fleet for registry_mirror."
  if [ -e "$file" ] && ! grep -qxF "$mark" "$file"; then
    if [ "$REGISTRY_MIRROR" = "true" ]; then
      echo "$file was not written by node-fleet and stays: this node shares the images of the registries that it lists under mirrors" >&2
    fi
  elif [ "$REGISTRY_MIRROR" = "true" ]; then
    printf '%s\nmirrors:\n  "*":\n' "$mark" >"$file"
  else
    rm -f "$file"
  fi
}

# write_k3s_unit UNIT server|agent
write_k3s_unit() {
  mkdir -p "$ROOT/etc/systemd/system"
  cat >"$ROOT/etc/systemd/system/$1.service" <<UNIT
[Unit]
Description=K3s $2
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s $2
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
UNIT
}
