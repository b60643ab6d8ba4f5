"""A series counts only from the target that may state it: every query and rule against series of other jobs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_fleet.adapters.prometheus import queries
from node_fleet.domain.model.custom_metric import BUILT_IN_PROMQL
from simulator.fakes.prometheus import admits
from tests.support.real_servers import tool

RULES = Path("cluster/monitoring/prometheus/rules.yml")
NODE, POD = 'node="i-a"', 'namespace="shop",pod="web",uid="u"'
CONTAINER = f'{POD},container="main",node="i-a"'
EXPORTED = (
    f'kube_node_info{{{NODE},provider_id="aws:///a/i-a",internal_ip="10.0.0.1"}}',
    f'kube_node_status_condition{{{NODE},condition="Ready",status="true"}}',
    f'kube_node_status_condition{{{NODE},condition="DiskPressure",status="true"}}',
    f"kube_node_spec_unschedulable{{{NODE}}}",
    f'kube_node_spec_taint{{{NODE},key="k",effect="NoSchedule"}}',
    f'kube_node_status_allocatable{{{NODE},resource="cpu"}}',
    f'kube_pod_status_phase{{{POD},phase="Running"}}',
    f'kube_pod_info{{{POD},node="i-a"}}',
    f"kube_pod_created{{{POD}}}",
    f"kube_pod_status_unschedulable{{{POD}}}",
    f'kube_pod_container_resource_requests{{{CONTAINER},resource="cpu"}}',
    f'kube_pod_init_container_resource_requests{{{CONTAINER},resource="cpu"}}',
)
OF_WORKERS = (
    'up{instance_id="i-a"}',
    'node_cpu_seconds_total{instance_id="i-a",cpu="0",mode="idle"}',
    'node_cpu_seconds_total{instance_id="i-a",cpu="0",mode="user"}',
    'node_memory_MemTotal_bytes{instance_id="i-a"}',
    'node_memory_MemAvailable_bytes{instance_id="i-a"}',
)
OF_KUBELETS = (f'container_cpu_usage_seconds_total{{id="/",{NODE}}}', f"machine_cpu_cores{{{NODE}}}")
OF_APPLICATIONS = (
    'http_requests_total{status="500"}',
    'http_request_duration_seconds_bucket{le="1"}',
    'http_request_duration_seconds_bucket{le="+Inf"}',
    'app_queue_depth{queue="default"}',
)
SERIES = {
    "kube-state-metrics": EXPORTED,
    "node-exporter": OF_WORKERS,
    "cadvisor": OF_KUBELETS,
    "demo-app": OF_APPLICATIONS,
    "alertmanager": ('alertmanager_notifications_failed_total{integration="sns"}',),
}
"""What each job may state."""
ASKED = {
    "kube-state-metrics": {
        **queries.NODES.parts,
        **queries.PODS.parts,
        "age": queries.PENDING_AGE,
        "pending_requests": queries.PENDING_REQUESTS,
        "not_ready": queries.not_ready_seconds(600),
    },
    "node-exporter": queries.WORKERS.parts,
    "cadvisor": {"cadvisor": queries.NODE_CPU_CADVISOR},
    "demo-app": BUILT_IN_PROMQL,
}
"""The queries by the job whose series they read."""


@pytest.mark.parametrize(
    ("query", "job", "admitted"),
    [
        (queries.NODE, "node-exporter", False),
        (queries.NODE, "kube-state-metrics", True),
        (queries.NODE.replace('job="kube-state-metrics",', ""), "node-exporter", True),
        ("max by (node) (kube_node_info)", "node-exporter", True),
        (queries.WORKER_CPU, "node-exporter", True),
        (queries.WORKER_CPU, "cadvisor", False),
        (queries.NODE_CPU_CADVISOR, "kubernetes-nodes-cadvisor", True),
        (queries.NODE_CPU_CADVISOR, "unknown", False),
    ],
)
def test_the_fake_prometheus_admits_a_forged_series_unless_the_query_names_another_job(
    query: str, job: str, admitted: bool
) -> None:
    assert admits(query, job) is admitted


def stated_by(job: str, series: str) -> dict[str, str]:
    """A series as Prometheus stores it when the target of that job states it; it rises, so that rates are known."""
    name, _, labels = series.partition("{")
    return {"series": f'{name}{{job="{job}",{labels}', "values": "1 1 1 1 1 1 1 1 1 1 1" if name != "up" else "1x10"}


def answered(query: str, is_answered: bool) -> dict[str, Any]:
    samples = [{"labels": "{}", "value": int(is_answered)}]
    return {"expr": f"(count({query}) > bool 0) or vector(0)", "eval_time": "5m", "exp_samples": samples}


def promtool(tmp_path: Path, *tests: dict[str, Any]) -> str:
    """What promtool says about these tests; empty when all pass."""
    (tmp_path / "rules.yml").write_text(RULES.read_text())
    common = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": list(tests)}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(common))
    done = subprocess.run([tool("promtool"), "test", "rules", tmp_path / "tests.yml"], capture_output=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()


def test_every_query_answers_for_the_series_of_its_own_job(tmp_path: Path) -> None:
    tests = [
        {
            "interval": "30s",
            "input_series": [stated_by(job, series) for series in SERIES[job]],
            "promql_expr_test": [answered(query, True) for name, query in ASKED[job].items()],
        }
        for job in ASKED
    ]
    assert promtool(tmp_path, *tests) == ""


@pytest.mark.parametrize("forger", [*SERIES, "unknown"])
def test_no_query_and_no_rule_believes_a_series_of_another_job(tmp_path: Path, forger: str) -> None:
    is_application = forger in ("demo-app", "unknown")
    owners = [
        job for job in SERIES if job != forger and not (job == "demo-app" and (is_application or forger == "cadvisor"))
    ]
    forged = [stated_by(forger, series) for job in owners for series in SERIES[job]]
    asked = [answered(query, False) for job in owners for query in ASKED.get(job, {}).values()]
    rules = yaml.safe_load(RULES.read_text())["groups"]
    silent = [
        {"eval_time": "10m", "alertname": rule["alert"], "exp_alerts": []}
        for group in rules
        for rule in group["rules"]
        if rule["alert"] not in ("KubeStateMetricsGone", "NodeFleetMetricsGone")  # these fire while series are missing
    ]
    test = {"interval": "30s", "input_series": forged, "promql_expr_test": asked, "alert_rule_test": silent}
    assert promtool(tmp_path, test) == ""


def test_every_rule_believes_the_metrics_of_node_fleet_from_its_own_job_only() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    texts = [rule["expr"] for group in groups for rule in group["rules"]]
    selectors = [found for text in texts for found in re.findall(r"node_fleet_\w+(\{[^}]*\})?", text)]
    assert len(selectors) >= 8
    assert all('job="node-fleet"' in selector for selector in selectors)
