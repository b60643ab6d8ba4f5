"""The shipped Prometheus and Alertmanager configuration, judged by promtool, amtool and a running Prometheus."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.real_servers import (
    CLUSTER,
    VALUES,
    free_port,
    process,
    prometheus,
    rendered,
    tool,
    wait_until,
)

PASSWORD = "correct-horse"
RULE_TESTS = sorted((Path(__file__).resolve().parents[1] / "unit/cluster").glob("*_test.yml"))


def check(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def job(configuration: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in configuration["scrape_configs"] if one["job_name"] == name]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def web_file(tmp_path: Path) -> Path:
    """The web file as the server's bootstrap makes it from the secret."""
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"username": "prometheus", "password": PASSWORD}))
    check(sys.executable, str(CLUSTER / "server/credentials.py"), str(secret), str(tmp_path / "credentials"), "web.yml")
    return tmp_path / "credentials/web.yml"


def test_promtool_accepts_the_configuration_and_its_rules(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(rendered("monitoring/prometheus/prometheus.yml")))
    (tmp_path / "rules.yml").write_text((CLUSTER / "monitoring/prometheus/rules.yml").read_text())
    check(tool("promtool"), "check", "config", str(tmp_path / "prometheus.yml"))
    check(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))


def test_promtool_accepts_the_web_file_of_the_bootstrap(web_file: Path) -> None:
    check(tool("promtool"), "check", "web-config", str(web_file))


def test_the_alert_rules_pass_their_promtool_tests() -> None:
    check(tool("promtool"), "test", "rules", *map(str, RULE_TESTS))


def test_every_alert_rule_has_a_promtool_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    """Each test evaluates the rule as often as Prometheus does."""
    tested: dict[tuple[str, str], set[bool]] = {}
    for file in RULE_TESTS:
        tests = yaml.safe_load(file.read_text())
        for case in tests["tests"]:
            for one in case.get("alert_rule_test", []):
                rule = one["alertname"], tests["evaluation_interval"]
                tested.setdefault(rule, set()).add(bool(one["exp_alerts"]))
    ordinary = rendered("monitoring/prometheus/prometheus.yml")["global"]["evaluation_interval"]
    groups = yaml.safe_load((CLUSTER / "monitoring/prometheus/rules.yml").read_text())["groups"]
    assert tested == {
        (rule["alert"], group.get("interval", ordinary)): {True, False} for group in groups for rule in group["rules"]
    }


def test_amtool_accepts_the_alertmanager_configuration(tmp_path: Path) -> None:
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(rendered("monitoring/alertmanager/alertmanager.yml")))
    check(tool("amtool"), "check-config", str(tmp_path / "alertmanager.yml"))


def test_amtool_routes_unschedulable_pods_to_the_workflow_and_everything_else_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(rendered("monitoring/alertmanager/alertmanager.yml")))
    for alert, receiver in {"UnschedulablePods": "start-workflow", "WorkerNotScraped": "shown-only"}.items():
        command = [tool("amtool"), "config", "routes", "test", f"--config.file={file}", f"alertname={alert}"]
        routed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert routed.stdout.split() == [receiver]


def test_the_scrape_interval_is_that_of_the_seeds_and_targets_are_discovered() -> None:
    configuration = rendered("monitoring/prometheus/prometheus.yml")
    assert configuration["global"]["scrape_interval"] == "15s"
    (discovery,) = job(configuration, "node-exporter")["ec2_sd_configs"]
    filters = {one["name"]: one["values"] for one in discovery["filters"]}
    assert filters == {
        "tag:Role": ["k3s-worker"],
        "tag:Cluster": [VALUES["CLUSTER_ID"]],
        "instance-state-name": ["running"],
    }
    addresses = re.findall(r"\d+\.\d+\.\d+\.\d+", (CLUSTER / "monitoring/prometheus/prometheus.yml").read_text())
    assert set(addresses) == {"127.0.0.1"}, "no worker's address is written down"


def test_ec2s_facts_become_the_labels_that_the_queries_join_on(tmp_path: Path) -> None:
    """EC2's answers are replaced by a file; the relabelling is the shipped one, run by a real Prometheus."""
    configuration = rendered("monitoring/prometheus/prometheus.yml")
    workers = job(configuration, "node-exporter")
    del workers["ec2_sd_configs"]
    facts = [("i-0aa", "spot", "a"), ("i-0bb", None, "b"), ("i-0cc", "scheduled", "b")]
    groups = []
    for number, (instance, lifecycle, zone) in enumerate(facts):
        labels = {
            "__meta_ec2_instance_id": instance,
            "__meta_ec2_availability_zone": f"ap-southeast-1{zone}",
            "__meta_ec2_instance_type": "t3.small",
        }
        if lifecycle:
            labels["__meta_ec2_instance_lifecycle"] = lifecycle
        groups.append({"targets": [f"127.0.0.1:{9 + number}"], "labels": labels})
    (tmp_path / "ec2.json").write_text(json.dumps(groups))
    workers["file_sd_configs"] = [{"files": [str(tmp_path / "ec2.json")]}]
    configuration["scrape_configs"] = [workers]
    with prometheus(tmp_path / "prometheus", configuration) as server:
        found = wait_until(lambda: server.get("targets")["activeTargets"], "targets")
    seen = {one["labels"]["instance_id"]: one["labels"] for one in found}
    assert {name: labels["market"] for name, labels in seen.items()} == {
        "i-0aa": "spot",
        "i-0bb": "on-demand",
        "i-0cc": "on-demand",
    }
    assert seen["i-0aa"]["zone"] == "ap-southeast-1a"
    assert seen["i-0aa"]["instance_type"] == "t3.small"
    assert {labels["job"] for labels in seen.values()} == {"node-exporter"}


def status(url: str, login: str = "") -> int:
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (urllib.error.URLError, ConnectionError):
        return 0


def test_prometheus_with_the_bootstraps_web_file_answers_nobody_without_the_password(
    tmp_path: Path, web_file: Path
) -> None:
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    port = free_port()
    command = [
        tool("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.config.file={web_file}",
    ]
    url = f"http://127.0.0.1:{port}/api/v1/query?query=1"
    with process(command, tmp_path / "prometheus.log"):
        wait_until(lambda: status(url) != 0, "Prometheus")
        assert status(url) == 401
        assert status(url, "prometheus:wrong") == 401
        assert status(url, f"prometheus:{PASSWORD}") == 200


def arguments(workload: str) -> list[str]:
    """The command line that the manifest gives to the program."""
    for document in yaml.safe_load_all((CLUSTER / f"monitoring/manifests/{workload}.yaml").read_text()):
        if document["kind"] in ("Deployment", "DaemonSet"):
            found = document["spec"]["template"]["spec"]["containers"][0]["args"]
            assert isinstance(found, list)
            return found
    raise AssertionError(f"{workload} has no workload")


PROGRAMS = {
    "prometheus": ("prometheus", "/-/ready", 401),
    "alertmanager": ("prometheus-alertmanager", "/-/ready", 200),
    "node-exporter": ("prometheus-node-exporter", "/metrics", 200),
}


@pytest.mark.parametrize("workload", PROGRAMS)
def test_the_real_program_starts_with_the_manifests_command_line(tmp_path: Path, web_file: Path, workload: str) -> None:
    """Only places and ports are this machine's; EC2 discovery is left out, since it would leave the machine."""
    configuration = rendered("monitoring/prometheus/prometheus.yml")
    configuration["scrape_configs"] = [job(configuration, "alertmanager")]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    (tmp_path / "rules.yml").write_text((CLUSTER / "monitoring/prometheus/rules.yml").read_text())
    (tmp_path / "alertmanager.yml").write_text(yaml.safe_dump(rendered("monitoring/alertmanager/alertmanager.yml")))
    port = free_port()
    places = {
        r"/etc/prometheus-web/web\.yml": str(web_file),
        r"/etc/(prometheus|alertmanager)/": f"{tmp_path}/",
        r"=/(prometheus|alertmanager)$": f"={tmp_path}/data",
        r"=/host$": "=/",
        r"(web\.listen-address=)[^:\n]*:\d+": rf"\g<1>127.0.0.1:{port}",
    }
    program, path, wanted_status = PROGRAMS[workload]
    line = "\n".join(arguments(workload))
    for pattern, place in places.items():
        line = re.sub(pattern, place, line, flags=re.M)
    url = f"http://127.0.0.1:{port}{path}"
    with process([tool(program), *line.split("\n")], tmp_path / "log"):
        assert wait_until(lambda: status(url), workload) == wanted_status


def test_the_exporters_command_line_still_shows_what_queries_and_dashboards_need(tmp_path: Path) -> None:
    """The filters of mounts and devices take away noise, not the metrics that decisions rest on."""
    port = free_port()
    command = [tool("prometheus-node-exporter", "node_exporter")]
    command += [a for a in arguments("node-exporter") if not a.startswith(("--web.", "--path."))]
    with process([*command, f"--web.listen-address=127.0.0.1:{port}"], tmp_path / "log"):
        url = f"http://127.0.0.1:{port}/metrics"
        wait_until(lambda: status(url) == 200, "node-exporter")
        with urllib.request.urlopen(url, timeout=10) as reply:
            text = reply.read().decode()
    for metric in (
        'node_cpu_seconds_total{cpu="0",mode="idle"}',
        "node_memory_MemAvailable_bytes ",
        "node_memory_MemTotal_bytes ",
        "node_network_receive_bytes_total{",
        "node_network_transmit_bytes_total{",
    ):
        assert f"\n{metric}" in text, metric
