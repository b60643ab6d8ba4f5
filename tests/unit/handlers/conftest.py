"""Every test of a handler measures its branches."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _measured(handler_coverage: None) -> None:
    """Take part in the measurement."""
