"""Alertmanager's message about unschedulable pods: its form, and the name of the execution that it starts.

The workflow decides whether to scale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from node_fleet.domain.model.errors import InvalidInputError
from node_fleet.domain.model.value_class import value_class

ALERT_NAME = "UnschedulablePods"
FIELDS = ("alertname", "cluster", "status", "starts_at")


@value_class
class ScalingAlert:
    """One alert. starts_at: when it began to fire; it is the same in every repetition."""

    alertname: str
    cluster: str
    status: str
    starts_at: str


def read_alert(text: str) -> ScalingAlert:
    """The alert in a message. Raises InvalidInputError naming what is wrong."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"alert message: {text!r:.60} is not JSON") from None
    if not isinstance(data, Mapping):
        raise InvalidInputError(f"alert message: {text!r:.60} is not an object")
    wrong = [name for name in FIELDS if not isinstance(data.get(name), str) or not data[name]]
    if wrong:
        raise InvalidInputError(f"alert message: {', '.join(wrong)} must be text and not empty")
    return ScalingAlert(**{name: data[name] for name in FIELDS})


def reason_to_ignore(alert: ScalingAlert, cluster_id: str) -> str:
    """Why this alert starts no execution; empty when it does."""
    if alert.alertname != ALERT_NAME:
        return f"alert {alert.alertname!r:.60} is not {ALERT_NAME}"
    if alert.cluster != cluster_id:
        return f"cluster {alert.cluster!r:.60} is not {cluster_id}"
    if alert.status != "firing":
        return f"status {alert.status!r:.60} is not firing"
    return ""


def execution_name(alert: ScalingAlert) -> str:
    """The same name for every repetition of one alert, so that Step Functions refuses the second start."""
    text = "|".join((alert.cluster, alert.alertname, alert.starts_at))
    return f"alert-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
