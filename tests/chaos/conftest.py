"""Prints the matrix: states x faults, the cells that ran, those that cannot happen and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.chaos.schedule import PreparedFleet, prepared_fleet


@pytest.fixture(scope="module")
def prepared() -> Iterator[PreparedFleet]:
    """Made once for a file: each schedule is played on a copy."""
    with prepared_fleet() as found:
        yield found


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Works with and without pytest-xdist: the cells travel as properties of the tests' reports."""
    reports = [r for found in terminalreporter.stats.values() for r in found if hasattr(r, "user_properties")]
    rows = [dict(r.user_properties) for r in reports if getattr(r, "when", "") == "call"]
    cells = [row["cell"] for row in rows if "cell" in row]
    figures = [row["figures"] for row in rows if "figures" in row]
    if not cells and not figures:
        return
    terminalreporter.section("chaos")
    for line in [*figures, *matrix_lines(cells)]:
        terminalreporter.write_line(line)


def matrix_lines(cells: list[dict[str, Any]]) -> list[str]:
    """The table for people: o came home, X broke an invariant, - cannot happen (the reasons follow)."""
    if not cells:
        return []
    states = list(dict.fromkeys(cell["state"] for cell in cells))
    faults = list(dict.fromkeys(cell["fault"] for cell in cells))
    marks = {(cell["state"], cell["fault"]): cell["mark"] for cell in cells}
    ran = [cell for cell in cells if cell["mark"] != "-"]
    lines = [f"{number:2d} = {fault}" for number, fault in enumerate(faults, start=1)]
    lines.append(f"{'':22}" + " ".join(f"{number:2d}" for number in range(1, len(faults) + 1)))
    for state in states:
        lines.append(f"{state:22}" + " ".join(f" {marks.get((state, fault), ' ')}" for fault in faults))
    reasons = Counter(cell["why"] for cell in cells if cell["mark"] == "-")
    lines.append(
        f"{len(states)} states x {len(faults)} faults = {len(states) * len(faults)} cells: {len(ran)} ran, "
        f"{len(cells) - len(ran)} cannot happen; {sum(cell['cpu_seconds'] for cell in cells):.0f} s of processor time"
    )
    lines += [f"  {count:3d} because {why}" for why, count in sorted(reasons.items())]
    broken = [cell for cell in ran if cell["mark"] == "X"]
    lines += [f"  broke: {cell['state']} when it {cell['fault']}: {'; '.join(cell['broken'])}" for cell in broken]
    return lines
