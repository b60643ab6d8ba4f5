"""windows lists the next openings in local time, and marks the days on which the clock jumps."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cli import main as program
from cli import windows
from cli.windows import next_windows, opening_row
from node_fleet.settings import Settings


def at(zone: str, text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def rows(now: str, **settings: Any) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    policy = Settings.from_mapping(settings).policy()
    found = next_windows(policy, now=at(policy.timezone, now), workers=5)
    return {group.reasons: [opening_row(o, policy.timezone) for o in group.openings] for group in found}


def test_openings_around_a_change_of_the_clock_are_marked() -> None:
    found = rows("2026-10-24 03:00", timezone="Europe/Berlin", removal_windows="only: Mon-Sun 02:00-05:00")
    ((reasons, openings),) = found.items()
    assert reasons == ("idle", "drifted", "expired", "unhealthy", "on-demand")
    assert openings == [
        ("Sat 2026-10-24 03:00 CEST", "05:00 CEST", "2 h", "5", ""),
        ("Sun 2026-10-25 02:00 CEST", "05:00 CET", "4 h", "5", "Sun 03:00 back to 02:00"),
        ("Mon 2026-10-26 02:00 CET", "05:00 CET", "3 h", "5", ""),
        ("Tue 2026-10-27 02:00 CET", "05:00 CET", "3 h", "5", ""),
        ("Wed 2026-10-28 02:00 CET", "05:00 CET", "3 h", "5", ""),
    ]


def test_an_hour_that_the_clock_skips_is_left_out() -> None:
    found = rows("2026-03-28 12:00", timezone="Europe/Berlin", removal_windows="only: Sat,Sun 02:00-04:00")
    (first, *_) = next(iter(found.values()))
    assert first == (
        "Sun 2026-03-29 03:00 CEST",
        "04:00 CEST",
        "60 min",
        "5",
        "Sun 02:00 forward to 03:00",
    )


def test_reasons_with_other_budgets_have_a_list_of_their_own() -> None:
    found = rows("2026-09-21 12:00", disruption_budgets=[{"nodes": "0", "reasons": ["drifted"]}, {"nodes": "20%"}])
    always = [("Mon 2026-09-21 12:00 UTC", "no end", "", "1", "")]
    assert found == {("idle", "expired", "unhealthy", "on-demand"): always, ("drifted",): []}


def test_the_command_reads_cdk_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {
        "cluster_id": "shop-prod",
        "settings": {"timezone": "Asia/Dhaka", "removal_windows": "only: Mon-Fri 09:00-17:00"},
    }
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"clusters": [cluster]}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(windows.time, "time", lambda: at("Asia/Dhaka", "2026-09-21 18:00"))
    assert program.main(["windows", "--configured", "--cluster", "shop-prod"]) == 0
    shown = capsys.readouterr().out
    assert "removal windows 'only: Mon-Fri 09:00-17:00' (Asia/Dhaka)" in shown
    assert "Tue 2026-09-22 09:00 +06" in shown and shown.count("8 h") == 5
    assert program.main(["windows", "--configured", "--cluster", "shop-prod", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["workers"], data["windows"][0]["openings"][0]["start"]) == (
        2,
        at("Asia/Dhaka", "2026-09-22 09:00"),
    )


def test_without_budgets_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"clusters": [{"cluster_id": "shop-prod"}]}}))
    monkeypatch.chdir(tmp_path)
    assert program.main(["windows", "--configured", "--cluster", "shop-prod"]) == 0
    assert "no budget and no removal window is set" in capsys.readouterr().out
    assert program.main(["windows", "--configured", "--cluster", "other"]) == 1
    assert "cdk.json has no cluster other" in capsys.readouterr().err


def test_windows_that_are_over_have_no_opening(capsys: pytest.CaptureFixture[str]) -> None:
    policy = Settings.from_mapping({"removal_windows": "only: 2025-01-01 00:00-24:00"}).policy()
    (group,) = next_windows(policy, now=at("UTC", "2026-09-21"), workers=2)
    windows._show(policy, group, 2)
    assert "no opening within 400 days" in " ".join(capsys.readouterr().out.split())


def test_a_change_of_the_clock_is_shown_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    settings = {"timezone": "Europe/Berlin", "removal_windows": "only: Mon-Sun 22:00-05:00"}
    policy = Settings.from_mapping(settings).policy()
    (group,) = next_windows(policy, now=at("Europe/Berlin", "2026-10-24 12:00"), workers=2)
    windows._show(policy, group, 2)
    shown = " ".join(capsys.readouterr().out.split())
    assert "clock" in shown and "back" in shown
