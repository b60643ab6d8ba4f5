"""The site fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.server_site import Site, server_site


@pytest.fixture
def site() -> Iterator[Site]:
    with server_site() as made:
        yield made
