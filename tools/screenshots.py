"""Takes the pictures in docs/screenshots: the demo's report, a back-test and the page `ui` in a browser, and `top`.

    python -m tools.screenshots

It needs Chromium (Debian: chromium) and runs the commands behind the pages, which takes about a minute.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from node_fleet.domain.model.value_class import value_class

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "screenshots"
TOP_WIDTHS, TOP_AT = (80, 120), "13m30s"
TRACE = ROOT / "tests" / "fixtures" / "day_and_night.csv"


@value_class
class Shot:
    """One picture of a page. Sizes are in CSS pixels."""

    name: str
    page: str
    width: int
    height: int
    is_dark: bool = False


SHOTS = (
    Shot(name="report-desktop", page="report", width=1240, height=1700),
    Shot(name="report-dark", page="report", width=1240, height=1700, is_dark=True),
    Shot(name="report-phone", page="report", width=500, height=1700),
    Shot(name="backtest", page="study", width=1240, height=1800),
    Shot(name="ui", page="ui", width=1240, height=2260),
    Shot(name="ui-phone", page="ui", width=500, height=2300, is_dark=True),
)


def write_pages(folder: Path) -> None:
    """Run the demo and a back-test as a user does."""
    commands = (
        ["demo", "--report", str(folder / "report.html")],
        ["backtest", str(TRACE), "--compare", "--page", str(folder / "study.html")],
    )
    for words in commands:
        subprocess.run([sys.executable, "-m", "cli.main", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The address of the page `ui`, after a study of its load, so that the page shows the same one at once."""
    command = [sys.executable, "-m", "cli.main", "ui", "--no-browser", "--port", "0", "--write"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        base, token = address.split("/?token=")
        asked = json.dumps({"trace": 1, "page": 0, "turn": 1}).encode()
        with urlopen(Request(f"{base}/study", asked, {"Origin": base, "X-Node-Fleet-Token": token})) as answer:
            answer.read()
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def take(shot: Shot, pages: Path, into: Path, address: str = "") -> Path:
    """Write one picture of a page in that folder, or at that address.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise FileNotFoundError("chromium was not found; install it (Debian: apt-get install chromium)")
    path = into / f"{shot.name}.png"
    command = [
        *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
        *(f"--window-size={shot.width},{shot.height}", "--virtual-time-budget=8000", f"--screenshot={path}"),
        *(["--blink-settings=preferredColorScheme=0"] if shot.is_dark else []),
        address or (pages / f"{shot.page}.html").as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return path


def take_top(width: int, into: Path) -> Path:
    """Draw the screen of `top --local` in a terminal of this width."""
    own_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)  # loads none from elsewhere
    size = {"COLUMNS": str(width), "LINES": "24", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "cli.main", "top", "--local", "--at", TOP_AT, "--once"]
    environment = {**os.environ, **size}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    stage = Console(record=True, width=width, file=io.StringIO())
    stage.print(Text.from_ansi(done.stdout.rstrip()))
    path = into / f"top-{width}.svg"
    stage.save_svg(str(path), title="node-fleet top --local", unique_id="top", code_format=own_fonts)
    return path


def main() -> None:
    """Take every picture."""
    FOLDER.mkdir(exist_ok=True)
    for width in TOP_WIDTHS:
        print(f"written: {take_top(width, FOLDER).relative_to(ROOT)}")
    with tempfile.TemporaryDirectory() as folder, served() as address:
        pages = Path(folder)
        write_pages(pages)
        for shot in SHOTS:
            path = take(shot, pages, FOLDER, address if shot.page == "ui" else "")
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
