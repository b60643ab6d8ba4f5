"""Parses what list_pending_pods.sh prints. A cut, late or malformed answer is unknown, never "no pod"."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import field, replace
from typing import Any

from node_fleet.domain.model.snapshot import PodShape, Snapshot
from node_fleet.domain.model.value_class import value_class

_TAIL = re.compile(r"^end (\d{1,6}) ([0-9a-f]{8})$")
_MIB = 1024 * 1024


@value_class
class PendingListing:
    """The unschedulable pods as the API shows them. known False: nothing may be concluded, and `detail` has the reason.

    labels, taints: what every worker of the fleet has in common. more: pods that did not fit into the answer.
    """

    known: bool
    shapes: tuple[PodShape, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, Any], ...] = ()
    more: int = 0
    detail: str = ""

    @property
    def others(self) -> tuple[PodShape, ...]:
        """The pods that did not fit into the answer, as one shape that is listed and not counted."""
        problem = "they did not fit into the answer of the server"
        one = PodShape(cpu_milli=0, memory_mib=0, count=self.more, example=f"{self.more} others", problem=problem)
        return (one,) if self.more else ()


def with_listing(snapshot: Snapshot, listing: PendingListing) -> Snapshot:
    """The snapshot with the pods of the listing in place of those of Prometheus, which shows CPU and memory only."""
    if not listing.known:
        return replace(snapshot, unlisted=listing.detail)
    return replace(
        snapshot,
        pending=(*listing.shapes, *listing.others),
        unschedulable=snapshot.pending_count,
        worker_labels=listing.labels,
        worker_taints=listing.taints,
    )


def parse_listing(text: str) -> PendingListing:
    """The listing in `text`, or an unknown one that says what is wrong with the answer."""
    *lines, last = text.strip().splitlines() or [""]
    tail, body = _TAIL.match(last), "\n".join(lines)
    if tail is None or len(lines) != int(tail[1]) or f"{zlib.crc32(body.encode()):08x}" != tail[2] or not lines:
        return PendingListing(known=False, detail="the server's list of pending pods was cut")
    try:
        head, *groups = map(json.loads, lines)
        return PendingListing(
            known=True,
            labels={str(k): str(v) for k, v in head["labels"].items()},
            taints=tuple(head["taints"]),
            shapes=tuple(_shape(group) for group in groups if "more" not in group),
            more=sum(int(group["more"]) for group in groups if "more" in group),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return PendingListing(known=False, detail=f"the server's list of pending pods cannot be read: {error}")


def _shape(group: dict[str, Any]) -> PodShape:
    requests = group["demand"]["requests"]
    return PodShape(
        cpu_milli=int(requests.get("cpu", 0)),
        memory_mib=-(-int(requests.get("memory", 0)) // _MIB),
        count=int(group["count"]),
        oldest_seconds=int(group["oldest"]),
        example=str(group["example"]),
        demand=group["demand"],
        problem=str(group["problem"]),
        lasting=bool(group.get("lasting")),
    )
