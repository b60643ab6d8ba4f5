"""The npm packages that check and execute the states language."""

from __future__ import annotations

from pathlib import Path

from tools import npm_packages
from tools.npm_packages import PackagesMissingError as ToolsMissing
from tools.npm_packages import program

__all__ = ["SOURCE", "ToolsMissing", "installed", "program"]

SOURCE = Path(__file__).parents[1] / "asl_tools"


def installed() -> Path:
    """The folder that holds node_modules."""
    return npm_packages.installed(SOURCE)
