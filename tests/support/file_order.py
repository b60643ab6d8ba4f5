"""In which order the test files go to the workers of pytest-xdist, so that all of them end together.

A file's tests stay in one process (`--dist loadfile`): they share what is dear to make, and the walk over the edges
of the workflow counts what its neighbours walked. The long files go first. One worker more than there are processors
keeps them busy while a test waits. The tests that wait share a worker, so that two never wait at the same time; in the
whole suite another one has all tests with a real control plane, which mostly wait.
"""

from __future__ import annotations

from typing import TypeVar

import pytest
from xdist.scheduler import LoadFileScheduling

T = TypeVar("T")

LONG_FIRST = (
    "tests/chaos/test_matrix.py",
    "tests/integration/test_drain_random_clusters.py",
    "tests/unit/handlers/test_proofs.py",
    "tests/integration/test_drain_scenarios.py",
    "tests/chaos/test_schedules.py",
    "tests/integration/test_scenarios_up.py",
    "tests/workflow/paths/test_scale_down.py",
    "tests/workflow/paths/test_scale_up.py",
    "tests/integration/test_backtest_against_simulator.py",
    "tests/integration/test_cli_demo.py",
    "tests/integration/test_every_grant.py",
    "tests/integration/test_cdk_deployment.py",
    "tests/cdk/test_standalone.py",
    "tests/cdk/test_definition_checks.py",
    "tests/integration/test_real_prometheus.py",
    "tests/unit/test_tiers.py",
    "tests/integration/test_cli_commands.py",
    "tests/integration/test_report_page.py",
    "tests/integration/test_template_runs.py",
    "tests/workflow/test_interruption.py",
)
"""In a clean clone the first one synthesises the templates. The next two need none; the others would wait for them."""
CONFORMANCE = "tests/conformance/"
"""These wait: for the build of the control plane, and then for its controllers and timers."""
WAITING = (
    "tests/integration/test_kubectl_conformance.py",
    "tests/integration/test_kubectl_scripts.py",
    "tests/integration/test_alert_path.py",
    "tests/integration/test_cli_terminal.py",
    "tests/integration/test_demo_app.py",
    "tests/integration/test_node_exporter.py",
    "tests/integration/test_prometheus_config.py",
    "tests/integration/test_state_metrics.py",
)
"""These wait most of their time: for the pauses of the real kubectl, scrapes of a real Prometheus, and a terminal."""


class WaitingTogether(LoadFileScheduling):
    """As `--dist loadfile`, and all tests with a real control plane share one worker, as do the files that wait."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(WAITING):
            return "the files that wait"
        return CONFORMANCE if nodeid.startswith(CONFORMANCE) else super()._split_scope(nodeid)


def begin_elsewhere(entries: list[T], worker: int, workers: int) -> list[T]:
    """The same entries of a folder, from another one in each worker: none compiles what another one compiles."""
    first = len(entries) * worker // workers
    return entries[first:] + entries[:first]


def distribute(items: list[pytest.Item]) -> None:
    """Put the long files first. The order is the same in every process."""
    items.sort(key=lambda item: turn(module_of(item)))  # stable: within a file as collected


def module_of(item: pytest.Item) -> str:
    """The test's file, from the repository's root."""
    return item.nodeid.partition("::")[0]


def turn(module: str) -> tuple[int, str]:
    """The tests that wait, the long files in their order, the others by name; unit tests are short and come last."""
    if module.startswith(CONFORMANCE):
        return -2, module
    if module in WAITING:
        return -1, module
    if module in LONG_FIRST:
        return LONG_FIRST.index(module), module
    return len(LONG_FIRST) + module.startswith("tests/unit/"), module
