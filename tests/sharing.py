"""Which tests must share a process, and which start first, so that all workers of pytest-xdist end together.

A module's tests stay together: they share what is dear to make. Tests that share nothing go one by one, last, as
they fill the gaps.
"""

from __future__ import annotations

import pytest

LONG_FIRST = (
    "tests/statemachine/test_paths.py",
    "tests/integration/test_real_prometheus.py",
    "tests/integration/test_cli_commands.py",
    "tests/integration/test_cli_demo.py",
    "tests/integration/test_report_page.py",
    "tests/integration/test_template_runs.py",
    "tests/statemachine/test_interruption.py",
)
ALONE = (
    "tests/integration/test_drain_random_clusters.py",
    "tests/integration/test_backtest_against_laptop.py",
    "tests/integration/test_scenarios_up.py",
    "tests/integration/test_drain_scenarios.py",
    "tests/integration/test_every_grant.py",
    "tests/chaos/",
)


def distribute(items: list[pytest.Item]) -> None:
    """Group and order the tests. The order is the same in every process."""
    for item in items:
        module = module_of(item)
        if not module.startswith(ALONE):
            item.add_marker(pytest.mark.xdist_group(module))
    items.sort(key=lambda item: turn(module_of(item)))  # stable: within a turn as collected


def module_of(item: pytest.Item) -> str:
    """The test's file, from the repository's root."""
    return item.nodeid.partition("::")[0]


def turn(module: str) -> tuple[int, int]:
    """Long modules, then long tests, then the other modules, then the many short tests."""
    if module in LONG_FIRST:
        return 0, LONG_FIRST.index(module)
    for number, start in enumerate(ALONE):
        if module.startswith(start):
            return (3, 0) if start.endswith("/") else (1, number)
    return 2, 0
