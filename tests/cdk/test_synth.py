"""Synthesis needs no account, gives the same bytes twice, shares its work, and refuses with a list."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdk_app import app as app_module
from cdk_app import synth
from tests.cdk.conftest import ATTACHED, NEW, STACKS, App

ROOT = Path(__file__).parents[2]


def content(folder: Path) -> dict[str, str]:
    """Digest of every file that CloudFormation or S3 would get."""
    files = [
        p
        for p in folder.rglob("*")
        if p.is_file() and ("asset." in p.as_posix() or p.name.endswith((".template.json", ".assets.json")))
    ]
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_both_modes_are_synthesised_without_an_account(app: App) -> None:
    assert set(app.templates) == set(STACKS)


def test_the_instance_types_are_an_output_and_those_that_ec2_selected_come_from_the_record(app: App) -> None:
    outputs = {
        name: app.templates[f"{name}-autoscaler"]["Outputs"]["InstanceTypes"]["Value"] for name in (NEW, ATTACHED)
    }
    assert outputs == {NEW: "t3.small", ATTACHED: "t3.small, t3a.small"}
    environments = [
        one["Environment"]["Variables"]
        for one in app.resources(f"{ATTACHED}-autoscaler", "AWS::Lambda::Function").values()
    ]
    assert {one.get("INSTANCE_TYPES") for one in environments} == {"t3.small,t3a.small"}


@pytest.mark.whole
def test_a_second_synth_gives_the_same_bytes(app: App, judged_app: App, both_context: dict[str, Any]) -> None:
    """Templates made from other sources would prove nothing. The rules change no byte."""
    digest = synth._digest({**synth.project_context(), **both_context})
    assert digest == app.folder.name, "the sources changed while the tests ran"
    assert judged_app.folder != app.folder and content(judged_app.folder) == content(app.folder)


def test_only_the_synths_that_were_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(synth, "CACHE", tmp_path)
    monkeypatch.setattr(synth, "_run", lambda out, context: out.mkdir(parents=True))
    for number in range(synth.CACHED_FOLDERS + 3):
        monkeypatch.setattr(synth, "_digest", lambda context, number=number: f"{number:032d}")
        synth.synthesise()
        os.utime(tmp_path / "synth" / f"{number:032d}", (number, number))
    kept = sorted(path.name for path in (tmp_path / "synth").iterdir() if path.is_dir())
    assert kept == [f"{number:032d}" for number in range(3, synth.CACHED_FOLDERS + 3)]


def test_nothing_is_looked_up(app: App) -> None:
    assert '"missing"' not in (app.folder / "manifest.json").read_text(encoding="utf-8")


def test_the_same_sources_are_synthesised_once(
    app: App, both_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synth, "_digest", lambda context: app.folder.name)
    monkeypatch.setattr(synth, "_run", lambda out, context: pytest.fail("synthesised again"))
    assert [p.parent for p in synth.synthesise(context=both_context)] == [app.folder] * len(app.templates)


def test_a_copy_goes_where_it_is_wanted(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(synth, "_digest", lambda context: app.folder.name)
    paths = synth.synthesise(tmp_path / "out")
    assert {p.name.removesuffix(".template.json") for p in paths} == set(app.templates)
    assert content(tmp_path / "out") == content(app.folder)


def test_wrong_context_lists_every_mistake_and_shows_no_traceback() -> None:
    wrong = [{"cluster_id": "shop", "mode": "old", "settings": {"min_workers": 9, "max_workers": 3}, "colour": "red"}]
    with pytest.raises(synth.SynthesisError) as caught:
        synth.synthesise(context={"clusters": wrong})
    text = str(caught.value)
    assert "Traceback" not in text
    assert text.startswith("node-fleet: 3 mistakes in the configuration:")
    for part in (
        "mode=old: expected new or attach",
        "colour is not known",
        "min_workers=9 must be at most max_workers=3",
    ):
        assert part in text


@pytest.mark.parametrize(("windows", "is_warned"), [("Mon-Fri 20:00-07:00; Sat-Sun", True), ("Sat-Sun", False)])
def test_a_day_that_begins_on_after_a_day_off_is_one_line_and_no_mistake(
    windows: str, is_warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app_module, "_add_cluster", lambda app, config: None)
    context = {"clusters": [{"cluster_id": "shop", "settings": {"hibernate": windows}}]}
    app_module.build(SimpleNamespace(node=SimpleNamespace(try_get_context=context.get)))  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.startswith("node-fleet: shop, hibernate: the fleet is on from 00:00 on Mon, ") is is_warned
    assert said.count("\n") == is_warned


@pytest.mark.parametrize(("preset", "is_warned"), [("adaptive", True), ("node-fleet", False)])
def test_an_idle_time_that_the_preset_replaces_is_one_line_and_no_mistake(
    preset: str, is_warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app_module, "_add_cluster", lambda app, config: None)
    context = {"clusters": [{"cluster_id": "shop", "settings": {"preset": preset, "idle_seconds": 300}}]}
    app_module.build(SimpleNamespace(node=SimpleNamespace(try_get_context=context.get)))  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.startswith("node-fleet: shop, idle_seconds=300 acts only while ") is is_warned
    assert said.count("\n") == is_warned


@pytest.fixture
def kept_templates(app: App, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Templates of earlier; the settings of the cluster in cdk.json, to be changed."""
    settings: dict[str, str] = {}
    context = {"clusters": [{"cluster_id": "shop", "settings": settings}], synth.CONTEXT_KEY: {}}
    monkeypatch.setattr(synth, "project_context", lambda: context)
    monkeypatch.setattr(synth, "synthesise", lambda *_, **__: sorted(app.folder.glob("*.template.json")))
    monkeypatch.setattr(synth.standalone, "write", lambda _, out: (out / "assets").mkdir(parents=True) or [])
    return settings


@pytest.mark.parametrize("words", [(), ("--standalone",)], ids=["templates", "standalone"])
@pytest.mark.parametrize(("windows", "is_warned"), [("Mon-Fri 20:00-07:00; Sat-Sun", True), ("Sat-Sun", False)])
def test_the_line_is_said_too_when_the_templates_are_kept(
    windows: str, is_warned: bool, words: tuple[str, ...], kept_templates: dict[str, str], tmp_path: Path
) -> None:
    kept_templates["hibernate"] = windows
    with contextlib.redirect_stderr(io.StringIO()) as said:
        assert synth.main([*words, "--out", str(tmp_path)]) == 0
    first = "node-fleet: shop, hibernate: the fleet is on from 00:00 on Mon, "
    assert said.getvalue().startswith(first) is is_warned
    assert said.getvalue().count("\n") == is_warned


def start(*words: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    """The start script's main under a Python that claims to be another."""
    setting = f"import runpy, sys; {prelude}; sys.argv = {['node-fleet', *words]!r}"
    code = f"{setting}; runpy.run_path('node-fleet', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("version", [(3, 8, 10), (3, 10, 12)])
def test_an_older_python_is_told_what_is_needed_in_one_line(version: tuple[int, int, int]) -> None:
    ended = start("demo", prelude=f"sys.version_info = {version}")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("node-fleet: needs Python 3.11 or newer")
    assert ".".join(map(str, version)) in line
