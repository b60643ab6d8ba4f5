"""Replays for the page `ui` without processes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from backtest.what_if import Task


class InThisProcess(Executor):
    """Runs each task when it is submitted, and keeps its policy."""

    def __init__(self, before: Callable[[Task], object] = lambda task: None) -> None:
        self.replayed: list[str] = []
        self._before = before

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.replayed.append(args[0].policy)
        try:
            self._before(args[0])
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
