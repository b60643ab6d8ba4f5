"""What one run of each kind uses, as counted in the flash-sale scenario; a test counts it again."""

from __future__ import annotations

from typing import Final

from simulator.report.control_plane_cost import RunUsage

PROFILES: Final = {
    "quiet": RunUsage(
        transitions=6.0,
        invocations=4.0,
        gb_seconds=0.31,
        write_units=11.4,
        read_units=1.0,
        log_kb=1.6,
        messages=0.0,
        secret_reads=0.05,
    ),
    "scale_up": RunUsage(
        transitions=48.0,
        invocations=20.5,
        gb_seconds=1.8,
        write_units=60.0,
        read_units=8.0,
        log_kb=3.2,
        messages=1.0,
        secret_reads=0.5,
    ),
    "scale_down": RunUsage(
        transitions=27.0,
        invocations=15.0,
        gb_seconds=3.1,
        write_units=37.0,
        read_units=1.0,
        log_kb=2.3,
        messages=1.0,
        secret_reads=0.5,
    ),
}
STORED_GB_PER_RUN: Final = 12e-6
"""History and events: about 12 kB for each run, expiring after 30 and 90 days; a month's runs stand for all kept."""
