"""Takes the pictures of the pages in docs/screenshots with a real browser: the demo's report and a back-test.

    python -m tools.screenshots

It needs Chromium (Debian: chromium) and runs both commands that write the pages, which takes about a minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "screenshots"
TRACE = ROOT / "tests" / "fixtures" / "day_and_night.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
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
)


def write_pages(folder: Path) -> None:
    """Run the demo and a back-test as a user does."""
    commands = (
        ["demo", "--report", str(folder / "report.html")],
        ["backtest", str(TRACE), "--compare", "--page", str(folder / "study.html")],
    )
    for words in commands:
        subprocess.run([sys.executable, "-m", "cli.main", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def take(shot: Shot, pages: Path, into: Path) -> Path:
    """Write one picture.

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
        (pages / f"{shot.page}.html").as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return path


def main() -> None:
    """Take every picture."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder)
        write_pages(pages)
        for shot in SHOTS:
            print(f"written: {take(shot, pages, FOLDER).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
