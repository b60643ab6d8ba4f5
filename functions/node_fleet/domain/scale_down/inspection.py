"""Parses what inspect_nodes.sh and check_node.sh print. A cut, late or malformed answer is unknown, never empty.

Which workers are eligible for removal is decided in eligibility.py.
"""

from __future__ import annotations

import ipaddress
import re
import zlib

from node_fleet.domain.model.drain_limits import CLOCK_TOLERANCE_SECONDS
from node_fleet.domain.model.value_class import value_class

_LIST_TAIL = re.compile(r"^end (\d{1,6}) ([0-9a-f]{8})$")
_COUNT = re.compile(r"^\d{1,9}$")
_BLOCKER = re.compile(r"^(?P<pod>[A-Za-z0-9._/~?-]+):(?P<letter>[a-z])(=(?P<detail>[A-Za-z0-9._/~?-]+))?$")
_NODE_NAME = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")
_INSTANCE_ID = re.compile(r"^i-[0-9a-f]{8,17}$")
_FIELDS_OF_A_WORKER = 14
_FIELDS_OF_A_NODE = 8


class UnreadableAnswerError(ValueError):
    """The server's answer is cut, damaged or malformed. Never leaves this module."""


@value_class
class Blocker:
    """One pod that keeps its worker, or one claim (letter b). `pod` is namespace/name; eligibility.py has the reasons.

    detail: the budget, the minutes, the volume of a claim, or REQUESTED/FREE/alone|together/PREDICATE of a pod that
    fits on no other worker.
    """

    pod: str
    letter: str
    detail: str = ""


@value_class
class InspectedNode:
    """One node as kubectl on the server shows it. cordoned_by: an operation id, or "?" for any other cordon.

    disruptions_allowed: the least among the budgets of its pods; None when no budget covers them. worker: the node has
    the fleet's role label, so it is, or was, a worker of the fleet. fits_together: it may be one of several removals.
    more_lasting: those of more_blockers that keep even a worker that is not ready. address: the internal address that
    the Node states.
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
    memory_requested_mib: int
    memory_allocatable_mib: int
    pods_allocatable: int
    disruptions_allowed: int | None = None
    cordoned_by: str = ""
    protected_by: str = ""
    blockers: tuple[Blocker, ...] = ()
    more_blockers: int = 0
    more_lasting: int = 0
    fits_together: bool = False
    address: str = ""

    @property
    def free(self) -> tuple[int, int, int]:
        """The millicores, MiB and pods that it can still take, by what its pods request."""
        pods = self.pods_to_move + self.daemon_pods + self.mirror_pods
        return (
            max(0, self.cpu_allocatable_milli - self.cpu_requested_milli),
            max(0, self.memory_allocatable_mib - self.memory_requested_mib),
            max(0, self.pods_allocatable - pods),
        )

    @property
    def idle_cpu_percent(self) -> float:
        """Share of the allocatable CPU that no pod requests; 0 when the node reports no capacity."""
        if self.cpu_allocatable_milli <= 0:
            return 0.0
        return 100.0 * max(0, self.cpu_allocatable_milli - self.cpu_requested_milli) / self.cpu_allocatable_milli


@value_class
class Inspection:
    """One inspection of the cluster. known False: nothing may be concluded, and `detail` gives the reason.

    left_out: nodes that did not fit into the answer and are unknown. orphans: names of nodes that were deleted while
    their K3s password secret remained. text: the answer itself. seconds_ahead: how far the server's clock is at least
    ahead of the function's; negative when it is behind.
    """

    known: bool
    at: int = 0
    nodes: tuple[InspectedNode, ...] = ()
    left_out: int = 0
    orphans: tuple[str, ...] = ()
    detail: str = ""
    text: str = ""
    seconds_ahead: int = 0

    @property
    def clock_problem(self) -> str:
        """Why no drain may begin by the server's clock; empty while both clocks agree."""
        if abs(self.seconds_ahead) <= CLOCK_TOLERANCE_SECONDS:
            return ""
        direction = "ahead" if self.seconds_ahead > 0 else "behind"
        return (
            f"the clock of the K3s server is {abs(self.seconds_ahead)} s {direction}. A drain has a time limit by that "
            f"clock, so no drain begins while it differs by more than {CLOCK_TOLERANCE_SECONDS} s. What you can do, on "
            "the server: sudo chronyc makestep; then check it with: timedatectl"
        )


@value_class
class NodeCheck:
    """One node as check_node.sh prints it. known False: the answer is missing or malformed, and `detail` says so."""

    known: bool
    present: bool = False
    instance_id: str = ""
    cordoned: bool = False
    cordoned_by: str = ""
    ready: bool = False
    pods_left: int = 0
    pods_terminating: int = 0
    detail: str = ""


def seconds_ahead(at: int, sent: int, received: int) -> int:
    """How far a clock that showed `at` between two moments is at least ahead; negative: behind; 0: it may be right."""
    return at - received if at > received else min(0, at - sent)


def parse_inspection(text: str) -> Inspection:
    """The inspection in `text`, or an unknown one that says what is wrong with the answer."""
    try:
        return _parse_inspection(text)
    except UnreadableAnswerError as error:
        return Inspection(known=False, detail=f"the answer of the server cannot be read: {error}")


def parse_node_check(text: str, node_name: str) -> NodeCheck:
    """The check of that node in `text`; unknown when anything is missing or malformed."""
    lines = text.strip().splitlines()
    words = lines[-2].split(" ") if len(lines) > 1 and lines[-1] == "end" else []
    if words == ["node", node_name, "absent"]:
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


def _parse_inspection(text: str) -> Inspection:
    text = text.strip()
    lines = _verified(text.splitlines())
    header = lines[0].split(" ")
    if header[0] != "nf1" or len(header) < 2 or not _COUNT.match(header[1][:9]) or not header[1].isdigit():
        raise UnreadableAnswerError(f"it begins with {lines[0]:.40}, expected nf1 and the time")
    rows = [line.split(" ") for line in lines[1:]]
    if odd := [row[0] for row in rows if row[0] not in ("w", "p", "m")]:
        raise UnreadableAnswerError(f"a line begins with {odd[0]:.20}")
    nodes = tuple(_node(row, header[2:]) for row in rows if row[0] == "w")
    return Inspection(
        known=True,
        at=int(header[1]),
        nodes=nodes,
        detail=f"{len(nodes)} nodes",
        text=text,
        left_out=sum(_number(row[1]) for row in rows if row[0] == "m" and len(row) > 1),
        orphans=tuple(row[1] for row in rows if row[0] == "p" and len(row) > 1 and _NODE_NAME.match(row[1])),
    )


def _verified(lines: list[str]) -> list[str]:
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
    if len(row) != _FIELDS_OF_A_WORKER:
        raise UnreadableAnswerError(f"a worker's line has {len(row)} fields, expected {_FIELDS_OF_A_WORKER}")
    zone = _number(row[3])
    if zone >= len(zones):
        raise UnreadableAnswerError(f"a worker's line names zone number {zone}, expected a number under {len(zones)}")
    instance = row[1] if _INSTANCE_ID.match(row[1]) else ""
    movable, daemons, mirrors, finished = _numbers(row[6], 4)
    cpu, cpu_offered, memory, memory_offered, pods_offered = _numbers(row[7], 5)
    more, lasting = _numbers(row[12], 2)
    return InspectedNode(
        instance_id=instance,
        node_name=instance if row[2] == "=" else row[2],
        zone=zones[zone],
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
        cpu_requested_milli=cpu,
        cpu_allocatable_milli=cpu_offered,
        memory_requested_mib=memory,
        memory_allocatable_mib=memory_offered,
        pods_allocatable=pods_offered,
        disruptions_allowed=None if row[8] == "-" else _number(row[8]),
        cordoned_by="" if row[9] == "-" else row[9],
        protected_by={
            "D": "cluster-autoscaler.kubernetes.io/scale-down-disabled",
            "K": "karpenter.sh/do-not-disrupt",
        }.get(row[10], ""),
        blockers=tuple(_blocker(word) for word in row[11].split(",") if row[11] != "-"),
        more_blockers=more,
        more_lasting=lasting,
        fits_together="J" in row[4],
        address=_address(row[13]),
    )


def _address(word: str) -> str:
    """The address whose bytes the script prints in hexadecimal, "-" for none."""
    if word == "-":
        return ""
    try:
        return str(ipaddress.ip_address(bytes.fromhex(word)))
    except ValueError:
        raise UnreadableAnswerError(f"{word:.40} is not an address") from None


def _blocker(word: str) -> Blocker:
    match = _BLOCKER.match(word)
    if match is None:
        raise UnreadableAnswerError(f"{word:.40} is not a pod with its reason")
    return Blocker(pod=match["pod"], letter=match["letter"], detail=match["detail"] or "")
