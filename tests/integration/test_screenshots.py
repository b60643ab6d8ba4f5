"""The pictures in the documents: each one is there, is shown, and can be taken again."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulator.report.page import render
from tests.support.browser import programs
from tests.support.report_pages import report
from tools.screenshots import FOLDER, SHOTS, TOP_WIDTHS, Shot, take, take_top

pytestmark = pytest.mark.sampled(1)  # with --all, every one

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


@pytest.mark.parametrize("width", TOP_WIDTHS)
def test_the_screen_of_top_is_drawn_for_each_width_and_a_document_shows_it(width: int, tmp_path: Path) -> None:
    drawn = take_top(width, tmp_path)
    assert f"screenshots/{drawn.name}" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    kept, today = (texts_of(path) for path in (FOLDER / drawn.name, drawn))
    for word in ("worker", "market", "pending pods", "last decision", "ready", "joining"):
        assert any(word in text for text in kept) and any(word in text for text in today), word
    assert any("an hour" in text and "state" in text for text in kept) == (width == 120)


def texts_of(drawing: Path) -> list[str]:
    """The texts of an SVG file, line by line."""
    root = ElementTree.parse(drawing).getroot()
    lines = defaultdict[str, str](str)
    for element in root.iter("{http://www.w3.org/2000/svg}text"):
        lines[element.get("y", "")] += element.text or ""
    return [line.replace("\xa0", " ") for line in lines.values()]


def test_a_picture_of_a_page_is_taken_in_the_light_and_in_the_dark(tmp_path: Path) -> None:
    programs()
    (tmp_path / "page.html").write_text(render(report()), encoding="utf-8")
    shots = [Shot(name=f"dark-{dark}", page="page", width=500, height=300, is_dark=dark) for dark in (False, True)]
    light, dark = (take(shot, tmp_path, tmp_path) for shot in shots)
    assert size_of(light) == size_of(dark) == (500, 300)
    assert light.read_bytes() != dark.read_bytes()
