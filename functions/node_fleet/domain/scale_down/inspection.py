"""Reads what inspect_nodes.sh and check_node.sh print. A cut, late or odd answer is "unknown", never "nothing there".

Only parsing: which worker may go is eligibility.py's matter.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLAIN_CHARACTERS = 4000

_LIST_TAIL = re.compile(r"^end (\d{1,6}) ([0-9a-f]{8})$")
_COUNT = re.compile(r"^\d{1,9}$")
_BLOCKER = re.compile(r"^(?P<pod>[A-Za-z0-9._/~?-]+):(?P<letter>[a-z])(=(?P<budget>[A-Za-z0-9._/~?-]+))?$")
_NODE_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
_INSTANCE_ID = re.compile(r"^i-[0-9a-f]{8,17}$")
_FIELDS_OF_A_WORKER = 13
_FIELDS_OF_A_NODE = 8


class UnreadableAnswerError(ValueError):
    """The server's answer cannot be trusted: cut, damaged or of another form. Never leaves domain/ and handlers/."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One pod that keeps its worker. `pod` is namespace/name; `letter` is explained in eligibility.REASONS."""

    pod: str
    letter: str
    budget: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """One node as the server sees it now. room None: no budget covers its pods. cordoned_by "?": somebody else.

    worker: it carries our role label, so it is, or was, a worker of the fleet.
    """

    instance_id: str
    node_name: str
    zone: str
    ready: bool
    cordoned: bool
    server: bool
    needs_force: bool
    tainted: bool
    worker: bool
    age_seconds: int
    pods_to_move: int
    daemon_pods: int
    mirror_pods: int
    finished_pods: int
    cpu_requested_milli: int
    cpu_allocatable_milli: int
    room: int | None = None
    cordoned_by: str = ""
    protected_by: str = ""
    blockers: tuple[Blocker, ...] = ()
    more_blockers: int = 0

    @property
    def idle_cpu_percent(self) -> float:
        """Share of the allocatable CPU that no pod asks for; 0 when the node tells no capacity."""
        if self.cpu_allocatable_milli <= 0:
            return 0.0
        return 100.0 * max(0, self.cpu_allocatable_milli - self.cpu_requested_milli) / self.cpu_allocatable_milli


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What one look at the cluster gave. known False: nothing may be concluded, `detail` says why.

    left_out counts nodes that did not fit into the answer: of them nothing is known. orphans are node names whose
    K3s password secret outlived its node.
    """

    known: bool
    at: int = 0
    nodes: tuple[InspectedNode, ...] = ()
    left_out: int = 0
    orphans: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCheck:
    """One node as check_node.sh saw it. known False: the answer cannot be trusted."""

    known: bool
    present: bool = False
    instance_id: str = ""
    cordoned: bool = False
    cordoned_by: str = ""
    ready: bool = False
    pods_left: int = 0
    pods_terminating: int = 0
    detail: str = ""


def parse_inspection(text: str) -> Inspection:
    """The inspection in `text`, or one that is not known and says what is wrong with the answer."""
    try:
        return _parse_inspection(text)
    except UnreadableAnswerError as error:
        return Inspection(known=False, detail=f"the answer of the server cannot be read: {error}")


def parse_node_check(text: str, node_name: str) -> NodeCheck:
    """What check_node.sh printed about that node; not known when anything is missing or odd."""
    lines = text.strip().splitlines()
    words = lines[-2].split(" ") if len(lines) > 1 and lines[-1] == "end" else []
    if words[:3] == ["node", node_name, "absent"]:
        return NodeCheck(known=True)
    if len(words) != _FIELDS_OF_A_NODE or words[:2] != ["node", node_name] or not all(map(_COUNT.match, words[6:])):
        return NodeCheck(known=False, detail=f"the answer about node {node_name} was cut or cannot be read")
    return NodeCheck(
        known=True,
        present=True,
        instance_id="" if words[2] == "-" else words[2],
        cordoned=words[3] == "cordoned",
        cordoned_by="" if words[4] == "-" else words[4],
        ready=words[5] == "ready",
        pods_left=int(words[6]),
        pods_terminating=int(words[7]),
    )


def written_down(text: str) -> dict[str, Any]:
    """The answer for the state machine's payload: its lines as they are, or packed when they are many.

    A payload must stay under 32 KB next to a snapshot of 100 workers, which has 19 KB by itself.
    """
    if len(text) <= PLAIN_CHARACTERS:
        return {"lines": text.splitlines()}
    return {"lines": [], "packed": base64.b64encode(zlib.compress(text.encode(), 9)).decode()}


def taken_up(written: Mapping[str, Any]) -> str:
    """The answer that written_down() was given."""
    if "packed" in written:
        return zlib.decompress(base64.b64decode(written["packed"])).decode()
    return "\n".join(written["lines"])


def _parse_inspection(text: str) -> Inspection:
    lines = _whole(text.strip().splitlines())
    header = lines[0].split(" ")
    if header[0] != "nf1" or len(header) < 2 or not _COUNT.match(header[1][:9]) or not header[1].isdigit():
        raise UnreadableAnswerError(f"it begins with {lines[0]:.40}, expected nf1 and the time")
    rows = [line.split(" ") for line in lines[1:]]
    if odd := [row[0] for row in rows if row[0] not in ("w", "p", "m")]:
        raise UnreadableAnswerError(f"a line begins with {odd[0]:.20}")
    return Inspection(
        known=True,
        at=int(header[1]),
        nodes=tuple(_node(row, header[2:]) for row in rows if row[0] == "w"),
        left_out=sum(_number(row[1]) for row in rows if row[0] == "m" and len(row) > 1),
        orphans=tuple(row[1] for row in rows if row[0] == "p" and len(row) > 1 and _NODE_NAME.match(row[1])),
    )


def _whole(lines: list[str]) -> list[str]:
    tail = _LIST_TAIL.match(lines[-1]) if lines else None
    if tail is None:
        raise UnreadableAnswerError("it has no end line, so it was cut")
    body = lines[:-1]
    if len(body) != int(tail[1]) or f"{zlib.crc32(chr(10).join(body).encode()):08x}" != tail[2] or not body:
        raise UnreadableAnswerError("its lines do not match its checksum")
    return body


def _number(word: str) -> int:
    if not _COUNT.match(word):
        raise UnreadableAnswerError(f"{word:.20} is not a count")
    return int(word)


def _numbers(word: str, count: int) -> list[int]:
    parts = word.split("/")
    if len(parts) != count:
        raise UnreadableAnswerError(f"{word:.30} does not hold {count} counts")
    return [_number(part) for part in parts]


def _node(row: list[str], zones: list[str]) -> InspectedNode:
    if len(row) != _FIELDS_OF_A_WORKER or _number(row[3]) >= len(zones):
        raise UnreadableAnswerError(f"a worker's line has {len(row)} fields, expected {_FIELDS_OF_A_WORKER}")
    instance = row[1] if _INSTANCE_ID.match(row[1]) else ""
    movable, daemons, mirrors, finished = _numbers(row[6], 4)
    requested, allocatable = _numbers(row[7], 2)
    return InspectedNode(
        instance_id=instance,
        node_name=instance if row[2] == "=" else row[2],
        zone=zones[int(row[3])],
        ready="R" in row[4],
        cordoned="C" in row[4],
        server="S" in row[4],
        needs_force="F" in row[4],
        tainted="T" in row[4],
        worker="W" in row[4],
        age_seconds=_number(row[5]),
        pods_to_move=movable,
        daemon_pods=daemons,
        mirror_pods=mirrors,
        finished_pods=finished,
        cpu_requested_milli=requested,
        cpu_allocatable_milli=allocatable,
        room=None if row[8] == "-" else _number(row[8]),
        cordoned_by="" if row[9] == "-" else row[9],
        protected_by={
            "D": "cluster-autoscaler.kubernetes.io/scale-down-disabled",
            "K": "karpenter.sh/do-not-disrupt",
        }.get(row[10], ""),
        blockers=tuple(_blocker(word) for word in row[11].split(",") if row[11] != "-"),
        more_blockers=_number(row[12]),
    )


def _blocker(word: str) -> Blocker:
    match = _BLOCKER.match(word)
    if match is None:
        raise UnreadableAnswerError(f"{word:.40} is not a pod with its reason")
    return Blocker(pod=match["pod"], letter=match["letter"], budget=match["budget"] or "")
