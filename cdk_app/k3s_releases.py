"""The releases of K3s whose checksum node-fleet ships, from k3s_releases.json.

Independent public repositories pin each checksum of the binary for amd64. For arm64 the release alone has one.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def _releases() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("k3s_releases.json").read_text(encoding="utf-8"))
    return found


def shipped_version() -> str:
    """The version of a cluster whose k3s_version is not set."""
    return str(_releases()["shipped"])


def checksums() -> dict[str, str]:
    """The SHA-256 of the binary for amd64 by version."""
    return dict(_releases()["sha256_amd64"])
