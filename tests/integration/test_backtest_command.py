"""The command backtest: a file, a real Prometheus, the history table; a page, JSON, and wrong use."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from simulator.clock import VirtualClock
from simulator.scenario.files import build_cluster, load_scenario
from tests.support.browser import Browser, browser
from tests.support.prometheus_fixture import PASSWORD, USERNAME, History, real_prometheus

pytestmark = pytest.mark.sampled(5)  # with --all, every one

HOUR = 3600
DEMO = "flash-sale"
QUERY = 'sum(1 - rate(node_cpu_seconds_total{mode="idle"}[5m]))'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two days of day and night, five-minute readings."""
    lines = ["time,value"]
    lines += [
        f"{1_780_272_000 + at},{100 - 80 * math.cos(at / 86400 * 2 * math.pi):.3f}" for at in range(0, 172800, 300)
    ]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def typed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["backtest", *map(str, words)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_answer_comes_first_and_then_the_table(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = typed(capsys, trace, "--with", "fixed-5", "--with", "karpenter")
    assert code == 0
    assert out.startswith("this configuration: ")
    assert all(name in out for name in ("fixed-5", "karpenter", "clairvoyant", "USD"))


def test_settings_come_from_a_file_and_from_options(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("min_workers: 4\nmax_workers: 6\n")
    _, out, _ = typed(capsys, trace, "--config", file, "--set", "max_workers=7", "--json")
    assert json.loads(out)["workers"] == [4, 7]
    _, out, _ = typed(capsys, trace, "--config", "cdk.json", "--json")
    assert json.loads(out)["workers"] == [2, 10]


def test_the_settings_are_those_of_cdk_json_in_the_current_folder_and_the_first_line_names_them(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    clusters = [{"cluster_id": f"shop-{n}", "settings": {"min_workers": n, "preset": "readme"}} for n in (3, 4)]
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"clusters": clusters}}))
    for words, cluster, least in ((), "shop-3", 3), (("--cluster", "shop-4"), "shop-4", 4):
        _, out, err = typed(capsys, trace, *words, "--set", "preset=flowchart", "--json")
        assert json.loads(out)["workers"] == [least, 10]
        assert err == f"settings: cluster {cluster} of {tmp_path / 'cdk.json'}, preset flowchart\n"
    code, _, err = typed(capsys, trace, "--cluster", "shop-5")
    assert code == 1 and "cdk.json has no cluster shop-5; give --cluster with one of these: shop-3, shop-4" in err


def test_other_configurations_have_the_names_of_their_files(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.yaml").write_text("idle_seconds: 3600\n")
    _, out, _ = typed(capsys, trace, "--with", tmp_path / "slow.yaml", "--with", "fixed-5", "--json")
    found = {policy["policy"]: policy for policy in json.loads(out)["policies"]}
    assert list(found) == ["this configuration", "slow", "fixed-5", "clairvoyant"]
    assert found["slow"]["worker_hours"] > found["this configuration"]["worker_hours"]


def test_types_are_compared_with_the_configured_type_and_their_prices_are_named(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = typed(capsys, trace, "--region", "ap-southeast-1", "--types", "t3a.small, c6i.large")
    assert code == 0
    assert out.startswith("t3.small: ") and "pending pod-minutes: t3a.small" in " ".join(out.split())
    assert "instance prices of ap-southeast-1: shipped 2025-11" in out + err
    _, out, _ = typed(capsys, trace, "--types", "t3a.small", "--types", "c6i.large", "--json")
    fleets = [[kind["type"] for kind in one["types"]] for one in json.loads(out)["fleets"]]
    assert fleets == [["t3.small"], ["t3a.small"], ["c6i.large"]]


def test_lists_and_requirements_are_compared_as_fleets(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    required = '{"vcpus": [2, 2], "memory_gib": [2, 4], "burstable": "required", "max_types": 2}'
    words = ["--set", "instance_types=t3.small,t3.medium", "--types", "t3.small+t3a.small", "--types", required]
    code, out, err = typed(capsys, trace, *words, "--json")
    assert code == 0, err
    fleets = [[kind["type"] for kind in one["types"]] for one in json.loads(out)["fleets"]]
    assert fleets == [["t3.small", "t3.medium"], ["t3.small", "t3a.small"], ["t3a.small", "t3.small"]]


def test_the_requests_of_a_pod_decide_how_many_fit_on_each_type(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--pod-cpu", "200", "--pod-memory", "500", "--types", "t3.medium", "--json"]
    code, out, err = typed(capsys, trace, *words)
    assert code == 0, err
    assert [one["types"][0]["pods_per_worker"] for one in json.loads(out)["fleets"]] == [3, 7]
    code, _, err = typed(capsys, trace, "--pod-memory", "1700")
    assert code == 1 and "a pod of 250m CPU and 1700 MiB fits no t3.small: pods can request" in err


def test_a_search_prints_the_changes_and_their_effect_on_the_other_part(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = typed(capsys, trace, "--tune", "--limit", 60, "--tries", 8, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tries"] == 8
    assert found["other_part"]["after"]["worker_hours"] <= found["other_part"]["before"]["worker_hours"]


@pytest.mark.parametrize(
    ("words", "code", "answer"),
    [
        (["nowhere.csv"], 1, "nowhere.csv: No such file"),
        (["TRACE", "--set", "idle_seconds=soon"], 1, "idle_seconds=soon"),
        (["TRACE", "--set", "idle_seconds"], 2, "--set idle_seconds=300"),
        (["TRACE", "--with", "unknown"], 2, "unknown policy 'unknown'"),
        (["TRACE", "--types", "t3.small++t3.medium"], 2, "'t3.small++t3.medium' has an empty name; type it like"),
        (["TRACE", "--types", "t3.small+t4g.small"], 2, "x86_64 and arm64 cannot share one image"),
        (["TRACE", "--types", '{"vcpus": [4, 2], "memory_gib": [4, 8]}'], 2, "the smallest value is above the largest"),
        (
            ["TRACE", "--types", '{"vcpus": [64, 64], "memory_gib": [1, 1]}'],
            1,
            "no type with a known price in",
        ),
        (["TRACE", "--types", "x9.huge"], 1, "the size of 'x9.huge' is not known"),
        (["TRACE", "--boot", "95s"], 1, "boot_seconds is 95, expected a multiple of 10"),
        (["TRACE", "--boot", "6m"], 1, "join limit"),
        (["http://127.0.0.1:9"], 2, "--query"),
        (["http://127.0.0.1:9", "--query", "x"], 1, "cannot be read: ConnectionError; Prometheus on the K3s server"),
        (["http://127.0.0.1:9", "--query", "x", "--since", "noon"], 2, "not a time with its zone"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], code: int, answer: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, _, err = typed(capsys, *[str(trace) if word == "TRACE" else word for word in words])
    assert ended == code
    assert answer in err
    assert err.count("\n") == 1


def test_a_range_of_a_live_prometheus_is_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_USER", USERNAME)
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_PASSWORD", PASSWORD)
    with real_prometheus(tmp_path) as server:
        start = server.next_start()
        clock = VirtualClock(start)
        scenario = load_scenario(DEMO)
        history = History(build_cluster(clock, scenario), clock)
        for number in range(2):
            history.cluster.add_worker(f"i-{number:08x}", instance_type="t3.small", az="ap-southeast-1a", market="spot")
        clock.advance(HOUR)
        server.write(history)
        words: list[Any] = [server.url, "--query", QUERY, "--since", _iso(start + 600), "--until", _iso(start + HOUR)]
        code, out, err = typed(capsys, *words, "--unit-milli", 1000, "--json")
        assert code == 0, err
        found = json.loads(out)
        assert found["trace"] == QUERY
        assert found["days"] == pytest.approx((HOUR - 600) / 86400, abs=0.01)
        assert found["policies"][0]["worker_hours"] > 0
        code, _, err = typed(capsys, *[w if w != QUERY else "up +" for w in words])
        assert code == 1
        assert "refuses" in err
        code, _, err = typed(capsys, *[w if w != QUERY else "node_cpu_seconds_total" for w in words])
        assert code == 1
        assert "series, expected one; sum them" in err


def _iso(at: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at, UTC).isoformat()


def test_the_history_table_is_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = typed(capsys, "history", "--local", "--past", "2h", "--json")
    assert code == 0, err
    found = json.loads(out.split("\n", 1)[1] if not out.startswith("{") else out)
    assert found["trace"] == "history"
    assert found["days"] > 0
    assert found["cpu_milli_per_unit"] == 2000


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with browser(tmp_path_factory.mktemp("desk")) as session:
        yield session


def test_the_page_renders_with_linked_charts_and_without_console_messages(
    trace: Path, tmp_path: Path, desk: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "study.html"
    code, out, err = typed(capsys, trace, "--compare", "--page", page)
    assert code == 0, err
    desk.open(page)
    drawn = "return new Promise(done => { const wait = () => document.documentElement.dataset.drawn ? done(1) : "
    assert desk.run(drawn + "setTimeout(wait, 20); wait(); })") == 1
    lead = desk.run("return document.querySelector('.lead').textContent")
    assert lead.startswith("this configuration: ")
    assert lead[:25] in " ".join(out.split())
    assert desk.run("return document.querySelectorAll('#time .trace').length") > 2
    assert desk.run("return document.querySelectorAll('#map .point').length") >= 10
    assert desk.run("return performance.getEntriesByType('resource').length") == 0
    zoom = "return Plotly.relayout('time', {'xaxis.range': ['2026-06-01 06:00', '2026-06-01 12:00']}).then(() => 1)"
    desk.run(zoom)
    linked = "const l = document.getElementById('time')._fullLayout; return [l.xaxis.range[0], l.yaxis2.anchor]"
    assert desk.run(linked) == ["2026-06-01 06:00", "x"]
    desk.run("document.querySelector('tr[data-policy=karpenter]').click(); return 1")
    alone = "return document.getElementById('time').data.filter(t => t.visible === true).map(t => t.name)"
    assert set(desk.run(alone)) == {"workers needed", "karpenter"}
    desk.run("document.querySelector('tbody tr').focus(); return 1")
    desk.press("ArrowDown", "ArrowDown", "Enter")
    assert set(desk.run(alone)) == {"workers needed", "algorithm"}
    assert desk.violations() == []
    assert desk.complaints() == []
    assert desk.screenshot().startswith(b"\x89PNG")
    desk.dark(True)
    assert desk.violations() == []
    assert desk.complaints() == []
    desk.dark(False)


def test_the_frontier_recommends_a_setting_and_has_the_grid_beside_the_references(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = typed(capsys, trace, "--frontier", "--set", "preset=adaptive", "--json")
    found = json.loads(out)
    names = [policy["policy"] for policy in found["policies"]]
    assert code == 0
    assert sum(name.startswith("wait_cost=") for name in names) == 8, "the ninth combination is the configuration"
    assert {"this configuration", "cluster-autoscaler", "karpenter", "clairvoyant"} <= set(names)
    assert found["recommendation"].startswith(("set wait_cost=", "keep these settings"))


def test_the_frontier_refuses_other_comparisons(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = typed(capsys, trace, "--frontier", "--compare")
    assert code == 2 and "--frontier with --compare" in err
