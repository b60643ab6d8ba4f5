"""What the last complete run of the quick tier cost, kept for `./node-fleet bench`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from node_fleet.domain.model.value_class import value_class

KEPT = Path(__file__).resolve().parents[2] / ".cache" / "quick_tier.json"


@value_class
class QuickRun:
    """Its tests, and the processor seconds of pytest and all that it started; the checks before it are left out."""

    tests: int
    processor_seconds: float


def record_quick_run(tests: int, processor_seconds: float, kept: Path = KEPT) -> None:
    """In place of the run before."""
    kept.parent.mkdir(exist_ok=True)
    run = QuickRun(tests=tests, processor_seconds=round(processor_seconds, 1))
    kept.write_text(json.dumps(asdict(run)), encoding="utf-8")


def last_quick_run(kept: Path = KEPT) -> QuickRun | None:
    """None when no complete run has passed here."""
    return QuickRun(**json.loads(kept.read_text(encoding="utf-8"))) if kept.exists() else None
