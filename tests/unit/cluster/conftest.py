"""What the cluster tests share: the folder under test and scripts with their placeholders filled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdk_app.scripts import read_script

CLUSTER = Path(__file__).resolve().parents[3] / "cluster"


@pytest.fixture(scope="session")
def cluster() -> Path:
    return CLUSTER


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[Path, dict[str, str]], Path]:
    """Fills a user data file as the deployment does: plain text replacement, nothing else."""

    def fill(template: Path, values: dict[str, str]) -> Path:
        text = read_script(template)
        for name, value in values.items():
            assert f"${{{name}}}" in text, f"{template.name} has no placeholder {name}"
            text = text.replace(f"${{{name}}}", value)
        target = tmp_path / "user_data.sh"
        target.write_text(text)
        return target

    return fill
