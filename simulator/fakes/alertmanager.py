"""The alert path of a deployment: the rule of Prometheus, and Alertmanager, which publishes to the alert topic.

Only the times of the path are modelled: scrape, evaluation, repetition. What a message starts is not decided here.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Protocol

from node_fleet.domain.notify.alert_input import ALERT_NAME
from simulator.clock import VirtualClock
from simulator.cluster.model import SimulatedCluster

SCRAPE_SECONDS = 15.0
EVALUATION_SECONDS = 5.0
REPEAT_SECONDS = 120.0


class AlertedDeployment(Protocol):
    """What the alert path needs of a deployment: its clock, its settings, whether Prometheus answers, its topics."""

    clock: VirtualClock
    resources: Any
    transport: Any

    def publish(self, topic: str, message: str, subject: str = "") -> None:
        """Publish a message to an SNS topic."""


class FakeAlertmanager:
    """Checks every scrape for pods without a node; publishes as cluster/monitoring/alertmanager is configured."""

    def __init__(self, deployment: AlertedDeployment, cluster: SimulatedCluster) -> None:
        self._deployment = deployment
        self._cluster = cluster
        self._since: float | None = None
        self._sent_at = 0.0
        self.sent: list[float] = []

    def start(self) -> None:
        """Begin to scrape, if the deployment has an alert topic."""
        if self._deployment.resources.setting("ALERT_TOPIC_ARN"):
            self._deployment.clock.every(SCRAPE_SECONDS, self._scrape)

    def _scrape(self) -> None:
        if self._deployment.transport.fault == "down":
            return
        if not self._cluster.has_unschedulable_pods():
            self._since = None
            return
        clock = self._deployment.clock
        if self._since is None:
            self._since = clock.now() + EVALUATION_SECONDS
            clock.at(self._since, self._send)
        elif clock.now() - self._sent_at >= REPEAT_SECONDS:
            self._send()

    def _send(self) -> None:
        if self._since is None:
            return
        self._sent_at = self._deployment.clock.now()
        self.sent.append(self._sent_at)
        begun = dt.datetime.fromtimestamp(self._since, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        message = {
            "alertname": ALERT_NAME,
            "cluster": self._deployment.resources.setting("CLUSTER_ID", "node-fleet-prod"),
            "status": "firing",
            "starts_at": begun,
        }
        topic = self._deployment.resources.setting("ALERT_TOPIC_ARN")
        self._deployment.publish(topic, json.dumps(message), "node-fleet: unschedulable pods")
