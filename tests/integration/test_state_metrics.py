"""The metrics of node-fleet on the server: read from the state item, scraped by a real Prometheus with its rules."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node_fleet.domain.model.memory import Memory
from node_fleet.domain.model.policy import Policy
from node_fleet.domain.notify.exposition import exposition, stored
from node_fleet.domain.notify.totals import packed
from tests.support.real_servers import free_port, prometheus, rendered, wait_until
from tests.support.shipped_scripts import load_server

METRICS = load_server("state_metrics")
AWS = """#!/bin/sh
printf '%s\\n' "$@" >"$(dirname "$0")/words"
[ -f "$(dirname "$0")/answer" ] || { echo "AccessDeniedException: not authorized" >&2; exit 254; }
cat "$(dirname "$0")/answer"
"""


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `aws` prints the file "answer", or refuses without it."""
    (tmp_path / "aws").write_text(AWS)
    (tmp_path / "aws").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def item(**attributes: Any) -> str:
    return json.dumps({"Item": attributes})


@contextmanager
def served(source: Any) -> Iterator[int]:
    server = METRICS.serve(source, ("127.0.0.1", free_port()))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def source() -> Any:
    return METRICS.Source("eu-west-1", "states", "prod")


def text_of(now: int = 1000) -> str:
    memory = Memory(succeeded_at=now, totals=packed({"launches/joined/pending": 4, "decisions/none/": 7}))
    return stored(exposition(memory, None, Policy(), now=now, change=None, usd_per_hour=0.2, node_count=3))


def test_the_item_of_this_cluster_is_read_with_four_attributes(aws: Path) -> None:
    (aws / "answer").write_text(item(exposition={"S": text_of()}))
    assert "node_fleet_workers_actual 3" in source().text().splitlines()
    words = (aws / "words").read_text().splitlines()
    assert words[:2] == ["dynamodb", "get-item"]
    assert words[words.index("--key") + 1] == '{"cluster_id": {"S": "prod"}}'
    wanted = "exposition, lock_acquired_at, operation, pause"
    assert words[words.index("--projection-expression") + 1] == wanted


def test_dynamodb_is_asked_once_for_several_scrapes(aws: Path) -> None:
    (aws / "answer").write_text(item(exposition={"S": text_of()}))
    one = source()
    first = one.text()
    (aws / "answer").unlink()
    assert one.text() == first


@pytest.mark.parametrize("answer", [None, "no json", "[]"])
def test_an_item_that_cannot_be_read_is_a_metric_and_no_error(aws: Path, answer: str | None) -> None:
    if answer is not None:
        (aws / "answer").write_text(answer)
    found = source().text().splitlines()
    assert [line for line in found if not line.startswith("#")] == ["node_fleet_state_read 0"]


@pytest.mark.parametrize("answer", ["", "{}", '{"Item": {}}'])
def test_before_the_first_run_there_are_no_figures(aws: Path, answer: str) -> None:
    (aws / "answer").write_text(answer)
    lines = [line for line in source().text().splitlines() if not line.startswith("#")]
    assert lines == ["node_fleet_state_read 1", "node_fleet_lock_held 0", "node_fleet_paused 0"]


def test_the_ages_of_lock_and_operation_grow_and_a_pause_is_shown_until_its_end() -> None:
    operation = {"M": {"started_at": {"N": "900"}, "kind": {"S": "scale_down"}}}
    held = {"lock_acquired_at": {"N": "960"}, "operation": operation, "pause": {"M": {"until": {"N": "1000"}}}}
    found = METRICS.metrics(held, 999.0).splitlines()
    assert "node_fleet_lock_age_seconds 39" in found
    assert 'node_fleet_operation_age_seconds{kind="scale_down"} 99' in found
    assert "node_fleet_paused 1" in found and "node_fleet_lock_held 1" in found
    assert "node_fleet_paused 0" in METRICS.metrics(held, 1000.0).splitlines()


@pytest.mark.parametrize(
    "line", ["up 0", "kube_pod_info 1", "node_fleet_x{a=b} 1", "node_fleet_x", "", 'node_fleet_x{a="b"}', "# HELP up x"]
)
def test_a_line_of_another_kind_is_left_out(line: str) -> None:
    assert line not in METRICS.metrics({"exposition": {"S": stored(f"{line}\n")}}, 1.0).splitlines()


@pytest.mark.parametrize(
    "broken",
    [
        {"S": 5},
        {"S": "plain text"},
        {"S": stored("x" * 99)[:-3]},
        {"N": "x"},
        {"M": {"until": {"S": "soon"}}},
        {"M": None},
        None,
    ],
)
def test_attributes_of_another_type_are_missing(broken: Any) -> None:
    found = METRICS.metrics(dict.fromkeys(("exposition", "lock_acquired_at", "operation", "pause"), broken), 1.0)
    assert "node_fleet_state_read 1" in found.splitlines()


def test_only_the_metrics_have_an_address(aws: Path) -> None:
    (aws / "answer").write_text(item())
    with served(source()) as port, pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def test_a_real_prometheus_scrapes_them_and_its_rules_see_a_fleet_that_is_not_scaled(aws: Path, tmp_path: Path) -> None:
    (aws / "answer").write_text(item(exposition={"S": text_of()}))
    with served(source()) as port:
        configuration = rendered("monitoring/prometheus/prometheus.yml")
        (job,) = [one for one in configuration["scrape_configs"] if one["job_name"] == "node-fleet"]
        job = {**job, "scrape_interval": "1s", "scrape_timeout": "1s"}
        job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
        short = {"global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yml"], "scrape_configs": [job]}
        with prometheus(tmp_path / "prometheus", short) as server:
            query = 'node_fleet_launches_total{job="node-fleet",result="joined",reason="pending"}'
            ((labels, value),) = wait_until(lambda: server.vector(query), "the first scrape")
            assert (value, labels["instance"]) == (4, f"127.0.0.1:{port}")
            assert server.vector("node_fleet_cost_usd_per_hour")[0][1] == 0.2
            alert = 'ALERTS{alertname="NodeFleetNoSuccessfulRun"}'
            wait_until(lambda: server.vector(alert), "the alert about a last success in 1970")
            assert server.vector('ALERTS{alertname="NodeFleetMetricsGone"}') == []
