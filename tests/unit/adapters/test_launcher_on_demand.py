"""The launcher of a fleet without Spot: zones and types are tried, the market never changes, a quota is final."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from handlers.launch_nodes import handler as launch_nodes
from tests.support.handlers.bench import Bench, bench
from tests.support.launches import codes_that_close

TYPES = ("t3.small", "t3a.small")
NEVER_ON_DEMAND = {"InsufficientCapacity", "SpotMaxPriceTooLow"}


@pytest.fixture(scope="module")
def on_demand() -> Iterator[Bench]:
    with bench(max_workers=100, instance_types=",".join(TYPES), spot_percent=0) as made:
        yield made


@pytest.mark.parametrize("code", sorted(set(codes_that_close("the pool")) - NEVER_ON_DEMAND))
def test_an_on_demand_fleet_takes_the_next_type_that_has_capacity_and_never_spot(on_demand: Bench, code: str) -> None:
    on_demand.cloud.recorder.forget()
    rule = on_demand.cloud.ec2.dry_pool(instance_type=TYPES[0], code=code)
    run = on_demand.begin(f"on-demand-{code}")
    answer = launch_nodes(on_demand.event(run, 1), None)
    on_demand.cloud.faults.remove(rule)
    on_demand.tools.state.close_operation(run, on_demand.state().memory)
    on_demand.tools.state.release(run)
    (asked,) = on_demand.cloud.recorder.of("CreateFleet")
    overrides = asked.parameters["LaunchTemplateConfigs"][0]["Overrides"]
    assert [(o["InstanceType"], o["Priority"]) for o in overrides] == [(TYPES[0], 0.0), (TYPES[1], 1.0)]
    operation = on_demand.operation(answer)
    assert [(s.instance_type, s.market) for s in operation.slots] == [(TYPES[1], "on-demand")]
    assert [(d.instance_type, d.market) for d in operation.dry_pools] == [(TYPES[0], "on-demand")]
