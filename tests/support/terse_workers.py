"""Fewer messages between the processes of pytest-xdist: six for each test take longer than most tests do.

The first process counts a test by the report of its call. It does not need the start and the end of the test, nor a
set-up or tear-down that passed within AT_ONCE_SECONDS.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.remote import WorkerInteractor

AT_ONCE_SECONDS = 0.1


def report_less(config: pytest.Config) -> None:
    """Let this worker send only what the first process needs. With -v or a JUnit file it needs everything."""
    if config.option.verbose > 0 or config.option.xmlpath:
        return
    for worker in config.pluginmanager.get_plugins():
        if isinstance(worker, WorkerInteractor):
            _send_less(worker)


def _send_less(worker: Any) -> None:
    send = worker.sendevent

    def send_what_is_needed(name: str, **event: Any) -> None:
        if name not in ("logstart", "logfinish") and not (name == "testreport" and is_dispensable(event["data"])):
            send(name, **event)

    worker.sendevent = send_what_is_needed


def is_dispensable(report: dict[str, Any]) -> bool:
    """Whether the report is about a set-up or a tear-down that passed at once."""
    passed_at_once = report["outcome"] == "passed" and report["duration"] < AT_ONCE_SECONDS
    return report["when"] != "call" and passed_at_once
