"""The demo application as a process of its own: its pages, its metrics under a real Prometheus, its end."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_servers import CLUSTER, answers, free_port, prometheus, tool, wait_until

APP = CLUSTER / "demo/app/app.py"
PAGES = 40
ORDERS = 30
LIMIT = 20


@contextlib.contextmanager
def shop(**options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "PAGE_MILLISECONDS": "2", **options}
    command = [sys.executable, "-W", "error", str(APP)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "the demo application")
            yield f"http://127.0.0.1:{port}", running
        finally:
            running.kill()


def ask(url: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return int(reply.status), reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_promtool_finds_nothing_to_mend_in_its_metrics() -> None:
    with shop() as (url, _):
        ask(f"{url}/")
        ask(f"{url}/orders", "POST")
        _, text = ask(f"{url}/metrics")
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_a_real_prometheus_reads_queue_latency_and_errors_as_they_happened(tmp_path: Path) -> None:
    """One order takes so long that the queue stays as it is; it holds LIMIT orders, the rest is refused with 503."""
    with shop(ORDER_MILLISECONDS="600000", QUEUE_LIMIT=str(LIMIT)) as (url, _):
        target = url.removeprefix("http://")
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "demo-app", "static_configs": [{"targets": [target]}]}],
        }
        with prometheus(tmp_path, configuration) as server:

            def value(query: str) -> float | None:
                found = server.vector(query)
                return found[0][1] if found else None

            wait_until(lambda: value("up"), "the first scrape")  # before the order, which uses a processor to the end
            for _ in range(PAGES):
                assert ask(f"{url}/")[0] == 200
            ask(f"{url}/orders", "POST")
            started = 'app_queue_depth{queue="default"} 0'
            wait_until(lambda: started in ask(f"{url}/metrics")[1], "the first order's start")
            refused = [ask(f"{url}/orders", "POST")[0] for _ in range(ORDERS)].count(503)
            assert ask(f"{url}/nothing-here")[0] == 404
            wait_until(lambda: value('http_requests_total{path="other",status="404"}') == 1, "the last request")
            assert value('app_queue_depth{queue="default"}') == LIMIT
            assert refused == ORDERS - LIMIT
            assert value('http_requests_total{path="/",status="200"}') == PAGES
            assert value('sum(http_requests_total{status=~"5.."})') == refused
            assert value('http_request_duration_seconds_count{path="/"}') == PAGES
            assert value('http_request_duration_seconds_bucket{path="/",le="+Inf"}') == PAGES
            buckets = server.vector('http_request_duration_seconds_bucket{path="/"}')
            counts = [count for _, count in sorted(buckets, key=lambda one: float(one[0]["le"]))]
            assert counts == sorted(counts)
            assert value('sum(http_request_duration_seconds_sum{path="/"}) / 40 >= 0.002') is not None


def test_it_turns_unready_first_and_ends_cleanly_when_its_node_is_drained() -> None:
    with shop(CLOSING_SECONDS="1") as (url, running):
        running.send_signal(signal.SIGTERM)
        wait_until(lambda: ask(f"{url}/readyz")[0] == 503, "an unready answer")
        assert ask(f"{url}/healthz")[0] == 200, "still alive while it closes"
        assert running.wait(timeout=30) == 0


@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("QUEUE_LIMIT", "-1"), ("PAGE_MILLISECONDS", "1.5")])
def test_a_wrong_setting_ends_the_start_and_says_what_would_be_right(name: str, value: str) -> None:
    result = subprocess.run(
        [sys.executable, str(APP)], env={**os.environ, name: value}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.strip() == f"{name}='{value}': expected a whole number of 0 or more"


def test_kept_connections_are_served() -> None:
    with shop() as (url, _):
        host, port = url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        for _ in range(3):
            connection.request("POST", "/orders", body=b"two books")
            reply = connection.getresponse()
            assert (reply.status, reply.read()) == (202, b"ordered\n")
        connection.close()


K6_STUBS = {
    "k6": "export const sleep = (s) => { globalThis.slept = s; };\n"
    "export const check = (answer, checks) => Object.values(checks).every((one) => one(answer));\n",
    "k6/http": "const log = (method) => (url) => { (globalThis.calls ??= []).push(method + ' ' + url);"
    " return { status: method === 'GET' ? 200 : 202 }; };\n"
    "export default { get: log('GET'), post: log('POST') };\n",
}
RUN_K6 = """
globalThis.__ENV = {{ TARGET: 'http://shop' }};
Math.random = () => 0;
const test = await import('{script}');
test.default();
console.log(JSON.stringify({{ options: test.options, calls: globalThis.calls, slept: globalThis.slept }}));
"""


def load_test(tmp_path: Path, name: str) -> dict[str, object]:
    """The script's options and what one visitor does, with k6's modules replaced by stubs under a real Node."""
    import json

    for module, text in K6_STUBS.items():
        folder = tmp_path / "node_modules" / module
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.js").write_text(text)
    (tmp_path / "node_modules/k6/package.json").write_text(
        '{"type": "module", "exports": {".": "./index.js", "./http": "./http/index.js"}}'
    )
    (tmp_path / "script.mjs").write_text((CLUSTER / "demo/load" / name).read_text())
    (tmp_path / "run.mjs").write_text(RUN_K6.format(script="./script.mjs"))
    command = [tool("node"), str(tmp_path / "run.mjs")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded = json.loads(result.stdout)
    assert isinstance(loaded, dict)
    return loaded


def stages(loaded: dict[str, object]) -> list[tuple[str, int]]:
    options = loaded["options"]
    assert isinstance(options, dict)
    return [(one["duration"], one["target"]) for one in options["scenarios"]["visitors"]["stages"]]


def test_the_ramp_has_the_stages_of_its_seed(tmp_path: Path) -> None:
    loaded = load_test(tmp_path, "load-test.js")
    wanted = [("2m", 50), ("5m", 50), ("10m", 200), ("5m", 200), ("3m", 0), ("10m", 0)]
    assert stages(loaded) == wanted
    assert loaded["calls"] == ["GET http://shop/", "POST http://shop/orders"]


def test_the_flash_sale_goes_from_20_to_500_and_to_nobody(tmp_path: Path) -> None:
    loaded = load_test(tmp_path, "load-test-flash-sale.js")
    assert [target for _, target in stages(loaded)] == [20, 500, 500, 0, 0]
    text = (CLUSTER / "demo/load/load-test-flash-sale.js").read_text()
    assert re.search(r"startVUs: 20\b", text)


def test_burning_uses_cpu_time_not_waiting_time() -> None:
    from cluster.demo.app.app import burn

    before = time.thread_time()
    burn(20)
    assert time.thread_time() - before >= 0.02
