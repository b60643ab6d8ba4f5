"""The only place that reads the time or sleeps; everything else receives the time as a value."""

from __future__ import annotations

import time


class SystemClock:
    """Wall-clock time in whole epoch seconds (UTC)."""

    def now(self) -> int:
        """Seconds since 1970-01-01 UTC."""
        return int(time.time())

    def sleep(self, seconds: float) -> None:
        """Wait; only for short commands that are polled inside one function."""
        time.sleep(seconds)
