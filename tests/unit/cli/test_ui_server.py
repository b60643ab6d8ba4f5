"""The server of the page `ui`: what it answers, what it refuses, and that each mistake is one error."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client, TestResponse

from backtest import what_if
from backtest.trace import Trace, TraceError, from_rows
from backtest.what_if import POLICIES, Board, WhatIf, join
from cli import ui_server
from cli.output import CommandError
from cli.ui_server import MODEL, TOKEN_HEADER, Server
from cli.ui_settings import CONTROLS, ConfiguredCluster
from tests.support.replays import InThisProcess

HOST, ORIGIN, TOKEN = "127.0.0.1:8700", "http://127.0.0.1:8700", "s3cret"
CDK = '{"app": "x", "context": {"clusters": [{"cluster_id": "node-fleet-prod", "settings": {"max_workers": 8}}]}}'
TRACE = from_rows([(1_780_272_000 + 300 * n, 40.0 + 30 * (n % 5)) for n in range(9)], name="short")
CSV = b"time,value\n2026-06-01T00:00:00Z,3\n2026-06-01T00:05:00Z,9\n"


class Page:
    """What the script of the page sends."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client = Client(server)

    def get(self, path: str, **headers: str) -> TestResponse:
        return self._client.get(path, headers={"Host": HOST, TOKEN_HEADER: TOKEN, **headers})

    def post(self, path: str, body: Any, **headers: str) -> TestResponse:
        data = body if isinstance(body, bytes) else json.dumps(body)
        sent = {"Host": HOST, "Origin": ORIGIN, TOKEN_HEADER: TOKEN, **headers}
        return self._client.post(path, data=data, headers={name: text for name, text in sent.items() if text})

    def study(self, **given: Any) -> list[dict[str, Any]]:
        reply = self.post("/study", {"trace": 1, "turn": 1, "page": 99, **given})
        assert reply.status_code == 200, reply.text
        return [json.loads(line) for line in reply.text.splitlines()]


def never(*_: str) -> Trace:
    raise AssertionError("no Prometheus is read")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdk.json").write_text(CDK)
    board = Board()
    join(board)
    cluster = ConfiguredCluster(tmp_path / "cdk.json", "node-fleet-prod")
    server = Server(
        port=8700,
        token=TOKEN,
        cluster=cluster,
        what_if=WhatIf(InThisProcess(), board),
        read_prometheus=never,
        may_write=True,
    )
    server.load(TRACE)
    yield Page(server)
    what_if._board.clear()


def error_of(reply: TestResponse, status: int = 400) -> str:
    assert reply.status_code == status, reply.text
    found = reply.get_json()
    assert list(found) == ["error"]
    return str(found["error"])


def test_the_page_and_its_parts_are_served_and_load_nothing_from_elsewhere(page: Page) -> None:
    assert page.server.address == "http://127.0.0.1:8700/?token=s3cret"
    index = page.get(f"/?token={TOKEN}")
    assert index.status_code == 200 and index.mimetype == "text/html"
    policy = index.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy and "frame-ancestors 'none'" in policy
    assert index.headers["Referrer-Policy"] == "no-referrer" and index.headers["Cache-Control"] == "no-store"
    parts = re.findall(r'(?:src|href)="(/[^"]+)"', index.text)
    assert parts == ["/page.css", "/plotly.js", "/charts.js", "/page.js"]
    assert all(page.get(part).status_code == 200 for part in parts)
    script = page.get("/page.js").text
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg|localhost)", script + index.text)
    assert "innerHTML" not in script and "<script>" not in index.text and not re.search(r"\son\w+=", index.text)


@pytest.mark.parametrize("host", ["evil.example:8700", "127.0.0.1", "127.0.0.1:8701", "evil.example", "[::1]:8700"])
def test_another_name_of_this_machine_is_refused(host: str, page: Page) -> None:
    for path in (f"/?token={TOKEN}", "/page.js", "/start"):
        assert error_of(page.get(path, Host=host), 421) == "use the address http://127.0.0.1:8700/"
    assert page.get("/start", Host="localhost:8700").status_code == 200


def test_the_port_of_http_is_in_no_header(page: Page) -> None:
    page.server.port = 80
    assert page.post("/trace?name=x.csv", CSV, Host="localhost", Origin="http://localhost").status_code == 200
    assert error_of(page.get("/start", Host="evil.example"), 421) == "use the address http://127.0.0.1:80/"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:8701"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_request_of_another_page_is_refused(headers: dict[str, str], page: Page) -> None:
    digest = page.server.cluster.changed({}).digest
    reply = page.post("/write", {"changed": {"max_workers": 9}, "digest": digest}, **headers)
    assert error_of(reply, 403) == "another page has sent this request"
    assert page.server.cluster.path.read_text() == CDK


def test_a_link_to_the_page_may_stand_on_another_page_and_needs_the_token(page: Page) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}  # a terminal in the browser, for example
    assert page.get(f"/?token={TOKEN}", **cross).status_code == 200
    assert error_of(page.get("/", **cross), 403).startswith("open the whole address")
    assert error_of(page.get("/start", **cross), 403) == "another page has sent this request"


@pytest.mark.parametrize("token", ["", "wrong", "s3cret2", "sécret"])
def test_without_the_token_nothing_is_answered(token: str, page: Page) -> None:
    whole = "open the whole address that the command has printed"
    assert error_of(page.get(f"/?token={token}"), 403) == whole
    assert error_of(page.post("/study", {"trace": 1}, **{TOKEN_HEADER: token.encode().decode("latin-1")}), 403) == whole


def test_an_unknown_path_or_method_is_refused(page: Page) -> None:
    assert error_of(page.get("/study"), 404) == "there is no GET /study"
    assert error_of(page.get("/../cdk.json"), 404) == "there is no GET /../cdk.json"
    assert error_of(page.post("/start", {}), 404) == "there is no POST /start"


def test_the_start_has_the_controls_the_model_and_the_load(page: Page) -> None:
    found = page.get("/start").get_json()
    assert [one["name"] for one in found["controls"]] == [one.name for one in CONTROLS]
    assert [one["name"] for one in found["model"]] == list(MODEL)
    assert found["trace"] == {"number": 1, "name": "short", "readings": 9, "days": 0.03}
    assert found["may_write"] is True and found["file"] == "cdk.json"
    assert found["path"] == str(page.server.cluster.path), "the file may be another one than the person thinks of"
    assert len(found["looks"]) == len(POLICIES) + 1


def test_a_study_begins_with_the_settings_and_grows(page: Page) -> None:
    settings, *studies = page.study(changed={"spot_percent": 50})
    assert settings["changes"] == {"spot_percent": 50} and settings["values"]["instance_types"] == "t3.small"
    assert json.loads(settings["settings"]) == {"max_workers": 8, "spot_percent": 50}
    assert '+{"app": "x"' in settings["difference"] and settings["strategy"] == "thresholds"
    assert studies[0]["policies"] == ["this configuration", "clairvoyant"]
    assert studies[-1]["policies"] == [*POLICIES, "clairvoyant"] and studies[-1]["share"] == 1.0
    assert len(studies[-1]["rows"]) == len(POLICIES) + 1
    assert studies[-1]["answer"].startswith("this configuration: ")
    assert {one["name"] for one in studies[-1]["charts"]["time"]["data"]} >= set(POLICIES)
    assert max(one["x"] for one in studies[-1]["charts"]["time"]["data"]) < len(studies[-1]["times"])


def test_the_last_days_keep_the_scale_of_the_whole_load(page: Page) -> None:
    page.server.load(from_rows([(1_780_272_000 + 300 * n, 90.0 if n < 30 else 9.0) for n in range(61)], name="fall"))
    whole, part = (page.study(trace=2, days=days, turn=turn)[-1] for turn, days in enumerate((0, 0.1)))
    assert "0.2 days" in whole["assumed"] and "0.1 days" in part["assumed"]
    assert part["charts"]["time"]["data"][0]["y"] == [2] * len(part["charts"]["time"]["data"][0]["y"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"changed": {"min_workers": 9}}, "min_workers=9 must be at most max_workers=8"),
        ({"changed": {"instance_types": "x9.huge"}}, "x9.huge"),
        ({"changed": {"nonsense": 1}}, "nonsense is no setting of this page; change it in cdk.json"),
        ({"changed": []}, "changed is not an object"),
        ({"model": {"boot": 95}}, "boot_seconds is 95, expected a multiple of 10 above 0"),
        ({"model": {"boot": 300}}, "boot_seconds is 300, expected less than the join limit"),
        ({"model": {"boot": "soon"}}, "From launch to usable, s (boot) is 'soon', expected a number from 10 to 3600"),
        ({"model": {"pod_memory": 99999}}, "a pod of 250m CPU and 99999 MiB fits no t3.small"),
        ({"model": {"full_workers": 0}}, "expected a number from 0.1 to 1000"),
        ({"model": {"full_workers": True}}, "is True, expected a number"),
        ({"days": -1}, "days is -1, expected a number from 0 to 36500"),
        ({"days": 0.001}, "at least 2 are needed"),
        ({"trace": 7}, "this load is not kept"),
        ({"turn": None}, "turn is None, expected a number"),
    ],
)
def test_a_mistake_on_the_page_is_one_error(given: dict[str, Any], said: str, page: Page) -> None:
    assert said in error_of(page.post("/study", {"trace": 1, "turn": 1, "page": 1, **given}))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_request_that_is_no_object_is_refused(body: bytes, page: Page) -> None:
    assert error_of(page.post("/study", body)) == "the request is not a JSON object"


def test_an_earlier_turn_is_superseded_and_an_error_on_the_way_is_the_last_line(page: Page) -> None:
    page.study(turn=5)
    assert page.study(turn=4, changed={"idle_seconds": 0}) == [{"superseded": True}]
    executor: Any = page.server.what_if._executor

    def broken(task: Any) -> None:
        if task.policy == "karpenter":
            raise MemoryError("a process has ended")

    executor._before = broken
    assert page.study(turn=6, changed={"max_workers": 7})[-1] == {"error": "MemoryError: a process has ended"}


def test_a_process_that_was_killed_is_an_error_with_what_to_do(page: Page) -> None:
    def killed(task: Any) -> None:
        raise BrokenExecutor

    executor: Any = page.server.what_if._executor
    executor._before = killed
    said = error_of(page.post("/study", {"trace": 1, "turn": 1, "page": 1}), 500)
    assert "has ended, for example for lack of memory; end the command and start it again" in said


def test_a_file_becomes_the_load(page: Page) -> None:
    wanted = {"readings": 2, "days": 0.0}
    assert page.post("/trace?name=day.csv", CSV).get_json() == {"number": 2, "name": "day", **wanted}
    packed = gzip.compress(json.dumps([[1, 2], [61, 3]]).encode())
    assert page.post("/trace?name=../x/day.json.gz", packed).get_json() == {"number": 3, "name": "day", **wanted}
    for _ in range(ui_server.TRACES_KEPT):
        page.post("/trace?name=day.csv", CSV)
    said = error_of(page.post("/study", {"trace": 1, "turn": 1, "page": 1}))
    assert "loads that were read after it, in any tab" in said and "choose it again, or reload the page" in said


def test_a_file_that_is_no_load_is_one_error(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "row 1: columns a, b, expected time,value" in error_of(page.post("/trace?name=x.csv", b"a,b\n1,2\n"))
    assert "not a readable text file" in error_of(page.post("/trace?name=x.csv.gz", CSV))
    monkeypatch.setattr(ui_server, "MOST_BYTES", 10)
    assert "the file has more than 0 MiB; compress it with gzip" in error_of(page.post("/trace?name=x.csv", CSV), 413)


def test_a_prometheus_becomes_the_load_or_says_why_not(page: Page) -> None:
    asked: list[tuple[str, ...]] = []
    page.server.read_prometheus = lambda *given: asked.append(given) or TRACE  # type: ignore[func-returns-value]
    given = {"url": "http://localhost:30090", "query": " up ", "past": "7d", "step": "1m"}
    assert page.post("/prometheus", given).get_json()["number"] == 2
    assert asked == [("http://localhost:30090", "up", "7d", "1m")]
    assert error_of(page.post("/prometheus", {**given, "query": " "})) == "query is missing"

    def refuses(*_: str) -> Trace:
        raise TraceError("Prometheus at x cannot be read", hint="forward its port")

    page.server.read_prometheus = refuses
    assert error_of(page.post("/prometheus", given)) == "Prometheus at x cannot be read; forward its port"


def test_settings_are_written_when_they_are_those_that_were_shown(page: Page) -> None:
    shown = page.study(changed={"max_workers": 9})[0]
    body = {"changed": shown["changes"], "digest": shown["digest"]}
    assert page.post("/write", body).get_json() == {"changes": {"max_workers": 9}}
    assert json.loads(page.server.cluster.path.read_text())["context"]["clusters"][0]["settings"] == {"max_workers": 9}
    assert "has changed since the page showed the difference" in error_of(page.post("/write", body))


def test_without_the_option_nothing_is_written(page: Page) -> None:
    page.server.may_write = False
    digest = page.server.cluster.changed({}).digest
    said = error_of(page.post("/write", {"changed": {"max_workers": 9}, "digest": digest}), 403)
    assert said == "writing is off: end the command, and start it with the option --write"
    assert page.server.cluster.path.read_text() == CDK


def test_an_unexpected_error_is_shown_and_the_server_goes_on(page: Page) -> None:
    def broken(*_: str) -> Trace:
        raise RuntimeError("out of order")

    page.server.read_prometheus = broken
    given = {"url": "http://localhost", "query": "up", "past": "7d", "step": "1m"}
    assert error_of(page.post("/prometheus", given), 500) == "RuntimeError: out of order"
    page.server.read_prometheus = lambda *_: (_ for _ in ()).throw(CommandError("wrong", hint="type it right"))
    assert error_of(page.post("/prometheus", given)) == "wrong; type it right"
    assert page.get("/start").status_code == 200
