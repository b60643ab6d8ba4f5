"""Versions of K3s: their order, and which ones may run together.

Sources: the version skew policy of Kubernetes (a kubelet is never newer than the API server and at most three minor
versions older) and K3s (servers first, no minor version left out, back to an earlier minor version only with a
datastore of that version). An agent is compared with the server by its whole version, patch included. A version that is
unknown or cannot be read breaks no rule.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

OLDEST_MINORS = 3
"""How many minor versions a kubelet may be older than the API server."""
NAMES_SHOWN = 5
_FORM = re.compile(
    r"v(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:-(?:alpha|beta|rc)\.?(\d{1,3}))?(?:\+[a-z]*\d*?[a-z](\d{1,3}))?"
)
_RELEASED = 1000
"""Of the number of a release candidate: a released version is newer than each of its candidates."""


class K3sVersion(NamedTuple):
    """A version in its order, for example v1.35.5+k3s1."""

    major: int
    minor: int
    patch: int
    candidate: int
    revision: int


@functools.lru_cache(maxsize=64)
def parse_version(text: str) -> K3sVersion | None:
    """The version, or None when the text is none."""
    found = _FORM.fullmatch(text)
    if not found:
        return None
    major, minor, patch, candidate, revision = found.groups()
    return K3sVersion(int(major), int(minor), int(patch), int(candidate or _RELEASED), int(revision or 0))


def is_newer(version: str, than: str) -> bool:
    """Whether the first version is newer; never when one of them is unknown."""
    one, other = parse_version(version), parse_version(than)
    return one is not None and other is not None and one > other


def lowest_version(versions: list[str]) -> str:
    """The oldest of the versions that can be read; empty when there is none."""
    known = [(parsed, text) for text in versions if (parsed := parse_version(text))]
    return min(known)[1] if known else ""


def minors_behind(version: str, server: str) -> int:
    """How many minor versions the first is older; negative when it is newer, 0 when one is unknown."""
    one, other = parse_version(version), parse_version(server)
    return other.minor - one.minor if one and other and one.major == other.major else 0


def skew_problem(kubelet: str, server: str) -> str:
    """Why a worker of this version must not run with this server; empty when it may."""
    if is_newer(kubelet, server):
        return f"{kubelet} is newer than {server} of the server"
    if minors_behind(kubelet, server) > OLDEST_MINORS:
        return f"{kubelet} is more than {OLDEST_MINORS} minor versions older than {server} of the server"
    return ""


def deploy_problem(server: str, target: str) -> str:
    """Why workers of the target can follow no upgrade of this server; empty when they can, or one is unknown.

    An earlier version may be deployed: the way back takes the workers first.
    """
    one, wanted = parse_version(server), parse_version(target)
    if one and wanted and (wanted.major != one.major or wanted.minor > one.minor + 1):
        return f"{target} leaves out minor versions: K3s is upgraded one minor version at a time, {server} to the next"
    return "" if is_newer(target, server) else skew_problem(target, server)


def upgrade_problems(server: str, target: str, workers: dict[str, str]) -> list[str]:
    """Why the server must not change from its version to the target; empty when it may.

    workers: the version of each worker by its name.
    """
    one, wanted = parse_version(server), parse_version(target)
    if one is None or wanted is None:
        return [f"the version {(server if one is None else target) or 'of the server'} cannot be read"]
    if problem := deploy_problem(server, target):
        return [problem]
    if wanted.minor < one.minor:
        return [
            f"{target} is an earlier minor version than {server}: the datastore cannot go back, only a backup of that"
            " version can be restored"
        ]
    return skew_problems(workers, target)


def skew_problems(workers: Mapping[str, str], server: str) -> list[str]:
    """One sentence for each version that must not run with this server, with the names of its workers."""
    names: dict[str, list[str]] = {}
    for name, kubelet in workers.items():
        names.setdefault(kubelet, []).append(name)
    return [f"{_some(names[kubelet])}: {problem}" for kubelet in names if (problem := skew_problem(kubelet, server))]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
