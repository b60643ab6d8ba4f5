"""The pictures in the documents: each one is there, is shown, and can be taken again."""

from __future__ import annotations

import struct
from pathlib import Path

from simulator.report.page import render
from tests.support.browser import programs
from tests.support.report_pages import report
from tools.screenshots import FOLDER, SHOTS, Shot, take

ROOT = Path(__file__).parents[2]


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height in the header of a PNG."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def test_every_picture_is_there_in_its_size_and_a_document_shows_it() -> None:
    shown = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert {path.stem for path in FOLDER.glob("*.png")} == {shot.name for shot in SHOTS}
    for shot in SHOTS:
        assert size_of(FOLDER / f"{shot.name}.png") == (shot.width, shot.height)
        assert f"screenshots/{shot.name}.png" in shown, f"no document shows {shot.name}"


def test_a_picture_of_a_page_is_taken_in_the_light_and_in_the_dark(tmp_path: Path) -> None:
    programs()
    (tmp_path / "page.html").write_text(render(report()), encoding="utf-8")
    shots = [Shot(name=f"dark-{dark}", page="page", width=500, height=300, is_dark=dark) for dark in (False, True)]
    light, dark = (take(shot, tmp_path, tmp_path) for shot in shots)
    assert size_of(light) == size_of(dark) == (500, 300)
    assert light.read_bytes() != dark.read_bytes()
