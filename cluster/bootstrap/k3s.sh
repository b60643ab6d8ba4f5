# Shared by worker/user_data.sh and server/install_k3s.sh, which set ROOT first.

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
