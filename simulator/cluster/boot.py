"""How a launched instance of the simulated cluster boots, and the address of one that no EC2 gave any."""

from __future__ import annotations

import math
from typing import Literal

from node_fleet.domain.model.value_class import value_class

BootKind = Literal["normal", "slow", "never_joins", "not_ready", "uninitialized"]


@value_class
class BootRule:
    """How matching instances boot. The first rule that matches decides; an empty condition matches everything."""

    kind: BootKind = "normal"
    seconds: float | None = None
    ready_after_seconds: float | None = None
    first: int = 1
    count: int | None = None
    instance_type: str = ""
    az: str = ""
    market: str = ""
    image: str = ""

    def matches(self, ordinal: int, *, instance_type: str, az: str, market: str, image: str) -> bool:
        last = math.inf if self.count is None else self.first + self.count - 1
        wanted = (
            (self.instance_type, instance_type),
            (self.az, az),
            (self.market, market),
            (self.image, image),
        )
        return self.first <= ordinal <= last and all(want in ("", have) for want, have in wanted)


def private_address(instance_id: str) -> str:
    """An address for a machine that no simulated EC2 gave one."""
    digits = sum(ord(letter) * (place + 1) for place, letter in enumerate(instance_id))
    return f"10.0.{digits // 250 % 250}.{digits % 250 + 2}"
