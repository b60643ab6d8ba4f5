"""The clock of a deployment that works with a real control plane: its time is the time of the machine.

Virtual threads and due callbacks are those of the virtual clock; what takes longer than planned delays what follows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from unittest import mock

from simulator.clock import VirtualClock, real_sleep

POLL_SECONDS = 0.2


class RealTimeClock(VirtualClock):
    """A condition of `run_until` is looked at several times in a second, for Kubernetes changes by itself."""

    def __init__(self) -> None:
        super().__init__(time.time())
        self.every(POLL_SECONDS, lambda: None)

    def now(self) -> float:
        self._now = max(self._now, round(time.time(), 6))
        return self._now

    @contextlib.contextmanager
    def driving_time(self) -> Iterator[None]:
        """While open, time.sleep() lets the other virtual threads run."""
        with mock.patch.object(time, "sleep", self._sleep):
            yield

    def _set_now(self, epoch: float) -> None:
        real_sleep(max(0.0, epoch - time.time()))
        self.now()
