"""The worked bills of docs/cost.md, against arithmetic by hand with AWS's prices of ap-southeast-1."""

from __future__ import annotations

import pytest

from node_fleet.domain.cost.fleet_cost import lines_total
from tools.cost_tables import WORKED_BILLS, WorkedBill

HOURS = 730
VOLUME_GIB_MONTH = 0.096
ADDRESS = 0.005 * HOURS
SERVER = 0.0528 * HOURS + 30 * VOLUME_GIB_MONTH + ADDRESS
QUIET, BUSY, LARGE = WORKED_BILLS


@pytest.mark.parametrize(
    ("bill", "workers"),
    [
        (QUIET, (0.0264 + 0.0087) * HOURS + 2 * (20 * VOLUME_GIB_MONTH + ADDRESS)),
        (
            BUSY,
            (0.0264 + 4 * 0.0087) * HOURS
            + 5 * (20 * VOLUME_GIB_MONTH + ADDRESS)
            + 5 * 2 * (0.50 - 0.20) * 0.05 * HOURS,
        ),
        (LARGE, (0.0980 + 3 * 0.0382) * HOURS + 4 * 40 * VOLUME_GIB_MONTH),
    ],
    ids=["quiet", "busy", "not burstable"],
)
def test_a_worked_bill_adds_up_to_the_sum_by_hand(bill: WorkedBill, workers: float) -> None:
    total = lines_total(bill.lines)
    assert total.is_complete
    assert total.usd == pytest.approx(workers + SERVER)


def test_the_credits_of_a_busy_t3_small_cost_more_than_the_machine() -> None:
    usd = {line.name: line.usd for line in BUSY.lines if line.quantity == HOURS}
    credits, machine = usd["t3.small: CPU credits"], usd["t3.small: instance, on-demand"]
    assert credits is not None and machine is not None
    assert credits == pytest.approx(21.90)
    assert credits > machine
