"""How long a drain may take: the settings state it, and the command, the function and the workflow obey it."""

from __future__ import annotations

from node_fleet.domain.model.value_class import value_class

CLOCK_TOLERANCE_SECONDS = 30
"""How far the server's clock may differ: the latest start of a drain, which is a time of that clock, allows for it."""


@value_class
class DrainLimits:
    """kubectl's timeout < the command's execution timeout < how long the state machine waits for it. In seconds."""

    drain_seconds: int
    delivery_seconds: int

    @property
    def execution_seconds(self) -> int:
        """After this time SSM stops the script."""
        return self.drain_seconds + 60

    @property
    def state_seconds(self) -> int:
        """After this time the command is cancelled."""
        return self.execution_seconds + self.delivery_seconds + 30

    def not_after(self, now: int) -> int:
        """Epoch seconds until which a command sent now may begin."""
        return now + self.delivery_seconds + CLOCK_TOLERANCE_SECONDS
