"""The command `ui`: the port, the load and the configuration, each mistake in one line."""

from __future__ import annotations

import base64
import signal
import socket
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from werkzeug import serving

from cli import ui
from cli.backtest import prometheus_session
from cli.main import main
from cli.output import WrongUseError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.csv"], "trace nowhere.csv: No such file or directory; give a CSV of time,value, the JSON of"),
        (["cdk.json"], "trace cdk: not the answer of query_range, and not a list of [time, value]; give a CSV"),
        (["--cluster", "unknown"], "has no cluster unknown; give --cluster with one of these: node-fleet-prod"),
        (["--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ui", "--no-browser", *words]) in (1, 2)
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and shown.out == ""


def test_a_port_in_use_is_refused_with_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["ui", "--no-browser", "--port", str(port)]) == 1
    said = f"port {port} of this machine cannot be used: Address already in use; give another one with --port, or"
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("settings: cluster node-fleet-prod of ") and "preset adaptive\n" in err


def test_a_configuration_with_mistakes_is_refused_before_the_page_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = '{"context": {"clusters": [{"cluster_id": "node-fleet-prod", "settings": {"min_workers": 99}}]}}'
    (tmp_path / "cdk.json").write_text(wrong)
    assert main(["ui", "--no-browser"]) == 1
    assert "min_workers=99 must be at most max_workers=10" in capsys.readouterr().err


def test_it_ends_by_sigterm_also_when_it_was_started_in_the_background_of_a_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Started:
        def serve_forever(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(serving, "make_server", lambda *_, **__: Started())
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does
    try:
        with socket.socket() as listener, pytest.raises(KeyboardInterrupt):
            ui._serve(SimpleNamespace(port=1, address="http://127.0.0.1:1/"), listener, opens=False)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("file:///etc/passwd", "up", "7d", "1m"), "is not the URL of a Prometheus"),
        (("http://127.0.0.1:9", "up", "soon", "1m"), "how far back 'soon' is not a time"),
        (("http://127.0.0.1:9", "up", "7d", "x"), "step 'x' is not a time"),
    ],
)
def test_what_is_no_prometheus_or_no_range_is_refused(given: tuple[str, str, str, str], said: str) -> None:
    with pytest.raises(WrongUseError, match=said):
        ui._read_prometheus(*given)


@pytest.mark.parametrize(("kind", "opens"), [(webbrowser.BackgroundBrowser, True), (webbrowser.GenericBrowser, False)])
def test_only_a_browser_with_windows_is_opened(kind: Any, opens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    found = kind("x")
    monkeypatch.setattr(found, "open", lambda address: opened.append(address) or True)
    monkeypatch.setattr(ui.webbrowser, "get", lambda: found)
    assert ui._open("http://127.0.0.1:1/") is opens
    assert opened == ["http://127.0.0.1:1/"] * opens


def test_without_any_browser_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(ui.webbrowser, "get", none)
    assert ui._open("http://127.0.0.1:1/") is False


def test_credentials_of_any_letters_are_sent_as_prometheus_hashes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_USER", "reader")
    monkeypatch.setenv("NODE_FLEET_PROMETHEUS_PASSWORD", "größer €")
    sent = prometheus_session().prepare_request(requests.Request("POST", "http://prometheus.test"))
    assert base64.b64decode(sent.headers["Authorization"].removeprefix("Basic ")) == "reader:größer €".encode()
