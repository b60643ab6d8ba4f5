"""What a cold start may load: `decide` no AWS client at all, and no handler much more than boto3 itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HANDLERS = sorted(p.stem for p in (ROOT / "functions" / "handlers").glob("[a-z]*.py"))
HEAVY = ("boto3", "botocore", "requests", "urllib3")


def loaded(code: str) -> tuple[set[str], float]:
    """The heavy modules that the code loads, and the processor seconds it takes; the least of three tries."""
    script = (
        "import sys, time; began = time.process_time()\n"
        f"{code}\n"
        f"print(time.process_time() - began, *[m for m in {HEAVY!r} if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "functions")}
    found: set[str] = set()
    least = float("inf")
    for _ in range(3):
        ended = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        seconds, *modules = ended.stdout.split()
        found |= set(modules)
        least = min(least, float(seconds))
    return found, least


def test_decide_loads_no_aws_client_and_starts_in_a_fraction_of_boto3() -> None:
    modules, seconds = loaded(
        "import handlers.decide; from node_fleet.services import services; load_services().settings"
    )
    _, boto3_seconds = loaded("import boto3")
    assert modules == set()
    assert seconds < 0.6 * boto3_seconds


@pytest.mark.parametrize("name", HANDLERS)
def test_importing_a_handler_makes_no_client(name: str) -> None:
    """Clients are made when first used; importing is what every cold start pays."""
    modules, _ = loaded(f"import handlers.{name}")
    assert "boto3" not in modules
