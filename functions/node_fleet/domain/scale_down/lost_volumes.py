"""Volumes that end with their worker: what drain_node.sh and forget_node.sh print about them, and the alert."""

from __future__ import annotations

import re
from collections.abc import Sequence

from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.value_class import value_class

NAMED = 5
_LINE = re.compile(r"^volume (?P<claim>\S+) (?P<volume>\S+) (?P<pod>\S+)$", re.MULTILINE)


@value_class
class LostVolume:
    """A Bound volume that only one node can attach. claim, pod: NAMESPACE/NAME; pod is "-" when none is known."""

    claim: str
    volume: str
    pod: str

    @property
    def text(self) -> str:
        """For example: claim shop/data (volume pvc-1, last pod shop/db-0)."""
        pod = "last pod unknown" if self.pod == "-" else f"last pod {self.pod}"
        return f"claim {self.claim} (volume {self.volume}, {pod})"


def parse_lost_volumes(output: str) -> tuple[LostVolume, ...]:
    """The volumes in the output of a command."""
    return tuple(LostVolume(**found.groupdict()) for found in _LINE.finditer(output))


def lost_volumes_alert(instance_id: str, volumes: Sequence[LostVolume]) -> tuple[Alert, ...]:
    """One critical alert for all volumes of the worker; none without a volume."""
    if not volumes:
        return ()
    namespace, _, claim = volumes[0].claim.partition("/")
    others = len(volumes) - NAMED
    listed = ", ".join(volume.text for volume in volumes[:NAMED]) + (f" and {others} more" if others > 0 else "")
    text = (
        f"the data of worker {instance_id} is lost with it: {listed}. No other node can attach these volumes, so their "
        "pods stay Pending, and node-fleet launches no worker for them. Delete claim and pod, so that a new volume is "
        f"made, and restore the data from a backup: sudo /usr/local/bin/k3s kubectl -n {namespace} delete pvc {claim}"
    )
    return (Alert(kind=f"volumes_lost:{instance_id}", text=text, is_critical=True),)
