#!/bin/bash
# Installs the service that gives Prometheus the metrics of node-fleet (state_metrics.py). It is safe to run again.
set -euo pipefail
umask 022

ROOT="$NODE_FLEET_ROOT"
mkdir -p "$ROOT/etc/systemd/system" "$ROOT/opt/node-fleet"
install -m 0644 "$NODE_FLEET_BUNDLE/server/state_metrics.py" "$ROOT/opt/node-fleet/state_metrics.py"
cat >"$ROOT/etc/systemd/system/node-fleet-metrics.service" <<UNIT
[Unit]
Description=node-fleet metrics for Prometheus, from the state item
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Environment=AWS_REGION=$AWS_REGION STATE_TABLE=$STATE_TABLE CLUSTER_ID=$CLUSTER_ID
ExecStart=/usr/bin/python3 /opt/node-fleet/state_metrics.py
DynamicUser=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes
MemoryMax=150M
Restart=always
RestartSec=30s

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable node-fleet-metrics
systemctl restart --no-block node-fleet-metrics
