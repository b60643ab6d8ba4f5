"""One hostile worker in the whole system: what it states about itself ends at its own machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_fleet.domain.model.run import Alert
from node_fleet.payload import from_payload
from tests.support.chaos.hostile import false_node
from tests.support.workflow_harness import Stage, stage
from tests.support.workflow_paths import SOON_IDLE, scaled_down


@pytest.fixture
def idle() -> Iterator[Stage]:
    """Four workers with next to no load: the next ticks remove one."""
    with stage(workers=4, warm_up=1, **SOON_IDLE) as made:
        yield made


def claim(fleet: Stage, victim: str) -> None:
    """Register an empty, Ready Node that states the provider id and the address of the victim."""
    fleet.sim.cluster.create("nodes", false_node(fleet.sim.cluster.store.get("nodes", "", victim)))


def test_a_worker_that_a_second_node_claims_outlives_the_scale_down_and_both_are_named(idle: Stage) -> None:
    victim = idle.workers()[0]
    claim(idle, victim)
    runs = idle.ticks(8)
    assert victim in idle.workers() and any(scaled_down(run) for run in runs)
    alerts = [a for run in runs for a in from_payload(tuple[Alert, ...], run.output_of("Decide")["decision"]["alerts"])]
    named = [alert.text for alert in alerts if alert.kind == f"node_disputed:{victim}"]
    assert len(named) == 1 and f"2 Nodes claim it: a-{victim}, {victim}" in named[0]
