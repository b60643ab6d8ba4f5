"""Templates for the tests of the deployment: one synth of an app with both modes, kept by content, read by all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdk_app.recorded_types import CONTEXT_KEY
from cdk_app.synth import attach_context, project_context, synthesise


@dataclass(frozen=True)
class App:
    """The synthesised app: its folder, and its templates by stack name."""

    folder: Path
    templates: dict[str, dict[str, Any]]

    def resources(self, stack: str, kind: str) -> dict[str, dict[str, Any]]:
        """Properties by logical id of all resources of a type in one stack."""
        found = self.templates[stack]["Resources"]
        return {name: r.get("Properties", {}) for name, r in found.items() if r["Type"] == kind}


@pytest.fixture(scope="session")
def both_context() -> dict[str, Any]:
    """One app: a new cluster with standby workers, an attached one whose types EC2 selected."""
    clusters = [
        *map(_with_standby, project_context()["clusters"]),
        *map(_with_requirements, _own_names(attach_context()["clusters"])),
    ]
    return {"clusters": clusters, CONTEXT_KEY: {ATTACHED: RECORD}}


@pytest.fixture(scope="session")
def app(both_context: dict[str, Any]) -> App:
    return _synthesised(both_context)


@pytest.fixture(scope="session")
def judged_app(both_context: dict[str, Any]) -> App:
    """The same app again, under the rules of cdk-nag and the validation of CloudFormation, which take long."""
    return _synthesised({**both_context, "security_rules": True})


@pytest.fixture(scope="session")
def variants() -> App:
    """Both modes with cluster ids of the greatest length; the attached one over IPv6, its topics without encryption.

    Both are off at night. Critical messages go to a topic of the stack, and to one that exists.
    """
    (new,), (attached,) = project_context()["clusters"], _own_names(attach_context()["clusters"])
    clusters = [
        {
            **new,
            "cluster_id": LONG_NEW,
            "settings": {
                **new["settings"],
                **NIGHTS,
                "handle_rebalance": True,
                "alert_topic_critical": "create",
                "registry_mirror": True,
                "image_wait_seconds": 120,
            },
        },
        {
            **attached,
            "cluster_id": LONG_ATTACHED,
            "attach": {**attached["attach"], "function_egress": "ipv6", "server_instance_id": SERVER},
            "topic_encryption": "none",
            "settings": {**attached["settings"], **NIGHTS, "handle_rebalance": True, "alert_topic_critical": ON_CALL},
        },
    ]
    return _synthesised({"clusters": clusters})


def _synthesised(context: dict[str, Any]) -> App:
    paths = synthesise(context=context)
    return App(
        folder=paths[0].parent,
        templates={p.name.removesuffix(".template.json"): json.loads(p.read_text(encoding="utf-8")) for p in paths},
    )


def _with_standby(cluster: dict[str, Any]) -> dict[str, Any]:
    return {**cluster, "settings": {**cluster["settings"], "standby_workers": 2}}


def _with_requirements(cluster: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in cluster["settings"].items() if name != "instance_types"}
    return {**cluster, "settings": {**given, "instance_requirements": RECORD["requirements"]}}


def _own_names(clusters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {
        "state_table": "shop-state",
        "history_table": "shop-history",
        "events_table": "shop-events",
        "document_prefix": "shop-",
        "prometheus_secret": "shop/prometheus-auth",
        "slack_secret": "shop/slack-webhook",
    }
    return [{**cluster, "settings": {**cluster["settings"], **names}} for cluster in clusters]


NEW = "node-fleet-prod"
ATTACHED = "shop-k3s"
LONGEST = 40
NIGHTS = {"hibernate": "Mon-Fri 20:00-07:00; Sat-Sun"}
SERVER = "i-0123456789abcdef0"
ON_CALL = "arn:aws:sns:ap-southeast-1:123456789012:on-call"
LONG_NEW, LONG_ATTACHED = NEW.ljust(LONGEST, "n"), ATTACHED.ljust(LONGEST, "a")
RECORD = {
    "region": "ap-southeast-1",
    "requirements": {"vcpus": [2, 2], "memory_gib": [2, 2]},
    "instance_types": ["t3.small", "t3a.small"],
    "asked_on": "2026-03-01",
}
STACKS = (
    *(f"{NEW}-{part}" for part in ("network", "cluster", "autoscaler", "observability")),
    *(f"{ATTACHED}-{part}" for part in ("autoscaler", "observability")),
)
