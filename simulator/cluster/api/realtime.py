"""Lets a world's virtual clock run in step with the wall clock, for tests that use the real kubectl."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from simulator.clock import real_monotonic
from simulator.cluster.model import SimulatedCluster


class AdvancingClock(Protocol):
    def now(self) -> float: ...

    def advance_to(self, epoch: float, /) -> None: ...


@contextmanager
def realtime_pump(cluster: SimulatedCluster, clock: AdvancingClock, *, speed: float = 1.0) -> Iterator[None]:
    """Let the world's clock run in step with the wall clock (times `speed`) while the block runs."""
    stop = threading.Event()
    begun, origin = real_monotonic(), clock.now()
    failures: list[BaseException] = []

    def pump() -> None:
        try:
            while not stop.wait(0.02):
                with cluster.state.lock:
                    clock.advance_to(origin + (real_monotonic() - begun) * speed)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failures:
            raise failures[0]
