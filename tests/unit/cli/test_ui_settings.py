"""Changes of the page `ui` in cdk.json: only the changed values, checked, and whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_app.config import ConfigurationError
from cli import ui_settings
from cli.output import CommandError
from cli.ui_settings import CONTROLS, ConfiguredCluster, described, put
from node_fleet.settings import Settings

FILE = """{
  "app": "python -m cdk_app.app",
  "context": {
    "clusters": [
      { "cluster_id": "other-one", "region": "eu-west-1" , "settings":{}},
      {
        "cluster_id": "node-fleet-prod",
        "network": { "cidr": "10.20.0.0/16", "zones": ["a", "b"] },
        "settings": {
          "min_workers":   2,
          "max_workers": 1e1
        }
      }
    ],
    "@aws-cdk/core:checkSecretUsage": true
  }
}
"""
MEMBER = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4), st.lists(st.booleans())))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfiguredCluster:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cdk.json"
    path.write_text(FILE)
    return ConfiguredCluster(path, "node-fleet-prod")


def test_only_the_changed_values_differ_in_the_text(cluster: ConfiguredCluster) -> None:
    found = cluster.changed({"min_workers": 3, "spot_percent": 50})
    assert found.text == FILE.replace('2,\n          "max', '3,\n          "max').replace(
        "1e1\n", '1e1,\n          "spot_percent": 50\n'
    )
    assert found.given == {"min_workers": 3, "max_workers": 10.0, "spot_percent": 50}
    assert (found.settings.min_workers, found.settings.spot_percent, found.settings.max_workers) == (3, 50, 10)
    changed = [line for line in found.difference.splitlines() if line[0] in "+-" and line[1] == " "]
    assert [line.split() for line in changed] == [
        ["-", '"min_workers":', "2,"],
        ["-", '"max_workers":', "1e1"],
        ["+", '"min_workers":', "3,"],
        ["+", '"max_workers":', "1e1,"],
        ["+", '"spot_percent":', "50"],
    ]


def test_a_change_without_effect_is_left_out_and_numbers_are_plain(cluster: ConfiguredCluster) -> None:
    found = cluster.changed({"min_workers": 2.0, "spot_percent": 70, "cpu_up_percent": 70.0, "max_workers": "12"})
    assert found.changes == {"max_workers": 12}
    assert cluster.changed({}).text == FILE and cluster.changed({}).difference == ""
    adaptive = cluster.changed({"preset": "adaptive", "cpu_up_percent": 85, "wait_cost": 4.5}).changes
    assert adaptive == {"preset": "adaptive", "wait_cost": 4.5}, "85 % is what the preset has"
    assert cluster.changed({"preset": "adaptive", "cooldown_down_seconds": 600}).changes["cooldown_down_seconds"] == 600


def test_types_replace_requirements(cluster: ConfiguredCluster) -> None:
    required = '"instance_requirements": {"vcpus": [2, 2], "memory_gib": [2, 4]}, "max_workers"'
    cluster.path.write_text(FILE.replace('"max_workers"', required))
    found = cluster.changed({"instance_types": "t3.medium, t3.small"})
    assert found.changes == {"instance_types": ["t3.medium", "t3.small"]}
    assert 'instance_types": ["t3.medium", "t3.small"], "max_workers"' in found.text
    assert "instance_requirements" not in found.text


def test_a_cluster_without_settings_gets_them(cluster: ConfiguredCluster) -> None:
    other = ConfiguredCluster(cluster.path, "other-one")
    assert '"settings":{ "min_workers": 4 }}' in other.changed({"min_workers": 4}).text
    cluster.path.write_text(FILE.replace(' , "settings":{}', ""))
    assert '"eu-west-1", "settings": {"min_workers": 4}}' in other.changed({"min_workers": 4}).text


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"min_workers": 11}, "min_workers=11 must be at most max_workers=10"),
        ({"min_workers": "few"}, "min_workers=few: expected a whole number"),
        ({"instance_types": ""}, "instance_types"),
        ({"instance_types": 7}, "instance_types=7: expected a comma-separated list"),
        ({"preset": "best"}, "preset=best: expected one of"),
    ],
)
def test_wrong_settings_are_refused_by_the_loader_of_the_deployment(
    wanted: dict[str, Any], said: str, cluster: ConfiguredCluster
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        cluster.changed(wanted)
    assert said in str(caught.value)


def test_a_setting_that_the_page_does_not_have_is_refused(cluster: ConfiguredCluster) -> None:
    with pytest.raises(CommandError, match="topic_arn is no setting of this page"):
        cluster.changed({"topic_arn": "arn:aws:sns:x"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1, column 2: Expecting property name"),
        ("[]", "no list context.clusters of objects"),
        ('{"context": {"clusters": "[]"}}', "no list context.clusters of objects"),
        ('{"context": {"clusters": []}}', "has no cluster node-fleet-prod"),
        (FILE.replace('"max_workers": 1e1', '"max_workers": "x"'), "max_workers=x: expected a whole number"),
        (FILE.replace('"settings": {', '"settings": 7, "setting": {'), "settings"),
        (None, "cdk.json cannot be read: No such file"),
        (b"\xff", "cdk.json is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_error(
    text: str | bytes | None, said: str, cluster: ConfiguredCluster
) -> None:
    if text is None:
        cluster.path.unlink()
    else:
        cluster.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises((CommandError, ConfigurationError)) as caught:
        cluster.changed({"max_workers": 7})
    assert said in str(caught.value)


def test_it_is_written_whole_and_keeps_the_rights_and_the_link_of_the_file(
    cluster: ConfiguredCluster, tmp_path: Path
) -> None:
    real = tmp_path / "real.json"
    cluster.path.rename(real)
    cluster.path.symlink_to(real)
    real.chmod(0o640)
    shown = cluster.changed({"min_workers": 3})
    assert cluster.write({"min_workers": 3}, shown.digest).changes == {"min_workers": 3}
    assert cluster.path.is_symlink() and real.read_text() == shown.text
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cdk.json", "real.json"]


def test_a_file_that_changed_meanwhile_is_not_overwritten(cluster: ConfiguredCluster) -> None:
    shown = cluster.changed({"min_workers": 3})
    later = FILE.replace("10.20.0.0", "10.30.0.0")
    cluster.path.write_text(later)
    with pytest.raises(CommandError, match="has changed since the page showed the difference"):
        cluster.write({"min_workers": 3}, shown.digest)
    assert cluster.path.read_text() == later


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    cluster: ConfiguredCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ui_settings.os, "fsync", full)
    with pytest.raises(CommandError, match="cannot be written: No space left on device"):
        cluster.write({"min_workers": 3}, cluster.changed({}).digest)
    assert cluster.path.read_text() == FILE
    assert [path.name for path in cluster.path.parent.iterdir()] == ["cdk.json"]


@given(MEMBER, st.sampled_from([None, 0, 2]), st.text(max_size=4), st.integers())
def test_one_value_changes_in_any_json_text(before: dict[str, Any], indent: int | None, name: str, value: int) -> None:
    text = json.dumps({"list": [0, before], "x": 1}, indent=indent)
    after = put(text, ("list", 1), name, value)
    assert json.loads(after) == {"list": [0, {**before, name: value}], "x": 1}


def test_a_repeated_name_is_changed_where_json_reads_it_and_line_ends_stay() -> None:
    assert put('{"a": 1, "a": 2}', (), "a", 3) == '{"a": 1, "a": 3}'
    assert put('{\r\n  "a": 1\r\n}', (), "b", 2) == '{\r\n  "a": 1,\r\n  "b": 2\r\n}'


def test_every_control_is_described_with_the_range_of_its_setting() -> None:
    shown = {one["name"]: one for one in described(Settings())}
    assert list(shown) == [one.name for one in CONTROLS]
    assert (shown["min_workers"]["low"], shown["min_workers"]["high"], shown["min_workers"]["most"]) == (0, 1000, 20)
    assert shown["spot_percent"]["most"] == 100 and "adaptive" in shown["preset"]["choices"]
