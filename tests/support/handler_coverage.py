"""Branch coverage of the handlers: which of their lines and branches run in the tests that ask for the measurement.

Tracing doubles the time of a test, so only the tests of the handlers are measured: those that use the fixture
`handler_coverage`. Every process saves its own data, and the first process judges all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from coverage import Coverage

HANDLERS = Path(__file__).parents[2] / "functions" / "handlers"


def measurement(folder: Path, process: str | None = None, *, source: Path = HANDLERS) -> Coverage:
    """The measurement of one test process, saved in `folder` under the name of the process."""
    measured = Coverage(
        data_file=str(folder / "coverage"), data_suffix=process, branch=True, source=[str(source)], config_file=False
    )
    measured.set_option("run:disable_warnings", ["no-data-collected"])  # a process may run no test of a handler
    return measured


def branches_not_run(folder: Path, *, source: Path = HANDLERS) -> list[str]:
    """Every line and branch inside a function that no process ran, as "file: line 3" or "file: line 3 -> line 5".

    Lines outside functions run at the import, which may precede the measurement.
    """
    whole = measurement(folder, source=source)
    whole.combine([str(folder)])
    report = folder / "branches"
    whole.json_report(outfile=str(report))
    found = []
    for name, file in json.loads(report.read_text(encoding="utf-8"))["files"].items():
        for function, missing in file["functions"].items():
            if function:
                found += [f"{name}: line {line}" for line in missing["missing_lines"]]
                found += [
                    f"{name}: line {start} -> {f'line {end}' if end > 0 else 'end of the function'}"
                    for start, end in missing["missing_branches"]
                ]
    return found
