"""The page `ui` in a real Chromium, served by the real command: settings are moved, studied, copied and written."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backtest.trace import TraceError
from backtest.what_if import POLICIES
from cli import ui
from simulator.clock import VirtualClock
from simulator.scenario.files import build_cluster, load_scenario
from tests.support.browser import Browser, browser, programs
from tests.support.prometheus_fixture import PASSWORD, USERNAME, History, real_prometheus

pytestmark = pytest.mark.whole
ROOT = Path(__file__).parents[2]
BUSY = 'sum(1 - rate(node_cpu_seconds_total{mode="idle"}[5m]))'
HOSTILE = "<img src=x onerror=document.title='run'>"
PATIENCE_SECONDS = 300
REFUSED = "Failed to load resource: the server responded with a status of 400"


@dataclass(frozen=True, slots=True)
class Served:
    """The command with its page."""

    process: subprocess.Popen[str]
    address: str
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    programs()
    folder = tmp_path_factory.mktemp("ui")
    (folder / "cdk.json").write_text((ROOT / "cdk.json").read_text())
    (folder / "cdk.json").chmod(0o640)
    load = [f"{1_780_272_000 + at},{60 - 50 * math.cos(at / 10800 * math.pi):.3f}" for at in range(0, 43200, 300)]
    (folder / "half-day.csv").write_text("time,value\n" + "\n".join(load) + "\n")
    words = [sys.executable, "-m", "cli.main", "ui", "half-day.csv", "--port", "0", "--no-browser", "--write"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "functions")])
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    yield Served(process, address, folder)
    process.terminate()  # ends it like Ctrl-C, which what a script starts in the background ignores
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err.splitlines()[-1]) == (0, "ended: the page is no longer served"), err


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, served: Served) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("desk")) as session:
        session.visit(served.address)
        until_state(session, "complete")
        yield session


def until_state(session: Browser, state: str) -> None:
    """Wait until the page has shown the answer of the last settings."""
    until = time.monotonic() + PATIENCE_SECONDS
    while session.run("return document.documentElement.dataset.state") != state:
        assert time.monotonic() < until, text_of(session, "error") or text_of(session, "answer")
        time.sleep(0.05)


def text_of(session: Browser, name: str) -> str:
    return str(session.run(f"return document.getElementById('{name}').textContent"))


def move(session: Browser, name: str, value: Any, state: str = "complete") -> None:
    """Set a control as a person does, and wait for the answer."""
    event = "change" if isinstance(value, str) else "input"
    session.run(
        "document.documentElement.dataset.state = 'moved';"
        f"const e = document.getElementById('{name}'); e.value = {json.dumps(value)};"
        f"e.dispatchEvent(new Event('{event}'))"
    )
    until_state(session, state)


def cells(session: Browser, row: int = 0) -> list[str]:
    script = f"return [...document.querySelectorAll('#rows tr')[{row}].children].map(e => e.textContent)"
    found: list[str] = session.run(script)
    return found


def test_the_page_shows_the_study_of_every_policy_and_the_console_is_silent(desk: Browser) -> None:
    assert text_of(desk, "answer").startswith("this configuration: ")
    names = desk.run("return [...document.querySelectorAll('#rows th')].map(e => e.textContent)")
    assert names == [*POLICIES, "clairvoyant"]
    assert text_of(desk, "trace") == "half-day: 0.5 days, 144 readings"
    assert desk.run("return document.querySelectorAll('#time .trace').length") > 2
    assert desk.run("return document.querySelectorAll('#map .point').length") >= len(POLICIES)
    loaded = desk.run("return performance.getEntriesByType('resource').map(e => new URL(e.name).origin)")
    assert set(loaded) == {desk.run("return location.origin")}
    assert desk.complaints() == []


def test_a_moved_setting_changes_the_own_row_only_and_shows_the_difference(desk: Browser) -> None:
    before = [cells(desk, row) for row in range(3)]
    move(desk, "wait_cost", 20)
    move(desk, "change_cost", 1)
    assert cells(desk) != before[0]
    assert [cells(desk, row) for row in (1, 2)] == before[1:]
    assert text_of(desk, "changes") == "Changed: wait_cost=20, change_cost=1."
    assert '"wait_cost": 20, "change_cost": 1 }' in text_of(desk, "difference")
    shown = desk.run("return [...document.querySelectorAll('.changed label')].map(e => e.textContent)")
    assert shown == ["Price of a waiting pod (wait_cost)", "Price of a change (change_cost)"]


def test_a_setting_that_is_moved_before_an_answer_came_is_not_lost(desk: Browser) -> None:
    desk.run("""
    const answered = window.fetch;
    window.fetch = async (...given) => {  // the person goes on typing when the answer is on its way
      const reply = await answered(...given);
      window.fetch = answered;
      const field = document.getElementById('change_cost');
      field.value = 80;
      field.dispatchEvent(new Event('input'));
      document.documentElement.dataset.state = 'moved';
      return reply;
    };
    """)
    move(desk, "change_cost", 8)
    assert "change_cost=80" in text_of(desk, "changes")


def test_a_server_that_ends_during_an_answer_is_an_error_with_what_to_do(desk: Browser) -> None:
    desk.run("""
    const answered = window.fetch;
    window.fetch = async () => {
      window.fetch = answered;
      return new Response(new ReadableStream({start: one => one.error(new TypeError('network error'))}));
    };
    """)
    move(desk, "change_cost", 42, state="refused")
    assert text_of(desk, "error").startswith("the server of this page does not answer: start it again")
    move(desk, "change_cost", 80)


def test_an_emptied_number_shows_the_value_in_use_again(desk: Browser) -> None:
    desk.run(
        "const field = document.getElementById('change_cost'); field.value = '';"
        "for (const name of ['input', 'change']) field.dispatchEvent(new Event(name))"
    )
    assert desk.run("return document.getElementById('change_cost').value") == "80"


def test_a_preset_brings_its_own_rules_and_its_own_controls(desk: Browser) -> None:
    move(desk, "preset", "node-fleet")
    assert text_of(desk, "changes") == "Changed: preset=node-fleet."
    visible = "return [...document.querySelectorAll('.control:not([hidden])')].map(e => e.dataset.name)"
    assert {"cpu_up_percent", "idle_seconds"} < set(desk.run(visible)) and "wait_cost" not in desk.run(visible)
    assert cells(desk)[1:] == cells(desk, POLICIES.index("node-fleet"))[1:]
    desk.run("document.getElementById('reset').click()")
    move(desk, "spot_percent", 70)
    assert text_of(desk, "changes") == "These are the settings of cdk.json."


def test_a_mistake_is_one_error_in_the_page_and_the_figures_stay(desk: Browser) -> None:
    kept = cells(desk)
    desk.complaints()
    move(desk, "min_workers", 11, state="refused")
    assert "min_workers=11 must be at most max_workers=10" in text_of(desk, "error")
    assert cells(desk) == kept and not desk.run("return document.getElementById('error').hidden")
    assert desk.violations() == []
    assert all(REFUSED in one for one in desk.complaints())
    move(desk, "min_workers", 2)
    assert desk.run("return document.getElementById('error').hidden")


def test_a_dropped_file_is_the_load_and_a_wrong_one_is_an_error(desk: Browser) -> None:
    drop = """
    document.documentElement.dataset.state = 'moved';
    const carried = new DataTransfer();
    carried.items.add(new File([%s], %s));
    dispatchEvent(new DragEvent('drop', {dataTransfer: carried, cancelable: true}));
    """
    rows = "\n".join(f"{1_780_272_000 + 300 * n},{5 + n % 7}" for n in range(20))
    name = f"{HOSTILE}.csv".replace("/", "")
    desk.run(drop % (json.dumps(rows), json.dumps(name)))
    until_state(desk, "complete")
    assert text_of(desk, "trace").startswith(HOSTILE) and desk.run("return document.title").startswith("node-fleet")
    desk.run(drop % (json.dumps("a,b\n"), json.dumps("wrong.csv")))
    until_state(desk, "refused")
    assert "columns a, b, expected time,value" in text_of(desk, "error")
    assert text_of(desk, "trace").startswith(HOSTILE), "the load before is kept"
    desk.complaints()


def test_a_prometheus_that_does_not_answer_is_an_error_with_what_to_do(desk: Browser) -> None:
    given = {"url": "http://127.0.0.1:9", "query": "sum(up)", "past": "1h", "step": "1m"}
    desk.run(
        f"for (const [name, value] of Object.entries({json.dumps(given)})) document.getElementById(name).value = value;"
        "document.documentElement.dataset.state = 'moved'; document.getElementById('read').click()"
    )
    until_state(desk, "refused")
    assert "Prometheus at http://127.0.0.1:9 cannot be read: ConnectionError; " in text_of(desk, "error")
    assert text_of(desk, "trace").startswith(HOSTILE), "the load before is kept"
    desk.complaints()


def test_the_page_reads_a_range_of_a_real_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_USER", USERNAME)
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_PASSWORD", PASSWORD)
    with real_prometheus(tmp_path) as server:
        start = server.next_start()
        clock = VirtualClock(start)
        history = History(build_cluster(clock, load_scenario("flash-sale")), clock)
        history.cluster.add_worker("i-00000001", instance_type="t3.small", az="ap-southeast-1a", market="spot")
        clock.advance(1800)
        server.write(history)
        monkeypatch.setattr(ui.time, "time", lambda: start + 1800.0)
        trace = ui._read_prometheus(server.url, BUSY, "20m", "1m")
        assert trace.interval_seconds == 60 and len(trace.values) > 15
        with pytest.raises(TraceError, match="refuses up"):
            ui._read_prometheus(server.url, "up +", "20m", "1m")
        with pytest.raises(TraceError, match="has 0 readings of sum\\(nothing\\) in this range"):
            ui._read_prometheus(server.url, "sum(nothing)", "20m", "1m")


def test_the_keyboard_alone_moves_a_setting_and_shows_a_policy(desk: Browser) -> None:
    desk.run("document.getElementById('max_workers').focus(); document.documentElement.dataset.state = 'moved'")
    desk.press("ArrowUp")
    until_state(desk, "complete")
    assert text_of(desk, "changes") == "Changed: max_workers=11."
    assert desk.run("return document.getElementById('max_workers').previousSibling.value") == "11"
    for _ in range(40):
        desk.press("Tab")
        if desk.run("return document.activeElement.id") == "show-karpenter":
            break
    desk.press(" ")
    drawn = "return document.getElementById('time').data.filter(t => t.visible === true).map(t => t.name)"
    assert "karpenter" in desk.run(drawn)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1300])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_page(desk: Browser, width: int, dark: bool) -> None:
    desk.dark(dark)
    desk.resize(width, 2400)
    desk.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    desk.run("return new Promise(done => setTimeout(() => done(1), 300))")
    assert desk.violations() == []
    assert desk.run("return document.documentElement.scrollWidth") <= width
    assert desk.complaints() == []
    desk.dark(False)


def test_settings_are_written_into_the_file_after_the_difference_was_shown(desk: Browser, served: Served) -> None:
    move(desk, "max_workers", 12)
    move(desk, "spot_percent", 50)
    wanted = text_of(desk, "difference")
    desk.run("document.documentElement.dataset.state = 'moved'; document.getElementById('write').click()")
    until_state(desk, "complete")
    before, after = (
        json.loads(path.read_text())["context"]["clusters"][0]
        for path in (ROOT / "cdk.json", served.folder / "cdk.json")
    )
    assert after == {**before, "settings": {**before["settings"], "max_workers": 12, "spot_percent": 50}}
    assert re.search(r'^\+ +"settings": {.* "max_workers": 12, .*"spot_percent": 50 }$', wanted, re.MULTILINE)
    assert text_of(desk, "difference") == "" and desk.run("return document.getElementById('write').hidden")
    assert text_of(desk, "done") == f"written into {served.folder / 'cdk.json'}; the next deployment uses it"


def test_another_host_name_and_another_origin_are_refused(served: Served) -> None:
    base, token = served.address.split("/?token=")
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"X-Node-Fleet-Token": "x"}):
        given = {"Origin": base, "X-Node-Fleet-Token": token, **headers}
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{base}/study", b"{}", given), timeout=30)
        assert caught.value.code in (403, 421)
        caught.value.close()
