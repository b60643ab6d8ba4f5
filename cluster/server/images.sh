#!/bin/bash
# Installs the service that lets pods onto new workers once their images are there (images.py). It runs also without
# image_wait_seconds: a worker that an earlier version of the launch template started may still have the taint. It is safe
# to run again.
set -euo pipefail
umask 022

ROOT="$NODE_FLEET_ROOT"
mkdir -p "$ROOT/etc/systemd/system" "$ROOT/opt/node-fleet"
install -m 0644 "$NODE_FLEET_BUNDLE/server/images.py" "$ROOT/opt/node-fleet/images.py"
cat >"$ROOT/etc/systemd/system/node-fleet-images.service" <<UNIT
[Unit]
Description=node-fleet: removes the start-up taint of workers whose images are there
After=k3s.service
StartLimitIntervalSec=0

[Service]
Environment=IMAGE_WAIT_SECONDS=$IMAGE_WAIT_SECONDS KUBECONFIG=/etc/rancher/k3s/k3s.yaml PATH=/usr/local/bin:/usr/bin:/bin
ExecStart=/usr/bin/python3 /opt/node-fleet/images.py
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes
MemoryMax=200M
Restart=always
RestartSec=10s

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable node-fleet-images
systemctl restart --no-block node-fleet-images
