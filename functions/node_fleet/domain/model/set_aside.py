"""The record of a removal that cannot be finished now. It holds no operation, so that scaling continues."""

from __future__ import annotations

from typing import Literal

from node_fleet.domain.model.run import Alert
from node_fleet.domain.model.value_class import value_class


@value_class
class SetAside:
    """A removal that is set aside; each run checks it once.

    kind: "termination" while EC2 does not end the instance, "rollback" while its node may still be cordoned by the
    operation. tried_at: when a run last tried in vain to settle it. command_id: the drain to stop before the rollback.
    """

    instance_id: str
    node_name: str
    kind: Literal["termination", "rollback"]
    operation_id: str
    since: int
    detail: str
    command_id: str = ""
    tried_at: int = 0

    @property
    def alert(self) -> Alert:
        """The one alert about it."""
        if self.kind == "termination":
            text = (
                f"worker {self.instance_id} does not end: {self.detail}. It is set aside: it counts as no worker, "
                "scaling continues, and every run checks it and deletes its node once it has ended. What you can do: "
                f"aws ec2 terminate-instances --instance-ids {self.instance_id} --force"
            )
        else:
            text = (
                f"node {self.node_name} may still be cordoned by operation {self.operation_id}: {self.detail}. The "
                "rollback is set aside: scaling continues, and every run tries again to uncordon the node. What you "
                f"can do, on the server: sudo /usr/local/bin/k3s kubectl uncordon {self.node_name}"
            )
        return Alert(kind=f"set_aside:{self.instance_id}", text=text)
