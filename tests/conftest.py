"""What all tests share: the machine's clock zone and accounts do not reach them, and CI is told from a laptop."""

from __future__ import annotations

import os

import hypothesis
import pytest

# No test may find somebody's account: fakes and moto want credentials, and these are nobody's.
NOBODY = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": "ap-southeast-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any test module is imported; no property test fails for being slow."""
    os.environ.pop("AWS_PROFILE", None)
    os.environ.update(NOBODY)
    hypothesis.settings.register_profile("no-deadline", deadline=None)
    hypothesis.settings.load_profile("no-deadline")


def pytest_report_header() -> str:
    """Say where this runs: in CI a missing tool is an error, on a laptop the test says what it lacks."""
    return f"node-fleet: {'CI' if os.environ.get('CI') else 'laptop'}"
