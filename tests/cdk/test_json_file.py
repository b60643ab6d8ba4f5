"""A mistake in cdk.json is named with its line and column, whichever command meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdk_app import synth
from cdk_app.config import ConfigurationError
from cdk_app.json_file import JsonFileError, read_json
from cdk_app.recorded_types import RecordError, read_records
from cli import configured

WRONG = [
    ('{\n  "context": {,}\n}', "line 2, column 15: not JSON: Expecting property name"),
    ('{"context": 1', "line 1, column 14: not JSON: Expecting ',' delimiter"),
    ("", "line 1, column 1: not JSON: Expecting value"),
    ("{} {}", "line 1, column 4: not JSON: Extra data, found '{'"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_is_not_json_is_named_with_line_and_column(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cdk.json"
    path.write_text(text)
    with pytest.raises(JsonFileError) as caught:
        read_json(path)
    assert str(caught.value).startswith(f"{path}, {said}")


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cdk.json"
    with pytest.raises(JsonFileError, match="cannot be read: No such file"):
        read_json(path)
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(JsonFileError, match="is not UTF-8 text: byte 7 is 0xff"):
        read_json(path)


@pytest.mark.parametrize("text", [*(text for text, _ in WRONG), "[]", '{"context": []}', "{}"])
def test_every_reader_of_cdk_json_refuses_it_in_its_own_words(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cdk.json"
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    assert synth.main(["--out", str(tmp_path / "out")]) == 1
    assert str(path) in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match=r"cdk\.json"):
        configured.configured_clusters()


def test_a_damaged_record_of_types_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "cdk.context.json").write_text("{")
    with pytest.raises(RecordError, match=r"cdk.context.json, line 1, column 2"):
        read_records(tmp_path / "cdk.json")
